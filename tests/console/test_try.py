"""The box in which programs and ops run: again and again, and with looks at the graph in between."""

from __future__ import annotations

import re
from collections.abc import Callable

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect

from .console import Console
from .test_graph import Session, tensor

MADE = "try_x, try_y, try_loss, try_grad"


@pytest.fixture
def session(client: httpx.Client) -> Session:
    return Session(client, name="try")


@pytest.fixture
def program(console: Console, session: Session) -> Locator:
    """The text of the program."""
    console.open_session(session.id, "try")
    console.button("Program").click()
    return console.page.get_by_label("Program", exact=True)


def answer(console: Console) -> Locator:
    return console.page.get_by_label("Answer", exact=True)


def tensors(session: Session) -> set[str]:
    return {each["id"] for each in session.get("/tensors").json()["items"]}


def test_an_edited_program_runs_again(console: Console, session: Session, program: Locator) -> None:
    session.run(tensor("mine", [1.0]))
    console.button("Run").click()
    expect(answer(console)).to_contain_text("[2, 4, 6]")
    expect(console.page.get_by_text("Freed first")).to_have_count(0)
    console.button("Run").click()
    expect(console.page.get_by_text(f"Freed first: {MADE}")).to_be_visible()
    program.fill(program.input_value().replace("3.0", "4.0"))
    console.button("Run").click()
    expect(answer(console)).to_contain_text("[2, 4, 8]")
    assert tensors(session) == {"mine", "try_x", "try_y", "try_loss", "try_grad"}
    code = console.page.get_by_label("The request in curl")
    expect(code).to_contain_text('"op":"tensor"')
    expect(code).not_to_contain_text('"free"')


def test_a_program_runs_again_after_it_failed_in_its_middle(
    console: Console, session: Session, program: Locator
) -> None:
    right = program.input_value()
    program.fill(right.replace('"sum"', '"sigmod"'))
    console.button("Run").click()
    alert = console.page.get_by_role("alert")
    expect(alert).to_contain_text("sigmod")
    program.fill(right.replace('["try_loss"]]', '["try_loss", "nowhere"]]'))
    console.button("Run").click()
    expect(alert).to_contain_text("Instruction 3 of the program (the first is 0), backward.")
    assert tensors(session) == {"try_x", "try_y", "try_loss"}
    session.run({"op": "free", "inputs": [["try_y"]]})
    program.fill(right)
    console.button("Run").click()
    expect(answer(console)).to_contain_text("[2, 4, 6]")
    expect(console.page.get_by_text("Freed first: try_x, try_loss", exact=True)).to_be_visible()


def test_what_the_box_did_not_make_is_not_freed(console: Console, session: Session, program: Locator) -> None:
    session.run(tensor("try_y", [7.0]))
    for _ in range(2):
        console.button("Run").click()
        expect(console.page.get_by_role("alert")).to_contain_text("there is a tensor 'try_y' already")
    assert session.get("/tensors/try_y").json()["data"] == [7.0]


def test_the_last_run_is_kept_where_somebody_wants_it(console: Console, session: Session, program: Locator) -> None:
    console.button("Run").click()
    frees = console.page.get_by_role("checkbox", name=f"Free first what this box has made: {MADE}")
    frees.uncheck()
    console.button("Run").click()
    expect(console.page.get_by_role("alert")).to_contain_text("there is a tensor 'try_x' already")
    frees.check()
    console.button("Run").click()
    expect(answer(console)).to_contain_text("[2, 4, 6]")


def test_a_program_can_go_on_from_the_last_one(console: Console, session: Session, program: Locator) -> None:
    console.button("Run").click()
    expect(answer(console)).to_be_visible()
    program.fill(
        '{"instructions": [{"op": "neg", "inputs": ["try_loss"], "outputs": ["less"]},'
        ' {"op": "fetch", "inputs": [["less"]]}]}'
    )
    for _ in range(2):
        console.button("Run").click()
        expect(answer(console)).to_contain_text('"data": -14')
    expect(console.page.get_by_text("Freed first: less", exact=True)).to_be_visible()


def test_what_was_written_stays_while_the_page_is_open(console: Console, session: Session, program: Locator) -> None:
    text = program.input_value().replace("3.0", "5.0")
    program.fill(text)
    console.button("Run").click()
    expect(answer(console)).to_contain_text("[2, 4, 10]")
    console.page.get_by_role("link", name="Graph").click()
    console.expect_nodes(4)
    console.page.get_by_role("link", name="Sessions", exact=True).click()
    console.open_session(session.id, "try")
    expect(program).to_have_value(text)
    console.button("Run").click()
    expect(console.page.get_by_text(f"Freed first: {MADE}")).to_be_visible()
    console.button("One op").click()
    console.button("New tensor").click()
    console.page.get_by_label("data", exact=False).first.fill("[8.0]")
    console.page.get_by_role("link", name="Graph").click()
    console.expect_nodes(4)
    console.page.get_by_role("link", name="Try it").click()
    expect(console.page.get_by_role("combobox", name="Op")).to_have_value("tensor")
    expect(console.page.get_by_label("data", exact=False).first).to_have_value("[8.0]")
    console.button("Run").click()
    expect(answer(console)).to_contain_text("[8]")
    console.button("Program").click()
    expect(program).to_have_value(text)


def test_two_sessions_have_their_own_texts(
    open_page: Callable[..., Page], url: str, client: httpx.Client, session: Session
) -> None:
    console = Console(open_page(), url)
    console.open_session(session.id, "try")
    console.button("Program").click()
    console.page.get_by_label("Program", exact=True).fill("[]")
    console.open_session(Session(client).id, "try")
    expect(console.page.get_by_role("combobox", name="Op")).to_have_value("")
    console.button("Program").click()
    expect(console.page.get_by_label("Program", exact=True)).to_have_value(re.compile("try_x"))
