import { describe, expect, it, vi } from "vitest";
import type { Box } from "../api/types";

const box: Box = {
  id: "n1", kind: "op", label: "mul", op: "mul", module: null, line: null, count: 1, order: 1, rank: 1, shape: [2, 3],
  dtype: "float32", bytes: 0, tensors: ["y"], grad_norm: null, number: null, expandable: false,
};

describe("what a box says", async () => {
  vi.stubGlobal("matchMedia", () => ({ matches: false, addEventListener: () => undefined }));
  const { labelOf } = await import("./picture");
  it.each([
    [{}, "mul\ny [2, 3]"],
    [{ tensors: [] }, "mul\n[2, 3]"],
    [{ shape: [], number: -0.25 }, "mul\ny = −0.25"],
    [{ shape: [], number: "NaN" as const }, "mul\ny = NaN"],
    [{ shape: [] }, "mul\ny scalar"],
    [{ kind: "leaf" as const, op: null, label: "x", tensors: ["x"], shape: [] as number[], number: 2 }, "x\n= 2"],
    [{ tensors: ["a_long_name_of_a_tensor"] }, "mul\n…_of_a_tensor [2, 3]"],
    [{ kind: "group" as const, count: 12, shape: null }, "mul\n12 nodes"],
  ])("%j", (change, text) => expect(labelOf({ ...box, ...change })).toBe(text));
  it.each([
    [{ norm: 7, number: 7 }, { shape: [], number: 3 }, "u\n= 3, grad 7"],
    [{ norm: 1, number: -1.2345e-5 }, { shape: [], number: -1.5e-5 }, "u\ngrad −1.234e−5"],
    [{ norm: 1.4142, number: null }, { shape: [2] }, "u\ngrad norm 1.41"],
    [{ norm: "NaN" as const, number: "NaN" as const }, { shape: [], number: 1 }, "u\n= 1, grad NaN"],
  ])("with the gradient %j", (gradient, change, text) => {
    expect(labelOf({ ...box, kind: "leaf", op: null, label: "u", tensors: ["u"], ...change }, gradient)).toBe(text);
  });
});
