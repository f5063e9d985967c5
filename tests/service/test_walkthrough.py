"""What a reader with only curl does: session, tensors, multiply, backward, gradient."""

from __future__ import annotations

import httpx


def test_curl_path(client: httpx.Client) -> None:
    created = client.post("/v1/sessions", json={"name": "curl", "seed": 0})
    assert created.status_code == 201
    path = created.headers["location"]
    assert path == f"/v1/sessions/{created.json()['id']}"

    x = client.post(f"{path}/tensors", json={"id": "x", "data": [1.0, 2.0], "requires_grad": True})
    assert x.status_code == 201
    assert x.headers["location"] == f"{path}/tensors/x"
    assert x.json() == {
        "id": "x",
        "shape": [2],
        "dtype": "float32",
        "device": "cpu",
        "requires_grad": True,
        "is_leaf": True,
        "grad_fn": None,
        "version": 0,
        "data": None,
    }
    client.post(f"{path}/tensors", json={"id": "w", "data": [3.0, 4.0]})

    y = client.post(f"{path}/ops/mul", json={"inputs": ["x", "w"], "outputs": ["y"]})
    assert y.status_code == 200
    assert y.json()["outputs"][0]["grad_fn"] == "MulBackward0"
    client.post(f"{path}/ops/sum", json={"inputs": ["y"], "outputs": ["loss"]})

    assert client.post(f"{path}/backward", json={"tensors": ["loss"]}).json() == {"grads": ["x"], "pending": None}
    gradient = client.get(f"{path}/tensors/x/grad")
    assert gradient.status_code == 200
    assert gradient.json()["data"] == [3.0, 4.0]
    assert gradient.json()["id"] == "x.grad"

    assert client.delete(path).status_code == 204
    assert client.get(path).status_code == 404


def test_without_content_type_the_answer_says_what_to_send(client: httpx.Client) -> None:
    answer = client.post(
        "/v1/sessions", content=b'{"seed": 1}', headers={"content-type": "application/x-www-form-urlencoded"}
    )
    assert answer.status_code == 415
    assert "application/json" in answer.json()["detail"]
