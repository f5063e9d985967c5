// The client that openapi-generator makes for TypeScript, against the server that the first argument names.

import { AutogradApi, Configuration, OpsApi, ProgramsApi, ResponseError, SessionsApi, TensorsApi } from "./client/index.js";

declare const process: { argv: string[] };

async function main(): Promise<void> {
  const configuration = new Configuration({ basePath: process.argv[2] });
  const sessions = new SessionsApi(configuration);
  const tensors = new TensorsApi(configuration);
  const ops = new OpsApi(configuration);
  const autograd = new AutogradApi(configuration);

  const created = await sessions.createSession({ sessionCreate: { name: "generated", seed: 0 } });
  const session = created.id;
  const x = await tensors.createTensor({
    session,
    data: true,
    tensorCreate: { id: "x", data: [1, 2], dtype: "float32", requiresGrad: true },
  });
  await tensors.createTensor({
    session,
    tensorCreate: { id: "w", factory: "full", shape: [2], attrs: { fill_value: 3.0 }, dtype: "float32" },
  });
  const y = await ops.runOp({ session, op: "mul", data: true, opArguments: { inputs: ["x", "w"], outputs: ["y"] } });
  await ops.runOp({ session, op: "sum", opArguments: { inputs: ["y"], outputs: ["loss"] } });
  await autograd.backward({ session, backwardArguments: { tensors: ["loss"] } });
  const gradient = await tensors.getGrad({ session, id: "x" });
  await ops.runOp({ session, op: "mul", opArguments: { inputs: ["x", "x"], outputs: ["square"] } });
  await ops.runOp({ session, op: "sum", opArguments: { inputs: ["square"], outputs: ["total"] } });
  const second = await autograd.grad({ session, gradArguments: { outputs: ["total"], inputs: ["x"] } });
  const instructions = [
    { op: "mul", inputs: ["x", "w"], outputs: ["p"] },
    { op: "fetch", inputs: [["p"]] },
  ];
  const fetched = await new ProgramsApi(configuration).runProgram({ session, program: { instructions } });
  await tensors.deleteTensor({ session, id: "w" });
  let problem: string | null = null;
  try {
    await tensors.getTensor({ session, id: "w" });
  } catch (error) {
    if (!(error instanceof ResponseError)) throw error;
    problem = (await error.response.json()).type;
  }
  await sessions.deleteSession({ session });

  console.log(
    JSON.stringify({
      data: x.data,
      dtype: x.dtype,
      product: y.outputs[0].data,
      gradient: gradient.data,
      second: second.grads[0]?.data,
      max_bytes: created.maxBytes,
      program: fetched.values.p.data,
      problem,
    }),
  );
}

main();
