"""Every block of code on every page of the site runs against a server, and pages are short."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import trustme
from tools.site import stage

from telegrad_engine.errors import ERRORS
from telegrad_engine.schema.op import CATALOGUE
from telegrad_service.settings import Settings, WorkerSettings

from ..conftest import BLOCKS
from ..servers import running, running_server, telegrad
from .blocks import ROOT, Elsewhere, Page

WRITTEN = sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))
OF_ROOT = ["../README.md", "../CONTRIBUTING.md", "../SECURITY.md"]
GENERATED = (
    "reference/ops/linalg", "reference/ops/math", "reference/ops/nn", "reference/ops/random", "reference/ops/shape",
    "reference/ops/*", "reference/rest", "reference/*", "explanation/coverage.md",
)  # fmt: skip
"""Folders of pages that are made from the code; a star stands for the pages of a folder without those below it."""
MOST_WORDS = 1550
"""On a page, with its code and tables."""


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All pages of the site."""
    folder = tmp_path_factory.mktemp("site") / "pages"
    assert stage(folder) > len(WRITTEN)
    return folder


@pytest.fixture(scope="module")
def server() -> Iterator[Callable[[], str]]:
    """The address of a server that is started when a page needs one."""
    addresses: list[str] = []
    with ExitStack() as stack:

        def start() -> str:
            if not addresses:
                addresses.append(stack.enter_context(running_server()))
            return addresses[0]

        yield start


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Elsewhere]]:
    """A server with TLS and a key, started when a page needs it."""
    started: list[Elsewhere] = []
    with ExitStack() as stack:

        def start() -> Elsewhere:
            if not started:
                folder = tmp_path_factory.mktemp("elsewhere")
                ca, certificate, database = folder / "ca.pem", folder / "server.pem", f"sqlite:///{folder}/keys.db"
                authority = trustme.CA()
                authority.cert_pem.write_to_path(ca)
                authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(certificate)
                key = telegrad("keys", "create", "--tenant=reader", TELEGRAD_DATABASE_URL=database).stdout.strip()
                flags = f"--tls-cert={certificate}", f"--database-url={database}"
                url, _ = stack.enter_context(running(*flags))
                started.append(Elsewhere(url, key, ca))
            return started[0]

        yield start


Run = Callable[[Path, Path], None]


@pytest.fixture
def run(
    server: Callable[[], str], elsewhere: Callable[[], Elsewhere], record_property: Callable[[str, object], None]
) -> Run:
    """Runs the blocks of a page in a folder, and records how many they were."""

    def run(path: Path, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        with Page(path, folder, server, elsewhere) as page:
            record_property(BLOCKS, tuple(page.run()))

    return run


@pytest.mark.full
@pytest.mark.parametrize("name", [*WRITTEN, *OF_ROOT])
def test_the_blocks_of_a_page_run(name: str, tmp_path: Path, run: Run) -> None:
    run(ROOT / "docs" / name, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("place", GENERATED)
def test_the_blocks_of_pages_made_from_the_code_run(place: str, pages: Path, tmp_path: Path, run: Run) -> None:
    found = sorted(pages.glob(f"{place}.md" if place.endswith("*") else f"{place}/*.md")) or [pages / place]
    for path in found:
        if path.relative_to(pages).as_posix() not in WRITTEN:
            run(path, tmp_path / path.stem)


@pytest.mark.full
def test_the_reference_has_everything(pages: Path) -> None:
    text = {
        path.relative_to(pages).as_posix(): path.read_text() for path in sorted((pages / "reference").rglob("*.md"))
    }
    whole = "\n".join(text.values())
    document = json.loads((ROOT / "openapi" / "openapi.json").read_text())
    operations = [each["operationId"] for item in document["paths"].values() for each in item.values()]
    wanted = [f"#op-{op.key} }}" for op in CATALOGUE if not op.private]
    wanted += [f"#{operation} }}" for operation in operations]
    wanted += [f"`{slug}`" for slug in ERRORS]
    wanted += [f"`TELEGRAD_{name.upper()}`" for name in {**Settings.model_fields, **WorkerSettings.model_fields}]
    assert [each for each in wanted if each not in whole] == []
    assert "`grad * result`" in text["reference/ops/math/elementary.md"], "the derivative of exp"


@pytest.mark.parametrize("name", [*WRITTEN, *OF_ROOT])
def test_a_page_is_short(name: str) -> None:
    assert len((ROOT / "docs" / name).read_text(encoding="utf-8").split()) <= MOST_WORDS
