// The graph of a session as the page shows it: read again when it changes, folded by the server.

import { batch, effect, signal } from "@preact/signals";
import type { ReadonlySignal } from "@preact/signals";
import { Problem } from "../api/client";
import type { BackwardFlow, Box, Fold, FoldedGraph, GraphNode, Source } from "../api/types";
import type { Direction } from "../layout/geometry";

/** The most boxes of a picture. */
export const LIMIT = 1500;
/** Between two reads of the graph, so that a fast loop does not keep the page busy. */
const MIN_PERIOD_MS = 700;
/** Without events of the graph (a server of another version), it is read this often. */
const POLL_MS = 4000;

/** How a graph is folded. */
export interface Folding {
  fold: Fold;
  expand: readonly string[];
}

export interface GraphQuery extends Folding {
  source: Source;
  limit: number;
  /** The tensor whose history is wanted; null for everything. */
  root: string | null;
}

/** Where the graph of a session comes from: the server, or a notebook's kernel. */
export interface GraphSource {
  /** Why the session ended; null while it lives. */
  readonly ended: ReadonlySignal<string | null>;
  /** What the graph is called: the session's name, or its id. */
  title(): string;
  /** Reads the signals that change when the graph may have changed. */
  changes(source: Source): unknown;
  folded(query: GraphQuery, signal: AbortSignal): Promise<FoldedGraph>;
  node(id: string, source: Source, signal: AbortSignal): Promise<GraphNode>;
  /** The pass from a tensor, which changes nothing in the session. Its nodes are named with their boxes. */
  flow(tensor: string, folding: Folding): Promise<BackwardFlow>;
}

/** What is shown until a step was observed. */
const NO_STEP: FoldedGraph = {
  source: "step", sequence: null, revision: 0, nodes: 0, fold: "none", boxes: [], edges: [], omitted: 0,
};

export class GraphState {
  readonly source = signal<Source>("live");
  readonly fold = signal<Fold>("auto");
  readonly expanded = signal<readonly string[]>([]);
  readonly graph = signal<FoldedGraph | null>(null);
  readonly error = signal<Error | null>(null);
  readonly selected = signal<string | null>(null);
  readonly direction = signal<Direction>("down");
  readonly search = signal("");
  /** The tensor whose history is shown; null shows everything. */
  readonly root = signal<string | null>(null);
  /** Whether the picture follows the session, or stands still. */
  readonly following = signal(true);
  private readonly disposers: (() => void)[] = [];
  private controller: AbortController | null = null;
  private timer = 0;
  private lastRead = -Infinity;

  constructor(readonly watch: GraphSource) {
    this.disposers.push(
      effect(() => {
        void [this.source.value, this.fold.value, this.expanded.value, this.root.value];
        this.schedule(0);
      }),
      effect(() => {
        watch.changes(this.source.value);
        if (this.following.value) this.schedule(MIN_PERIOD_MS);
      }),
    );
    const poll = setInterval(() => {
      if (this.following.value && !document.hidden && watch.ended.value === null) this.schedule(MIN_PERIOD_MS);
    }, POLL_MS);
    this.disposers.push(() => clearInterval(poll));
  }

  close(): void {
    this.disposers.forEach((dispose) => dispose());
    clearTimeout(this.timer);
    this.controller?.abort();
  }

  /** Open a group. */
  open(box: Box): void {
    if (box.expandable) this.expanded.value = [...this.expanded.value, box.id];
  }

  /** Fold a group, and the groups that were opened in it. */
  foldAgain(group: string): void {
    batch(() => {
      this.expanded.value = this.expanded.value.filter((id) => id !== group && !id.startsWith(`${group}.`));
      this.selected.value = group;
    });
  }

  private query(): GraphQuery {
    const source = this.source.value;
    const root = source === "live" ? this.root.value : null;
    return { source, fold: this.fold.value, expand: this.expanded.value, limit: LIMIT, root };
  }

  private schedule(minPeriodMs: number): void {
    if (this.timer !== 0 && minPeriodMs > 0) return;
    clearTimeout(this.timer);
    const wait = Math.max(0, this.lastRead + minPeriodMs - performance.now());
    this.timer = window.setTimeout(() => {
      this.timer = 0;
      void this.read();
    }, wait);
  }

  private async read(): Promise<void> {
    this.controller?.abort();
    const controller = (this.controller = new AbortController());
    this.lastRead = performance.now();
    try {
      const graph = await this.watch.folded(this.query(), controller.signal);
      batch(() => {
        this.error.value = null;
        const before = this.graph.value;
        if (isSame(graph, before)) return;
        this.selected.value = successor(this.selected.value, before, graph);
        this.graph.value = graph;
      });
    } catch (error) {
      if (controller.signal.aborted) return;
      if (error instanceof Problem && error.isUnknownSession) return; // the stream of events tells that it ended
      if (error instanceof Problem && error.status === 404 && this.source.peek() === "step") this.graph.value = NO_STEP;
      else if (error instanceof Problem && error.status === 404 && this.root.peek() !== null) this.root.value = null; // it was freed
      else if (error instanceof Problem) this.error.value = error; // else the frame says that the server is silent
    } finally {
      this.lastRead = performance.now();
    }
  }

  node(id: string, signal: AbortSignal): Promise<GraphNode> {
    return this.watch.node(id, this.source.value, signal);
  }

  /** The pass from a tensor, with the boxes of the graph as it is folded. */
  flow(tensor: string): Promise<BackwardFlow> {
    return this.watch.flow(tensor, { fold: this.fold.value, expand: this.expanded.value });
  }
}

/** The box that is selected in a new graph: of the next step of a loop, nodes have other ids and the same places. */
function successor(selected: string | null, before: FoldedGraph | null, after: FoldedGraph): string | null {
  if (before === null || after.boxes.some((box) => box.id === selected)) return selected;
  const index = before.boxes.findIndex((box) => box.id === selected);
  const same = before.boxes.length === after.boxes.length ? after.boxes[index] : undefined;
  return same !== undefined && same.label === before.boxes[index]?.label ? same.id : selected;
}

function isSame(a: FoldedGraph, b: FoldedGraph | null): boolean {
  if (b === null || a.source !== b.source || a.revision !== b.revision || a.boxes.length !== b.boxes.length) return false;
  return JSON.stringify(a) === JSON.stringify(b);
}

/** The boxes that a search names: by label, op, module, line or tensor, all words of it. */
export function found(graph: FoldedGraph, text: string): Box[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return [];
  return graph.boxes.filter((box) => {
    const all = [box.label, box.op, box.module, box.line, box.id, ...box.tensors].join(" ").toLowerCase();
    return words.every((word) => all.includes(word));
  });
}
