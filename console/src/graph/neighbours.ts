// Which box an arrow key leads to.

import type { DrawnBox, Picture } from "./picture";

/** A step across costs this many times one along the arrow. */
const ACROSS = 2.5;

/**
 * The nearest box in a direction: against the flow it is an input, with it an output, if there is any; else what is drawn
 * there. Without a box to start from, the newest one.
 */
export function neighbourOf(picture: Picture, from: string | null, dx: number, dy: number): string | null {
  const start = picture.boxes.get(from ?? "");
  if (start === undefined) {
    let newest: DrawnBox | null = null;
    for (const each of picture.boxes.values()) if (newest === null || each.box.order > newest.box.order) newest = each;
    return newest?.box.id ?? null;
  }
  const along = picture.direction === "down" ? dy : dx;
  if (along !== 0) {
    const linked = (picture.touching.get(start.box.id) ?? [])
      .filter(({ edge }) => (along < 0 ? edge.target : edge.source) === start.box.id)
      .map(({ edge }) => picture.boxes.get(along < 0 ? edge.source : edge.target));
    const best = nearest(start, linked, 0, 0);
    if (best !== null) return best;
  }
  return nearest(start, picture.boxes.values(), dx, dy);
}

function nearest(start: DrawnBox, boxes: Iterable<DrawnBox | undefined>, dx: number, dy: number): string | null {
  let best: string | null = null;
  let least = Infinity;
  for (const each of boxes) {
    if (each === undefined || each === start) continue;
    const along = (each.x - start.x) * dx + (each.y - start.y) * dy;
    const across = Math.abs((each.x - start.x) * dy) + Math.abs((each.y - start.y) * dx);
    const free = dx === 0 && dy === 0;
    if (!free && along <= 0) continue;
    const distance = free ? Math.hypot(each.x - start.x, each.y - start.y) : along + ACROSS * across;
    if (distance < least) [best, least] = [each.box.id, distance];
  }
  return best;
}
