import { describe, expect, it, vi } from "vitest";

vi.stubGlobal("document", { baseURI: "http://127.0.0.1:8000/" });
const { inputsOf, opBeforeCaret, parseArgument } = await import("./catalogue");

describe("arguments", () => {
  it.each([
    ["x", "x"], ["2.5", 2.5], ["true", true], ["[x, w, 2]", ["x", "w", 2]], ['["a"]', ["a"]], ['"NaN"', "NaN"], ["[]", []],
  ])("reads %s", (text, value) => expect(parseArgument(text)).toEqual(value));

  it("leaves out what is empty at the end, and nothing before", () => {
    expect(inputsOf(["x", "", "2", ""])).toEqual(["x", null, 2]);
    expect(inputsOf(["", ""])).toEqual([]);
  });
});

describe("completion", () => {
  it("finds the op that is being written", () => {
    const text = '{"instructions": [{"op": "lin';
    expect(opBeforeCaret(text, text.length)).toEqual({ from: text.length - 3, name: "lin" });
    expect(opBeforeCaret('{"op": "mul", ', 14)).toBeNull();
    expect(opBeforeCaret('{"inputs": ["mul', 16)).toBeNull();
  });
});
