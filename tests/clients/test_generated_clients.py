"""Clients that generators make of openapi/openapi.json: they compile, and compute against a real server.

``make test-clients`` runs this, and installs the generators. Go and Java come from the system: where they are missing,
their tests are skipped, except in continuous integration, where they fail.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from telegrad_service import cli

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / cli.DOCUMENT
STREAM = DOCUMENT.parent / cli.STREAM
GUIDE = ROOT / "docs/how-to/clients.md"
PLACEHOLDER = "http://127.0.0.1:8000"
PROGRAMS = Path(__file__).parent / "programs"
NODE_MODULES = Path(sys.prefix, "clients", "node_modules")
NODE = "Node.js, or what `make test-clients` installs for it,"
GO_LIBRARIES = Path("/usr/share/gocode")
JAVA_LIBRARIES = Path("/usr/share/java")
TIMEOUT_S = 300
EXPECTED = {
    "data": [1.0, 2.0],
    "dtype": "float32",
    "product": [3.0, 6.0],
    "gradient": [3.0, 3.0],
    "second": [2.0, 4.0],
    "program": [3.0, 6.0],
    "max_bytes": 2 * 2**30,
    "problem": "urn:telegrad:problem:unknown-tensor",
}


def run(*command: object, directory: Path, **environment: str) -> str:
    """Run a command in a directory; what it prints."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=directory,
        env={**os.environ, "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1", **environment},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def need(found: object, what: str) -> None:
    """Skip the test if something is not installed; in continuous integration, fail."""
    if found:
        return
    if os.environ.get("CI"):
        pytest.fail(f"{what} is missing")
    pytest.skip(f"{what} is missing")


def generate(generator: str, output: Path, **properties: str) -> None:
    """Have openapi-generator write a client's sources."""
    output.mkdir(parents=True, exist_ok=True)
    command = shutil.which("openapi-generator-cli", path=Path(sys.prefix, "bin"))
    need(command, "openapi-generator-cli, which `make test-clients` installs,")
    options = ",".join(f"{name}={value}" for name, value in properties.items())
    parts = "apis,models,supportingFiles,apiTests=false,modelTests=false,apiDocs=false,modelDocs=false"
    run(
        command, "generate", "--input-spec", DOCUMENT, "--generator-name", generator, "--output", output,
        "--global-property", parts, *(["--additional-properties", options] if options else []),
        directory=output.parent,
    )  # fmt: skip


