import { describe, expect, it, vi } from "vitest";
import type { OpEntry, OpParam } from "./api/types";

vi.stubGlobal("document", { baseURI: "http://127.0.0.1:8000/" });
const { firstFields, requestOf } = await import("./request");

function entry(key: string, kind: OpEntry["kind"], inputs: string[], attrs: string[] = []): OpEntry {
  const param = (source: OpParam["source"], text: string): OpParam => {
    const [name = "", type = ""] = text.split(": ");
    return { name, kind: type, source, required: true, default: null };
  };
  return {
    key, kind, name: key, namespace: "", aliases: [], signature: "", doc: "", outputs: [], differentiable: true, internal: false,
    inputs: inputs.map((text) => param("input", text)), attrs: attrs.map((text) => param("attr", text)),
  };
}

describe("the request of a form", () => {
  it("runs an op by its own path", () => {
    const mul = entry("mul", "op", ["input: Tensor", "other: Tensor"]);
    expect(requestOf(mul, { input: "x", other: "3" }, "y")).toEqual({
      path: "/ops/mul?data=true",
      body: { inputs: ["x", 3], outputs: ["y"] },
    });
  });

  it("runs a verb as a program of one instruction, and fetches its outputs", () => {
    const tensor = entry("tensor", "verb", [], ["data: lists", "dtype: dtype", "requires_grad: bool"]);
    const { fields, outputs } = firstFields(tensor, ["x"]);
    expect(requestOf(tensor, fields, outputs)).toEqual({
      path: "/programs",
      body: {
        instructions: [
          { op: "tensor", outputs: ["y"], attrs: { data: [1, 2, 3], dtype: "float32", requires_grad: true } },
          { op: "fetch", inputs: [["y"]] },
        ],
      },
    });
  });

  it("makes a list of what an input of several tensors is given", () => {
    const backward = entry("backward", "verb", ["tensors: tuple of Tensors"], ["retain_graph: bool"]);
    const sent = (tensors: string) => requestOf(backward, { tensors }, "").body;
    expect(sent("loss")).toEqual({ instructions: [{ op: "backward", inputs: [["loss"]] }] });
    expect(sent("a, b")).toEqual({ instructions: [{ op: "backward", inputs: [["a", "b"]] }] });
    expect(sent('["loss"]')).toEqual({ instructions: [{ op: "backward", inputs: [["loss"]] }] });
  });
});
