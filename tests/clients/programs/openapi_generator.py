"""The client that openapi-generator makes for Python, against the server that the first argument names."""

import json
import sys

from generated import (
    ApiClient,
    AutogradApi,
    BackwardArguments,
    Configuration,
    GradArguments,
    Instruction,
    OpArguments,
    OpInstruction,
    OpsApi,
    Program,
    ProgramsApi,
    SessionCreate,
    SessionsApi,
    TensorCreate,
    TensorFromData,
    TensorFromFactory,
    TensorsApi,
    VerbInstruction,
)
from generated.exceptions import NotFoundException

with ApiClient(Configuration(host=sys.argv[1])) as client:
    sessions, tensors, ops, autograd = SessionsApi(client), TensorsApi(client), OpsApi(client), AutogradApi(client)
    created = sessions.create_session(session_create=SessionCreate(name="generated", seed=0))
    session = created.id
    x = tensors.create_tensor(
        session, TensorCreate(TensorFromData(id="x", data=[1.0, 2.0], requires_grad=True)), data=True
    )
    w = TensorFromFactory(id="w", factory="full", shape=[2], attrs={"fill_value": 3.0})
    tensors.create_tensor(session, TensorCreate(w))
    y = ops.run_op(session, "mul", OpArguments(inputs=["x", "w"], outputs=["y"]), data=True).outputs[0]
    ops.run_op(session, "sum", OpArguments(inputs=["y"], outputs=["loss"]))
    autograd.backward(session, BackwardArguments(tensors=["loss"]))
    gradient = tensors.get_grad(session, "x")
    ops.run_op(session, "mul", OpArguments(inputs=["x", "x"], outputs=["square"]))
    ops.run_op(session, "sum", OpArguments(inputs=["square"], outputs=["total"]))
    gradients = autograd.grad(session, GradArguments(outputs=["total"], inputs=["x"])).grads
    program = Program(
        instructions=[
            Instruction(OpInstruction(op="mul", inputs=["x", "w"], outputs=["p"])),
            Instruction(VerbInstruction(op="fetch", inputs=[["p"]])),
        ]
    )
    fetched = ProgramsApi(client).run_program(session, program).values["p"]
    tensors.delete_tensor(session, "w")
    try:
        tensors.get_tensor(session, "w")
        problem = None
    except NotFoundException as error:
        problem = json.loads(error.body)["type"]
    sessions.delete_session(session)

print(
    json.dumps(
        {
            "data": x.data,
            "dtype": x.dtype,
            "product": y.data,
            "gradient": gradient.data,
            "second": gradients[0].data,
            "max_bytes": created.max_bytes,
            "program": fetched.data,
            "problem": problem,
        }
    )
)
