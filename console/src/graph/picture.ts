// What is drawn of a graph: boxes with places, sizes, labels and colours, and the curves between them.
// The canvas and the exported pictures draw the same.

import type { Amount, Box, BoxEdge, FoldedGraph, Real } from "../api/types";
import { amountText, formatNumber, isBad, plural } from "../format";
import { boundsOf, boxSize, centre, controlPoints } from "../layout/geometry";
import type { Direction, Point, Rectangle } from "../layout/geometry";
import { Layout, edgeKey } from "../layout/layout";
import { boxColours, gradientRange } from "./colour";
import type { Palette, Range } from "./colour";

export interface DrawnBox extends Point {
  box: Box;
  width: number;
  height: number;
  label: string;
  fill: string;
  ink: string;
}

export interface DrawnEdge {
  key: string;
  edge: BoxEdge;
  points: Point[];
  bounds: Rectangle;
}

const MAX_LABEL = 20;
/** A gradient that is shown in place of the graph's own: its norm as a colour and, of a leaf, all of it on the box. */
export interface Shown {
  norm: Real;
  sum: Amount | null;
}

/** These by box; null shows the graph's own. */
export type Norms = ReadonlyMap<string, Shown> | null;

function withNorms(graph: FoldedGraph, norms: Norms): Box[] {
  return norms === null ? graph.boxes : graph.boxes.map((box) => ({ ...box, grad_norm: norms.get(box.id)?.norm ?? null }));
}

/** The range of norms that colours stand for. Null without gradients. */
export function rangeOf(graph: FoldedGraph, norms: Norms): Range | null {
  return gradientRange(withNorms(graph, norms));
}

export class Picture {
  readonly layout = new Layout();
  readonly boxes = new Map<string, DrawnBox>();
  readonly edges = new Map<string, DrawnEdge>();
  /** The edges that touch a box. */
  readonly touching = new Map<string, DrawnEdge[]>();
  private revision: FoldedGraph | null = null;
  direction: Direction = "down";

  /** The range of norms that the colours stand for. Null without gradients. */
  range: Range | null = null;

  /**
   * Bring the picture to a graph. The colours are of `norms` where they are given, else of the graph's own gradients, and
   * on a scale for all of `scale`.
   */
  update(graph: FoldedGraph, palette: Palette, norms: Norms, scale: Norms = norms, direction: Direction = "down"): void {
    const isTurned = direction !== this.direction;
    this.direction = direction;
    if (graph !== this.revision || isTurned) this.place(graph);
    this.revision = graph;
    this.range = rangeOf(graph, scale);
    for (const box of withNorms(graph, norms)) {
      const drawn = this.boxes.get(box.id);
      if (drawn === undefined) continue;
      drawn.label = labelOf(box, norms?.get(box.id)?.sum);
      // As wide in all steps, so that the view stands still.
      const size = boxSize(box.bytes, `${drawn.label}\n${labelOf(box, scale?.get(box.id)?.sum)}`);
      Object.assign(drawn, boxColours(box, this.range, palette), size);
    }
  }

  private place(graph: FoldedGraph): void {
    this.layout.update(graph.boxes, graph.edges);
    this.boxes.clear();
    for (const box of graph.boxes) {
      const cell = this.layout.cellOf(box.id);
      if (cell === undefined) continue;
      this.boxes.set(box.id, { box, ...centre(cell, this.direction), ...boxSize(box.bytes, labelOf(box)), label: labelOf(box), fill: "", ink: "" });
    }
    this.edges.clear();
    this.touching.clear();
    for (const edge of graph.edges) {
      const [source, target] = [this.boxes.get(edge.source), this.boxes.get(edge.target)];
      if (source === undefined || target === undefined || source === target) continue;
      const points = controlPoints(this.layout, edge, this.direction);
      const bounds = boundsOf([source, target, ...points]);
      if (bounds === null) continue;
      const drawn = { key: edgeKey(edge), edge, points, bounds };
      this.edges.set(drawn.key, drawn);
      for (const id of [edge.source, edge.target]) this.touching.set(id, [...(this.touching.get(id) ?? []), drawn]);
    }
  }

  /** The rectangle around everything. Null if there is nothing. */
  bounds(): Rectangle | null {
    const corners = [...this.boxes.values()].flatMap(({ x, y, width, height }) => [
      { x: x - width / 2, y: y - height / 2 },
      { x: x + width / 2, y: y + height / 2 },
    ]);
    const bends = [...this.edges.values()].flatMap(({ points }) => points);
    return boundsOf([...corners, ...bends]);
  }
}

/**
 * What a box says: an op and the tensor that it made, or a tensor; and the value of one element, or the shape. With a
 * gradient, that too, in place of what leaves no room for it.
 */
export function labelOf(box: Box, gradient?: Amount | null): string {
  const warning = isBad(box.grad_norm) ? "⚠ " : "";
  const isOp = box.kind === "op" || box.kind === "group";
  const first = shortened(isOp ? box.label : (box.tensors[0] ?? box.label));
  if (box.kind === "group") return `${warning}${first}\n${plural(box.count, "node")}`;
  const isKnown = box.number !== undefined && box.number !== null;
  const value = isKnown ? `= ${formatNumber(box.number, 3)}` : box.shape === null ? "" : shapeOf(box.shape);
  const name = isOp ? (box.tensors[0] ?? "") : "";
  if (gradient) {
    const alone = `grad ${amountText(gradient, "norm ")}`;
    const both = `${value}, ${alone}`;
    return `${warning}${first}\n${isKnown && both.length <= MAX_LABEL ? both : alone}`;
  }
  return `${warning}${first}\n${[shortened(name, MAX_LABEL - 1 - value.length), value].filter(Boolean).join(" ")}`;
}

function shapeOf(shape: readonly number[]): string {
  return shape.length === 0 ? "scalar" : shortened(`[${shape.join(", ")}]`);
}

/** Long names lose their beginning: of a path, the end says more. */
function shortened(text: string, most = MAX_LABEL): string {
  return text.length > most ? `…${text.slice(1 - Math.max(2, most))}` : text;
}
