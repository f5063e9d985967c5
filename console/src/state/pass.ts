// What the steps of a backward pass have brought to its nodes, and to the boxes that have these.

import type { Amount, BackwardFlow, FlowNode, FlowStep, FlowTarget, Real } from "../api/types";
import type { Norms, Shown } from "../graph/picture";

/** The steps of a pass, with one for each leaf when it has received its last addend. */
export function stepsOf({ steps, leaves }: BackwardFlow): FlowStep[] {
  const last = new Map<string, FlowStep>();
  for (const step of steps) for (const { node } of step.targets) last.set(node, step);
  const after = new Map<FlowStep | undefined, FlowStep[]>();
  for (const { id, box, ...grad } of leaves) {
    const step = last.get(id);
    after.set(step, [...(after.get(step) ?? []), { node: id, box, grad, targets: [], isLeaf: true }]);
  }
  return steps.flatMap((step) => [step, ...(after.get(step) ?? [])]);
}

/** The gradients that steps have sent to a node, and their sum once it was at work. Null if none has arrived. */
export function receivedBy(node: string, steps: readonly FlowStep[]): { parts: FlowTarget[]; sum: Amount | null } | null {
  const parts = steps.flatMap((step) => step.targets.filter((target) => target.node === node));
  const sum = steps.find((step) => step.node === node)?.grad ?? null;
  return parts.length === 0 && sum === null ? null : { parts, sum };
}

/** For each box the largest norm that steps have brought to one of its nodes: of the sum, or else of an addend so far. */
export function shownAfter(steps: readonly FlowStep[], boxOf: (node: FlowNode) => string | null): NonNullable<Norms> {
  const nodes = new Map<string, Shown & { box: string | null }>();
  for (const step of steps) {
    nodes.set(step.node, { box: boxOf(step), norm: step.grad.norm, sum: step.isLeaf ? step.grad : null });
    for (const target of step.targets) {
      nodes.set(target.node, { box: boxOf(target), norm: larger(nodes.get(target.node)?.norm, target.norm), sum: null });
    }
  }
  const boxes = new Map<string, Shown>();
  for (const { box, norm, sum } of nodes.values()) {
    if (box !== null) boxes.set(box, { norm: larger(boxes.get(box)?.norm, norm), sum });
  }
  return boxes;
}

/** The larger of two norms. NaN and infinities win: they are what one looks for. */
function larger(a: Real | undefined, b: Real): Real {
  if (a === undefined || !Number.isFinite(Number(b))) return b;
  return Number.isFinite(Number(a)) && Number(b) > Number(a) ? b : a;
}
