// The controls of stepping through a backward pass.

import type { RefObject } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { Problem } from "../api/client";
import { amountText, plural, sumText } from "../format";
import { SPEEDS } from "../state/flow";
import type { FlowNode } from "../api/types";
import type { Flow } from "../state/flow";
import type { GraphState } from "../state/graph";
import { ErrorNote, IconButton } from "../widgets/common";

const FREED = "urn:telegrad:problem:graph-freed";

export function FlowBar({ flow, state }: { flow: Flow; state: GraphState }) {
  const bar = useRef<HTMLDivElement>(null);
  useArrowKeys(bar, flow);
  const error = flow.error.value;
  const pass = flow.flow.value;
  if (error !== null) {
    return (
      <div class="flow-bar">
        <ErrorNote error={error} title="This graph has no backward pass to step through" />
        {error instanceof Problem && error.document["type"] === FREED && (
          <p class="hint">
            An earlier backward freed this graph. Run the program again without <code>backward</code>, or with{" "}
            <code>"retain_graph": true</code> in its <code>attrs</code>.
          </p>
        )}
        <RootChoice flow={flow} state={state} />
        <button type="button" onClick={() => flow.stop()}>
          Dismiss
        </button>
      </div>
    );
  }
  if (pass === null) return null;
  const count = pass.steps.length;
  const position = flow.position.value;
  return (
    <div class="flow-bar" role="region" aria-label="Backward pass" ref={bar}>
      <div class="flow-controls">
        <IconButton icon="first" label="To the start" disabled={position === 0} onClick={() => flow.go(0)} />
        <IconButton icon="previous" label="One step back" disabled={position === 0} onClick={() => flow.go(position - 1)} />
        {flow.playing.value ? (
          <IconButton icon="pause" label="Pause" onClick={() => flow.pause()} />
        ) : (
          <IconButton icon="play" label="Play" onClick={() => flow.play()} />
        )}
        <IconButton icon="next" label="One step" disabled={position === count} onClick={() => flow.go(position + 1)} />
        <input
          type="range"
          min={0}
          max={count}
          value={position}
          aria-label="Step of the backward pass"
          onInput={(event) => flow.go(Number(event.currentTarget.value))}
        />
        <span class="numeric">
          {position} / {count}
        </span>
        <label class="check">
          <span class="unseen">Steps a second</span>
          <select value={flow.speed.value} onChange={(event) => (flow.speed.value = Number(event.currentTarget.value))}>
            {SPEEDS.map((speed) => (
              <option key={speed} value={speed}>
                {speed} / s
              </option>
            ))}
          </select>
        </label>
        <RootChoice flow={flow} state={state} />
        <IconButton icon="close" label="End the stepping" onClick={() => flow.stop()} />
      </div>
      <p class="flow-text" role="status">
        {sentence(flow, count, (step) => nameOf(state, step))}
        {pass.truncated && " The pass is longer; its first steps are shown."}
      </p>
    </div>
  );
}

function RootChoice({ flow, state }: { flow: Flow; state: GraphState }) {
  void state.graph.value;
  const roots = flow.roots();
  if (roots.length === 0) return null;
  return (
    <label class="check">
      <span class="quiet">from</span>
      <select value={flow.root.value ?? ""} onChange={(event) => void flow.start(event.currentTarget.value)}>
        {roots.map((tensor) => (
          <option key={tensor} value={tensor}>
            {tensor}
          </option>
        ))}
      </select>
    </label>
  );
}

/** A node by what its box says, with its id if the box says less. */
function nameOf(state: GraphState, { node, box }: FlowNode): string {
  const found = state.graph.value?.boxes.find((each) => each.id === box);
  if (found === undefined) return node;
  if (found.kind === "group") return `${node} in ${found.label}`;
  return found.kind === "leaf" ? found.label : `${found.tensors[0] ?? node} (${found.label})`;
}

const NORM = "a gradient of norm ";
type Naming = (step: FlowNode) => string;

/** The most addends that are written out. */
const MAX_ADDENDS = 8;

function sentence(flow: Flow, count: number, name: Naming): string {
  const current = flow.current.value;
  if (current === null) {
    return `The gradient of ${flow.root.value ?? "the result"} with respect to itself is 1. Play or step to see it flow back through ${plural(count, "node")}.`;
  }
  const { step } = current;
  if (step.isLeaf) {
    const parts = flow.receivedBy(step.node)?.parts ?? [];
    const isSum = parts.length > 1 && parts.length <= MAX_ADDENDS && typeof step.grad.number === "number";
    return `${name(step)} has ${amountText(step.grad, NORM)}${isSum ? ` = ${sumText(parts)}` : ""}.`;
  }
  const bad = (step.grad.nan ?? 0) + (step.grad.inf ?? 0);
  const targets = step.targets.map((target) => `${amountText(target, NORM)} to ${name(target)}`).join(", ");
  return (
    `${name(step)} received ${amountText(step.grad, NORM)}` +
    (bad > 0 ? ` with ${plural(bad, "NaN or infinite element")}` : "") +
    (step.targets.length === 0 ? "." : ` and sends ${targets}.`)
  );
}

/** Elements that use the arrow keys themselves; the graph, which does too, takes its keys before. */
const TAKES_ARROWS = "input:not([type=checkbox]), select, textarea, pre, dialog, dialog *";

/** Steps by the left and right arrow keys, wherever the focus is; in a notebook, in the view only. */
function useArrowKeys(bar: RefObject<HTMLElement | null>, flow: Flow): void {
  const isOn = flow.flow.value !== null && flow.error.value === null;
  useLayoutEffect(() => {
    const root = bar.current?.getRootNode();
    const onKeyDown = (event: Event) => {
      const { key, target, altKey, ctrlKey, metaKey, shiftKey } = event as KeyboardEvent;
      const way = { ArrowRight: 1, ArrowLeft: -1 }[key];
      if (way === undefined || event.defaultPrevented || altKey || ctrlKey || metaKey || shiftKey) return;
      if (target instanceof Element && target.matches(TAKES_ARROWS)) return;
      flow.go(flow.position.value + way);
      event.preventDefault();
    };
    root?.addEventListener("keydown", onKeyDown);
    return () => root?.removeEventListener("keydown", onKeyDown);
  }, [isOn, flow]);
}
