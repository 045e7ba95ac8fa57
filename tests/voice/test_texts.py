"""Texts of the voice: read from their sources' own formats, and never a held-out sentence."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from voice.sources import write_sources

from speech_assets.errors import ConfigError, CorpusError
from speech_assets.voice import texts_austen, texts_wordnet
from speech_assets.voice.held_out import HELD_OUT_IDS, SETS, TEXTS, overlaps, words_of
from speech_assets.voice.layout import PHONEMES
from speech_assets.voice.texts import VoiceText, read_texts, write_texts
from speech_assets.voice.texts_plain import plain_sentence
from speech_assets.voice.texts_templates import make_sentences
from speech_assets.work.voice_texts import argument_parser, make_texts
from speech_assets.work.worker import Reporter


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small packages in their own formats, a held-out sentence among each's."""
    folder = tmp_path_factory.mktemp("root")
    write_sources(folder)
    return folder


def run(line: str) -> None:
    make_texts(argument_parser().parse_args(line.split()), Reporter("test"))


def test_the_held_out_texts_are_apart_by_id_and_in_known_sets() -> None:
    assert len(set(TEXTS)) == len(TEXTS) == len(HELD_OUT_IDS) == 70
    assert {n for ids in SETS.values() for n in ids} <= set(HELD_OUT_IDS)


def test_a_held_out_sentence_is_found_in_other_marks_and_within_a_longer_text() -> None:
    texts = {
        1: "It s easy: to tell THE depth of a well",
        2: "First this. The box was thrown beside the parked truck! Then that.",
        3: "The box was thrown beside the truck.",
        4: TEXTS[0],
        5: "Its easy to tell the depth of a well.",
    }
    found = overlaps(texts.items())
    assert [overlap.id for overlap in found] == [2, 4, 5]
    assert found[0].sentence == "The box was thrown beside the parked truck."


@settings(deadline=None)  # A time is never asserted.
@given(
    st.sampled_from(TEXTS),
    st.lists(st.sampled_from(["alpha", "beta", "Gamma.", "the", "it's"]), max_size=4),
    st.lists(st.sampled_from(["delta", "the", "Epsilon!"]), max_size=4),
    st.sampled_from([" ", "  ", ", ", " - "]),
)
def test_every_held_out_sentence_is_found_wherever_it_stands(
    sentence: str, before: list[str], after: list[str], gap: str
) -> None:
    text = gap.join([*before, *sentence.split(), *after])
    assert sentence in [found.sentence for found in overlaps([(0, text)])]
    assert not overlaps([(0, " ".join([*before, *after]))])


def test_words_are_those_that_two_readers_would_both_say() -> None:
    assert words_of("Don't stay, it's 9 o'clock!") == ("dont", "stay", "its", "9", "oclock")


@pytest.mark.parametrize(
    ("given_text", "wanted"),
    [
        ("he went home --  at last", "He went home, at last."),
        ("what a day this was!", "What a day this was!"),
        ("you know!--she never did", "You know! she never did."),
        ("too short", None),
        ("a caf\u00e9 that has marks", None),
        ("he was killed by the bear", None),
        ("3 of them went home", None),
    ],
)
def test_a_sentence_is_made_plain_or_refused(given_text: str, wanted: str | None) -> None:
    assert plain_sentence(given_text, fewest_words=4, most_words=10) == wanted


def test_wordnets_examples_are_read_from_its_files(root: Path) -> None:
    examples = texts_wordnet.read_examples(root)
    assert "He walked to the river with friend number a." in examples.sentences
    assert "A quiet river near the garden road." in examples.phrases
    assert len(set(examples.sentences)) == len(examples.sentences)  # Four files, the same in each.
    assert not [text for text in examples.sentences if "software" in text]


def test_austens_sentences_are_read_from_rs_database(root: Path) -> None:
    sentences = texts_austen.read_sentences(root)
    assert sentences[0] == "It was a fine day at the river when Mr Hill came to us."
    assert len(sentences) == 10  # What began in small letters is half a sentence.


