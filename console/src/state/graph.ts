// The graph of a session as the page shows it: read again when it changes, folded by the server.

import { batch, effect, signal } from "@preact/signals";
import { Problem, getJson, postJson, sessionPath } from "../api/client";
import type { BackwardFlow, Box, Fold, FoldedGraph, GraphNode, Source } from "../api/types";
import type { SessionWatch } from "./session";

/** The most boxes of a picture. */
export const LIMIT = 1500;
/** Between two reads of the graph, so that a fast loop does not keep the page busy. */
const MIN_PERIOD_MS = 700;
/** Without events of the graph (a server of another version), it is read this often. */
const POLL_MS = 4000;
const FLOW_LIMIT = 2000;

export class GraphState {
  readonly source = signal<Source>("live");
  readonly fold = signal<Fold>("auto");
  readonly expanded = signal<readonly string[]>([]);
  readonly graph = signal<FoldedGraph | null>(null);
  readonly error = signal<Error | null>(null);
  readonly selected = signal<string | null>(null);
  readonly search = signal("");
  /** Whether the picture follows the session, or stands still. */
  readonly following = signal(true);
  private readonly disposers: (() => void)[] = [];
  private controller: AbortController | null = null;
  private timer = 0;
  private lastRead = -Infinity;

  constructor(private readonly watch: SessionWatch) {
    this.disposers.push(
      effect(() => {
        void [this.source.value, this.fold.value, this.expanded.value];
        this.schedule(0);
      }),
      effect(() => {
        void (this.source.value === "live" ? watch.live.value : watch.step.value);
        void watch.status.value;
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

  private query(): string {
    const query = new URLSearchParams({ source: this.source.value, fold: this.fold.value, limit: String(LIMIT) });
    for (const id of this.expanded.value) query.append("expand", id);
    return query.toString();
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
      const graph = await getJson<FoldedGraph>(sessionPath(this.watch.id, `/graph/folded?${this.query()}`), controller.signal);
      batch(() => {
        this.error.value = null;
        const before = this.graph.value;
        if (isSame(graph, before)) return;
        this.selected.value = successor(this.selected.value, before, graph);
        this.graph.value = graph;
      });
    } catch (error) {
      if (controller.signal.aborted) return;
      if (error instanceof Problem) this.error.value = error; // else the frame says that the server is silent
    } finally {
      this.lastRead = performance.now();
    }
  }

  async node(id: string, signal: AbortSignal): Promise<GraphNode> {
    const path = `/graph/nodes/${encodeURIComponent(id)}?source=${this.source.value}`;
    return getJson<GraphNode>(sessionPath(this.watch.id, path), signal);
  }

  /** The pass from a tensor, which changes nothing in the session. */
  async flow(tensor: string): Promise<BackwardFlow> {
    return postJson<BackwardFlow>(sessionPath(this.watch.id, "/graph/backward"), { tensor, limit: FLOW_LIMIT });
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
