"""What a result says in a sentence, and what of it was shortened."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ab.compared import result as compared

from speech_assets.results.findings import finding, shortened
from speech_assets.results.published import PUBLISHED, read_published


def published(place: str) -> dict[str, Any]:
    """The newest published result of that place, to be changed at will."""
    return json.loads(json.dumps(read_published(sorted(PUBLISHED.glob(f"{place}/*.json"))[-1])))


def test_fidelity_says_its_mean_interval_size_and_limit() -> None:
    value = published("fidelity/amd-epyc/embedded-w4a16")
    value["figures"]["mean_kl_nats"] = {
        "value": 0.04213, "unit": "nats", "n": 12_170, "ci_low": 0.04, "ci_high": 0.043,
    }  # fmt: skip
    assert finding(value) == (
        "mean KL 0.042 nats (0.04 to 0.043, 12170 tokens of 32 generations), within the limit of "
        "0.05"
    )
    value["config"]["limit_nats"] = 0.03
    assert finding(value).endswith("ABOVE the limit of 0.03")


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("decode_speed/amd-epyc/embedded-bf16", "tokens/s"),
        (
            "codec_checkpoint/amd-epyc/int8-*",
            " dB beside the whole codec in float32, 0 of 24 clips",
        ),
        ("codec_checkpoint/amd-epyc/fp32-*", "no difference beside the whole codec"),
        ("load_tests/amd-epyc/embedded-bf16", "streams in realtime: "),
        ("ladder/amd-epyc/embedded", "streams in realtime: 1 after 15 steps, 0 before"),
    ],
)
def test_every_kind_says_what_decides(place: str, says: str) -> None:
    value = published(place)
    assert says in finding(value)
    assert shortened(value) == ""
    assert "reduced" not in finding(value)


def test_what_was_shortened_is_said_with_what_a_whole_run_has() -> None:
    value = published("fidelity/amd-epyc/embedded-w4a16")
    value["reduced"] = True
    value["config"]["generations"] = 4
    assert shortened(value) == "4 of 32 generations"
    value["config"]["sampling"]["max_tokens"] = 600
    assert shortened(value) == "4 of 32 generations, 600 of 1200 tokens that each may have"
    assert finding(value).endswith(f"; reduced: {shortened(value)}")
    speed = published("decode_speed/amd-epyc/embedded-bf16") | {"reduced": True}
    speed["config"]["measurement"] |= {"runs": 4, "steps": 105}
    assert shortened(speed) == "4 of 5 runs, 105 of 420 tokens a run"
    form = published("codec_checkpoint/amd-epyc/int8-*") | {"reduced": True}
    form["config"] |= {"clips": 4, "calls": 10}
    assert shortened(form) == "4 of 24 clips, 10 of 60 timed calls"
    load = published("load_tests/amd-epyc/embedded-bf16") | {"reduced": True}
    load["config"]["sweep"]["duration_s"] = 3.0
    assert shortened(load) == "3 of 60 s a level"
    ab = {"kind": "ab", "reduced": True, "config": {}, "seeds": [1]}
    assert shortened({**ab, "figures": {"sentences": {"value": 10}}}) == (
        "10 of 30 sentences, 1 of 2 seeds"
    )


def test_what_is_reduced_for_a_reason_that_is_not_known_here_says_so() -> None:
    value = published("decode_speed/amd-epyc/embedded-bf16") | {"reduced": True}
    assert shortened(value) == "less than a whole run"
    assert shortened({"kind": "tokenize", "reduced": True, "config": {}}) == "less than a whole run"


def test_a_measurement_that_does_not_count_says_so_before_all_else_that_mars_it() -> None:
    value = published("decode_speed/amd-epyc/embedded-bf16") | {"status": "invalid"}
    assert finding(value).endswith("; invalid, it does not count")
    value["config"]["faults"] = ["the starter takes 3 % of a core"]
    assert finding(value).endswith("; invalid, it does not count: the starter takes 3 % of a core")
    assert finding({"kind": "tokenize", "status": "complete", "reduced": False}) == ""


@pytest.mark.parametrize(
    ("less", "says"),
    [
        (
            {"value": 0.003, "ci_low": -0.01, "ci_high": 0.02, "sentences": 30},
            "format-insensitive 0.3 points above embedded-bf16, within noise",
        ),
        (
            {"value": -0.1, "ci_low": -0.2, "ci_high": -0.05, "sentences": 30},
            "format-insensitive 10.0 points below embedded-bf16, better beyond noise",
        ),
        (
            {"value": 0.1, "ci_low": 0.05, "ci_high": 0.2, "sentences": 3},
            "format-insensitive 10.0 points above embedded-bf16, too few sentences",
        ),
        ({"value": 0.0, "sentences": 1}, "format-insensitive as high as embedded-bf16"),
        (None, "not compared with embedded-bf16, which has no clips of these"),
    ],
)
def test_a_wer_says_how_much_of_how_many_and_what_it_is_beside(
    less: dict[str, Any] | None, says: str
) -> None:
    wer = {"value": 0.2142, "unit": "share", "n": 60, "ci_low": 0.18, "ci_high": 0.25}
    figures = {"wer": wer, "clips": {"value": 60}}
    figures |= {"wer_format_insensitive_less_base": less} if less else {}
    config = {"base": "embedded-bf16"}
    value = {
        "kind": "wer", "name": "embedded-w4a16", "status": "complete", "reduced": False,
        "figures": figures, "config": config,
    }  # fmt: skip
    assert finding(value).startswith("WER 21.4 % (18.0 to 25.0, n = 60); ")
    assert says in finding(value)
    assert finding(value | {"name": "embedded-bf16"}).endswith("what others are compared with")


def test_a_comparison_says_what_b_is_beside_a() -> None:
    assert finding(compared()) == (
        "B (other) beside A (one), n = 8 clips each: better: codec a clip; "
        "better: codec a second of audio"
    )
    assert finding(compared(waited_s=0.25)).endswith(
        "no different beyond noise; its times do not count, the machine was busy"
    )
