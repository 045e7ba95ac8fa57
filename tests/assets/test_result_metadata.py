"""Pages of results: what was found first, few numbers that are plotted, tables of the rest."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
from ab.compared import result as compared

from resources.configured import CodecResource, StoreResource, WorkResource
from resources.store import Store
from speech_assets.assets.ab import ab_metadata
from speech_assets.assets.checkpoints import checkpoint_metadata, decode_speed_metadata
from speech_assets.assets.codec_forms import codec_form_assets
from speech_assets.assets.result_metadata import PLOTTED, plotted_name, result_metadata
from speech_assets.assets.serving import samples_metadata
from speech_assets.profiles import load_profile
from speech_assets.results.published import PUBLISHED, ROOT, read_published

if TYPE_CHECKING:
    from pathlib import Path

PRESETS = load_profile({}).presets
FORM = "int8-snac-5-1m-d2c23ff84f31"


def published(kind: str, name: str) -> dict[str, Any]:
    """The newest published result of that name on a CPU, to be changed at will."""
    path = sorted((PUBLISHED / kind / "amd-epyc" / name).glob("*.json"))[-1]
    return json.loads(json.dumps(read_published(path)))


def keep(store: Store, kind: str, name: str) -> dict[str, Any]:
    """That result, copied into the store as it was published."""
    path = sorted((PUBLISHED / kind / "amd-epyc" / name).glob("*.json"))[-1]
    store.write_bytes(str(path.relative_to(ROOT)), path.read_bytes())
    return read_published(path)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("fidelity", "embedded-w4a16"),
        ("decode_speed", "embedded-bf16"),
        ("codec_checkpoint", FORM),
        ("load_tests", "embedded-bf16"),
    ],
)
def test_a_page_says_what_was_found_first_and_shows_few_numbers(kind: str, name: str) -> None:
    value = published(kind, name)
    page = result_metadata(value, "results/x.json")
    assert list(page)[:3] == ["finding", "reduced", "status"]
    floats = {name: m.value for name, m in page.items() if isinstance(m, dg.FloatMetadataValue)}
    figures = {name: value["figures"][name] for name in PLOTTED[kind] if name in value["figures"]}
    assert list(floats) == [plotted_name(name, figure["unit"]) for name, figure in figures.items()]
    assert 3 <= len(floats) <= 7
    for (name, shown), figure in zip(floats.items(), figures.values(), strict=True):
        scale = 100 if name.endswith("_percent") else 1
        assert shown == pytest.approx(scale * figure["value"], rel=5e-3)
        if abs(shown) < 100:
            assert len(f"{shown:.12g}".lstrip("-").replace(".", "").lstrip("0")) <= 3
        else:
            assert shown == int(shown)
    table = page["figures"].value
    assert all(f"| {name} |" in table for name in value["figures"] if "_slot_" not in name)


def test_shares_are_percent_and_their_names_say_so() -> None:
    value = published("decode_speed", "embedded-bf16")
    value["figures"]["rtf"]["value"] = 0.6183749283
    value["figures"]["floor_share"]["value"] = 0.21428
    page = result_metadata(value, "results/x.json")
    assert (page["rtf"].value, page["floor_percent"].value) == (0.618, 21.4)
    assert "| floor_share | 21.4 |  | % |" in page["figures"].value
    assert "share" not in page


def test_a_comparisons_page_begins_with_what_was_found() -> None:
    page = ab_metadata(compared(), "results/x.json")
    assert list(page)[:2] == ["finding", "comparison"]
    assert page["finding"].value.startswith("B (other) beside A (one), n = 8 clips each: better")
    floats = [name for name, m in page.items() if isinstance(m, dg.FloatMetadataValue)]
    assert "wer_format_insensitive_difference_percent" in floats
    assert len(floats) <= 7


def test_samples_say_what_was_spoken_in_digits_that_count() -> None:
    made = {"preset": "mine", "clips": 20, "spoken": 18, "kept": 60, "refused": 0}
    page = samples_metadata({**made, "seconds": 61.2837465})
    assert page == {
        "finding": "20 clips of mine, 61.3 s of audio; none refused", "clips": 20,
        "clips_spoken_now": 18, "clips_in_store": 60, "clips_refused": 0, "audio_s": 61.3,
    }  # fmt: skip
    page = samples_metadata({**made, "refused": 2, "seconds": 3})
    assert page["finding"].endswith("3.0 s of audio; the server refused 2")


def test_figures_of_slots_are_one_table() -> None:
    page = result_metadata(published("fidelity", "embedded-w4a16"), "results/x.json")
    assert not [name for name in page if "_slot_" in name]
    head, _, *rows = page["by_slot"].value.splitlines()
    assert head.startswith("| slot | base_perplexity | mean_kl_nats |")
    assert [row.split(" | ")[0] for row in rows] == [f"| {slot}" for slot in range(7)]
    assert "by_slot" not in result_metadata(published("decode_speed", "embedded-bf16"), "")


def test_a_reduced_result_is_not_hidden_behind_complete() -> None:
    value = published("fidelity", "embedded-w4a16") | {"reduced": True}
    value["config"]["generations"] = 4
    page = result_metadata(value, "results/x.json")
    assert page["reduced"].value == "4 of 32 generations"
    assert page["finding"].value.endswith("reduced: 4 of 32 generations")
    assert page["status"].value == "complete"


def test_a_speed_stands_beside_the_newest_of_the_profiles_presets(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    alone = published("decode_speed", "embedded-w4a16")
    page = decode_speed_metadata(alone, "results/x.json", store, PRESETS)
    assert "no bf16 was measured" in page["precision"].value
    for name in ("embedded-bf16", "embedded-w4a16"):
        keep(store, "decode_speed", name)
        keep(store, "fidelity", name)
    busy = published("decode_speed", "embedded-fp8")
    busy["status"] = "invalid"
    store.write_json("results/decode_speed/amd-epyc/embedded-fp8/20261130000000.json", busy)
    store.write_bytes("results/decode_speed/amd-epyc/embedded-fp8-kv/1.json", b"{")
    page = decode_speed_metadata(alone, "results/x.json", store, PRESETS)["precision"].value
    speeds = page.split("\n\n")[0].splitlines()[2:]
    assert [row.split(" | ")[0] for row in speeds] == ["| embedded-bf16", "| embedded-w4a16"]
    assert "times bf16's rate" in page
    assert "no bf16 was measured" not in page
    assert "0.0426" in page
    # One that does not count is shown on its own page alone.
    page = decode_speed_metadata(busy, "results/x.json", store, PRESETS)["precision"].value
    assert "| embedded-fp8 (does not count) |" in page
    assert "| embedded-bf16 |" in page
    page = decode_speed_metadata(alone, "x", store, ["embedded-w4a16"])["precision"].value
    assert "| embedded-bf16 |" not in page


def test_a_checkpoints_page_says_what_its_check_is_called() -> None:
    made = {
        "kind": "checkpoint", "preset": "mine", "folder": "/x", "made": True, "passed": True,
        "detail": "as it should be", "value": 0.0002, "limit": 0.001, "weights_bytes": 7,
        "bytes_per_step": {"full": 6, "audio": 5}, "record": {},
    }  # fmt: skip
    assert checkpoint_metadata(made) == {
        "preset": "mine", "folder": "/x", "made": True, "engine_passed": True,
        "engine_detail": "as it should be", "engine_value_nats": 0.0002,
        "engine_limit_nats": 0.001, "weights_bytes": 7, "bytes_per_step_full_head": 6,
        "bytes_per_step_audio_head": 5,
    }  # fmt: skip


def test_codec_forms_are_compared_by_as_much_as_their_config_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(str(tmp_path))
    value = published("codec_checkpoint", FORM) | {"reduced": True}
    value["config"] |= {"clips": 4, "calls": 10}
    store.write_json("results/x.json", value)
    given: list[str] = []

    def run(_self: object, _context: object, name: str, arguments: list[str]) -> list[Any]:
        assert name == "codec_checkpoint"
        given.extend(arguments)
        return [{"kind": "codec_checkpoint", "key": "results/x.json", "folder": "/codecs/int8"}]

    monkeypatch.setattr(WorkResource, "run", run)
    profile = load_profile({})
    [asset] = [a for a in codec_form_assets(profile) if a.key.path == ["codec_checkpoints"]]
    with dg.DagsterInstance.ephemeral() as instance:
        done = dg.materialize(
            [asset],
            partition_key="int8",
            resources={
                "store": StoreResource(root=store.root),
                "codec": CodecResource(location=profile.codec.location),
                "work": WorkResource(),
            },
            run_config={"ops": {"codec_checkpoints": {"config": {"clips": 4, "calls": 10}}}},
            instance=instance,
        )
    assert {"--clips=4", "--calls=10", "--dtype=auto"} <= set(given)
    [event] = done.asset_materializations_for_node("codec_checkpoints")
    assert event.metadata["reduced"].value == "4 of 24 clips, 10 of 60 timed calls"
