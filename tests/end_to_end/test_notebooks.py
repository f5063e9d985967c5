"""Telegrad in Jupyter: the notebooks of examples/ run as they stand; the extension; the widget; bars of progress.

A real kernel runs the cells, and a real browser shows the widget.
"""

from __future__ import annotations

import base64
import html
import shutil
import subprocess
import sys
from importlib.resources import files
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
NASTY = "<script>alert('&')</script>"


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


@pytest.mark.every
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
        if what in widget.caption + widget.svg:
            return
        time.sleep(0.1)
    raise TimeoutError(widget.caption)
"""


def test_a_live_graph_changes_while_cells_run(address: str, tmp_path: Path) -> None:
    texts, widgets = run(
        tmp_path,
        f"import telegrad as tg\nsession = tg.connect({address!r})" + WAIT,
        "x = tg.ones(3, requires_grad=True)\nwidget = tg.notebook.live_graph(names={'the <b>x': x}, every_s=0.05)",
        "widget",
        "y = (x * 2).exp()",
        "wait_for('graph of 2 operations')\nz = y.sum()\nwait_for('graph of 3 operations')",
        "session.close()\nwait_for('the session is closed')",
    )
    assert "GraphWidget" in texts[2]
    (state,) = [widget for widget in widgets if "svg" in widget]
    assert state["caption"] == "graph of 3 operations and 1 leaves; not up to date: the session is closed"
    assert "the &lt;b&gt;x" in state["svg"] and "exp" in state["svg"]


def test_a_large_live_graph_is_cut(server: str) -> None:
    with tg.connect(server):
        x = y = tg.ones(2, requires_grad=True)
        for _ in range(50):
            y = y * 1.0
        widget = tg.notebook.live_graph(names={"x": x}, limit=20, every_s=3600)
        widget.close()
        assert widget.caption == "graph of 20 operations and 0 leaves, 30 older operations not drawn"
        assert widget.svg.count("<rect") == 20


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anywidget", None)
    monkeypatch.delitem(sys.modules, "telegrad.notebook.widget", raising=False)
    with pytest.raises(RuntimeError, match=r"telegrad\[notebook\]"):
        tg.notebook.live_graph()


PAGE = """<body><div id="el"></div><script type="module">
    const module = await import("data:text/javascript;base64,SCRIPT");
    const [first, second] = [atob("FIRST"), atob("SECOND")];
    const state = { svg: first, caption: "<i>first</i>" }, watchers = {};
    const model = {
        get: (name) => state[name],
        on: (name, watcher) => (watchers[name] = watcher),
        off: (name) => delete watchers[name],
    };
    const say = (what, value) => document.body.append(`${what}: ${value}; `);
    const count = (selector) => document.querySelectorAll(selector).length;
    const stop = module.default.render({ model, el: document.getElementById("el") });
    say("boxes before", count("rect"));
    state.svg = second;
    watchers["change:svg"]();
    say("boxes after", count("rect"));
    say("injected", count("#el script, #el i"));
    stop();
    say("watchers left", Object.keys(watchers).length);
</script>"""


@pytest.mark.skipif(shutil.which("chromium") is None, reason="there is no Chromium here")
def test_a_browser_shows_the_picture_and_nothing_in_it_is_html(tmp_path: Path) -> None:
    """The page has a model like anywidget's, changes it once, and is printed as it then stands."""
    script = (files("telegrad.notebook") / "widget.js").read_text()
    x = tg.ones(2, requires_grad=True)
    pictures = [tg.graph(y, names={NASTY: x}).to_svg() for y in (x * 2, (x * 2).exp())]
    page = PAGE
    for name, text in zip(("SCRIPT", "FIRST", "SECOND"), (script, *pictures), strict=True):
        page = page.replace(name, base64.b64encode(text.encode()).decode())
    (tmp_path / "page.html").write_text(page)
    command = ["chromium", "--headless", "--no-sandbox", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    command += ["--virtual-time-budget=10000", f"file://{tmp_path / 'page.html'}"]
    dumped = subprocess.run(command, capture_output=True, text=True, timeout=CELL_S, check=True).stdout
    assert "boxes before: 2; boxes after: 3; injected: 0; watchers left: 0;" in dumped
    assert html.escape("<i>first</i>") in dumped


# Progress -----------------------------------------------------------------------------------------


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