def test_sources_that_are_missing_or_damaged_are_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="apt-get install wordnet-base"):
        texts_wordnet.read_examples(tmp_path)
    with pytest.raises(CorpusError, match="apt-get download r-cran-janeaustenr"):
        texts_austen.read_sentences(tmp_path)
    path = tmp_path / texts_austen.DATABASE
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\x00\x00\x00\x09not a zlib stream")
    with pytest.raises(CorpusError, match="no sentences found"):
        texts_austen.read_sentences(tmp_path)


@settings(deadline=None)  # A time is never asserted.
@given(st.integers(1, 80), st.integers(0, 5))
def test_templates_give_as_many_different_sentences_as_asked_for(count: int, seed: int) -> None:
    made = make_sentences(count, random.Random(seed))
    assert len(set(made)) == len(made) == count
    assert made == make_sentences(count, random.Random(seed))
    assert all(text[0].isupper() and text[-1] in ".?!" and "{" not in text for text in made)


def test_texts_have_the_held_out_ones_first_and_none_of_them_again(
    root: Path, tmp_path: Path
) -> None:
    out = tmp_path / "made" / "text.jsonl.xz"
    run(f"--out {out} --root {root} --entries 40")
    texts = read_texts(out)
    assert [texts[n].text for n in HELD_OUT_IDS] == list(TEXTS)
    assert {texts[n].split for n in HELD_OUT_IDS} == {"harvard", "held"}
    train = {n: text for n, text in texts.items() if n not in HELD_OUT_IDS}
    assert len(train) == 40
    assert {text.split for text in train.values()} == {"train"}
    assert not overlaps((n, text.text) for n, text in train.items())
    assert all(5 <= len(text.phonemes) <= 330 for text in texts.values())
    assert set("".join(text.phonemes for text in texts.values())) <= set(PHONEMES)
    assert texts[0].phonemes == "ðə bˈɜɹʧ kənˈu slˈɪd ˌɔn ðə smˈuð plˈæŋks."  # noqa: RUF001
    facts = json.loads((out.parent / "texts.json").read_text())
    assert facts["dropped"]["held out"] == 1
    assert (facts["train"], facts["held_out"]) == (40, 70)
    assert all(source["licence"] for source in facts["sources"])
    again = tmp_path / "again.jsonl.xz"
    run(f"--out {again} --root {root} --entries 40")
    assert again.read_bytes() == out.read_bytes()


def test_more_sentences_can_be_held_out_and_too_many_texts_are_refused(
    root: Path, tmp_path: Path
) -> None:
    extra = tmp_path / "quality.txt"
    extra.write_text("he walked to the river, with friend number A\n")
    run(f"--out {tmp_path / 'text.jsonl.xz'} --root {root} --entries 30 --held-out {extra}")
    assert json.loads((tmp_path / "texts.json").read_text())["dropped"]["held out"] == 2
    with pytest.raises(CorpusError, match="--entries asks for 5000"):
        run(f"--out {tmp_path / 'other.jsonl.xz'} --root {root} --entries 5000")
    assert not (tmp_path / "other.jsonl.xz").exists()
    with pytest.raises(ConfigError, match="give a text file"):
        run(f"--out {tmp_path / 'x.xz'} --root {root} --held-out {tmp_path / 'none.txt'}")


def test_written_texts_read_back_and_damaged_ones_are_refused(tmp_path: Path) -> None:
    texts = [VoiceText(0, "held", "A cat.", "ə kæt."), VoiceText(9, "train", "So.", "sO.")]
    path = tmp_path / "text.jsonl.xz"
    write_texts(path, texts)
    assert list(read_texts(path).values()) == texts
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CorpusError, match="not texts of the voice"):
        read_texts(path)
    write_texts(path, [texts[0], texts[0]])
    with pytest.raises(CorpusError, match="1 ids are there twice"):
        read_texts(path)
    with pytest.raises(CorpusError, match="make them with"):
        read_texts(tmp_path / "none.jsonl")
