"""Telegrad in Jupyter: the notebooks of examples/ run as they stand; the extension; the widget; bars of progress.

A real kernel runs the cells.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

import telegrad as tg

NOTEBOOKS = Path(__file__).parents[2] / "examples" / "notebooks"
WIDGET_STATE = "application/vnd.jupyter.widget-state+json"
CELL_S = 300


def ran(notebook: Any, folder: Path) -> Any:
    """The notebook after its cells have run in a kernel. Raises CellExecutionError."""
    NotebookClient(notebook, timeout=CELL_S, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
    return notebook


def run(folder: Path, *cells: str) -> tuple[list[str], list[dict[str, Any]]]:
    """What each cell shows as text, and the states of the widgets when all have run."""
    cells_of_code = [nbformat.v4.new_code_cell(cell) for cell in cells]
    notebook = ran(nbformat.v4.new_notebook(cells=cells_of_code), folder)
    widgets = notebook.metadata.get("widgets", {WIDGET_STATE: {"state": {}}})[WIDGET_STATE]["state"].values()
    return [shown(cell) for cell in notebook.cells], [widget["state"] for widget in widgets]


def shown(cell: Any) -> str:
    return "".join(output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.outputs)


@pytest.fixture(autouse=True)
def _environment(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels connect to the server, and find and write no settings of the user."""
    monkeypatch.setenv("TELEGRAD_URL", server)
    for name in ("HOME", "IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "MPLCONFIGDIR"):
        monkeypatch.setenv(name, str(tmp_path))


# The notebooks of examples/ -----------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_runs_as_it_stands(path: Path, server: str, tmp_path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code), "notebooks are kept without outputs"
    assert sum(cell.cell_type == "markdown" for cell in notebook.cells) >= len(code) - 3, "the text teaches"
    ran(notebook, tmp_path)
    assert f"at {server}: " in shown(code[0])
    pictures = [cell for cell in code if any({"text/html", "image/png"} & {*o.get("data", ())} for o in cell.outputs)]
    assert len(pictures) >= 3


def test_there_are_notebooks() -> None:
    assert len([*NOTEBOOKS.glob("*.ipynb")]) >= 3


# The extension ------------------------------------------------------------------------------------


def test_the_extension_connects_and_shows_the_session(server: str, tmp_path: Path) -> None:
    texts, _ = run(
        tmp_path,
        "%load_ext telegrad\nimport telegrad as tg",
        "%telegrad",
        "first = tg.current()\n%reload_ext telegrad\ntg.current() is first",
        f"second = %telegrad {server} --seed 1\nsecond.id != first.id and second is tg.current()",
        f"third = %telegrad {server} --session {{first.id}}\nthird.id == first.id",
        "%telegrad local://",
        "%%telegrad_profile\ny = (tg.ones(3) @ tg.ones(3)).item()",
        "y",
    )
    assert texts[0] == ""
    assert f"at {server}: 0 programs sent" in texts[1]
    assert texts[2:5] == ["True"] * 3
    assert "at local://" in texts[5]
    assert "aten::matmul" in texts[6] and "Self CPU" in texts[6]
    assert texts[7] == "3.0"


@pytest.mark.full
@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("%telegrad http://127.0.0.1:9", r"cannot reach http://127\.0\.0\.1:9.*`telegrad serve` starts one"),
        ("%telegrad nonsense", "cannot connect to 'nonsense': an address starts with"),
        ("%telegrad --session 12345678", "12345678"),
        ("%telegrad --nonsense", "unrecognized arguments: --nonsense"),
        (
            "import os\nos.environ['TELEGRAD_URL'] = 'http://127.0.0.1:9'\n%reload_ext telegrad",
            "cannot reach http://127",
        ),
    ],
)
def test_a_wrong_address_is_one_line_of_error(cell: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(CellExecutionError, match=message) as raised:
        run(tmp_path, "%load_ext telegrad", cell)
    assert "Traceback" not in str(raised.value)


# The widget ---------------------------------------------------------------------------------------

WAIT = """
import time
def wait_for(what):
    for _ in range(600):
        if what in [box["label"] for box in widget.picture["graph"]["boxes"]] + [widget.ended]:
            return
        time.sleep(0.1)
    raise TimeoutError(widget.picture)
"""


def test_a_live_graph_changes_while_cells_run(address: str, tmp_path: Path) -> None:
    """What a browser shows of it is in tests/console/test_notebook.py."""
    texts, widgets = run(
        tmp_path,
        f"import telegrad as tg\nsession = tg.connect({address!r})" + WAIT,
        "x = tg.ones(3, requires_grad=True)\nwidget = tg.notebook.live_graph(names={'the <b>x': x}, every_s=0.05)",
        "widget",
        "y = (x * 2).exp()",
        "wait_for('exp')\nz = y.sum()\nwait_for('sum')",
        "session.close()\nwait_for('the session is closed')",
    )
    assert "GraphWidget" in texts[2]
    (state,) = [widget for widget in widgets if "picture" in widget]
    assert state["ended"] == "the session is closed"
    assert state["picture"]["query"] == state["query"]
    assert [box["label"] for box in state["picture"]["graph"]["boxes"]] == ["the <b>x", "mul", "exp", "sum"]


def test_a_large_live_graph_is_folded(address: str) -> None:
    with tg.connect(address):
        x = y = tg.ones(2, requires_grad=True)
        for _ in range(50):
            y = y * 1.0
        widget = tg.notebook.live_graph(names={"x": x}, limit=20, every_s=3600)
        graph = widget.picture["graph"]
        assert graph["nodes"] == 51
        assert [(box["label"], box["count"]) for box in graph["boxes"]] == [("mul", 51)]
        widget.close()


def test_a_live_graph_that_cannot_be_read_says_why(address: str) -> None:
    with tg.connect(address):
        widget = tg.notebook.live_graph(every_s=0.05)
        widget.query = {**widget.query, "source": "step"}
        until = time.monotonic() + 60
        while "error" not in widget.picture:
            assert time.monotonic() < until
            time.sleep(0.05)
        assert "no step of this session was observed" in widget.picture["error"]["detail"]
        widget.close()


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anywidget", None)
    monkeypatch.delitem(sys.modules, "telegrad.notebook.widget", raising=False)
    with pytest.raises(RuntimeError, match=r"telegrad\[notebook\]"):
        tg.notebook.live_graph()


# Progress -----------------------------------------------------------------------------------------


@pytest.mark.full
def test_a_large_tensor_shows_a_bar_that_is_a_widget(server: str, tmp_path: Path) -> None:
    texts, widgets = run(
        tmp_path,
        f"""import numpy as np, telegrad as tg
from telegrad.transport import progress
session = tg.connect({server!r})
progress.AFTER_S = progress.EVERY_S = 0.0
x = tg.tensor(np.zeros(3 * 2**20))
print(x.sum().item())""",
    )
    assert texts[0].endswith("0.0\n")
    bars = [widget for widget in widgets if widget["_model_name"] == "FloatProgressModel"]
    assert any(3 * 2**23 <= bar["max"] < 3 * 2**23 + 2**20 for bar in bars), "its length is that of the message"
