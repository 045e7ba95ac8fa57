"""Evaluation: figures with their intervals, judges that hear, and results that pages show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import soundfile

from speech_assets.errors import ConfigError
from speech_assets.results import published
from speech_assets.results.__main__ import main
from speech_assets.results.markdown import NONE_YET
from speech_assets.results.result import read_result
from speech_assets.voice.dnsmos import Dnsmos, mel_spectrogram
from speech_assets.voice.packs import SAMPLE_RATE_HZ, Utterance, write_pack
from speech_assets.voice.scores import Scored, figures_of, less_reference
from speech_assets.voice.tables import codec_table, speech_table
from speech_assets.work import voice_eval, voice_samples
from speech_assets.work.worker import Reporter

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

CODEC = Path(__file__).parents[2] / "server" / "embedded" / "codec"
REPORTER = Reporter("test")


def scored(
    number: int, *, errors: int, voice: str = "heart", mos: float = 3.0, seed: int = 0
) -> Scored:
    return Scored(
        id=number,
        voice=voice,
        seed=seed,
        seconds=2.0,
        reference="",
        transcript="",
        words=10,
        word_errors=errors,
        characters=50,
        character_errors=2 * errors,
        mos=(mos, mos, mos, mos),
    )


def run(
    work: Callable[[argparse.Namespace, Reporter], None], parser: argparse.ArgumentParser, line: str
) -> None:
    work(parser.parse_args(line.split()), REPORTER)


def test_rates_are_over_all_words_and_lie_within_their_intervals() -> None:
    figures = figures_of([scored(n, errors=n % 3) for n in range(30)])
    assert figures["words"].value == 300
    wer = figures["wer"]
    assert wer.value == pytest.approx(0.1)
    assert wer.ci_low is not None
    assert wer.ci_high is not None
    assert wer.ci_low < wer.value < wer.ci_high
    assert (wer.unit, wer.n) == ("share", 30)
    assert figures["cer"].value == pytest.approx(60 / 1500)
    mos = figures["dnsmos_overall"]
    assert (mos.value, mos.ci_low, mos.ci_high) == (3.0, 3.0, 3.0)


def test_each_voice_set_and_seed_has_its_own_figures() -> None:
    clips = [
        scored(n, errors=(voice == "michael") + seed, voice=voice, seed=seed)
        for n in (0, 1, 20, 30)
        for voice in ("heart", "michael")
        for seed in (0, 1)
    ]
    figures = figures_of(clips)
    assert figures["wer_heart"].value == pytest.approx(0.05)
    assert figures["wer_michael"].value == pytest.approx(0.15)
    assert figures["wer_seed_1"].value == pytest.approx(0.15)
    assert figures["wer_harvard"].n == 8
    assert figures["dnsmos_noise_wordnet"].n == 4


def test_a_sentence_is_drawn_with_all_its_clips() -> None:
    """Two voices and seeds of one hard sentence tell no more about other sentences than one."""
    once = figures_of([scored(n, errors=5 * (n == 0)) for n in range(10)])
    often = figures_of(
        [
            scored(n, errors=5 * (n == 0), voice=voice, seed=seed)
            for n in range(10)
            for voice in ("heart", "michael")
            for seed in range(3)
        ]
    )
    for edge in ("ci_low", "ci_high"):
        assert getattr(often["wer"], edge) == getattr(once["wer"], edge)


def test_a_constant_difference_is_found_without_spread_though_sentences_differ() -> None:
    first = [scored(n, errors=n % 4, mos=3 + n % 2) for n in range(20)]
    other = [scored(n, errors=n % 4 + 1, mos=2.5 + n % 2) for n in range(20)]
    versus = less_reference(other, first)
    wer = versus["wer_less_reference"]
    assert (wer.value, wer.ci_low, wer.ci_high) == pytest.approx((0.1, 0.1, 0.1))
    assert versus["wer_less_reference_heart"] == wer
    assert versus["dnsmos_overall_less_reference"].ci_high == pytest.approx(-0.5)


def test_only_what_both_have_is_compared() -> None:
    first = [scored(n, errors=0) for n in range(5)]
    other = [scored(n, errors=5) for n in range(3, 9)]
    other += [scored(3, errors=0, voice="michael")]
    assert less_reference(other, first)["wer_less_reference"].n == 2
    assert less_reference(other, first)["wer_less_reference"].value == 0.5
    assert less_reference(first, [scored(0, errors=0, voice="michael")]) == {}


def test_figures_of_nothing_or_of_half_judged_clips_are_refused() -> None:
    with pytest.raises(ValueError, match="no clips"):
        figures_of([])
    bare = Scored(1, "heart", 0, 1.0, "", "", 1, 0, 1, 0)
    with pytest.raises(ValueError, match="some have none"):
        figures_of([scored(0, errors=0), bare])


def test_dnsmos_hears_noise(short_clips: list[tuple[str, np.ndarray]]) -> None:
    import soxr

    clip = soxr.resample(short_clips[0][1], SAMPLE_RATE_HZ, 16_000).astype(np.float32)
    noise = np.random.default_rng(0).normal(0, 0.05, len(clip)).astype(np.float32)
    rate = Dnsmos()
    clean, noisy = rate(clip), rate(np.clip(clip + noise, -1, 1))
    assert clean.overall > noisy.overall + 0.3
    assert clean.noise > noisy.noise + 1
    for value in (clean.overall, clean.signal, clean.p808, noisy.p808):
        assert 1 <= value <= 5
    with pytest.raises(ValueError, match="no samples"):
        rate(clip[:0])


def test_the_mel_spectrogram_is_that_of_the_published_recipe() -> None:
    """Figures by librosa 0.11.0, whose defaults the networks were trained with."""
    time_s = np.arange(16_000) / 16_000
    tone = (0.5 * np.sin(2 * np.pi * 1_000 * time_s)).astype(np.float32)
    made = mel_spectrogram(tone)
    assert made.shape == (100, 120)
    assert made.max() == 1.0
    wanted = [-1.0, -1.0, -0.3872, -0.51, -1.0, -1.0]
    assert made[50, [0, 30, 45, 46, 60, 119]] == pytest.approx(wanted, abs=2e-4)


@pytest.fixture(scope="session")
def short_clips(embedded_rows: list[dict[str, Any]]) -> list[tuple[str, np.ndarray]]:
    """Texts of two clips of the embedded corpus with their samples, float32 at 24 kHz."""
    import io

    import soxr

    made: list[tuple[str, np.ndarray]] = []
    lengths = [(len(row["text_normalized"].split()), row) for row in embedded_rows]
    for _, row in [pair for pair in lengths if 8 <= pair[0] <= 14][:2]:
        samples, rate_hz = soundfile.read(io.BytesIO(row["audio"]["bytes"]), dtype="float32")
        made.append((row["text_normalized"], soxr.resample(samples, rate_hz, SAMPLE_RATE_HZ)))
    return made


@pytest.fixture(scope="session")
def corpus(
    tmp_path_factory: pytest.TempPathFactory, short_clips: list[tuple[str, np.ndarray]]
) -> Path:
    """Packs of the clips as held-out texts 0 and 2, and those texts."""
    folder = tmp_path_factory.mktemp("voice")
    rows = [
        {"id": 2 * n, "split": "harvard", "text": text, "ph": "ðə kæt"}
        for n, (text, _) in enumerate(short_clips)
    ]
    (folder / "text.jsonl").write_text("\n".join(json.dumps(row) for row in rows), "utf-8")
    write_pack(
        folder / "packs",
        [
            Utterance(2 * n, "heart", voice_samples.to_pcm(samples))
            for n, (_, samples) in enumerate(short_clips)
        ],
    )
    return folder


def test_a_codecs_samples_become_a_result_that_the_page_shows(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(
        voice_samples.make_samples,
        voice_samples.argument_parser(),
        f"resynthesise --codec {CODEC} --packs heart={corpus / 'packs'} --out {tmp_path / 'made'}",
    )
    run(
        voice_eval.evaluate,
        voice_eval.argument_parser(),
        f"--samples {tmp_path / 'made'} --texts {corpus / 'text.jsonl'} --out {tmp_path / 'store'}",
    )
    (path,) = (tmp_path / "store" / "results" / "voice_codec").rglob("*.json")
    value = read_result(path)
    figures = {name: figure["value"] for name, figure in value["figures"].items()}
    assert figures["reference_wer"] < 0.25  # Whisper hears the recordings.
    assert 0 <= figures["wer"] <= 1.5
    assert 2 < figures["reference_dnsmos_overall"] < 4.5
    assert figures["wer_less_reference"] == pytest.approx(
        figures["wer"] - figures["reference_wer"], abs=2e-5
    )
    assert value["reduced"]  # Two of 35 recordings.
    assert value["name"].startswith("snac-")
    assert value["config"]["reference"] == {"name": "recordings"}
    assert "faster-whisper" in value["software"]
    assert str(tmp_path) not in path.read_text()
    monkeypatch.setattr(published, "ROOT", tmp_path)
    monkeypatch.setattr(published, "PUBLISHED", tmp_path / "results")
    (tmp_path / "README.md").write_text("<!-- results: voice-codec -->\n<!-- /results -->\n")
    assert main(["publish", str(path)]) == 0
    assert main(["render"]) == 0
    shown = (tmp_path / "README.md").read_text()
    assert f"| {value['name']} (reduced) | 2 | {figures['wer']:.1%} (" in shown
    assert f"| heart {figures['wer_heart']:.1%} (" in shown


def test_samples_that_are_not_there_or_not_whole_are_refused(corpus: Path, tmp_path: Path) -> None:
    line = f"--samples {tmp_path} --texts {corpus / 'text.jsonl'} --out {tmp_path / 'store'}"
    with pytest.raises(ConfigError, match="make them with"):
        run(voice_eval.evaluate, voice_eval.argument_parser(), line)
    packs = corpus / "packs"
    run(
        voice_samples.make_samples,
        voice_samples.argument_parser(),
        f"recordings --packs heart={packs} --out {tmp_path}",
    )
    soundfile.write(tmp_path / "speech.flac", np.zeros(100), SAMPLE_RATE_HZ)
    with pytest.raises(ConfigError, match=r"speech\.flac has 100 samples"):
        run(voice_eval.evaluate, voice_eval.argument_parser(), line + " --no-mos")
    assert not (tmp_path / "store").exists()


def test_what_a_command_lacks_is_said(tmp_path: Path) -> None:
    parser = voice_samples.argument_parser()
    with pytest.raises(ConfigError, match="speak needs --lm and --texts"):
        run(voice_samples.make_samples, parser, f"speak --codec {CODEC} --out {tmp_path}")
    with pytest.raises(ConfigError, match="not of the form VOICE=DIR"):
        run(voice_samples.make_samples, parser, f"recordings --packs x --out {tmp_path}")


def figure(value: float, n: int = 300) -> dict[str, Any]:
    low, high = value - 0.01, value + 0.01
    return {"value": value, "unit": "share", "n": n, "ci_low": low, "ci_high": high}


def test_the_speech_table_has_voices_seeds_and_endings() -> None:
    result = {
        "kind": "voice_speech",
        "name": "voice-12M-abc",
        "reduced": False,
        "started_at": "2026-11-29T10:00:00Z",
        "seeds": [0, 1],
        "rows": [{"voice": "michael"}, {"voice": "heart"}],
        "figures": {
            "wer": figure(0.08),
            "cer": figure(0.04),
            "wer_heart": figure(0.07),
            "wer_michael": figure(0.09),
            "wer_seed_0": figure(0.06),
            "wer_seed_1": figure(0.1),
            "stopped_share": figure(1.0),
        },
    }
    row = speech_table([result]).splitlines()[-1]
    assert row == (
        "| voice-12M-abc | 0, 1 | 300 | 100.0% | 8.0% (7.0-9.0) | heart 7.0% (6.0-8.0)<br>michael"
        " 9.0% (8.0-10.0) | 6.0%, 10.0% | 4.0% (3.0-5.0) |  | 2026-11-29 |"
    )
    assert speech_table([]) == codec_table([]) == NONE_YET
