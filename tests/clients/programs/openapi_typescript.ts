// The types that openapi-typescript makes, with openapi-fetch, against the server that the first argument names.

import createClient from "openapi-fetch";
import type { paths } from "./generated.js";

declare const process: { argv: string[] };

function ok<Data>(answer: { data?: Data; error?: { detail: string } }): Data {
  if (answer.data === undefined) throw new Error(answer.error?.detail);
  return answer.data;
}

async function main(): Promise<void> {
  // Of the media types of a response, the two that are JSON.
  const client = createClient<paths, "application/json" | "application/problem+json">({ baseUrl: process.argv[2] });
  const created = ok(await client.POST("/v1/sessions", { body: { name: "generated", seed: 0 } }));
  const session = created.id;
  const inSession = { params: { path: { session } } };
  const tensors = "/v1/sessions/{session}/tensors";
  const x = ok(
    await client.POST(tensors, {
      params: { path: { session }, query: { data: true } },
      body: { id: "x", data: [1, 2], dtype: "float32", requires_grad: true },
    }),
  );
  ok(await client.POST(tensors, { ...inSession, body: { id: "w", factory: "full", shape: [2], attrs: { fill_value: 3.0 }, dtype: "float32" } }));
  const op = async (op: string, inputs: string[], output: string) =>
    ok(
      await client.POST("/v1/sessions/{session}/ops/{op}", {
        params: { path: { session, op }, query: { data: true } },
        body: { inputs, outputs: [output] },
      }),
    ).outputs[0];
  const y = await op("mul", ["x", "w"], "y");
  await op("sum", ["y"], "loss");
  ok(await client.POST("/v1/sessions/{session}/backward", { ...inSession, body: { tensors: ["loss"] } }));
  const ofX = { params: { path: { session, id: "x" } } };
  const gradient = ok(await client.GET("/v1/sessions/{session}/tensors/{id}/grad", ofX));
  await op("mul", ["x", "x"], "square");
  await op("sum", ["square"], "total");
  const second = ok(
    await client.POST("/v1/sessions/{session}/grad", { ...inSession, body: { outputs: ["total"], inputs: ["x"] } }),
  );
  const program = { instructions: [{ op: "mul", inputs: ["x", "w"], outputs: ["p"] }, { op: "fetch", inputs: [["p"]] }] };
  const fetched = ok(await client.POST("/v1/sessions/{session}/programs", { ...inSession, body: program }));
  const ofW = { params: { path: { session, id: "w" } } };
  await client.DELETE("/v1/sessions/{session}/tensors/{id}", ofW);
  const { error } = await client.GET("/v1/sessions/{session}/tensors/{id}", ofW);
  await client.DELETE("/v1/sessions/{session}", inSession);

  console.log(
    JSON.stringify({
      data: x.data,
      dtype: x.dtype,
      product: y.data,
      gradient: gradient.data,
      second: second.grads[0]?.data,
      max_bytes: created.max_bytes,
      program: fetched.values.p.data,
      problem: error?.type,
    }),
  );
}

main();
