// What a form of one op sends: an op is a request of its own, a verb a program of one instruction.

import type { OpEntry, OpParam } from "./api/types";
import { inputsOf, parseArgument } from "./state/catalogue";

/** A path below the session's, and a body. */
export interface Request {
  path: string;
  body: unknown;
}

export type Fields = Record<string, string>;

/** The request for an op or a verb, with what somebody typed for its parameters and for the ids of its outputs. */
export function requestOf(entry: OpEntry, fields: Fields, outputs: string): Request {
  const given = entry.attrs.filter(({ name }) => (fields[name] ?? "").trim() !== "");
  const attrs = Object.fromEntries(given.map(({ name }) => [name, parseArgument(fields[name] ?? "")]));
  const ids = outputs.split(",").map((id) => id.trim()).filter(Boolean);
  const inputs = inputsOf(entry.inputs.map((param) => listed(param, fields[param.name] ?? "")));
  const optional = {
    ...(ids.length > 0 ? { outputs: ids } : {}),
    ...(Object.keys(attrs).length > 0 ? { attrs } : {}),
  };
  if (entry.kind !== "verb") return { path: `/ops/${encodeURIComponent(entry.key)}?data=true`, body: { inputs, ...optional } };
  const instruction = { op: entry.key, ...(inputs.length > 0 ? { inputs } : {}), ...optional };
  const fetched = ids.length > 0 ? [{ op: "fetch", inputs: [ids] }] : [];
  return { path: "/programs", body: { instructions: [instruction, ...fetched] } };
}

/** The text of an input; of one that takes several tensors, as a list. */
function listed(param: OpParam, text: string): string {
  const trimmed = text.trim();
  return param.kind.startsWith("tuple") && trimmed !== "" && !trimmed.startsWith("[") ? `[${trimmed}]` : text;
}

/** What the fields of a new op begin with. `taken` are the ids of the session's tensors. */
export function firstFields(entry: OpEntry, taken: readonly string[]): { fields: Fields; outputs: string } {
  if (entry.key === "tensor") {
    const free = ["x", "y", "z", "w"].find((id) => !taken.includes(id)) ?? "";
    return { fields: { data: "[1.0, 2.0, 3.0]", dtype: "float32", requires_grad: "true" }, outputs: free };
  }
  return { fields: entry.key === "backward" ? { retain_graph: "true" } : {}, outputs: "" };
}
