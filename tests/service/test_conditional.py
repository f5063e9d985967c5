"""Conditional requests: what has not changed is not sent again, and what has changed is not overwritten."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from .conftest import SessionClient, problem

SAFETENSORS, NPY = "application/vnd.safetensors", "application/x-npy"


def tag_of(session: SessionClient, path: str = "/tensors/x", **headers: str) -> str:
    answer = session.get(path, headers=headers)
    assert answer.status_code == 200
    return answer.headers["etag"]


def is_current(session: SessionClient, tag: str, path: str = "/tensors/x", **headers: str) -> bool:
    answer = session.get(path, headers={"If-None-Match": tag, **headers})
    assert (answer.status_code, answer.content == b"") in ((304, True), (200, False))
    if answer.status_code == 304:
        assert answer.headers["etag"] in tag
    return answer.status_code == 304


def test_a_value_is_sent_once(session: SessionClient) -> None:
    session.tensor("x", [1.0, 2.0], requires_grad=True)
    tag = tag_of(session)
    assert tag.startswith('"') and tag.endswith('"')
    assert is_current(session, tag) and is_current(session, f'"other", W/{tag}')
    assert not is_current(session, '"other"')
    assert session.get("/tensors/x", headers={"If-None-Match": "*"}).status_code == 304


@pytest.mark.parametrize(
    "change",
    [
        {"op": "set_data", "in": ["x"], "attrs": {"data": [1.0, 3.0]}},
        {"op": "requires_grad_", "in": ["x"]},
        {"op": "mul_", "in": ["x", 1.0]},
    ],
    ids=["values", "description", "version"],
)
def test_a_change_is_seen(session: SessionClient, change: dict[str, Any]) -> None:
    session.tensor("x", [1.0, 2.0])
    tag = tag_of(session)
    assert session.run(change).status_code == 200
    assert not is_current(session, tag)


@pytest.mark.full
@pytest.mark.parametrize(
    "value",
    [
        {"data": 1.5},
        {"data": []},
        {"data": [True, False]},
        {"data": [1.0, 2.0], "dtype": "bfloat16"},
        {"data": ["NaN", "Infinity"], "dtype": "float64"},
    ],
    ids=["0-dim", "empty", "bool", "bfloat16", "NaN"],
)
def test_values_of_every_kind_have_tags(session: SessionClient, value: dict[str, Any]) -> None:
    session.post("/tensors", {"id": "x", **value})
    assert is_current(session, tag_of(session))


@pytest.mark.full
def test_a_tensor_of_the_same_id_is_another_one(session: SessionClient) -> None:
    session.tensor("x", [1.0, 2.0])
    tag = tag_of(session)
    session.request("DELETE", "/tensors/x")
    session.tensor("x", [1.0, 3.0])
    assert not is_current(session, tag)


@pytest.mark.full
def test_each_representation_has_its_own_tag(session: SessionClient) -> None:
    session.tensor("x", [1.0, 2.0])
    tags = {accept: tag_of(session, accept=accept) for accept in ("application/json", SAFETENSORS, NPY)}
    assert len(set(tags.values())) == 3
    for accept, tag in tags.items():
        assert is_current(session, tag, accept=accept)
        assert not is_current(session, tag, accept=NPY if accept != NPY else SAFETENSORS)


@pytest.mark.full
def test_a_description_without_the_value_has_no_tag(session: SessionClient) -> None:
    session.tensor("x", [1.0, 2.0])
    assert "etag" not in session.get("/tensors/x?data=false").headers


@pytest.mark.full
def test_gradients_have_tags(session: SessionClient) -> None:
    session.tensor("x", [1.0, 2.0], requires_grad=True)
    session.post("/ops/sum", {"inputs": ["x"], "outputs": ["y"]})
    session.post("/backward", {"tensors": ["y"], "retain_graph": True})
    tag = tag_of(session, "/tensors/x/grad")
    assert is_current(session, tag, "/tensors/x/grad")
    session.post("/backward", {"tensors": ["y"]})
    assert not is_current(session, tag, "/tensors/x/grad")


def test_a_change_that_would_be_lost_is_refused(session: SessionClient) -> None:
    session.tensor("x", [1.0, 2.0])
    mine = tag_of(session)
    theirs = session.request("PATCH", "/tensors/x", json={"data": [3.0, 4.0]}, headers={"If-Match": mine})
    assert theirs.status_code == 200
    for method, body in (("PATCH", {"data": [5.0, 6.0]}), ("DELETE", None)):
        answer = session.request(method, "/tensors/x", json=body, headers={"If-Match": mine})
        problem(answer, 412, "precondition-failed")
    assert session.data("x") == [3.0, 4.0]
    assert is_current(session, theirs.headers["etag"])
    binary = tag_of(session, accept=NPY)
    assert session.request("DELETE", "/tensors/x", headers={"If-Match": f'"x", {binary}'}).status_code == 204


@pytest.mark.full
def test_if_match_with_a_star_needs_any_tensor(session: SessionClient) -> None:
    problem(session.request("DELETE", "/tensors/x", headers={"If-Match": "*"}), 404, "unknown-tensor")
    session.tensor("x", [1.0])
    problem(
        session.request("DELETE", "/tensors/x", headers={"If-Match": "W/" + tag_of(session)}),
        412,
        "precondition-failed",
    )
    assert session.request("DELETE", "/tensors/x", headers={"If-Match": "*"}).status_code == 204


@pytest.mark.parametrize("path", ["/v1/ops", "/v1/ops?kind=verb", "/v1/ops/mul"])
def test_the_catalogue_is_sent_once(client: httpx.Client, path: str) -> None:
    first = client.get(path)
    again = client.get(path, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
    assert client.get("/v1/ops/add", headers={"If-None-Match": first.headers["etag"]}).status_code == 200


@pytest.mark.full
def test_a_compressed_response_has_its_own_tag(client: httpx.Client) -> None:
    plain = client.get("/v1/ops", headers={"accept-encoding": "identity"})
    packed = client.get("/v1/ops", headers={"accept-encoding": "zstd"})
    assert packed.headers["content-encoding"] == "zstd"
    assert plain.headers["etag"] != packed.headers["etag"]
    for tag in (plain.headers["etag"], packed.headers["etag"]):
        assert client.get("/v1/ops", headers={"If-None-Match": tag}).status_code == 304
