"""Tensors: made from anything, served as anything."""

from __future__ import annotations

import io
import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load, save

from .conftest import SessionClient, problem

NPY = "application/x-npy"
SAFETENSORS = "application/vnd.safetensors"


def npy(array: Any, **options: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, **options)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("data", "dtype", "shape"),
    [
        (1.5, "float32", []),
        (2, "int64", []),
        (True, "bool", []),
        ([], "float32", [0]),
        ([[], []], "float32", [2, 0]),
        ([[1, 2], [3, 4]], "int64", [2, 2]),
        (["NaN", "Infinity", "-Infinity", 1.0], "float32", [4]),
    ],
)
def test_from_data(session: SessionClient, data: Any, dtype: str, shape: list[int]) -> None:
    created = session.post("/tensors", {"data": data}, params={"data": True}).json()
    assert (created["dtype"], created["shape"], created["data"]) == (dtype, shape, data)


@pytest.mark.parametrize("data", [2, [1, 2], [[1], [-3]]])
def test_whole_numbers_can_require_grad(session: SessionClient, new_session: Any, data: Any) -> None:
    """JavaScript, Go and R print 2.0 as 2."""
    made = session.tensor("x", data, requires_grad=True)
    assert (made["dtype"], made["requires_grad"]) == ("float32", True)
    assert session.tensor("n", data)["dtype"] == "int64"
    upload = {"op": "tensor", "out": ["p"], "attrs": {"data": data, "requires_grad": True}}
    assert session.run(upload, {"op": "fetch", "in": [["p"]]}).json()["values"]["p"]["dtype"] == "float32"
    assert new_session(dtype="float64").tensor("x", data, requires_grad=True)["dtype"] == "float64"


def test_dtype_and_requires_grad(session: SessionClient) -> None:
    created = session.tensor("x", [1, 2], dtype="float64", requires_grad=True)
    assert (created["dtype"], created["requires_grad"], created["is_leaf"]) == ("float64", True, True)


@pytest.mark.parametrize(
    ("body", "shape", "dtype"),
    [
        ({"factory": "zeros", "shape": [2, 3]}, [2, 3], "float32"),
        ({"factory": "ones", "shape": [2], "dtype": "int32"}, [2], "int32"),
        ({"factory": "full", "shape": [2], "attrs": {"fill_value": 7.5}}, [2], "float32"),
        ({"factory": "eye", "attrs": {"n": 3}}, [3, 3], "float32"),
        ({"factory": "arange", "attrs": {"start": 5}}, [5], "int64"),
        ({"factory": "randint", "shape": [4], "attrs": {"high": 9}}, [4], "int64"),
        ({"factory": "randn", "shape": [], "requires_grad": True}, [], "float32"),
    ],
)
def test_from_a_factory(session: SessionClient, body: dict[str, Any], shape: list[int], dtype: str) -> None:
    answer = session.post("/tensors", body)
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert (made["shape"], made["dtype"]) == (shape, dtype)
    assert made["requires_grad"] is body.get("requires_grad", False)


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({}, 422, "either data or factory"),
        ({"data": 1, "factory": "ones"}, 422, "either data or factory"),
        ({"data": [1], "shape": [1]}, 422, "belong to a factory"),
        ({"data": [[1, 2], [3]]}, 422, "expected sequence of length 2 at dim 1 (got 1)"),
        ({"data": [1, [2]]}, 422, ""),
        ({"data": "abc"}, 422, "invalid data type 'str'"),
        ({"data": None}, 422, "NoneType"),
        ({"data": {"a": 1}}, 422, ""),
        ({"data": [2**70]}, 422, "Overflow"),
        ({"data": [1, 2], "dtype": "int64", "requires_grad": True}, 422, "floating point"),
        ({"data": [True], "requires_grad": True}, 422, "floating point"),
        ({"data": [1.0], "dtype": "complex64"}, 422, "complex dtypes are not supported yet"),
        ({"data": [1.0], "id": ".x"}, 422, "id"),
        ({"data": [1.0], "id": "x\n"}, 422, "id"),
        ({"data": [1.0], "requires_grad": "yes"}, 422, "requires_grad"),
        ({"factory": "ones", "shape": [-1]}, 422, "negative"),
        ({"factory": "ones", "shape": [2**30, 2**30]}, 413, ""),
        ({"factory": "ones", "shape": [2**62, 2**62]}, 413, ""),
        ({"factory": "ones"}, 422, "size"),
        ({"factory": "arange", "shape": [3], "attrs": {"start": 1}}, 422, "(Number end, *, torch.dtype dtype = None)"),
        ({"factory": "eye", "shape": [3], "attrs": {"n": 1}}, 422, "takes no shape"),
        ({"factory": "add"}, 422, "no factory"),
        ({"factory": "max"}, 422, "expected one of"),
        ({"factory": "tensor"}, 404, "unknown op"),
        ({"factory": "backward"}, 404, "unknown op"),
        ({"factory": "ones", "shape": [2], "dtype": "int64", "requires_grad": True}, 422, "floating point"),
        ({"factory": "arange", "attrs": {"start": 1e18}}, 413, ""),
        ({"factory": "arange", "attrs": {"start": "NaN"}}, 422, ""),
    ],
)
def test_what_cannot_be_a_tensor(session: SessionClient, body: Any, status: int, words: str) -> None:
    answer = session.post("/tensors", body)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert words in answer.json()["detail"]
    assert session.get().json()["tensors"] == 0
    session.assert_usable()


