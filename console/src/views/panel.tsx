// What is known of the selected box: of a node its op, value and gradients, of a group what is in it.

import { useRef } from "preact/hooks";
import type { Box, GraphNode, SavedTensor, Statistics } from "../api/types";
import { amountText, formatBytes, formatCount, formatJson, formatNumber, formatShape, plural, sumText } from "../format";
import type { Flow } from "../state/flow";
import type { GraphState } from "../state/graph";
import { usePolled } from "../state/polling";
import { ErrorNote, IconButton } from "../widgets/common";
import { Doc } from "../widgets/doc";
import { Histogram } from "../widgets/histogram";

export function NodePanel({ state, flow }: { state: GraphState; flow: Flow }) {
  const id = state.selected.value;
  const graph = state.graph.value;
  if (id === null || graph === null) return null;
  const box = graph.boxes.find((each) => each.id === id);
  return (
    <aside class="panel" aria-label="Details of the selected box">
      <div class="panel-head">
        <h2>{box?.label ?? id}</h2>
        <IconButton icon="close" label="Close the details" onClick={() => (state.selected.value = null)} />
      </div>
      <InThisPass id={id} flow={flow} />
      {box?.kind === "group" ? <GroupDetails box={box} state={state} /> : <NodeDetails id={id} box={box} state={state} />}
      <OnlyThis box={box} state={state} />
    </aside>
  );
}

/** Leaves out of the picture what does not lead to the box's tensor. */
function OnlyThis({ box, state }: { box: Box | undefined; state: GraphState }) {
  const tensor = box?.kind === "op" ? box.tensors[0] : undefined;
  if (tensor === undefined || state.source.value !== "live" || state.root.value === tensor) return null;
  return (
    <button type="button" class="chip" title="Hide everything that this tensor was not computed from" onClick={() => (state.root.value = tensor)}>
      Only what leads to {tensor}
    </button>
  );
}

/** What the pass that is stepped through has brought to the node so far. */
function InThisPass({ id, flow }: { id: string; flow: Flow }) {
  const received = flow.receivedBy(id);
  if (received === null) return null;
  return (
    <section>
      <h3>Gradient in this pass</h3>
      <p>
        {sumText(received.parts)}
        {received.sum !== null && received.parts.length > 1 && `, together ${amountText(received.sum, "norm ")}`}
        {received.sum !== null && received.parts.length === 0 && amountText(received.sum, "norm ")}
      </p>
    </section>
  );
}

function GroupDetails({ box, state }: { box: Box; state: GraphState }) {
  return (
    <>
      <p class="quiet">{plural(box.count, "node")} folded into one box</p>
      <dl class="facts">
        <Fact name="module" value={box.module} code />
        <Fact name="line" value={box.line} code />
        <Fact name="saved for backward" value={formatBytes(box.bytes)} />
        <Fact name="gradient norm" value={formatNumber(box.grad_norm)} />
        <Fact name="tensors" value={box.tensors.length > 0 ? box.tensors.join(", ") : null} code />
      </dl>
      {box.expandable && (
        <button type="button" class="primary" onClick={() => state.open(box)}>
          Open the group
        </button>
      )}
      <BoxNeighbours box={box} state={state} />
    </>
  );
}

function NodeDetails({ id, box, state }: { id: string; box: Box | undefined; state: GraphState }) {
  const key = `${state.source.value} ${id} ${state.graph.value?.revision ?? 0}`;
  const { data, error } = usePolled((signal) => state.node(id, signal), Infinity, key);
  const last = useRef<GraphNode | null>(null);
  if (data !== null) last.current = data;
  // While the next step of a loop is read, the last one's node stays.
  const isNext = last.current !== null && state.source.value === "step" && last.current.op === box?.op;
  const node = data ?? (isNext ? last.current : null);
  return (
    <>
      {error !== null && node === null && <ErrorNote error={error} title="The node cannot be read" />}
      {node === null && error === null && <p class="quiet">Reading…</p>}
      {node !== null && <Node node={node} state={state} />}
      {box !== undefined && node === null && <BoxNeighbours box={box} state={state} />}
    </>
  );
}

