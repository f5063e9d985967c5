// The live graph: the canvas, what stands around it, and the keyboard.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Box, Fold, FoldedGraph } from "../api/types";
import { GraphCanvas } from "../graph/canvas";
import { css, currentPalette, onPaletteChange, scaleColour } from "../graph/colour";
import { download, fileName, toPng, toSvg } from "../graph/export";
import { Picture, rangeOf } from "../graph/picture";
import { formatCount, formatNumber, plural } from "../format";
import { GraphState, found } from "../state/graph";
import type { GraphSource } from "../state/graph";
import { Flow } from "../state/flow";
import { Empty, ErrorNote, Icon, IconButton, Segments } from "../widgets/common";
import { neighbourOf } from "../graph/neighbours";
import { NodePanel } from "./panel";
import { FlowBar } from "./flow";

const FOLDS: { value: Fold; label: string }[] = [
  { value: "auto", label: "auto" },
  { value: "module", label: "module" },
  { value: "line", label: "line" },
  { value: "op", label: "op" },
  { value: "none", label: "none" },
];
const PAN_STEP = 80;
const MAX_FOUND = 60;
/** The most ids of tensors that a box is found with. */
const MAX_NAMES = 3;
const NO_MARKS: ReadonlyMap<string, string> = new Map();

function useGraphState(watch: GraphSource): { state: GraphState; flow: Flow } {
  const both = useMemo(() => {
    const state = new GraphState(watch);
    return { state, flow: new Flow(state) };
  }, [watch]);
  useEffect(
    () => () => {
      both.flow.close();
      both.state.close();
    },
    [both],
  );
  return both;
}

export function GraphView({ watch }: { watch: GraphSource }) {
  const { state, flow } = useGraphState(watch);
  const picture = useMemo(() => new Picture(), [state]);
  const canvas = useRef<GraphCanvas | null>(null);
  const graph = state.graph.value;
  const error = state.error.value;
  const isEmpty = graph !== null && graph.boxes.length === 0;
  return (
    <div class="graph-view">
      <Toolbar state={state} flow={flow} picture={picture} />
      <div class="graph-body">
        <div class="graph-stage">
          <Stage state={state} flow={flow} picture={picture} canvas={canvas} />
          {graph !== null && !isEmpty && <Legend graph={graph} flow={flow} />}
          {isEmpty && <NoGraph state={state} />}
          {error !== null && (
            <div class="over">
              <ErrorNote error={error} title="The graph cannot be read" />
            </div>
          )}
          <SearchResults state={state} />
        </div>
        <NodePanel state={state} flow={flow} />
      </div>
      <FlowBar flow={flow} state={state} />
    </div>
  );
}

function NoGraph({ state }: { state: GraphState }) {
  const isStep = state.source.value === "step";
  return (
    <Empty title={isStep ? "No step was observed yet" : "No graph at the moment"}>
      <p>
        {isStep
          ? "Run a step while this page is open: it appears here, with the gradients of its backward pass."
          : "Nothing that was recorded is reachable from the session's tensors. It appears here as soon as an op runs on a " +
            "tensor that requires grad. A training step frees its graph after backward: “last step” keeps it."}
      </p>
      {!isStep && (
        <button type="button" onClick={() => (state.source.value = "step")}>
          Show the last step
        </button>
      )}
    </Empty>
  );
}

