"""Sentences cut from text that comes in pieces: nothing lost, whatever the pieces."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server import sentences
from server.sentences import LONGEST_PIECE, Granularity, SentenceCutter

WORDS = st.text(alphabet=st.sampled_from("aZé9.!?…,;:()<>\"'“” \n\t。\uff0c\uff01।—"), max_size=700)


# What is looked ahead of and what may be a tag.
PARTS = st.lists(
    st.sampled_from(
        [
            "Main ",
            "St. ",
            "U.S. ",
            "No. ",
            "Yes",
            "It",
            "\u2019",
            "s",
            "5",
            " ",
            ". ",
            "\n",
            "(",
            '"',
            "<![CDATA[",
            "]]>",
            "<b>",
            "<",
        ]
    ),
    max_size=120,
).map("".join)


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
        (
            "Gov. Lee saw Fig. 3, pp. 4 and no. 5. Yes.",
            ["Gov. Lee saw Fig. 3, pp. 4 and no. 5.", "Yes."],
        ),
        ("No. Not now. A fig. Or two.", ["No.", "Not now.", "A fig.", "Or two."]),
        ("Milk, eggs, etc. and tea. Go.", ["Milk, eggs, etc. and tea.", "Go."]),
        ("It is on Main St. Yes, it is. Go.", ["It is on Main St.", "Yes, it is.", "Go."]),
        ("At St. John in Main St. Cars pass. Go.", ["At St. John in Main St. Cars pass.", "Go."]),
        ("At 5 p.m. The U.S. Army came.", ["At 5 p.m.", "The U.S. Army came."]),
        ("In the U.S. It\u2019s so. Dr. No. 2.", ["In the U.S.", "It\u2019s so.", "Dr. No. 2."]),
        ("Of Acme Inc. No. 5 is it.", ["Of Acme Inc. No. 5 is it."]),
        ("<p>Dr. Lee.</p> <b>J.</b> Hart. ", ["<p>Dr. Lee.</p> <b>J.</b> Hart."]),
        (
            "<speak><![CDATA[Mr. One. A<b. Two.]]> Three.</speak>",
            ["<speak><![CDATA[Mr. One.", "A<b. Two.]]> Three.</speak>"],
        ),
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


def test_an_abbreviation_before_numbers_waits_for_what_comes_next() -> None:
    cutter = SentenceCutter("sentence")
    assert cutter.feed("It is No. ") == []
    assert cutter.feed("5") == []
    assert cutter.feed(". It is no. ") == ["It is No. 5."]
    assert cutter.feed("N") == ["It is no."]


def test_an_abbreviation_that_may_stand_last_waits_for_the_whole_next_word() -> None:
    cutter = SentenceCutter("sentence")
    for part in ("It is on Main St. ", "\u201cIt", "\u2019"):
        assert cutter.feed(part) == []
    assert cutter.feed("s ") == ["It is on Main St."]
    assert cutter.feed("at St. ") == []
    assert cutter.feed("Itha") == []
    assert cutter.feed(" at 5 p.m.\n") == []
    assert cutter.feed("\n") == ["\u201cIt\u2019s at St. Itha at 5 p.m."]


@pytest.mark.parametrize("marks", ["!", "!?", ".", "...", '?"', "\u2026"])
@pytest.mark.parametrize("granularity", ["sentence", "clause"])
def test_marks_alone_are_cut_in_time_that_grows_with_their_number(
    marks: str, granularity: Granularity
) -> None:
    # With time that grew as the square or the cube of it this would not end.
    text = marks * (131_072 // len(marks))
    cutter = SentenceCutter(granularity)
    assert "".join([*cutter.feed(text), cutter.flush()]) == text


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


@given(
    st.one_of(WORDS, PARTS),
    st.lists(st.integers(0, 700), max_size=20),
    st.sampled_from(["sentence", "clause"]),
)
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


@pytest.mark.parametrize("granularity", ["sentence", "clause"])
@pytest.mark.parametrize("text", ["a, " * 5_000, "Oh, no. " * 2_000, "x" * 15_000])
def test_a_long_text_is_cut_piece_by_piece_as_they_are_asked_for(
    granularity: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_through: list[int] = []

    class Watched:
        def __init__(self, pattern: re.Pattern[str]) -> None:
            self._pattern = pattern

        def finditer(self, head: str) -> object:
            looked_through.append(len(head))
            return self._pattern.finditer(head)

    ends = {name: Watched(pattern) for name, pattern in sentences._ENDS.items()}
    monkeypatch.setattr(sentences, "_ENDS", ends)
    cutter = SentenceCutter(granularity)
    cutter.add(text)
    assert looked_through == []
    first = cutter.next()
    assert first is not None
    assert len(text) - cutter.waiting <= len(first) + 1
    assert len(looked_through) <= 2
    while cutter.next() is not None:
        pass
    assert max(looked_through) <= LONGEST_PIECE + 1


def test_a_tag_in_pieces_stays_whole_and_goes_with_what_follows() -> None:
    cutter = SentenceCutter("sentence")
    pieces = [
        piece
        for part in ("<frust", "rated. Or", " so>\n\nYes! <whi", "sper>No. <", "sigh> ", "Well.")
        for piece in cutter.feed(part)
    ]
    assert [*pieces, cutter.flush()] == [
        "<frustrated. Or so>\n\nYes!",
        "<whisper>No.",
        "<sigh> Well.",
    ]


def test_a_sentence_that_is_too_long_parts_at_a_clause_and_in_no_tag() -> None:
    text = "word " * 30 + "and, " + "word " * 15 + "<break time='1s' strength='strong'/> " * 2
    pieces = cut(text)
    assert pieces[0].endswith("and,")
    assert all(piece.count("<") == piece.count(">") for piece in pieces)