function Node({ node, state }: { node: GraphNode; state: GraphState }) {
  const attributes = Object.entries(node.attrs);
  return (
    <>
      {node.doc !== "" && (
        <p>
          <Doc text={node.doc} />
        </p>
      )}
      <dl class="facts">
        <Fact name="op" value={node.op} code />
        <Fact name="grad_fn" value={node.grad_fn} code />
        <Fact name="shape" value={formatShape(node.shape)} />
        <Fact name="dtype" value={node.dtype} />
        <Fact name="tensors" value={node.tensors.length > 0 ? node.tensors.join(", ") : null} code />
        <Fact name="module" value={node.module} code />
        <Fact name="line" value={node.line} code />
        {attributes.map(([name, value]) => (
          <Fact key={name} name={name} value={formatJson(value)} code />
        ))}
      </dl>
      {node.value !== null && <Values title="Value" of={node.value} />}
      {node.grad !== null && <Values title="Gradient" of={node.grad} />}
      {node.derivative !== null && Object.keys(node.derivative).length > 0 && (
        <section>
          <h3>Derivative</h3>
          <dl class="facts formulas">
            {Object.entries(node.derivative).map(([name, rule]) => (
              <Fact key={name} name={name} value={rule} code />
            ))}
          </dl>
        </section>
      )}
      {node.saved.length > 0 && <Saved saved={node.saved} />}
      <Links title="Inputs" ids={node.inputs} state={state} />
      {Object.keys(node.derivative ?? {}).length > node.inputs.length && (
        <p class="hint">
          Another input is a number, or a tensor that needs no gradient. Such a tensor is shown, with a dashed arrow, where the op
          saves it or ran while this page was open.
        </p>
      )}
      <Links title="Used by" ids={node.outputs} state={state} />
    </>
  );
}

function Fact({ name, value, code = false }: { name: string; value: string | null; code?: boolean }) {
  if (value === null || value === "") return null;
  return (
    <div>
      <dt>{name}</dt>
      <dd>{code ? <code>{value}</code> : value}</dd>
    </div>
  );
}

function Values({ title, of }: { title: string; of: Statistics }) {
  const bad = of.nan + of.inf;
  if (of.size === 1) {
    return (
      <section>
        <h3>
          {title} <span class="quiet">{`${formatShape(of.shape)} · ${of.dtype}`}</span>
        </h3>
        <p class="scalar">{elementText([of.preview].flat(Infinity)[0])}</p>
      </section>
    );
  }
  return (
    <section>
      <h3>
        {title} <span class="quiet">{`${formatShape(of.shape)} · ${of.dtype}`}</span>
      </h3>
      {bad > 0 && (
        <p class="note bad">
          {[of.nan > 0 ? `${formatCount(of.nan)} NaN` : "", of.inf > 0 ? `${formatCount(of.inf)} infinite` : ""].filter(Boolean).join(" and ")}{" "}
          of {plural(of.size, "element")}
        </p>
      )}
      <dl class="figures">
        {(["min", "mean", "max", "norm"] as const).map((name) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{formatNumber(of[name])}</dd>
          </div>
        ))}
      </dl>
      {of.histogram !== null && <Histogram histogram={of.histogram} label={`Histogram of the ${title.toLowerCase()}`} />}
      {of.sampled && <p class="hint">Of a sample of its elements.</p>}
      <pre class="preview" tabIndex={0} aria-label={`Preview of the ${title.toLowerCase()}`}>
        {previewText(of.preview)}
      </pre>
    </section>
  );
}

/** The first elements as rows, numbers with four digits. */
function previewText(preview: unknown): string {
  if (!Array.isArray(preview)) return elementText(preview);
  const isFlat = preview.every((each) => !Array.isArray(each));
  if (isFlat) return preview.map((each) => elementText(each).padStart(9)).join(" ");
  return preview.map((row) => previewText(row)).join("\n");
}

function elementText(value: unknown): string {
  return typeof value === "number" || value === "NaN" || value === "Infinity" || value === "-Infinity"
    ? formatNumber(value)
    : formatJson(value, 60);
}

function Saved({ saved }: { saved: SavedTensor[] }) {
  return (
    <section>
      <h3>Saved for backward</h3>
      <ul class="saved">
        {saved.map((each) => (
          <li key={each.name}>
            <code>{each.name}</code> {formatShape(each.shape)} · {each.freed ? "freed" : formatBytes(each.bytes)}
          </li>
        ))}
      </ul>
    </section>
  );
}

/** Ids as links to their boxes. A node in a folded group has no box: then its id is text. */
function Links({ title, ids, state }: { title: string; ids: string[]; state: GraphState }) {
  if (ids.length === 0) return null;
  const boxes = state.graph.value?.boxes ?? [];
  return (
    <section>
      <h3>{title}</h3>
      <ul class="links">
        {[...new Set(ids)].map((id) => {
          const box = boxes.find((each) => each.id === id);
          return (
            <li key={id}>
              <button type="button" class="chip" onClick={() => (state.selected.value = id)}>
                {box === undefined ? id : `${box.label}${box.tensors[0] === undefined ? "" : ` · ${box.tensors[0]}`}`}
              </button>
            </li>
          );
        })}
      </ul>
    </section>
  );
}

function BoxNeighbours({ box, state }: { box: Box; state: GraphState }) {
  const edges = state.graph.value?.edges ?? [];
  return (
    <>
      <Links title="Inputs" ids={edges.filter((edge) => edge.target === box.id).map((edge) => edge.source)} state={state} />
      <Links title="Used by" ids={edges.filter((edge) => edge.source === box.id).map((edge) => edge.target)} state={state} />
    </>
  );
}
