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

export const LANE_WIDTH = 178;
export const RANK_HEIGHT = 78;
const MIN_BOX = { width: 126, height: 46 };
const MAX_BOX = { width: 164, height: 60 };
/** Saved bytes at which a box has its largest size. */
const LARGE_BYTES = 1e9;

export function centre(cell: Cell): Point {
  return { x: cell.lane * LANE_WIDTH, y: cell.rank * RANK_HEIGHT };
}

/** The size of a box for the bytes that it saves: logarithmic, from 1 kB to 1 GB. */
export function boxSize(bytes: number): { width: number; height: number } {
  const share = Math.min(1, Math.max(0, Math.log10(Math.max(1, bytes) / 1e3) / Math.log10(LARGE_BYTES / 1e3)));
  return {
    width: MIN_BOX.width + share * (MAX_BOX.width - MIN_BOX.width),
    height: MIN_BOX.height + share * (MAX_BOX.height - MIN_BOX.height),
  };
}

/**
 * The control points of an edge between the centres of its boxes: down from the source, through the cells that it
 * reserved, and down into the target. Two neighbours in one lane need none.
 */
export function controlPoints(layout: Layout, edge: LayoutEdge): Point[] {
  const source = layout.cellOf(edge.source);
  const target = layout.cellOf(edge.target);
  if (source === undefined || target === undefined) return [];
  const bends = layout.bendsOf(edge);
  if (source.lane === target.lane && target.rank === source.rank + 1) return [];
  const [start, end] = [centre(source), centre(target)];
  if (target.rank <= source.rank) return aroundPoints(start, end);
  const points = [{ x: start.x, y: start.y + RANK_HEIGHT / 2 }];
  const [first, last] = [bends[0], bends.at(-1)];
  if (first !== undefined && last !== undefined) points.push(centre(first));
  if (last !== undefined && first !== last) points.push(centre(last));
  points.push({ x: end.x, y: end.y - RANK_HEIGHT / 2 });
  return points;
}

/** Of an edge that leads up, or within a row: folding can make such ones. It leaves to the side. */
function aroundPoints(start: Point, end: Point): Point[] {
  const side = Math.max(start.x, end.x) + LANE_WIDTH / 2;
  return [
    { x: side, y: start.y + RANK_HEIGHT / 3 },
    { x: side, y: end.y - RANK_HEIGHT / 3 },
  ];
}

/** Control points as Cytoscape takes them: shares of the straight line between the ends, and distances from it. */
export function relativeTo(start: Point, end: Point, points: readonly Point[]): { weights: number[]; distances: number[] } {
  const [dx, dy] = [end.x - start.x, end.y - start.y];
  const length = Math.hypot(dx, dy) || 1;
  const weights = points.map((point) => ((point.x - start.x) * dx + (point.y - start.y) * dy) / (length * length));
  const distances = points.map((point) => ((point.y - start.y) * dx - (point.x - start.x) * dy) / length);
  return { weights, distances };
}

/** The same curve as a path of SVG: quadratic pieces that meet halfway between the control points. */
export function pathThrough(start: Point, points: readonly Point[], end: Point): string {
  const [first] = points;
  if (first === undefined) return `M${round(start)}L${round(end)}`;
  let path = `M${round(start)}`;
  points.forEach((point, index) => {
    const next = points[index + 1];
    const to = next === undefined ? end : { x: (point.x + next.x) / 2, y: (point.y + next.y) / 2 };
    path += `Q${round(point)} ${round(to)}`;
  });
  return path;
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
