// Stepping through a backward pass: which node is at work, and which gradients have arrived so far.

import { batch, computed, effect, signal } from "@preact/signals";
import type { BackwardFlow, Box, FlowNode, FlowStep, FoldedGraph } from "../api/types";
import { sumText } from "../format";
import type { Norms } from "../graph/picture";
import { edgeKey } from "../layout/layout";
import type { GraphState } from "./graph";
import { receivedBy, shownAfter, stepsOf } from "./pass";

export const SPEEDS = [1, 3, 8, 20] as const;

export interface CurrentStep {
  step: FlowStep;
  /** The box of the node in the picture; null if it is not drawn. */
  box: string | null;
  /** The boxes that the gradients flow to, and the edges on which they flow, with what is written on these. */
  marks: ReadonlyMap<string, string>;
}

export class Flow {
  readonly flow = signal<BackwardFlow | null>(null);
  readonly error = signal<Error | null>(null);
  readonly root = signal<string | null>(null);
  /** How many steps of the pass are done. */
  readonly position = signal(0);
  readonly playing = signal(false);
  readonly speed = signal<number>(3);
  private timer = 0;
  /** How often a pass was asked for: an answer that comes after another request is left out. */
  private calls = 0;

  readonly current = computed<CurrentStep | null>(() => {
    const step = this.flow.value?.steps[this.position.value - 1];
    const graph = this.graphs.graph.value;
    if (step === undefined || graph === null) return null;
    const box = boxOf(graph, step);
    const marks = new Map<string, string>();
    for (const target of step.targets) {
      const to = boxOf(graph, target);
      if (to === null) continue;
      marks.set(to, "");
      const same = step.targets.filter((each) => boxOf(graph, each) === to);
      if (box !== null) marks.set(edgeKey({ source: to, target: box }), sumText(same));
    }
    return { step, box, marks };
  });

  /** The gradients that have arrived at the boxes so far; null when no pass is shown. */
  readonly norms = computed(() => this.normsAt(this.position.value));

  /** The same at the end of the pass, which tells the colours of all steps. */
  readonly lastNorms = computed(() => this.normsAt(Infinity));

  private normsAt(position: number): Norms {
    const flow = this.flow.value;
    const graph = this.graphs.graph.value;
    return flow === null || graph === null ? null : shownAfter(flow.steps.slice(0, position), (node) => boxOf(graph, node));
  }

  /** The gradients that have reached a node so far. Null if none has. */
  receivedBy(node: string): ReturnType<typeof receivedBy> {
    return receivedBy(node, this.flow.value?.steps.slice(0, this.position.value) ?? []);
  }

  private readonly dispose: () => void;

  constructor(private readonly graphs: GraphState) {
    // A graph that is folded in another way has other boxes.
    this.dispose = effect(() => {
      void [graphs.fold.value, graphs.expanded.value];
      const root = this.root.peek();
      if (root !== null && this.flow.peek() !== null) void this.compute(root, this.position.peek());
    });
  }

  close(): void {
    clearTimeout(this.timer);
    this.dispose();
  }

  /** The tensors that a pass can start at: those of one element that ops made, results that nothing uses first. */
  roots(): string[] {
    const graph = this.graphs.graph.value;
    if (graph === null) return [];
    const used = new Set(graph.edges.map((edge) => edge.source));
    const made = graph.boxes.filter((box) => canStart(box) && box.tensors.length > 0);
    const last = (box: (typeof made)[number]) => Number(!used.has(box.id)) * 1e12 + box.order;
    return made.sort((a, b) => last(b) - last(a)).flatMap((box) => box.tensors);
  }

  /** Compute the pass from a tensor, by default from the selected box or the graph's last result, and show its start. */
  async start(root?: string): Promise<void> {
    const graph = this.graphs.graph.peek();
    const selected = graph?.boxes.find((box) => box.id === this.graphs.selected.peek() && canStart(box));
    const tensor = root ?? selected?.tensors[0] ?? this.roots()[0];
    this.pause();
    this.error.value = null;
    if (tensor === undefined) {
      this.error.value = new Error("No tensor of this graph was made by an op, so there is nothing to go back from.");
      return;
    }
    if (this.flow.value === null) this.root.value = tensor; // if this fails, it is what was tried
    await this.compute(tensor, 0);
  }

  private async compute(tensor: string, position: number): Promise<void> {
    const call = (this.calls += 1);
    try {
      const flow = await this.graphs.flow(tensor);
      if (call !== this.calls) return;
      batch(() => {
        this.graphs.following.value = false;
        if (position === 0) this.graphs.selected.value = null;
        this.root.value = tensor;
        this.flow.value = { ...flow, steps: stepsOf(flow) };
        this.go(position);
      });
    } catch (error) {
      if (call === this.calls) this.error.value = error as Error;
    }
  }

  /** End the stepping, and follow the session again. */
  stop(): void {
    this.pause();
    this.calls += 1;
    batch(() => {
      this.flow.value = null;
      this.error.value = null;
      this.graphs.following.value = true;
    });
  }

  go(position: number): void {
    const count = this.flow.value?.steps.length ?? 0;
    this.position.value = Math.max(0, Math.min(count, position));
  }

  play(): void {
    const count = this.flow.value?.steps.length ?? 0;
    if (this.position.value >= count) this.position.value = 0;
    this.playing.value = true;
    const next = () => {
      this.go(this.position.value + 1);
      if (this.position.value >= (this.flow.value?.steps.length ?? 0)) return this.pause();
      this.timer = window.setTimeout(next, 1000 / this.speed.value);
    };
    this.timer = window.setTimeout(next, 200);
  }

  pause(): void {
    clearTimeout(this.timer);
    this.playing.value = false;
  }
}

/** Whether a box may have a tensor of one element that an op made. Of a group, nothing is known. */
function canStart(box: Box): boolean {
  if (box.kind === "leaf" || box.kind === "tensor") return false;
  return box.shape === null || box.shape.every((size) => size === 1);
}

/** The box that has a node. Null if it is not drawn. */
function boxOf(graph: FoldedGraph, { node, box }: FlowNode): string | null {
  const ids = idsOf(graph);
  if (box !== null && ids.has(box)) return box;
  return ids.has(node) ? node : null; // a part of the graph may be folded less than the whole
}

const ids = new WeakMap<FoldedGraph, Set<string>>();

function idsOf(graph: FoldedGraph): Set<string> {
  let known = ids.get(graph);
  if (known === undefined) ids.set(graph, (known = new Set(graph.boxes.map((box) => box.id))));
  return known;
}
