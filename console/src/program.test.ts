import { describe, expect, it } from "vitest";
import { effectsOf, inTheWay } from "./program";

const program = (...instructions: unknown[]) => ({ instructions });
const FIRST = program({ op: "tensor", outputs: ["x"] }, { op: "mul", inputs: ["x", "x"], outputs: ["y"] }, { op: "backward", inputs: [["y"]] });

describe("the effects of a program", () => {
  it.each([
    [FIRST, { made: ["x", "y"], taken: [], freed: [] }],
    [program({ op: "mul", inputs: ["x", 2], outputs: ["z"] }, { op: "free", inputs: [["x", "z"]] }), { made: [], taken: ["x"], freed: ["x"] }],
    [program(null, 7, { op: "zeros" }, { outputs: [null, "a"] }), { made: ["a"], taken: [], freed: [] }],
    [program({ op: "free", inputs: [["x"]] }, { op: "tensor", outputs: ["x"] }), { made: ["x"], taken: ["x"], freed: ["x"] }],
    [[], { made: [], taken: [], freed: [] }],
    [null, { made: [], taken: [], freed: [] }],
    [{ instructions: "x" }, { made: [], taken: [], freed: [] }],
  ])("%j", (body, effects) => expect(effectsOf(body)).toEqual(effects));
  it("is that of its beginning, where it failed", () => expect(effectsOf(FIRST, 1).made).toEqual(["x"]));
});

describe("what is in the way", () => {
  it("is all that the box made", () => expect(inTheWay(["x", "y", "old"], FIRST)).toEqual(["x", "y", "old"]));
  it("is what is made again, of a program that goes on from it", () => {
    const further = program({ op: "neg", inputs: ["y"], outputs: ["z"] });
    expect(inTheWay(["x", "y"], further)).toEqual([]);
    expect(inTheWay(["x", "y", "z"], further)).toEqual(["z"]);
  });
});
