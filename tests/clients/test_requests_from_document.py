"""Requests that schemathesis makes of openapi/openapi.json: the server does what the document says.

Of responses, that none is a fault of the server's and each is documented: status, media type, headers and schema. Of
requests, that those which the document excludes are refused.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import httpx

from telegrad_service.launch import running_server

from .test_generated_clients import DOCUMENT, need, run

COMMAND = Path(sys.prefix, "schemathesis/bin/schemathesis")
SEED = 1
EXAMPLES = 10
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
)


def test_the_server_does_what_the_document_says(tmp_path: Path) -> None:
    need(COMMAND.exists(), "schemathesis, which `make test-clients` installs,")
    document = json.loads(DOCUMENT.read_text(encoding="utf-8"))
    functions = document["paths"]["/v1/sessions/{session}/functions"]["post"]["requestBody"]["content"]
    function = functions["application/json"]["examples"]["power"]["value"]
    with running_server(max_sessions=4000) as url, httpx.Client(base_url=url) as client:
        # Most requests name something that exists: without that, all that they find out is 404.
        session = client.post("/v1/sessions").json()["id"]
        path = f"/v1/sessions/{session}"
        for place, body in [
            ("tensors", {"id": "x", "data": [1.0, 2.0], "requires_grad": True}),
            ("ops/mul", {"inputs": ["x", "x"], "outputs": ["y"]}),
            ("functions", function),
        ]:
            client.post(f"{path}/{place}", json=body).raise_for_status()
        configuration = tmp_path / "schemathesis.toml"
        names = {"path.session": session, "path.id": "x", "path.name": function["name"]}
        lines = [f"{json.dumps(name)} = {json.dumps(value)}" for name, value in names.items()]
        configuration.write_text("\n".join(["[parameters]", *lines]))
        run(
            COMMAND, "--config-file", configuration, "run", DOCUMENT, "--url", url, "--seed", SEED,
            "--max-examples", EXAMPLES, "--phases", "examples,coverage,fuzzing", "--checks", ",".join(CHECKS),
            "--exclude-operation-id", "delete_session", "--continue-on-failure", "--no-color", directory=tmp_path,
        )  # fmt: skip
        assert client.get("/healthz").json()["status"] == "ok"
