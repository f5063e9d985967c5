import { describe, expect, it } from "vitest";
import { boundsOf, boxSize, centre, controlPoints, pathThrough, relativeTo } from "./geometry";
import { Layout } from "./layout";
import type { LayoutBox, LayoutEdge } from "./layout";

/** A chain of ops, each with a parameter; the box `n0` is the data. */
function chain(length: number): { boxes: LayoutBox[]; edges: LayoutEdge[] } {
  const boxes: LayoutBox[] = [{ id: "x", rank: 0, order: 0 }];
  const edges: LayoutEdge[] = [];
  for (let index = 0; index < length; index += 1) {
    boxes.push({ id: `n${index}`, rank: index + 1, order: 2 * index + 1 }, { id: `w${index}`, rank: 0, order: 2 * index + 2 });
    edges.push({ source: index === 0 ? "x" : `n${index - 1}`, target: `n${index}` }, { source: `w${index}`, target: `n${index}` });
  }
  return { boxes, edges };
}

function cellsOf(layout: Layout, boxes: LayoutBox[]): Record<string, unknown> {
  return Object.fromEntries(boxes.map(({ id }) => [id, layout.cellOf(id)]));
}

describe("layout", () => {
  it("draws a chain straight down, with each parameter in the row above its op", () => {
    const { boxes, edges } = chain(5);
    const layout = new Layout();
    layout.update(boxes, edges);
    const lanes = [0, 1, 2, 3, 4].map((index) => layout.cellOf(`n${index}`)?.lane);
    expect(new Set(lanes).size).toBe(1);
    expect([1, 2, 3, 4].map((index) => layout.cellOf(`w${index}`)?.rank)).toEqual([1, 2, 3, 4]);
  });

  it("puts no two boxes in one cell, and no edge through a box", () => {
    const { boxes, edges } = chain(30);
    edges.push({ source: "x", target: "n20" }, { source: "n3", target: "n17" }, { source: "w0", target: "n9" });
    const layout = new Layout();
    layout.update(boxes, edges);
    const taken = [...boxes.map(({ id }) => layout.cellOf(id)), ...edges.flatMap((edge) => layout.bendsOf(edge))];
    expect(new Set(taken.map((cell) => `${cell?.rank} ${cell?.lane}`)).size).toBe(taken.length);
    expect(layout.bendsOf({ source: "n3", target: "n17" })).toHaveLength(13);
  });

  it("keeps what is there while nodes arrive, and arrives where one update would", () => {
    const whole = chain(40);
    const grown = new Layout();
    for (let length = 1; length <= 40; length += 1) {
      const before = chain(length - 1).boxes.filter(({ id }) => length > 1 || id !== "x");
      const cells = cellsOf(grown, before);
      const { boxes, edges } = chain(length);
      grown.update(boxes, edges);
      expect(cellsOf(grown, before)).toEqual(cells);
    }
    const once = new Layout();
    once.update(whole.boxes, whole.edges);
    expect(cellsOf(grown, whole.boxes)).toEqual(cellsOf(once, whole.boxes));
  });

  it("frees the cells of what is gone, and keeps the lane of a box that moves down", () => {
    const { boxes, edges } = chain(3);
    const layout = new Layout();
    layout.update(boxes, edges);
    const lane = layout.cellOf("n2")?.lane;
    const moved = boxes.map((box) => (box.id === "n2" ? { ...box, rank: 6 } : box));
    layout.update(moved, edges);
    expect(layout.cellOf("n2")).toEqual({ rank: 6, lane });
    layout.update([], []);
    expect(layout.cellOf("x")).toBeUndefined();
    layout.update(boxes, edges);
    const fresh = new Layout();
    fresh.update(boxes, edges);
    expect(cellsOf(layout, boxes)).toEqual(cellsOf(fresh, boxes));
  });

  it("draws the next step of a loop like the last one", () => {
    const step = (prefix: string) => {
      const { boxes, edges } = chain(6);
      const name = (id: string) => (id.startsWith("n") ? prefix + id : id);
      return {
        boxes: boxes.map((box) => ({ ...box, id: name(box.id) })),
        edges: edges.map(({ source, target }) => ({ source: name(source), target: name(target) })),
      };
    };
    const layout = new Layout();
    layout.update(step("a").boxes, step("a").edges);
    const lanes = step("a").boxes.map(({ id }) => layout.cellOf(id));
    layout.update(step("b").boxes, step("b").edges);
    expect(step("b").boxes.map(({ id }) => layout.cellOf(id))).toEqual(lanes);
  });

  it("is the same from left to right", () => {
    const { boxes, edges } = chain(3);
    const layout = new Layout();
    layout.update(boxes, edges);
    for (const { id } of boxes) {
      const cell = layout.cellOf(id) ?? { rank: 0, lane: 0 };
      const [down, right] = [centre(cell), centre(cell, "right")];
      expect([Math.sign(right.x), Math.sign(right.y)]).toEqual([Math.sign(down.y), Math.sign(down.x)]);
    }
    for (const edge of edges) expect(controlPoints(layout, edge, "right")).toHaveLength(controlPoints(layout, edge).length);
  });

  it("survives cycles between groups, loops, and edges of boxes that are not there", () => {
    const layout = new Layout();
    const boxes = [{ id: "a", rank: 0, order: 0 }, { id: "b", rank: 1, order: 1 }];
    const edges = [
      { source: "a", target: "b" }, { source: "b", target: "a" }, { source: "a", target: "a" }, { source: "a", target: "gone" },
    ];
    layout.update(boxes, edges);
    expect(layout.cellOf("a")).toEqual({ rank: 0, lane: 0 });
    expect(controlPoints(layout, { source: "b", target: "a" })).toHaveLength(2);
    expect(controlPoints(layout, { source: "a", target: "gone" })).toEqual([]);
  });

  it("puts boxes without edges on shelves above", () => {
    const layout = new Layout();
    const loose = Array.from({ length: 20 }, (_, index) => ({ id: `t${index}`, rank: 0, order: index }));
    layout.update(loose, []);
    expect(new Set(loose.map(({ id }) => layout.cellOf(id)?.rank))).toEqual(new Set([-2, -3, -4]));
  });
});