function Toolbar({ state, flow, picture }: { state: GraphState; flow: Flow; picture: Picture }) {
  const graph = state.graph.value;
  const save = async (kind: "svg" | "png") => {
    const palette = currentPalette();
    const step = flow.current.value;
    const parts = [state.watch.title(), step === null ? `graph ${graph?.revision ?? 0}` : `backward step ${flow.position.value}`];
    const caption = { title: parts.join(", "), current: step?.box ?? null, marks: step?.marks ?? NO_MARKS };
    const name = fileName(caption.title, kind);
    if (kind === "png") return download(await toPng(picture, palette, caption), name);
    download(new Blob([toSvg(picture, palette, caption).text], { type: "image/svg+xml" }), name);
  };
  return (
    <div class="toolbar">
      <Segments
        label="Which graph"
        value={state.source.value}
        choices={[
          { value: "live", label: "live", title: "What is reachable from the session's tensors now" },
          { value: "step", label: "last step", title: "The last observed program, which stays when its graph is freed" },
        ]}
        onChange={(source) => (state.source.value = source)}
      />
      <label class="check" title="What becomes one box: the nodes of a module, of a line of your code, or of an op">
        <span class="quiet">fold by</span>
        <select value={state.fold.value} onChange={(event) => (state.fold.value = event.currentTarget.value as Fold)}>
          {FOLDS.map(({ value, label }) => (
            <option key={value} value={value}>
              {label}
            </option>
          ))}
        </select>
      </label>
      <Segments
        label="Direction"
        value={state.direction.value}
        choices={[
          { value: "down", label: "↓", title: "Draw from top to bottom" },
          { value: "right", label: "→", title: "Draw from left to right, which suits a wide and low screen" },
        ]}
        onChange={(direction) => (state.direction.value = direction)}
      />
      <label class="check" title="Draw the graph again whenever it changes">
        <input
          type="checkbox"
          checked={state.following.value}
          onChange={(event) => (state.following.value = event.currentTarget.checked)}
        />
        follow
      </label>
      <label class="search">
        <Icon name="search" />
        <input
          id="graph-search"
          type="search"
          placeholder="Search op, module, line, tensor"
          aria-label="Search the graph"
          value={state.search.value}
          onInput={(event) => (state.search.value = event.currentTarget.value)}
          onKeyDown={(event) => {
            const first = graph === null ? undefined : found(graph, state.search.value)[0];
            if (event.key === "Enter" && first !== undefined) state.selected.value = first.id;
          }}
        />
      </label>
      <button
        type="button"
        title="Watch the gradients flow back, node by node; this changes nothing in the session"
        disabled={graph === null || graph.boxes.length === 0}
        onClick={() => void flow.start()}
      >
        Step through backward
      </button>
      <div class="segments" role="group" aria-label="Save the picture">
        <button type="button" title="Save the whole graph as an SVG picture" onClick={() => void save("svg")}>
          SVG
        </button>
        <button type="button" title="Save the whole graph as a PNG picture" onClick={() => void save("png")}>
          PNG
        </button>
      </div>
      {state.root.value !== null && state.source.value === "live" && (
        <button type="button" class="chip" title="Show everything again" onClick={() => (state.root.value = null)}>
          only what leads to {state.root.value} <Icon name="close" />
        </button>
      )}
      {state.expanded.value.length > 0 && (
        <div class="chips" aria-label="Opened groups">
          {state.expanded.value.map((id) => (
            <button key={id} type="button" class="chip" title={`Fold ${id.slice(2)} again`} onClick={() => state.foldAgain(id)}>
              {id.slice(2)} <Icon name="close" />
            </button>
          ))}
        </div>
      )}
    </div>
  );
}

interface StageProps {
  state: GraphState;
  flow: Flow;
  picture: Picture;
  canvas: { current: GraphCanvas | null };
}

function Stage({ state, flow, picture, canvas }: StageProps) {
  const element = useRef<HTMLDivElement>(null);
  const [palette, setPalette] = useState(currentPalette);
  const graph = state.graph.value;
  const norms = flow.norms.value;
  const scale = flow.lastNorms.value;
  const direction = state.direction.value;
  const drawnAs = useRef("");
  useEffect(() => onPaletteChange(() => setPalette(currentPalette())), []);
  useEffect(() => {
    if (element.current === null) return;
    const made = new GraphCanvas(element.current, picture, {
      onSelect: (id) => (state.selected.value = id),
      onOpen: (id) => {
        const box = picture.boxes.get(id)?.box;
        if (box !== undefined) state.open(box);
      },
    });
    canvas.current = made;
    return () => {
      made.destroy();
      canvas.current = null;
    };
  }, [state, picture]);
  useEffect(() => canvas.current?.setPalette(palette), [palette, state]);
  useEffect(() => {
    if (graph === null || canvas.current === null) return;
    const started = performance.now();
    picture.update(graph, palette, norms, scale, direction);
    const drawnNow = `${graph.source} ${graph.fold} ${direction}`;
    canvas.current.update(drawnAs.current !== drawnNow);
    drawnAs.current = drawnNow;
    performance.measure("telegrad:graph", { start: started, end: performance.now() });
  }, [graph, palette, norms, scale, direction, state]);
  const selected = state.selected.value;
  useEffect(() => {
    canvas.current?.select(selected);
    if (selected !== null) canvas.current?.reveal(selected);
  }, [selected, graph]);
  const search = state.search.value;
  const step = flow.current.value;
  useEffect(() => {
    const matches = new Set(graph === null ? [] : found(graph, search).map((box) => box.id));
    canvas.current?.setHighlight({ current: step?.box ?? null, targets: step?.marks ?? NO_MARKS, matches });
    if (step !== null && step.box !== null) canvas.current?.reveal(step.box);
  }, [graph, search, step]);
  const onKeyDown = (event: KeyboardEvent) => {
    if (canvas.current !== null && handleKey(event, state, picture, canvas.current)) event.preventDefault();
  };
  return (
    <>
      <div
        class="canvas"
        ref={element}
        tabIndex={0}
        role="application"
        aria-label="Graph. Arrow keys go from box to box, Enter opens a group, plus and minus zoom, 0 shows all, slash searches."
        onKeyDown={onKeyDown}
      />
      <p class="unseen" role="status">
        {selected !== null && describe(picture.boxes.get(selected)?.box)}
      </p>
      <div class="zoom" role="group" aria-label="Zoom">
        <IconButton icon="plus" label="Zoom in" onClick={() => canvas.current?.zoomBy(1.3)} />
        <IconButton icon="minus" label="Zoom out" onClick={() => canvas.current?.zoomBy(1 / 1.3)} />
        <IconButton icon="fit" label="Show the whole graph" onClick={() => canvas.current?.fit()} />
      </div>
    </>
  );
}

