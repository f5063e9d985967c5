"""Prometheus' configuration, its alerts and Grafana's dashboard ask for what a running server exposes."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import promql_parser
import pytest
from prometheus_client.parser import text_string_to_metric_families

import telegrad as tg
from telegrad_engine.errors import ERRORS
from tests.servers import running

from .files import GRAFANA, PROMETHEUS, ROOT, local, services, yaml

pytestmark = pytest.mark.full

DASHBOARD: dict[str, Any] = json.loads((GRAFANA / "dashboards" / "telegrad.json").read_text())
CONFIGURATION: dict[str, Any] = yaml(PROMETHEUS / "prometheus.yml")
RULES: list[dict[str, Any]] = [rule for group in yaml(PROMETHEUS / "rules.yml")["groups"] for rule in group["rules"]]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
OF_PROMETHEUS = {"job", "instance"}
"""The labels that Prometheus adds to every sample."""

Series = dict[str, set[str]]
"""The labels of each sample's name."""


def samples(text: str) -> Series:
    """What a server exposes, from the text of its metrics."""
    found: Series = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


@contextmanager
def running_gateway(database: Path) -> Iterator[str]:
    """The address of a gateway without workers."""
    flags = ["--port=0", f"--database-url=sqlite:///{database}", "--end-with-stdin=true"]
    with subprocess.Popen(
        local(["telegrad", "gateway", *flags]), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1]
        process.terminate()


@pytest.fixture(scope="module")
def exposed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Series]:
    """The samples of a gateway, and of a server that has trained, has ended a session, and has refused a request."""
    with running() as (url, _), running_gateway(tmp_path_factory.mktemp("gateway") / "database") as gateway:
        with tg.connect(url):
            weight = tg.randn(3, requires_grad=True)
            optimizer = tg.optim.SGD([weight], lr=0.1)
            for _ in range(3):
                optimizer.zero_grad()
                (weight * weight).sum().backward()
                optimizer.step()
            assert bool(weight.isfinite().all())
        assert httpx.get(f"{url}/v1/sessions/missing").status_code == 404
        found: Series = {"up": set()}
        for each in (url, gateway):
            for name, labels in samples(httpx.get(f"{each}/metrics").text).items():
                found.setdefault(name, set()).update(labels)
        yield found


def queries() -> Iterator[tuple[str, promql_parser.Expr]]:
    """Each query of the dashboard, as Grafana sends it, and of the alerts, with what asks."""
    for panel in PANELS:
        for target in panel["targets"]:
            yield panel["title"], promql_parser.parse(target["expr"].replace("$__rate_interval", "1m"))
    for rule in RULES:
        yield rule["alert"], promql_parser.parse(rule["expr"])


def parts(query: promql_parser.Expr) -> list[Any]:
    """A query and everything in it."""
    found: list[Any] = []
    promql_parser.walk(query, found.append)
    return found


def selected(query: promql_parser.Expr) -> list[Any]:
    """The series that a query selects."""
    return [part for part in parts(query) if isinstance(part, promql_parser.VectorSelector)]


def test_every_series_that_is_asked_for_is_exposed(exposed: Series) -> None:
    wanted = {(title, series.name) for title, query in queries() for series in selected(query)}
    assert {(title, name) for title, name in wanted if name not in exposed} == set()
    shown = {name for _, name in wanted}
    # What docs/reference/metrics.md lists is on the dashboard, or in an alert.
    assert {name for name in exposed if name.startswith("telegrad_")} - shown <= {
        "telegrad_build_info",  # its variables are filled from it
        "telegrad_program_duration_seconds_sum",
        "telegrad_program_instructions_total",
        "telegrad_http_request_duration_seconds_sum",
        "telegrad_http_request_duration_seconds_count",
    }


def test_every_series_is_documented(exposed: Series) -> None:
    text = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    documented = set(re.findall(r"^\| `(telegrad_\w+)` \|", text, re.MULTILINE))
    assert documented == {
        re.sub(r"(?<=_seconds)_(bucket|sum|count)$", "", name) for name in exposed if name.startswith("telegrad_")
    }