def test_an_id_is_used_once(session: SessionClient) -> None:
    session.tensor("x", 1.0)
    found = problem(session.post("/tensors", {"id": "x", "data": 2.0}), 409, "tensor-exists")
    assert found["ids"] == ["x"]
    assert session.data("x") == 1.0


def test_an_id_may_be_the_name_of_a_layer_s_parameter(session: SessionClient) -> None:
    assert session.post("/tensors", json={"id": "0.weight", "data": [2.0]}).status_code == 201
    assert session.post("/ops/exp2", json={"inputs": ["0.weight"], "outputs": ["1"]}).status_code == 200
    assert session.get("/tensors/0.weight").json()["data"] == [2.0]
    assert session.get("/tensors/1").json()["data"] == [4.0]


def test_ids_of_the_servers_choosing_are_free(session: SessionClient) -> None:
    first = session.post("/tensors", {"data": 1.0}).json()["id"]
    others = {session.post("/tensors", {"data": 1.0}).json()["id"] for _ in range(3)}
    assert len(others | {first}) == 4


DTYPES = [
    *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("float16", "float32", "float64"),
]


@pytest.mark.parametrize("count", [3, 5000])
@pytest.mark.parametrize(("dtype", "largest"), [("uint16", 2**16 - 1), ("uint32", 2**32 - 1), ("uint64", 2**64 - 1)])
def test_wide_unsigned_numbers_there_and_back(session: SessionClient, dtype: str, largest: int, count: int) -> None:
    data = [largest, *range(count)]
    made = session.tensor("x", data, dtype=dtype)
    assert made["dtype"] == dtype
    assert session.get("/tensors/x").json()["data"] == data
    refused = session.post("/tensors", {"data": [largest + 1], "dtype": dtype})
    assert refused.status_code == 422, refused.text


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 2)])
@pytest.mark.parametrize("media_type", [NPY, SAFETENSORS])
def test_binary_there_and_back(session: SessionClient, dtype: str, shape: tuple[int, ...], media_type: str) -> None:
    array = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    body = npy(array) if media_type == NPY else save({"any": array})
    made = session.request("POST", "/tensors", content=body, headers={"content-type": media_type}, params={"id": "x"})
    assert made.status_code == 201, made.text
    assert (made.json()["dtype"], made.json()["shape"]) == (dtype, list(shape))
    answer = session.get("/tensors/x", headers={"accept": media_type})
    assert answer.headers["content-type"] == media_type
    found = np.load(io.BytesIO(answer.content)) if media_type == NPY else load(answer.content)["x"]
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype and found.shape == array.shape


def test_bfloat16(session: SessionClient) -> None:
    session.tensor("x", [1.5, "NaN"], dtype="bfloat16")
    assert session.data("x") == [1.5, "NaN"]
    problem(session.get("/tensors/x", headers={"accept": NPY}), 406, "not-acceptable")
    answer = session.get("/tensors/x", headers={"accept": SAFETENSORS})
    header = json.loads(answer.content[8 : 8 + int.from_bytes(answer.content[:8], "little")])
    assert header["x"]["dtype"] == "BF16"
    back = np.frombuffer(answer.content[-4:], ml_dtypes.bfloat16)
    assert float(back[0]) == 1.5


def test_npy_in_other_orders(session: SessionClient) -> None:
    array = np.arange(6.0).reshape(2, 3)
    for index, other in enumerate([np.asfortranarray(array), array.astype(">f8")]):
        made = session.request(
            "POST", "/tensors", content=npy(other), headers={"content-type": NPY}, params={"id": f"x{index}"}
        )
        assert made.status_code == 201, made.text
        assert session.data(f"x{index}") == array.tolist()


def test_query_parameters_of_a_binary_body(session: SessionClient) -> None:
    params = {"id": "x", "dtype": "float64", "requires_grad": True}
    answer = session.request(
        "POST", "/tensors", content=npy(np.float32([1, 2])), headers={"content-type": NPY}, params=params
    )
    assert (answer.json()["dtype"], answer.json()["requires_grad"]) == ("float64", True)
    problem(session.post("/tensors", {"data": 1.0}, params={"id": "y"}), 422, "invalid-argument")


