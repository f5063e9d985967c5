import { describe, expect, it } from "vitest";
import { perSecond, smoothed } from "./curves";

describe("smoothing", () => {
  it("leaves values as they are without a weight", () => expect(smoothed([3, 1, 2], 0)).toEqual([3, 1, 2]));

  it("starts at the first value, and stays at a constant", () => {
    expect(smoothed([5, 5, 5], 0.9).map((value) => Math.round(value * 1e9) / 1e9)).toEqual([5, 5, 5]);
    expect(smoothed([1, 0], 0.5)[1]).toBeCloseTo(1 / 3);
  });

  it("passes over NaN and infinities", () => {
    const found = smoothed([1, NaN, Infinity, 1], 0.6);
    expect(found.slice(1, 3)).toEqual([NaN, NaN]);
    expect(found[3]).toBeCloseTo(1);
  });
});

describe("programs a second", () => {
  it("counts in whole seconds, with the empty ones", () => {
    expect(perSecond([10.1, 10.9, 12.5])).toEqual({ seconds: [10, 11, 12], counts: [2, 0, 1] });
    expect(perSecond([10.1], 12.5)).toEqual({ seconds: [10, 11, 12], counts: [1, 0, 0] });
    expect(perSecond([])).toEqual({ seconds: [], counts: [] });
  });
});
