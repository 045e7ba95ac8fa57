"""docs/operating.md and docs/features.md say what there is: options, limits, codes, tests."""

from __future__ import annotations

import argparse
import dataclasses
import math
import re
from pathlib import Path

import pytest
import yaml

from server import api_processes, lifecycle
from server.__main__ import parser
from server.bearer import VARIABLE
from server.limits import Limits

ROOT = Path(__file__).parents[2]
OPERATING = (ROOT / "docs" / "operating.md").read_text("utf-8")
FEATURES = (ROOT / "docs" / "features.md").read_text("utf-8")
OPTION = re.compile(r"`(--[a-z-]+)`")


def rows(title: str) -> list[list[str]]:
    """Cells of the first table below the heading that begins with `title`."""
    below = re.split(rf"^#+ {title}.*$", OPERATING, maxsplit=1, flags=re.MULTILINE)[1]
    table = re.search(r"(?:^\|.*\n)+", below, re.MULTILINE)
    assert table is not None, title
    lines = table[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_limit_is_there_with_its_default() -> None:
    written = {row[0].strip("`"): float(row[1]) for row in rows("Limits")}
    assert written == dataclasses.asdict(Limits())


def test_every_option_is_there_with_its_default() -> None:
    known = {
        option.option_strings[-1]: option.default
        for option in parser()._actions
        if option.dest != "help" and option.help is not argparse.SUPPRESS
    }
    written = {name: row[1] for row in rows("Options") for name in OPTION.findall(row[0])}
    assert written.keys() == known.keys()
    for name, default in known.items():
        if name in ("--store", "--limit") or default in (None, False, []):
            continue
        shown = f"{default:g}" if isinstance(default, float) else str(default)
        assert written[name].strip("`") == shown, name


def test_the_proxy_waits_for_the_longest_silence_and_the_longest_whole_answer() -> None:
    (waits_s,) = (int(seconds) for seconds in re.findall(r"proxy_read_timeout (\d+)s;", OPERATING))
    limits = Limits()
    assert waits_s > limits.idle_s
    # At an rtf of 1 and 14 characters a second.
    assert waits_s > limits.queue_s + limits.whole_characters / 14


def test_the_variable_of_tokens_is_named() -> None:
    assert f"`{VARIABLE}`" in OPERATING


def test_every_exit_code_is_there() -> None:
    written = {int(code) for row in rows("How it ends") for code in row[0].split(", ")}
    known = {value for name, value in vars(lifecycle).items() if name.startswith("EXIT_")}
    assert written >= known


def test_the_longest_stop_is_there() -> None:
    closing_s = lifecycle.TOLD_S + api_processes.CLOSE_S + lifecycle.CLOSE_S
    written = re.findall(r"`?--drain-s`? and (\d+) s", OPERATING)
    assert len(written) == 4
    assert {int(seconds) for seconds in written} == {math.ceil(closing_s)}


def test_every_alert_is_there() -> None:
    rules = yaml.safe_load((ROOT / "deploy/monitoring/prometheus-rules.yaml").read_text("utf-8"))
    written = {name for row in rows("Monitoring") for name in re.findall(r"`(\w+)`", row[0])}
    assert written == {rule["alert"] for group in rules["groups"] for rule in group["rules"]}


@pytest.mark.parametrize("page", [OPERATING, FEATURES], ids=["operating", "features"])
def test_every_test_that_is_named_exists(page: str) -> None:
    files = list((ROOT / "tests").rglob("*.py"))
    source = "\n".join(file.read_text("utf-8") for file in files)
    functions = set(re.findall(r"^(?:async )?def (test_\w+)", source, re.MULTILINE))
    names = set(re.findall(r"`(test_\w+)`", page))
    assert len(names) > 2
    assert names <= functions
    assert set(re.findall(r"`(test_\w+\.py)`", page)) <= {file.name for file in files}
