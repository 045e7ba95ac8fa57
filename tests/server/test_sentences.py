"""Sentences cut from text that comes in pieces: nothing lost, whatever the pieces."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.sentences import LONGEST_PIECE, SentenceCutter

WORDS = st.text(alphabet=st.sampled_from("aZé9.!?…,;:()<>\"'“” \n\t。\uff0c\uff01।—"), max_size=700)


def cut(text: str, granularity: str = "sentence") -> list[str]:
    """All pieces of `text`, given at once."""
    cutter = SentenceCutter(granularity)
    pieces = cutter.feed(text)
    rest = cutter.flush()
    return [*pieces, rest] if rest else pieces


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("It costs 3.50 today. Really.", ["It costs 3.50 today.", "Really."]),
        (
            "Dr. Smith met J. Hart, e.g. here. Yes.",
            ["Dr. Smith met J. Hart, e.g. here.", "Yes."],
        ),
        ('He said "Stop." Then he left.', ['He said "Stop."', "Then he left."]),
        ("Wait... what?! No.", ["Wait...", "what?!", "No."]),
        ("... Well. ", ["... Well."]),
        ("<laugh. loud> Fine. Good.", ["<laugh. loud> Fine.", "Good."]),
        ("A title\n\nThe text", ["A title", "The text"]),
        ("你好。再见\uff01", ["你好。", "再见\uff01"]),
        ("   ", []),
    ],
)
def test_sentences_end_where_a_reader_ends_them(text: str, expected: list[str]) -> None:
    assert cut(text) == expected


def test_clauses_also_end_at_commas_but_not_inside_numbers() -> None:
    assert cut("First, 1,000 of them; then: go.", "clause") == [
        "First,",
        "1,000 of them;",
        "then:",
        "go.",
    ]


def test_a_sentence_is_given_out_as_soon_as_its_end_is_certain() -> None:
    cutter = SentenceCutter("sentence")
    assert cutter.feed("It is 3.") == []
    assert cutter.feed("5 degrees.") == []
    assert cutter.feed(" ") == ["It is 3.5 degrees."]
    assert cutter.waiting == 0


def test_without_splitting_all_text_comes_at_the_end_as_it_was() -> None:
    cutter = SentenceCutter("none")
    assert cutter.feed("One. Two.\n\n ") == []
    assert cutter.feed("Three") == []
    assert cutter.flush() == "One. Two.\n\n Three"
    assert cutter.flush() == ""


def test_text_without_an_end_is_cut_between_words() -> None:
    text = "word " * 200
    pieces = cut(text)
    assert " ".join(pieces).split() == text.split()
    assert max(map(len, pieces)) <= LONGEST_PIECE


@given(WORDS, st.lists(st.integers(0, 700), max_size=20), st.sampled_from(["sentence", "clause"]))
def test_nothing_is_lost_and_pieces_do_not_depend_on_how_text_comes(
    text: str, places: list[int], granularity: str
) -> None:
    whole = cut(text, granularity)
    assert "".join("".join(whole).split()) == "".join(text.split())
    assert all(len(piece) <= LONGEST_PIECE for piece in whole[:-1])
    cutter = SentenceCutter(granularity)
    edges = [0, *sorted(min(place, len(text)) for place in places), len(text)]
    pieces = [
        piece for start, end in itertools.pairwise(edges) for piece in cutter.feed(text[start:end])
    ]
    rest = cutter.flush()
    assert ([*pieces, rest] if rest else pieces) == whole