BAD_NPY = {
    "empty": b"",
    "not npy": b"hello",
    "pickle": npy(np.array([{}], dtype=object), allow_pickle=True),
    "truncated": npy(np.arange(10.0))[:-1],
    "too long": npy(np.arange(10.0)) + b"x",
    "a lie": npy(np.arange(2.0)).replace(b"(2,)", b"(9,)"),
    "a huge lie": npy(np.arange(2.0)).replace(b"(2,), }        ", b"(1152921504606846976,), }"[:15].ljust(15)),
    "complex": npy(np.array([1j])),
    "strings": npy(np.array(["a"])),
    "archive": b"PK\x03\x04" + b"\0" * 60,
    "deep header": b"\x93NUMPY\x01\x00" + (9000).to_bytes(2, "little") + b"(" * 9000,
}


@pytest.mark.parametrize("name", BAD_NPY)
def test_bad_npy(session: SessionClient, name: str) -> None:
    answer = session.request("POST", "/tensors", content=BAD_NPY[name], headers={"content-type": NPY})
    assert answer.status_code in (400, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    session.assert_usable()


BAD_CONTAINERS = {
    "empty": b"",
    "short": b"abc",
    "header beyond the end": (100).to_bytes(8, "little") + b"{}",
    "huge header": (2**62).to_bytes(8, "little") + b"{}",
    "not JSON": (2).to_bytes(8, "little") + b"[]",
    "deep": (60000).to_bytes(8, "little") + b"[" * 60000,
    "none": save({}),
    "two": save({"a": np.zeros(1), "b": np.zeros(1)}),
    "truncated": save({"a": np.zeros(4)})[:-1],
}


@pytest.mark.parametrize("name", BAD_CONTAINERS)
def test_bad_containers(session: SessionClient, name: str) -> None:
    headers = {"content-type": SAFETENSORS}
    for path in ("/tensors", "/programs"):
        answer = session.request("POST", path, content=BAD_CONTAINERS[name], headers=headers)
        problem(answer, 400, "malformed-request")
    session.assert_usable()


def test_description_only(session: SessionClient) -> None:
    session.tensor("x", [1.0])
    assert session.get("/tensors/x", params={"data": False}).json()["data"] is None


def test_changing(session: SessionClient) -> None:
    session.tensor("x", [1.0, 2.0])
    changed = session.request("PATCH", "/tensors/x", json={"data": [5, 6], "requires_grad": True}).json()
    assert (changed["version"], changed["requires_grad"], changed["dtype"]) == (1, True, "float32")
    assert session.data("x") == [5.0, 6.0]
    session.post("/ops/mul", {"inputs": ["x", 2], "outputs": ["y"]})
    assert session.request("PATCH", "/tensors/y", json={"retains_grad": True}).status_code == 200
    session.post("/backward", {"tensors": ["y"], "gradients": ["x"]})
    assert session.get("/tensors/y/grad").json()["data"] == [5.0, 6.0]
    for body, words in [
        ({"requires_grad": False}, "you can only change requires_grad flags of leaf variables"),
        ({"retains_grad": False}, "retains_grad"),
        ({"data": [1.0]}, "shape"),
        ({}, "give requires_grad"),
    ]:
        answer = session.request("PATCH", "/tensors/y", json=body)
        assert answer.status_code == 422
        assert words in answer.json()["detail"]


def test_deleting(session: SessionClient) -> None:
    session.tensor("x", [1.0])
    assert session.request("DELETE", "/tensors/x").status_code == 204
    for method, path in [("GET", "/tensors/x"), ("DELETE", "/tensors/x"), ("GET", "/tensors/x/grad")]:
        found = problem(session.request(method, path), 404, "unknown-tensor")
        assert found["ids"] == ["x"]
    found = problem(session.post("/ops/add", {"inputs": ["x", 1]}), 404, "unknown-tensor")
    assert found["op"] == "add"


def test_gradients_in_every_form(session: SessionClient) -> None:
    session.tensor("x", [1.0, 2.0], requires_grad=True)
    problem(session.get("/tensors/x/grad"), 404, "not-found")
    session.post("/ops/sum", {"inputs": ["x"], "outputs": ["s"]})
    session.post("/backward", {"tensors": ["s"]})
    before = session.get().json()["tensors"]
    assert session.get("/tensors/x/grad").json()["data"] == [1.0, 1.0]
    assert session.get("/tensors/x/grad", params={"data": False}).json()["data"] is None
    answer = session.get("/tensors/x/grad", headers={"accept": NPY})
    np.testing.assert_array_equal(np.load(io.BytesIO(answer.content)), [1, 1])
    answer = session.get("/tensors/x/grad", headers={"accept": SAFETENSORS})
    np.testing.assert_array_equal(load(answer.content)["x.grad"], [1, 1])
    assert session.get().json()["tensors"] == before
    for _ in range(2):
        assert session.request("DELETE", "/tensors/x/grad").status_code == 204
    problem(session.get("/tensors/x/grad"), 404, "not-found")