def test_every_label_that_is_asked_for_is_exposed(exposed: Series) -> None:
    for title, query in queries():
        for series in selected(query):
            labels = exposed[series.name] | OF_PROMETHEUS
            assert {matcher.name for matcher in series.matchers.matchers} <= labels, (title, series.name)
        for part in parts(query):
            if isinstance(part, promql_parser.AggregateExpr) and part.modifier is not None:
                inside = [exposed[series.name] | OF_PROMETHEUS for series in selected(part.expr)]
                assert all(set(part.modifier.labels) <= labels for labels in inside), (title, part.modifier.labels)


def test_a_legend_names_labels_that_its_query_keeps() -> None:
    for panel in PANELS:
        for target in panel["targets"]:
            named = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            kept = {
                label
                for part in parts(promql_parser.parse(target["expr"].replace("$__rate_interval", "1m")))
                if isinstance(part, promql_parser.AggregateExpr) and part.modifier is not None
                for label in part.modifier.labels
            }
            assert named == kept - {"le"}, (panel["title"], target["expr"])


def test_the_dashboards_variables_are_labels(exposed: Series) -> None:
    assert "telegrad_build_info" in exposed
    variables = {variable["name"]: variable["query"]["query"] for variable in DASHBOARD["templating"]["list"]}
    assert set(variables) == OF_PROMETHEUS
    for name, query in variables.items():
        assert re.fullmatch(rf"label_values\(telegrad_build_info(\{{.*\}})?, {name}\)", query)
    for title, query in queries():
        if title not in {rule["alert"] for rule in RULES}:
            assert all(
                {("job", "$job"), ("instance", "$instance")}
                <= {(matcher.name, matcher.value) for matcher in series.matchers.matchers}
                for series in selected(query)
            ), title


def test_the_dashboard_is_laid_out() -> None:
    identities = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(identities)) == len(identities) and DASHBOARD["uid"] == "telegrad"
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert all(x < 24 for x, _ in cells) and not cells & taken, panel["title"]
        taken |= cells


def test_grafana_finds_prometheus_and_the_dashboard() -> None:
    (source,) = yaml(GRAFANA / "provisioning" / "datasources" / "prometheus.yml")["datasources"]
    assert {panel["datasource"]["uid"] for panel in PANELS} == {source["uid"]}
    (port,) = services()["prometheus"]["ports"]
    assert source["url"] == f"http://prometheus:{port['target']}"
    (provider,) = yaml(GRAFANA / "provisioning" / "dashboards" / "telegrad.yml")["providers"]
    folder = provider["options"]["path"]
    mounted = {mount["target"] for mount in services()["grafana"]["volumes"]}
    environment = services()["grafana"]["environment"]
    assert {folder, environment["GF_PATHS_PROVISIONING"]} <= mounted
    assert environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == f"{folder}/telegrad.json"


def test_prometheus_asks_every_process_of_ours() -> None:
    asked = {
        name: config["port"]
        for job in CONFIGURATION["scrape_configs"]
        for config in job["dns_sd_configs"]
        for name in config["names"]
    }
    ports = {
        name: int(service["environment"]["TELEGRAD_PORT"])
        for name, service in services().items()
        if "TELEGRAD_PORT" in service.get("environment", {})
    }
    assert asked == {name: port for name, port in ports.items() if name != "single"}  # it runs alone
    assert all(services()["prometheus"]["networks"].keys() & services()[name]["networks"].keys() for name in asked)
    jobs = {job["job_name"] for job in CONFIGURATION["scrape_configs"]}
    (down,) = [rule for rule in RULES if rule["alert"] == "TelegradDown"]
    (series,) = selected(promql_parser.parse(down["expr"]))
    assert {job for matcher in series.matchers.matchers for job in matcher.value.split("|")} == jobs


def test_alerts_name_kinds_of_problems_that_exist() -> None:
    slugs = {
        matcher.value
        for rule in RULES
        for series in selected(promql_parser.parse(rule["expr"]))
        for matcher in series.matchers.matchers
        if matcher.name == "slug"
    }
    assert slugs and slugs <= set(ERRORS)