function describe(box: Box | undefined): string {
  if (box === undefined) return "";
  const gradient = box.grad_norm === null ? "" : `, gradient norm ${formatNumber(box.grad_norm)}`;
  return `${box.kind} ${box.label}${box.count > 1 ? `, ${plural(box.count, "node")}` : ""}${gradient}`;
}

/** Whether a key was for the graph. */
function handleKey(event: KeyboardEvent, state: GraphState, picture: Picture, canvas: GraphCanvas): boolean {
  const { key, shiftKey } = event;
  const arrows: Record<string, [number, number]> = { ArrowUp: [0, 1], ArrowDown: [0, -1], ArrowLeft: [1, 0], ArrowRight: [-1, 0] };
  const arrow = arrows[key];
  if (arrow !== undefined) {
    if (shiftKey) canvas.panBy(arrow[0] * PAN_STEP, arrow[1] * PAN_STEP);
    else state.selected.value = neighbourOf(picture, state.selected.value, -arrow[0], -arrow[1]) ?? state.selected.value;
    return true;
  }
  if (key === "+" || key === "=") canvas.zoomBy(1.3);
  else if (key === "-") canvas.zoomBy(1 / 1.3);
  else if (key === "0") canvas.fit();
  else if (key === "Escape") state.selected.value = null;
  else if (key === "/") (canvas.container.getRootNode() as Document | ShadowRoot).getElementById("graph-search")?.focus();
  else if (key === "Enter" || key === " ") {
    const box = picture.boxes.get(state.selected.value ?? "")?.box;
    if (box !== undefined) state.open(box);
  } else return false;
  return true;
}

function Legend({ graph, flow }: { graph: FoldedGraph; flow: Flow }) {
  const palette = currentPalette();
  const stops = [0, 0.25, 0.5, 0.75, 1].map((share) => css(scaleColour(palette, share)));
  const range = rangeOf(graph, flow.lastNorms.value);
  return (
    <div class="legend">
      <span>
        {plural(graph.nodes, "node")}
        {graph.boxes.length !== graph.nodes && `, drawn as ${plural(graph.boxes.length, "box", "boxes")}`}
        {graph.omitted > 0 && `; ${formatCount(graph.omitted)} older ones are left out`}
        {graph.fold !== "none" && `, folded by ${graph.fold}`}
      </span>
      {range !== null && range.min === range.max && <span class="scale">gradient norm {formatNumber(range.min, 2)}</span>}
      {range !== null && range.min < range.max && (
        <span class="scale">
          gradient norm, logarithmic: {formatNumber(range.min, 2)}
          <span class="ramp" style={{ backgroundImage: `linear-gradient(90deg, ${stops.join(", ")})` }} aria-hidden="true" />
          {formatNumber(range.max, 2)}
        </span>
      )}
      {range === null && <span class="quiet">no gradients yet</span>}
    </div>
  );
}

function SearchResults({ state }: { state: GraphState }) {
  const graph = state.graph.value;
  const text = state.search.value;
  if (graph === null || text.trim() === "") return null;
  const boxes = found(graph, text);
  return (
    <div class="found">
      <p class="quiet" role="status">
        {boxes.length === 0 ? "Nothing matches. Folded nodes are found once their group is open." : plural(boxes.length, "match", "matches")}
      </p>
      <ul>
        {boxes.slice(0, MAX_FOUND).map((box) => (
          <li key={box.id}>
            <button type="button" onClick={() => (state.selected.value = box.id)}>
              <strong>{box.label}</strong> <span class="quiet">{[...box.tensors.slice(0, MAX_NAMES), box.module, box.line].filter(Boolean).join(" · ")}</span>
            </button>
          </li>
        ))}
      </ul>
    </div>
  );
}