describe("geometry", () => {
  it("has a control point back where it was", () => {
    const [start, end, point] = [{ x: 10, y: 20 }, { x: 70, y: 100 }, { x: 5, y: 60 }];
    const { weights, distances } = relativeTo(start, end, [point]);
    const [w = 0, d = 0] = [weights[0], distances[0]];
    const length = Math.hypot(60, 80);
    expect(start.x + w * 60 + (d * -80) / length).toBeCloseTo(point.x);
    expect(start.y + w * 80 + (d * 60) / length).toBeCloseTo(point.y);
  });

  it("draws paths and bounds", () => {
    expect(pathThrough({ x: 0, y: 0 }, [], { x: 1, y: 2 })).toBe("M0,0L1,2");
    expect(pathThrough({ x: 0, y: 0 }, [{ x: 0, y: 4 }, { x: 8, y: 4 }], { x: 8, y: 8 })).toBe("M0,0Q0,4 4,4Q8,4 8,8");
    expect(boundsOf([])).toBeNull();
    expect(boundsOf([{ x: 3, y: 1 }, { x: -1, y: 5 }])).toEqual({ x1: -1, y1: 1, x2: 3, y2: 5 });
  });

  it("makes boxes larger for more saved bytes, within limits", () => {
    const sizes = [0, 1e3, 1e6, 1e9, 1e15].map((bytes) => boxSize(bytes).width);
    expect(sizes).toEqual([...sizes].sort((a, b) => a - b));
    expect(sizes[0]).toBe(sizes[1]);
    expect(sizes[3]).toBe(sizes[4]);
  });
});
