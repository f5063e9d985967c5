import { describe, expect, it } from "vitest";
import {
  formatAge, formatBytes, formatCount, formatJson, formatNumber, formatSeconds, formatShape, formatShort, isBad, plural, real,
} from "./format";

describe("numbers", () => {
  it.each([
    [0, "0"], [1, "1"], [-2.5, "−2.5"], [3.14159265, "3.142"], [123456, "123500"], [0.00012345, "1.234e−4"],
    [1.5e9, "1.5e9"], [-1e-30, "−1e−30"], ["NaN", "NaN"], ["Infinity", "∞"], ["-Infinity", "−∞"], [null, "–"], [1e6, "1e6"],
  ] as const)("writes %s as %s", (value, text) => expect(formatNumber(value)).toBe(text));

  it("tells a NaN and an infinity from an absent number", () => {
    expect([isBad("NaN"), isBad("-Infinity"), isBad(null), isBad(undefined), isBad(2)]).toEqual([true, true, false, false, false]);
    expect(real("-Infinity")).toBe(-Infinity);
    expect(real(null)).toBeNaN();
  });

  it("counts", () => {
    expect(formatCount(1234567)).toBe("1 234 567");
    expect([formatShort(7.25), formatShort(12_345), formatShort(2_500_000)]).toEqual(["7.3", "12.3k", "2.5M"]);
    expect([plural(1, "node"), plural(2000, "node")]).toEqual(["1 node", "2 000 nodes"]);
  });
});

describe("sizes and times", () => {
  it.each([
    [0, "0 B"], [999, "999 B"], [1000, "1 kB"], [1234, "1.23 kB"], [999_999, "1 MB"], [2 ** 31, "2.15 GB"], [null, "–"],
  ] as const)("writes %s bytes as %s", (bytes, text) => expect(formatBytes(bytes)).toBe(text));

  it.each([
    [0, "0 s"], [3e-9, "3 ns"], [0.00042, "420 µs"], [0.0123, "12.3 ms"], [2.5, "2.5 s"], [90, "1 min"], [NaN, "–"],
  ])("writes %s seconds as %s", (seconds, text) => expect(formatSeconds(seconds)).toBe(text));

  it("writes ages in two units", () => {
    expect([formatAge(59), formatAge(3600), formatAge(5400), formatAge(90_000)]).toEqual(["59 s", "1 h", "1 h 30 min", "1 d 1 h"]);
  });
});

describe("values", () => {
  it("writes shapes", () => expect([formatShape([]), formatShape([2, 3]), formatShape(null)]).toEqual(["scalar", "2 × 3", "–"]));
  it("cuts long values", () => expect(formatJson("x".repeat(500), 10)).toBe("xxxxxxxxxx…"));
});
