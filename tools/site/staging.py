"""Collects the site's pages in one folder: those of ``docs/``, generated ones, and the files that pages link to."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from .generated import generated_pages

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
ROOT_PAGES = {
    "CONTRIBUTING.md": "maintainers/contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
"""Pages of the repository's root that the site has too."""
FILES = "files"
"""The site's folder with copies of files of the repository that pages link to."""
LINK = re.compile(r"(!?\[[^\]]*\])\(([^)\s]+)\)")
FENCE = re.compile(r"^ *(```|~~~)")


def stage(target: Path) -> int:
    """Write all pages to ``target``, which is replaced, and return their number.

    Raises ValueError for a link to a file that the repository does not have.
    """
    sources = {path.relative_to(DOCS).as_posix(): path for path in sorted(DOCS.rglob("*")) if path.is_file()}
    sources |= {page: ROOT / name for name, page in ROOT_PAGES.items()}
    made = generated_pages()
    pages = Pages({path: page for page, path in sources.items()}, set(made), target)
    shutil.rmtree(target, ignore_errors=True)
    for page, path in sources.items():
        if path.suffix == ".md":
            write(target / page, pages.relinked(path, page))
        else:
            copy(path, target / page)
    for page, text in made.items():
        write(target / page, text)
    return sum(page.endswith(".md") for page in [*sources, *made])


class Pages:
    """The pages of a site that is written to a folder."""

    def __init__(self, pages: dict[Path, str], made: set[str], target: Path) -> None:
        self._pages, self._made, self._target = pages, made, target

    def relinked(self, path: Path, page: str) -> str:
        """The text of a page with its relative links as they are on the site."""
        fenced, lines = False, []
        for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
            fenced ^= bool(FENCE.match(line))
            lines.append(line if fenced else LINK.sub(lambda link: self._relinked(link, path, page), line))
        return "".join(lines)

    def _relinked(self, link: re.Match[str], path: Path, page: str) -> str:
        text, address = link.groups()
        name, mark, fragment = address.partition("#")
        if not name or re.match(r"[a-z]+:", name):
            return link.group()
        linked = Path(os.path.normpath(path.parent / name))
        place = os.path.relpath(self._place(linked, path), Path(page).parent)
        return f"{text}({place}{mark}{fragment})"

    def _place(self, linked: Path, path: Path) -> str:
        """Where the site has what a page links to; files outside of ``docs/`` are copied."""
        if linked in self._pages:
            return self._pages[linked]
        if linked.is_relative_to(DOCS) and (page := linked.relative_to(DOCS).as_posix()) in self._made:
            return page
        if linked.is_dir() and linked / "README.md" in self._pages:
            return self._pages[linked / "README.md"]
        if linked.is_file() and linked.is_relative_to(ROOT):
            place = f"{FILES}/{linked.relative_to(ROOT).as_posix()}"
            copy(linked, self._target / place)
            return place
        raise ValueError(f"{path.relative_to(ROOT)} links to {linked}, which does not exist")


def write(path: Path, text: str) -> None:
    """Write a text to a file whose folder may be missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def copy(source: Path, target: Path) -> None:
    """Copy a file to a folder that may be missing."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