def example(language: str, server: str) -> str:
    """The example of docs/how-to/clients.md in this language, for the server."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert PLACEHOLDER in found
    return str(found).replace(PLACEHOLDER, server)


def compile_typescript(program: str, directory: Path) -> Path:
    """The program as JavaScript; the types of all that it imports are checked."""
    (directory / "package.json").write_text('{"type": "module"}')
    options = {"strict": True, "target": "es2022", "lib": ["es2022", "dom"], "module": "nodenext", "types": []}
    (directory / "tsconfig.json").write_text(json.dumps({"compilerOptions": options, "files": [program]}))
    run("node", NODE_MODULES / "typescript/bin/tsc", directory=directory)
    return (directory / program).with_suffix(".js")


def python(directory: Path, server: str) -> list[str]:
    generate("python", directory / "client", packageName="generated")
    return [
        run(
            sys.executable, PROGRAMS / "openapi_generator.py", server,
            directory=directory, PYTHONPATH=str(directory / "client"),
        )
    ]  # fmt: skip


def python_client(directory: Path, server: str) -> list[str]:
    command = shutil.which("openapi-python-client", path=Path(sys.prefix, "bin"))
    need(command, "openapi-python-client, which `make test-clients` installs,")
    run(
        command, "generate", "--path", DOCUMENT, "--meta", "none", "--output-path", "generated",
        directory=directory, PATH=f"{Path(sys.prefix, 'bin')}{os.pathsep}{os.environ['PATH']}",
    )  # fmt: skip
    program = PROGRAMS / "openapi_python_client.py"
    return [run(sys.executable, program, server, directory=directory, PYTHONPATH=str(directory))]


def typescript_fetch(directory: Path, server: str) -> list[str]:
    need(shutil.which("node") and NODE_MODULES.exists(), NODE)
    generate("typescript-fetch", directory / "client", importFileExtension=".js")
    shutil.copy(PROGRAMS / "typescript_fetch.ts", directory)
    (directory / "example.ts").write_text(example("ts", server))
    programs = [compile_typescript(name, directory) for name in ("typescript_fetch.ts", "example.ts")]
    return [run("node", program, server, directory=directory) for program in programs]


def openapi_typescript(directory: Path, server: str) -> list[str]:
    need(shutil.which("node") and NODE_MODULES.exists(), NODE)
    (directory / "node_modules").symlink_to(NODE_MODULES)
    generator = NODE_MODULES / "openapi-typescript/bin/cli.js"
    # A property with a default need not be given; by its own default the generator makes types of responses there.
    run("node", generator, DOCUMENT, "--default-non-nullable=false", "--output", "generated.d.ts", directory=directory)
    shutil.copy(PROGRAMS / "openapi_typescript.ts", directory)
    return [run("node", compile_typescript("openapi_typescript.ts", directory), server, directory=directory)]


def go(directory: Path, server: str) -> list[str]:
    need(shutil.which("go"), "Go")
    need((GO_LIBRARIES / "src/gopkg.in/validator.v2").exists(), "Debian's package golang-gopkg-validator.v2-dev")
    module = directory / "src/example.com/app"
    generate("go", module / "telegrad", packageName="telegrad", withGoMod="false")
    (module / "example.go").write_text(example("go", server))
    shutil.copy(PROGRAMS / "main.go", module)
    # Found by path, as Debian lays out Go's libraries: there may be no module proxy.
    found = {"GOPATH": f"{directory}{os.pathsep}{GO_LIBRARIES}", "GO111MODULE": "off", "GOFLAGS": ""}
    printed = []
    for program in ("main.go", "example.go"):
        run("go", "build", "-o", "program", program, directory=module, GOCACHE=str(directory / "cache"), **found)
        printed.append(run(module / "program", server, directory=module))
    return [printed[0], printed[1].replace(" <nil>", "").replace(" ", ",")]


def java(directory: Path, server: str) -> list[str]:
    need(shutil.which("javac"), "a JDK")
    annotations = JAVA_LIBRARIES / "jakarta-annotation-api.jar"
    need(annotations.exists(), "Debian's package libjakarta-annotation-api-java")
    generate("java", directory / "client", library="native", openApiNullable="false", useJakartaEe="true")
    # The generator's own archive has Jackson, which the client needs.
    import openapi_generator_cli

    archive = Path(openapi_generator_cli.__file__).parent / "openapi-generator.jar"
    libraries = f"{archive}{os.pathsep}{annotations}"
    (directory / "Example.java").write_text(example("java", server))
    sources = [*sorted(directory.glob("client/src/main/java/**/*.java")), "Example.java", PROGRAMS / "Main.java"]
    run("javac", "-proc:none", "-d", "classes", "-cp", libraries, *sources, directory=directory)
    command = ("java", "-cp", f"classes{os.pathsep}{libraries}")
    return [run(*command, program, server, directory=directory) for program in ("Main", "Example")]


@pytest.mark.parametrize("client", [python, python_client, typescript_fetch, openapi_typescript, go, java])
def test_a_generated_client_computes(client: Callable[[Path, str], list[str]], tmp_path: Path, server: str) -> None:
    """Sessions, tensors, mul, backward, grad, a deletion and an error, through classes that a generator wrote."""
    printed, *examples = [json.loads(output) for output in client(tmp_path, server)]
    assert printed == EXPECTED
    assert examples in ([], [[3, 4]]), "the example of docs/how-to/clients.md"


def test_the_example_for_curl(tmp_path: Path, server: str) -> None:
    need(shutil.which("curl"), "curl")
    printed = run("bash", "-e", "-c", example("sh", server), directory=tmp_path)
    assert json.loads(printed[printed.rindex("{") :])["data"] == [3.0, 4.0]


def test_the_example_for_r(tmp_path: Path, server: str) -> None:
    check = ["Rscript", "-e", "library(httr2); library(jsonlite)"]
    if not shutil.which("Rscript") or subprocess.run(check, capture_output=True, timeout=TIMEOUT_S).returncode:
        pytest.skip("R, or its package httr2 or jsonlite, is missing")
    assert run("Rscript", "-e", example("r", server), directory=tmp_path).splitlines()[-1] == "[1] 3 4"


@pytest.mark.parametrize("document", [DOCUMENT, STREAM])
def test_the_document_passes_the_linter(tmp_path: Path, document: Path) -> None:
    need(shutil.which("node") and NODE_MODULES.exists(), NODE)
    linter = NODE_MODULES / "@redocly/cli/bin/cli.js"
    run("node", linter, "lint", document, "--max-problems", 1000, directory=tmp_path, REDOCLY_TELEMETRY="off")


def test_the_streams_document_is_asyncapi() -> None:
    """By the JSON schema that the AsyncAPI Initiative publishes."""
    published = NODE_MODULES / "@asyncapi/specs/schemas/3.0.0-without-$id.json"
    need(published.exists(), NODE)
    schema = json.loads(published.read_text(encoding="utf-8"))
    jsonschema.Draft7Validator(schema).validate(json.loads(STREAM.read_text(encoding="utf-8")))
