"""The form of result files: what is damaged, edited or of another form is refused in one line."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest
from load.rows import level_row
from results.examples import FIGURES, example

from resources.store import Store
from speech_assets.errors import ConfigError
from speech_assets.load.summary import load_figures
from speech_assets.results import published
from speech_assets.results.__main__ import main
from speech_assets.results.result import Figure, parse_result, read_result
from speech_assets.results.stored import newest

if TYPE_CHECKING:
    from pathlib import Path

ROWS = [level_row(1), level_row(2, is_passed=False), level_row(1, load="listening")]
STEP = {
    "name": "baseline",
    "switch": "",
    "value": None,
    "note": "",
    "outcome": "baseline",
    "why": "",
    "max_realtime_streams": 1.0,
    "ttfa_ms_p50": 100.0,
    "ttfs_ms_p50": None,
    "rtf_p50": 0.5,
}
SWEEP = {"sweep": {"duration_s": 60.0}, "client_faults": []}
LOAD_TEST: dict[str, Any] = {
    "kind": "load_tests",
    "name": "embedded-bf16",
    "config": {**SWEEP, "no_level_failed": []},
    "rows": [asdict(row) for row in ROWS],
    "figures": load_figures(ROWS),
}
LADDER: dict[str, Any] = {
    "kind": "ladder",
    "name": "small",
    "config": {**SWEEP, "preset": {"name": "embedded-bf16"}},
    "rows": [STEP],
}
SERVER: dict[str, Any] = {"kind": "server", "config": {}, "figures": {"rtf_p50": Figure(0.5, "")}}
SHARE = Figure(0.1, "share", 70, 0.05, 0.2)
SPEECH: dict[str, Any] = {
    "kind": "voice_speech",
    "rows": [{"voice": "heart"}],
    "figures": {"wer": SHARE, "cer": SHARE, "wer_heart": SHARE},
}
CODEC: dict[str, Any] = {
    **SPEECH,
    "kind": "voice_codec",
    "figures": {**SPEECH["figures"], "reference_wer": SHARE},
}


@pytest.mark.parametrize("kind", [{}, LOAD_TEST, LADDER, SERVER, SPEECH, CODEC])
def test_a_result_of_each_kind_is_read(kind: dict[str, Any]) -> None:
    assert parse_result(example(**kind), "run.json")["schema_version"] == 1


def with_row(kind: dict[str, Any], **changed: Any) -> dict[str, Any]:
    return {**kind, "rows": [{**kind["rows"][0], **changed}]}


def without(values: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key != name}


@pytest.mark.parametrize(
    ("made", "says"),
    [
        ({"figures": without(FIGURES, "agreement")}, "it has no figure agreement"),
        ({"config": {}}, "has no config.codec"),
        ({"rows": [1]}, "rows.0 is 1"),
        ({"software": []}, "software is []"),
        ({"software": {"vllm": 1}}, "software.vllm is 1"),
        ({**SERVER, "figures": FIGURES}, "it has no figure rtf_p50"),
        ({**SERVER, "config": {"engine": []}}, "config.engine is []"),
        ({**LOAD_TEST, "config": {}}, "has no config.sweep"),
        ({**LOAD_TEST, "config": SWEEP | {"client_faults": None}}, "config.client_faults is None"),
        ({**LOAD_TEST, "rows": []}, "rows is []"),
        (with_row(LOAD_TEST, level="x"), "rows.0.level is 'x'"),
        (with_row(LOAD_TEST, figures={"rtf_p50": {}}), "has no rows.0.figures.rtf_p50.value"),
        ({**LOAD_TEST, "rows": [without(asdict(ROWS[0]), "level")]}, "has no rows.0.level"),
        ({**LOAD_TEST, "figures": FIGURES}, "it has no figure max_realtime_streams_"),
        ({**LOAD_TEST, "rows": [without(asdict(ROWS[0]), "figures")]}, "has no rows.0.figures"),
        (with_row(LADDER, outcome="perhaps"), "rows.0.outcome is 'perhaps'"),
        ({**LADDER, "rows": [without(STEP, "why")]}, "has no rows.0.why"),
        ({**LADDER, "config": SWEEP}, "has no config.preset"),
        (with_row(SPEECH, voice="michael"), "it has no figure wer_michael"),
        ({**CODEC, "figures": SPEECH["figures"]}, "it has no figure reference_wer"),
        (
            {**SPEECH, "figures": {**SPEECH["figures"], "cer": Figure(0.1, "share")}},
            "figure cer has no interval, ci_low and ci_high",
        ),
    ],
)
def test_what_the_table_of_a_kind_needs_is_asked_of_its_file(
    made: dict[str, Any], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published, "ROOT", tmp_path)
    with pytest.raises(ConfigError) as caught:
        published.publish(example(**made), "run.json")
    assert says in str(caught.value)
    assert str(caught.value).startswith("run.json")
    assert "measure it again" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"config": {"codec": "another"}}, "config_sha256 is not that of its config"),
        ({"command": "another"}, "content_sha256 is not that of its content"),
        ({"config": [1]}, "config is [1]"),
        ({"schema_version": 99}, "schema_version is 99: this version reads 1"),
        ({"schema_version": True}, "schema_version is True"),
        ({"figures": {"hours_per_min": 3}}, "figures.hours_per_min is 3"),
        ({"figures": {"a": {"value": 1.0, "unit": ""}}}, "has no figures.a.n"),
        ({"figures": {"a": {"value": 1.0, "n": 1}}}, "has no figures.a.unit"),
        ({"figures": {"a": {"value": float("nan")}}}, "figures.a.value is nan"),
        ({"figures": {"a": {"value": 10**400}}}, "should be a finite number"),
        ({"figures": {"a": {"value": True}}}, "figures.a.value is True"),
        ({"figures": []}, "figures is []"),
        ({"figures": {}}, "figures is {}"),
        ({"seeds": ["x"]}, "seeds.0 is 'x'"),
        ({"reduced": 1}, "reduced is 1"),
        ({"git": {"dirty": float("nan")}}, "NaN is no number of JSON"),
        ({"started_at": ""}, "started_at is ''"),
        ({"started_at": 5}, "started_at is 5"),
        ({"started_at": "2026-99-99T99:99:99Z"}, "it must be a time as 2026-11-29T10:00:00Z"),
        ({"name": "///"}, "name is '///'"),
        ({"name": "a\nb"}, "name is 'a\\nb': it must be a name, on one line"),
        ({"device": "a CPU"}, "device is 'a CPU'"),
        ({"device": {}}, "has no device.name"),
        ({"device": {"name": ""}}, "device.name is ''"),
        ({"kind": ""}, "kind is ''"),
        ({"kind": "../../evil"}, "kind is '../../evil'"),
        ({"status": "perhaps"}, "status is 'perhaps'"),
    ],
)
def test_a_file_that_is_not_a_result_or_was_edited_is_refused(
    changed: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_result(json.dumps({**json.loads(example()), **changed}).encode(), "run.json")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"3", b"\xff", b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5_000]
)
def test_a_damaged_file_is_named(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "broken.json").write_bytes(data)
    with pytest.raises(ConfigError, match=r"broken\.json is not a result file"):
        read_result(tmp_path / "broken.json")


def test_an_absent_file_and_one_without_fields_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.json is not a result file: No such file"):
        read_result(tmp_path / "absent.json")
    with pytest.raises(ConfigError, match=r"run\.json has no schema_version"):
        parse_result(b'{"kind": "tokenize"}', "run.json")


def test_only_a_file_that_is_known_by_its_bytes_may_have_no_hash_of_its_content() -> None:
    value = without(json.loads(example()), "content_sha256")
    data = json.dumps(value).encode()
    known = {hashlib.sha256(data).hexdigest()}
    assert parse_result(data, "run.json", known) == value
    with pytest.raises(ConfigError, match=r"run\.json has no content_sha256; take the file as it"):
        parse_result(data, "run.json")
    with pytest.raises(ConfigError, match="has no content_sha256"):
        parse_result(data + b"\n", "run.json", known)
    # Nor does a known file excuse a hash that is wrong.
    edited = json.dumps({**value, "content_sha256": "0" * 64}).encode()
    with pytest.raises(ConfigError, match="content_sha256 is not that of its content"):
        parse_result(edited, "run.json", {hashlib.sha256(edited).hexdigest()})


@pytest.mark.parametrize("kind", [{}, LOAD_TEST, SPEECH])
def test_an_interval_that_is_reversed_is_refused_of_every_kind(kind: dict[str, Any]) -> None:
    figures = {**kind.get("figures", FIGURES), "a": Figure(0.5, "", 9, 0.7, 0.3)}
    with pytest.raises(ConfigError, match=r"figures\.a .*its interval is reversed, 0\.7 to 0\.3"):
        parse_result(example(**{**kind, "figures": figures}), "run.json")


@pytest.mark.parametrize("value", [0.1, 0.9])
def test_a_figure_outside_its_interval_is_refused_where_that_cannot_be(value: float) -> None:
    figures = {**LOAD_TEST["figures"], "rtf_p50": Figure(value, "", 9, 0.3, 0.7)}
    with pytest.raises(ConfigError, match=r"figure rtf_p50 is 0\.[19], outside its interval"):
        parse_result(example(**{**LOAD_TEST, "figures": figures}), "run.json")
    # The median of a few runs may be outside an interval of another kind.
    figures = {**FIGURES, "hours_per_min": Figure(value, "h/min", 9, 0.3, 0.7)}
    parse_result(example(figures=figures), "run.json")


def test_the_hash_is_the_same_before_a_result_is_written_and_after_it_is_read() -> None:
    row = {"a": (1, 2), "b": {10: 0.1, 9: 1e-300}, "c": "\u2028 ü", "d": None}
    assert parse_result(example(rows=[row]), "run.json")["rows"][0]["b"] == {"10": 0.1, "9": 1e-300}


def test_a_damaged_result_in_the_store_is_listed_as_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(str(tmp_path))
    for run, data in (("1", b"{"), ("2", example(config={"client_faults": ["late"]}))):
        store.write_bytes(f"results/server/cpu/snac-5-1m-abc/{run}.json", data)
    assert main(["list", "--stored", "--store", store.root]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("server/cpu/snac-5-1m-abc/1  (not to be used: ")
    assert "is not a result file" in first
    assert "config.codec" in second


def test_the_newest_of_a_name_is_found_beside_results_of_others(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    assert newest(store, "tokenize", "a") is None
    for device, run, name in (("x", 1, "a"), ("y", 3, "a"), ("z", 2, "a"), ("x", 9, "b")):
        store.write_bytes(f"results/tokenize/{device}/{name}/{run}.json", example(name=name))
    store.write_bytes("results/tokenize/x/a/2.json", b"damaged, and not the newest")
    found = newest(store, "tokenize", "a")
    assert found is not None
    assert found["name"] == "a"
