import { describe, expect, it } from "vitest";
import { depthsOf, sharesOf } from "./timeline";

describe("where time went", () => {
  it("adds up to one", () => {
    const shares = sharesOf([{ endedAt: 3, seconds: 1, queued_s: 1 }, { endedAt: 8, seconds: 2 }], 0, 10);
    expect(shares?.running).toBeCloseTo(0.3);
    expect(shares?.queued).toBeCloseTo(0.1);
    expect(shares?.client).toBeCloseTo(0.6);
  });

  it("counts the time of programs that queued behind each other once", () => {
    const shares = sharesOf([{ endedAt: 4, seconds: 2, queued_s: 0 }, { endedAt: 6, seconds: 2, queued_s: 2 }], 2, 6);
    expect(shares).toEqual({ running: 1, queued: 0, client: 0 });
  });

  it("knows nothing of an empty time", () => expect(sharesOf([], 5, 5)).toBeNull());
});

describe("depths of ranges", () => {
  it("follows parents, whatever the order", () => {
    const ranges = [
      { id: 3, parent: 2, start_ns: 0, end_ns: 1 }, { id: 2, parent: 1, start_ns: 0, end_ns: 1 },
      { id: 1, parent: null, start_ns: 0, end_ns: 1 }, { id: 9, parent: 77, start_ns: 0, end_ns: 1 },
    ];
    expect([...depthsOf(ranges)].sort()).toEqual([[1, 0], [2, 1], [3, 2], [9, 0]]);
  });

  it("ends on a circle", () => {
    const circle = [{ id: 1, parent: 2, start_ns: 0, end_ns: 1 }, { id: 2, parent: 1, start_ns: 0, end_ns: 1 }];
    expect(depthsOf(circle).size).toBe(2);
  });
});
