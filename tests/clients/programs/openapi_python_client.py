"""The client that openapi-python-client makes, against the server that the first argument names."""

import json
import sys

from generated import Client
from generated.api.autograd import backward, grad
from generated.api.ops import run_op
from generated.api.programs import run_program
from generated.api.sessions import create_session, delete_session
from generated.api.tensors import create_tensor, delete_tensor, get_grad, get_tensor
from generated.models import (
    BackwardArguments,
    DType,
    GradArguments,
    OpArguments,
    OpInstruction,
    Problem,
    Program,
    SessionCreate,
    SessionStatus,
    Tensor,
    TensorFromData,
    TensorFromFactory,
    TensorFromFactoryAttrs,
    VerbInstruction,
    VerbInstructionOp,
)

with Client(base_url=sys.argv[1]) as client:
    created = create_session.sync(client=client, body=SessionCreate(name="generated", seed=0))
    assert isinstance(created, SessionStatus)
    session = created.id
    x = create_tensor.sync(
        session, client=client, body=TensorFromData(id="x", data=[1.0, 2.0], requires_grad=True), data=True
    )
    assert isinstance(x, Tensor) and x.dtype is DType.FLOAT32
    attrs = TensorFromFactoryAttrs.from_dict({"fill_value": 3.0})
    w = TensorFromFactory(id="w", factory="full", shape=[2], attrs=attrs)
    create_tensor.sync(session, client=client, body=w)
    y = run_op.sync(session, "mul", client=client, body=OpArguments(inputs=["x", "w"], outputs=["y"]), data=True)
    run_op.sync(session, "sum", client=client, body=OpArguments(inputs=["y"], outputs=["loss"]))
    backward.sync(session, client=client, body=BackwardArguments(tensors=["loss"]))
    gradient = get_grad.sync(session, "x", client=client)
    run_op.sync(session, "mul", client=client, body=OpArguments(inputs=["x", "x"], outputs=["square"]))
    run_op.sync(session, "sum", client=client, body=OpArguments(inputs=["square"], outputs=["total"]))
    second = grad.sync(session, client=client, body=GradArguments(outputs=["total"], inputs=["x"]))
    instructions = [
        OpInstruction(op="mul", inputs=["x", "w"], outputs=["p"]),
        VerbInstruction(op=VerbInstructionOp.FETCH, inputs=[["p"]]),
    ]
    fetched = run_program.sync(session, client=client, body=Program(instructions)).values["p"]
    assert delete_tensor.sync_detailed(session, "w", client=client).status_code == 204
    problem = get_tensor.sync(session, "w", client=client)
    assert isinstance(problem, Problem)
    delete_session.sync_detailed(session, client=client)

print(
    json.dumps(
        {
            "data": x.data,
            "dtype": x.dtype,
            "product": y.outputs[0].data,
            "gradient": gradient.data,
            "second": second.grads[0].data,
            "max_bytes": created.max_bytes,
            "program": fetched.data,
            "problem": problem.type_,
        }
    )
)
