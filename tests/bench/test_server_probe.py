"""What a server says of itself, asked over real sockets: slow, broken, hostile, or not at all."""

from __future__ import annotations

import json

import pytest
from bench.asked_server import TRICKLE, asked_server

from speech_assets.bench import server_probe
from speech_assets.bench.server_probe import ServerProbe

OURS = json.dumps({"config_sha256": "abc", "formats": ["pcm"]}).encode()
METRICS = b"# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 5\n"


def test_what_a_server_says_is_known() -> None:
    answers = {"/config": OURS, "/metrics": METRICS, "/v1/models": b'{"data": [{"created": 7}]}'}
    with asked_server(answers) as (url, asked), ServerProbe(url, {}, "key=k") as probe:
        facts = probe.facts()
    assert facts.is_ours
    assert facts.identity == ("5.0", "7", "abc")
    # What goes with every request goes with these, too.
    assert set(asked) == {f"{path}?key=k" for path in answers}


@pytest.mark.parametrize(
    ("config", "models", "metrics"),
    [
        (b"[" * 200_000, b"", b'b{le=+Inf"} 3 123\n'),
        (b'{"a":' * 200 + b"1" + b"}" * 200, b"", b"\xff\xfe"),
        (OURS, b'{"data": ["gpt"]}', b"<html>"),
        (OURS, b'{"data": {"a": 1}}', b"{"),
        (OURS, b"[" * 200_000, b"# TYPE\n"),
        (b"\xff", b"", b""),
    ],
)
def test_nonsense_is_not_known_and_ends_nothing(
    config: bytes, models: bytes, metrics: bytes
) -> None:
    answers = {"/config": config, "/v1/models": models, "/metrics": metrics}
    with asked_server(answers) as (url, _), ServerProbe(url, {}) as probe:
        facts = probe.facts()
        assert facts.is_ours is (config == OURS)
        assert not (facts.metrics and facts.metrics.values)


def test_numbers_that_json_does_not_know_are_left_out() -> None:
    with (
        asked_server({"/config": b'{"a": NaN, "b": [Infinity, 1e999, 2]}'}) as (url, _),
        ServerProbe(url, {}) as probe,
    ):
        assert probe.facts().config == {"a": None, "b": [None, None, 2]}


@pytest.mark.parametrize("answer", [None, TRICKLE])
def test_a_path_that_is_too_slow_is_asked_once(
    answer: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_probe, "_ASK_WITHIN_S", 0.5)
    with (
        asked_server({"/config": answer, "/metrics": answer}) as (url, asked),
        ServerProbe(url, {}) as probe,
    ):
        for _ in range(3):
            facts = probe.facts()
            assert (facts.config, facts.metrics) == (None, None)
            assert probe.metrics().result() is None
            assert probe.freed_s(60.0) is None
    assert asked == {"/config": 1, "/metrics": 1}


def test_a_path_that_has_answered_before_is_asked_again_by_the_next_look_at_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_probe, "_ASK_WITHIN_S", 0.5)
    answers: dict[str, bytes | None] = {"/metrics": METRICS}
    with asked_server(answers) as (url, asked), ServerProbe(url, {}) as probe:
        assert probe.facts().identity == ("5.0",)
        answers["/metrics"] = None
        assert probe.metrics().result() is None
        assert probe.metrics().result() is None
        assert asked["/metrics"] == 2
        answers["/metrics"] = METRICS
        assert probe.facts().identity == ("5.0",)


def test_nobody_waits_for_metrics_who_does_not_ask_for_their_result() -> None:
    with asked_server({"/metrics": TRICKLE}) as (url, _), ServerProbe(url, {}) as probe:
        asked = probe.metrics()
        assert not asked.done()
