"""Figures of a real run, and the dashboard and alert rules that are made of them."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import yaml
from lineage_run import wait_for
from prometheus_client.parser import text_string_to_metric_families
from speech_servers import LONG_TEXT, TIMEOUT_S

if TYPE_CHECKING:
    from conftest import Guarded
    from prometheus_client.samples import Sample

FOLDER = Path(__file__).parents[2] / "deploy" / "monitoring"
RULES = FOLDER / "prometheus-rules.yaml"
RULES_TEST = FOLDER / "prometheus-rules.test.yaml"
PROMTOOL = os.environ.get("PROMTOOL") or shutil.which("promtool")
DASHBOARD = FOLDER / "grafana-dashboard.json"
# Prometheus adds these to what it scrapes, and tells by `up` whether it could.
SCRAPE_LABELS = {"job", "instance"}
SCRAPE_METRICS = {"up"}
GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
WORDS = {"and", "or", "unless", "bool", "offset"}
SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)\s*(?:\{([^}]*)\})?(?!\w*\s*\()")
MATCHER = re.compile(r'\s*(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"\s*')
QUANTILE_ABOVE = re.compile(r"histogram_quantile\(.*?(speech_\w+)_bucket.*\) > ([\d.]+)$")


@dataclass(frozen=True)
class Selector:
    """A metric that an expression reads, and what it asks of its labels."""

    name: str
    matchers: tuple[tuple[str, str, str], ...]  # label, operator, value


def selectors(expression: str) -> list[Selector]:
    """What `expression` reads: all names that are no function, no keyword and no label."""
    expression = re.sub(r"\[[^\]]*\]", "", GROUPING.sub("", expression))
    found: list[Selector] = []
    for name, labels in SELECTOR.findall(expression):
        if name in WORDS:
            continue
        matchers = tuple(MATCHER.findall(labels))
        # Nothing of the braces may be left over: it would be asked of no label here.
        assert re.sub(r"[\s,]", "", MATCHER.sub("", labels)) == "", labels
        found.append(Selector(name, matchers))
    return found


def groupings(expression: str) -> set[str]:
    """Labels that `expression` groups by."""
    listed = (label for labels in GROUPING.findall(expression) for label in labels.split(","))
    return {label.strip() for label in listed}


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panel_expressions() -> list[tuple[str, str]]:
    panels = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    return [
        (panel["title"], target["expr"]) for panel in panels for target in panel.get("targets", [])
    ]


def expressions() -> list[tuple[str, str]]:
    return [(rule["alert"], rule["expr"]) for rule in alerts()] + panel_expressions()


def samples_of(guarded: Guarded) -> list[Sample]:
    text = httpx.get(
        f"{guarded.url}/metrics", headers=guarded.headers, timeout=TIMEOUT_S, verify=False
    ).text
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def total(samples: list[Sample], name: str, **labels: str) -> float:
    return sum(s.value for s in samples if s.name == name and labels.items() <= s.labels.items())


def lines_of(guarded: Guarded) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in guarded.log.read_text("utf-8").splitlines()]
    return [line for line in lines if line["logger"] == "server.requests"]


@pytest.fixture(scope="module")
def scraped(guarded: Guarded) -> tuple[list[Sample], list[dict[str, Any]]]:
    """Samples and log lines of a run: speech, more of it than fits, and refusals."""

    def speak(number: int) -> int:
        # The seventh does not fit into two places and two that wait, whatever the others do.
        return httpx.post(
            f"{guarded.url}/v1/audio/speech",
            json={"input": LONG_TEXT if number < 7 else "hello there", "seed": 1},
            headers=guarded.headers,
            timeout=TIMEOUT_S,
        ).status_code

    with ThreadPoolExecutor(7) as pool:
        codes = list(pool.map(speak, range(7)))
    assert set(codes) == {200, 429}
    assert speak(7) == 200
    assert httpx.post(f"{guarded.url}/v1/audio/speech", timeout=TIMEOUT_S).status_code == 401

    def settled() -> bool:
        samples = samples_of(guarded)
        return total(samples, "speech_requests_total") == len(lines_of(guarded))

    wait_for(settled, "the last request is counted and logged")
    return samples_of(guarded), lines_of(guarded)


def test_figures_and_log_of_a_run_tell_the_same(
    scraped: tuple[list[Sample], list[dict[str, Any]]],
) -> None:
    samples, lines = scraped
    for outcome in {line["outcome"] for line in lines}:
        count = sum(line["outcome"] == outcome for line in lines)
        assert total(samples, "speech_requests_total", outcome=outcome) == count
    assert total(samples, "speech_audio_samples_total") == sum(line["samples"] for line in lines)
    for name, key in (("ttfa", "ttfa_ms"), ("ttfs", "ttfs_ms")):
        known_ms = [line[key] for line in lines if key in line]
        assert total(samples, f"speech_{name}_seconds_count") == len(known_ms)
        seconds = total(samples, f"speech_{name}_seconds_sum")
        assert seconds == pytest.approx(sum(known_ms) / 1_000, abs=1e-4 * len(known_ms))


def test_what_was_measured_lies_within_the_buckets(
    scraped: tuple[list[Sample], list[dict[str, Any]]],
) -> None:
    samples, _ = scraped
    histograms = {s.name.removesuffix("_bucket") for s in samples if s.name.endswith("_bucket")}
    assert histograms >= {"speech_ttfa_seconds", "speech_rtf", "speech_queue_wait_seconds"}
    for name in histograms:
        buckets = {float(s.labels["le"]): s.value for s in samples if s.name == f"{name}_bucket"}
        counted = buckets.pop(math.inf)
        assert counted > 0, name
        # The bucket without an end tells nothing.
        assert buckets[max(buckets)] == counted, name
        assert list(buckets) == sorted(buckets)


def test_state_and_places_are_told(scraped: tuple[list[Sample], list[dict[str, Any]]]) -> None:
    samples, _ = scraped
    states = {s.labels["state"]: s.value for s in samples if s.name == "speech_state"}
    assert states == {"loading": 0, "ready": 1, "draining": 0, "failed": 0}
    assert total(samples, "speech_max_streams") == total(samples, "speech_max_queue") == 2
    assert total(samples, "speech_open_connections") >= 1


@pytest.mark.parametrize(("title", "expression"), expressions())
def test_what_a_panel_or_rule_asks_for_is_there(
    scraped: tuple[list[Sample], list[dict[str, Any]]], title: str, expression: str
) -> None:
    samples, _ = scraped
    labels: dict[str, dict[str, set[str]]] = {}
    for sample in samples:
        known = labels.setdefault(sample.name, {})
        for label, value in sample.labels.items():
            known.setdefault(label, set()).add(value)
    read = selectors(expression)
    assert read, title
    grouped = groupings(expression)
    for selector in read:
        assert ("job", "=", "speech") in selector.matchers, (title, selector.name)
        if selector.name in SCRAPE_METRICS:
            continue
        assert selector.name in labels, (title, selector.name)
        for label, operator, value in selector.matchers:
            if label in SCRAPE_LABELS:
                continue
            values = labels[selector.name].get(label, set())
            assert values, (title, selector.name, label)
            assert operator != "=" or value in values, (title, selector.name, label, value)
        if selector.name.endswith("_bucket"):
            assert "le" in grouped, title
        assert grouped <= SCRAPE_LABELS | set(labels[selector.name]), title


def test_a_quantile_is_compared_with_an_edge_of_its_buckets(
    scraped: tuple[list[Sample], list[dict[str, Any]]],
) -> None:
    samples, _ = scraped
    compared = [found for rule in alerts() if (found := QUANTILE_ABOVE.search(rule["expr"]))]
    assert len(compared) == 2
    for found in compared:
        name, threshold = found[1], float(found[2])
        edges = [float(s.labels["le"]) for s in samples if s.name == f"{name}_bucket"]
        # Between two edges a quantile is made up.
        assert threshold in edges, (name, threshold)


def test_every_metric_of_the_server_is_in_a_panel(
    scraped: tuple[list[Sample], list[dict[str, Any]]],
) -> None:
    shown = {each.name for _, expression in panel_expressions() for each in selectors(expression)}
    shown = {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown}
    names = {re.sub(r"_(bucket|sum|count|created)$", "", sample.name) for sample in scraped[0]}
    served = {name for name in names if name.startswith("speech_")}
    assert {re.sub(r"_total$", "", name) for name in served} == {
        re.sub(r"_total$", "", name) for name in shown if name.startswith("speech_")
    }


def test_every_alert_says_what_it_is_and_how_bad() -> None:
    rules = alerts()
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in ("warning", "critical")


def test_every_alert_is_tested_to_fire_and_to_be_silent() -> None:
    silent, firing = yaml.safe_load(RULES_TEST.read_text("utf-8"))["tests"]
    names = {rule["alert"] for rule in alerts()}
    assert {each["alertname"] for each in silent["alert_rule_test"]} == names
    told = " ".join(each["expr"] for each in firing["promql_expr_test"])
    assert set(re.findall(r'alertname="(\w+)"', told)) == names


@pytest.mark.skipif(
    PROMTOOL is None,
    reason="no promtool (apt-get install prometheus, or PROMTOOL=/path/to/promtool)",
)
def test_the_rules_fire_when_they_should() -> None:
    for command in (
        ("check", "rules", RULES.name),
        ("check", "config", "prometheus.yaml"),
        ("test", "rules", RULES_TEST.name),
    ):
        done = subprocess.run(
            [str(PROMTOOL), *command], cwd=FOLDER, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_misspelt_metric_label_or_value_would_be_noticed() -> None:
    read = selectors('sum by (le) (rate(speech_x{a="b", c=~"$d"}[5m])) / on(e) up > 1 or time()')
    assert [each.name for each in read] == ["speech_x", "up"]
    assert read[0].matchers == (("a", "=", "b"), ("c", "=~", "$d"))
    assert groupings("sum by (le, x) (up) / on(e) up") == {"le", "x", "e"}
