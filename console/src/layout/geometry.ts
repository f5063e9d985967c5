// From cells of the grid to points of the drawing, in its own units.

import type { Cell, Layout, LayoutEdge } from "./layout";

export interface Point {
  x: number;
  y: number;
}

export interface Rectangle {
  x1: number;
  y1: number;
  x2: number;
  y2: number;
}

/** Where data flow to: down, or to the right, which suits a wide and low screen. */
export type Direction = "down" | "right";

/** The distances of neighbouring ranks and lanes. */
const SPACING: Record<Direction, { rank: number; lane: number }> = {
  down: { rank: 78, lane: 178 },
  right: { rank: 206, lane: 66 },
};
const MIN_BOX = { width: 126, height: 46 };
const MAX_BOX = { width: 164, height: 60 };
/** Saved bytes at which a box has its largest size. */
const LARGE_BYTES = 1e9;

/** The point of a place in ranks and lanes, which need not be whole. */
function pointAt(rank: number, lane: number, direction: Direction): Point {
  const [along, across] = [rank * SPACING[direction].rank, lane * SPACING[direction].lane];
  return direction === "down" ? { x: across, y: along } : { x: along, y: across };
}

export function centre(cell: Cell, direction: Direction = "down"): Point {
  return pointAt(cell.rank, cell.lane, direction);
}

const CHARACTER = 7.4;
const LABEL_PADDING = 18;

/** The size of a box for the bytes that it saves, logarithmic from 1 kB to 1 GB, and at least that of its label. */
export function boxSize(bytes: number, label = ""): { width: number; height: number } {
  const wanted = CHARACTER * Math.max(...label.split("\n").map((line) => line.length)) + LABEL_PADDING;
  const share = Math.min(1, Math.max(0, Math.log10(Math.max(1, bytes) / 1e3) / Math.log10(LARGE_BYTES / 1e3)));
  return {
    width: Math.max(Math.min(wanted, MAX_BOX.width), MIN_BOX.width + share * (MAX_BOX.width - MIN_BOX.width)),
    height: MIN_BOX.height + share * (MAX_BOX.height - MIN_BOX.height),
  };
}

/**
 * The control points of an edge between the centres of its boxes: onwards from the source, through the cells that it
 * reserved, and straight into the target. Two neighbours in one lane need none.
 */
export function controlPoints(layout: Layout, edge: LayoutEdge, direction: Direction = "down"): Point[] {
  const source = layout.cellOf(edge.source);
  const target = layout.cellOf(edge.target);
  if (source === undefined || target === undefined) return [];
  const bends = layout.bendsOf(edge);
  if (source.lane === target.lane && target.rank === source.rank + 1) return [];
  if (target.rank <= source.rank) return aroundPoints(source, target, direction);
  const points = [pointAt(source.rank + 0.5, source.lane, direction)];
  const [first, last] = [bends[0], bends.at(-1)];
  if (first !== undefined && last !== undefined) points.push(centre(first, direction));
  if (last !== undefined && first !== last) points.push(centre(last, direction));
  points.push(pointAt(target.rank - 0.5, target.lane, direction));
  return points;
}

/** Of an edge that leads back, or within a rank: folding can make such ones. It leaves to the side. */
function aroundPoints(source: Cell, target: Cell, direction: Direction): Point[] {
  const side = Math.max(source.lane, target.lane) + 0.5;
  return [pointAt(source.rank + 1 / 3, side, direction), pointAt(target.rank - 1 / 3, side, direction)];
}

/** Control points as Cytoscape takes them: shares of the straight line between the ends, and distances from it. */
export function relativeTo(start: Point, end: Point, points: readonly Point[]): { weights: number[]; distances: number[] } {
  const [dx, dy] = [end.x - start.x, end.y - start.y];
  const length = Math.hypot(dx, dy) || 1;
  const weights = points.map((point) => ((point.x - start.x) * dx + (point.y - start.y) * dy) / (length * length));
  const distances = points.map((point) => ((point.y - start.y) * dx - (point.x - start.x) * dy) / length);
  return { weights, distances };
}

/** The same curve as quadratic pieces, which meet halfway between the control points. */
function piecesOf(start: Point, points: readonly Point[], end: Point): { from: Point; control: Point; to: Point }[] {
  let from = start;
  return points.map((control, index) => {
    const next = points[index + 1];
    const piece = { from, control, to: next === undefined ? end : between(control, next) };
    from = piece.to;
    return piece;
  });
}

/** That curve as a path of SVG. */
export function pathThrough(start: Point, points: readonly Point[], end: Point): string {
  if (points.length === 0) return `M${round(start)}L${round(end)}`;
  return `M${round(start)}${piecesOf(start, points, end).map(({ control, to }) => `Q${round(control)} ${round(to)}`).join("")}`;
}

/** The middle of that curve. */
export function middleOf(start: Point, points: readonly Point[], end: Point): Point {
  const piece = piecesOf(start, points, end)[Math.floor(points.length / 2)];
  if (piece === undefined) return between(start, end);
  const { from, control, to } = piece;
  return points.length % 2 === 0 ? from : between(between(from, control), between(control, to));
}

function between(a: Point, b: Point): Point {
  return { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 };
}

function round({ x, y }: Point): string {
  return `${Math.round(x * 10) / 10},${Math.round(y * 10) / 10}`;
}

export function overlaps(a: Rectangle, b: Rectangle): boolean {
  return a.x1 <= b.x2 && b.x1 <= a.x2 && a.y1 <= b.y2 && b.y1 <= a.y2;
}

export function contains(outer: Rectangle, inner: Rectangle): boolean {
  return outer.x1 <= inner.x1 && outer.y1 <= inner.y1 && outer.x2 >= inner.x2 && outer.y2 >= inner.y2;
}

export function grown(rectangle: Rectangle, byX: number, byY: number): Rectangle {
  return { x1: rectangle.x1 - byX, y1: rectangle.y1 - byY, x2: rectangle.x2 + byX, y2: rectangle.y2 + byY };
}

export function boundsOf(points: Iterable<Point>): Rectangle | null {
  let bounds: Rectangle | null = null;
  for (const { x, y } of points) {
    bounds ??= { x1: x, y1: y, x2: x, y2: y };
    bounds = {
      x1: Math.min(bounds.x1, x), y1: Math.min(bounds.y1, y), x2: Math.max(bounds.x2, x), y2: Math.max(bounds.y2, y),
    };
  }
  return bounds;
}
