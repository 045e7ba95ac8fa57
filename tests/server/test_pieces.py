"""Texts cut into pieces that a model can speak whole: every word once, in order, none too long."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.markup import plain_text
from server.pieces import (
    CLAUSE_PAUSE_S,
    PARAGRAPH_PAUSE_S,
    SENTENCE_PAUSE_S,
    TOGETHER,
    WORD_PAUSE_S,
    Piece,
    halves,
    pieces,
    spoken_characters,
)
from server.written import in_words


def single_spaced(text: str) -> str:
    return " ".join(text.split())


def cut(text: str, longest: int = 250) -> list[Piece]:
    return list(pieces(plain_text(text), single_spaced, longest))


def test_sentences_that_fit_together_stay_together_and_others_part_at_their_ends() -> None:
    sentence = "It is about as long as half a piece may be."
    assert 2 * len(sentence) < TOGETHER < 3 * len(sentence)
    made = cut(" ".join([sentence] * 3))
    assert made == [
        Piece(f"{sentence} {sentence}", SENTENCE_PAUSE_S),
        Piece(sentence, SENTENCE_PAUSE_S),
    ]


def test_a_title_and_paragraphs_are_pieces_each_said_once() -> None:
    made = cut("The Adventure of the Lost Treasure\n\nThey went. All of them.\n\nThe end")
    assert made == [
        Piece("The Adventure of the Lost Treasure.", PARAGRAPH_PAUSE_S),
        Piece("They went. All of them.", PARAGRAPH_PAUSE_S),
        Piece("The end", SENTENCE_PAUSE_S),
    ]


def test_a_long_sentence_parts_at_clauses_and_a_long_clause_at_spaces() -> None:
    made = cut("one two three, four five six seven eight nine ten", 20)
    assert made == [
        Piece("one two three,", CLAUSE_PAUSE_S),
        Piece("four five six seven", WORD_PAUSE_S),
        Piece("eight nine ten", SENTENCE_PAUSE_S),
    ]


def test_abbreviations_decimals_initials_addresses_and_tags_are_not_cut() -> None:
    text = (
        "Dr. J. R. Hart paid 3.50 at 10.30 a.m. there. "
        "See www.example.com/a.b, e.g. today! <laugh. out> Yes."
    )
    made = list(pieces(text, single_spaced, 90))
    assert [piece.text for piece in made] == [
        "Dr. J. R. Hart paid 3.50 at 10.30 a.m. there.",
        "See www.example.com/a.b, e.g. today! <laugh. out> Yes.",
    ]


def test_an_asked_for_pause_parts_and_lasts_as_long_as_asked() -> None:
    made = cut("<break time='3s'/>One <break time='100ms'/> two.<break time='2s'/>\n\nThree")
    assert made == [
        Piece("One", 0.1),
        Piece("two.", 2.0),
        Piece("Three", SENTENCE_PAUSE_S),
    ]


def test_digits_and_signs_count_as_what_they_are_spoken_as() -> None:
    assert spoken_characters("ten words") == 9
    assert spoken_characters("$1,200") == 8 + 4 * 7 + 1


@pytest.mark.parametrize("text", ["a", "ab", "one two", "one, two three four five"])
def test_halves_hold_all_of_a_piece_and_keep_its_pause(text: str) -> None:
    made = halves(Piece(text, 0.7))
    assert "".join("".join(piece.text for piece in made).split()) == text.replace(" ", "")
    assert made[-1].pause_s == 0.7
    assert len(made) > 1 or len(text) == 1


TEXT = st.text(
    alphabet=st.one_of(
        st.sampled_from("abcXYZ .,;:!?()'\"-\u2014\u2026\n\n   "),
        st.characters(codec="utf-8"),
    ),
    max_size=600,
)


@given(TEXT, st.integers(1, 250))
def test_any_text_is_in_pieces_once_and_in_order(text: str, longest: int) -> None:
    plain = plain_text(text)
    made = list(pieces(plain, single_spaced, longest))
    assert all(any(map(str.isalnum, piece.text)) for piece in made)
    assert all(spoken_characters(piece.text) <= longest or len(piece.text) == 1 for piece in made)

    def letters(said: str) -> str:
        return "".join(filter(str.isalnum, said))

    # A pause is written in digits; of what this text holds none is one.
    assert letters("".join(piece.text for piece in made)) == letters(
        re.sub("\ue000\\d+\ue000", "", plain)
    )


@given(TEXT)
def test_any_text_in_words_is_in_pieces_whatever_their_length(text: str) -> None:
    plain = plain_text(text)
    whole = "".join(piece.text for piece in pieces(plain, in_words, 1_000_000))
    parts = "".join(piece.text for piece in pieces(plain, in_words, 40))
    assert "".join(parts.split()) == "".join(whole.split())


def test_a_hundred_thousand_characters_are_cut_as_they_are_needed() -> None:
    text = "They walked on, and on. " * 4_200
    read: list[str] = []

    def reading(sentence: str) -> str:
        read.append(sentence)
        return sentence

    made = pieces(plain_text(text), reading)
    next(made)
    assert len(read) < 20
    assert sum(len(piece.text.split()) for piece in made) > 20_000
