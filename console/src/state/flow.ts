// Stepping through a backward pass: which node is at work, and which gradients have arrived so far.

import { batch, computed, signal } from "@preact/signals";
import type { BackwardFlow, Box, FlowStep, FoldedGraph, Real } from "../api/types";
import { edgeKey } from "../layout/layout";
import { LIMIT } from "./graph";
import type { GraphState } from "./graph";

export const SPEEDS = [1, 3, 8, 20] as const;

export interface CurrentStep {
  step: FlowStep;
  /** The box of the node in the picture; null if it is not drawn. */
  box: string | null;
  /** The boxes that the gradients flow to, and the edges on which they flow. */
  marks: string[];
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

  readonly current = computed<CurrentStep | null>(() => {
    const step = this.flow.value?.steps[this.position.value - 1];
    const graph = this.graphs.graph.value;
    if (step === undefined || graph === null) return null;
    const box = boxOf(graph, step.node);
    const targets = step.targets.map((target) => boxOf(graph, target.node)).filter((id) => id !== null);
    const edges = box === null ? [] : targets.map((target) => edgeKey({ source: target, target: box }));
    return { step, box, marks: [...targets, ...edges] };
  });

  /** The largest gradient norm that has arrived at each box so far; null when no pass is shown. */
  readonly norms = computed<ReadonlyMap<string, Real> | null>(() => {
    const flow = this.flow.value;
    const graph = this.graphs.graph.value;
    if (flow === null || graph === null) return null;
    const norms = new Map<string, Real>();
    const add = (box: string | null, norm: Real) => {
      if (box !== null) norms.set(box, larger(norms.get(box), norm));
    };
    for (const step of flow.steps.slice(0, this.position.value)) {
      add(boxOf(graph, step.node), step.grad.norm);
      for (const target of step.targets) add(boxOf(graph, target.node), target.norm);
    }
    return norms;
  });

  constructor(private readonly graphs: GraphState) {}

  close(): void {
    clearTimeout(this.timer);
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
    try {
      const flow = await this.graphs.flow(tensor);
      batch(() => {
        // Without groups, each node has a box in which the gradient can be seen to arrive.
        if (graph !== null && graph.nodes <= LIMIT) this.graphs.fold.value = "none";
        this.graphs.following.value = false;
        this.graphs.selected.value = null;
        this.root.value = tensor;
        this.position.value = 0;
        this.flow.value = flow;
      });
    } catch (error) {
      this.error.value = error as Error;
    }
  }

  /** End the stepping, and follow the session again. */
  stop(): void {
    this.pause();
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

/** The box of a node. Null if it is in a group. */
function boxOf(graph: FoldedGraph, node: string): string | null {
  return idsOf(graph).has(node) ? node : null;
}

const ids = new WeakMap<FoldedGraph, Set<string>>();

function idsOf(graph: FoldedGraph): Set<string> {
  let known = ids.get(graph);
  if (known === undefined) ids.set(graph, (known = new Set(graph.boxes.map((box) => box.id))));
  return known;
}

/** The larger of two norms. NaN and infinities win: they are what one looks for. */
function larger(a: Real | undefined, b: Real): Real {
  if (a === undefined || !Number.isFinite(Number(b))) return b;
  return Number.isFinite(Number(a)) && Number(b) > Number(a) ? b : a;
}
