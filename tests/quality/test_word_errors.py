"""Words and characters wrong in a transcript, counted by hand."""

from __future__ import annotations

import pytest

from speech_assets.quality.word_errors import WordErrors, word_errors


def test_substitutions_deletions_and_insertions_are_added_up() -> None:
    # the -> a, brown deleted, now inserted: 3 of 5 words. Letters: "the" -> "a" is 3 (two fewer,
    # one other), "brown " is 6, " now" is 4: 13 of 23 characters.
    found = word_errors("The quick brown fox ran.", "A quick fox ran now.")
    assert found == WordErrors(
        words=5,
        word_errors=3,
        format_insensitive_words=5,
        format_insensitive_word_errors=3,
        characters=23,
        character_errors=13,
        reference="the quick brown fox ran",
        transcript="a quick fox ran now",
    )


def test_the_strict_form_is_whispers_and_the_other_format_insensitive() -> None:
    # Whisper's form keeps "4 30" of "4:30" and makes "430" of "four thirty".
    found = word_errors("Come at 4:30, please.", "Come at four thirty, please.")
    assert (found.reference, found.transcript) == ("come at 4 30 please", "come at 430 please")
    assert (found.words, found.word_errors) == (5, 2)
    assert (found.format_insensitive_words, found.format_insensitive_word_errors) == (4, 0)
    assert found.character_errors == 1


def test_a_number_misheard_is_an_error_in_both_forms() -> None:
    found = word_errors("It costs fifteen dollars.", "It costs $50.")
    assert (found.words, found.word_errors, found.format_insensitive_word_errors) == (3, 1, 1)


@pytest.mark.parametrize(
    ("heard", "errors"),
    [
        ("We paid $19.95 in March 1995.", 0),
        ("we paid nineteen ninety-five in march nineteen ninety-five", 0),
        ("We paid 19.95 in March 1995.", 0),
        ("We paid nineteen dollars and ninety-five cents in March 1995.", 0),
        ("We paid 19-95 in March 1995.", 0),
        ("We paid 19, 95 in March 1995.", 0),
        ("We paid 19-59 in March 1995.", 1),
        ("We paid $90.95 in March 1995.", 1),
        ("We paid nineteen fifty in March 1995.", 1),
    ],
)
def test_money_is_understood_with_its_currency_and_without(heard: str, errors: int) -> None:
    found = word_errors("We paid $19.95 in March 1995.", heard)
    assert (found.format_insensitive_words, found.format_insensitive_word_errors) == (6, errors)


@pytest.mark.parametrize(
    ("said", "heard", "errors"),
    [
        ("Leave at 4:30.", "Leave 4.30.", 1),
        ("The 4:30 train.", "the 4.30 train", 0),
        ("Version 3.10 is out.", "version 310 is out", 1),
        ("Wait 10-15 minutes.", "wait 10, 15 minutes", 1),
        ("Wait 10-15 minutes.", "wait 10-15 minutes", 0),
    ],
)
def test_what_whisper_writes_otherwise_is_no_error_and_another_number_is(
    said: str, heard: str, errors: int
) -> None:
    assert word_errors(said, heard).format_insensitive_word_errors == errors


def test_nothing_heard_is_every_word_deleted() -> None:
    for transcript in ("", "  ...  "):
        found = word_errors("Hello there.", transcript)
        assert (found.words, found.word_errors, found.format_insensitive_word_errors) == (2, 2, 2)
        assert (found.characters, found.character_errors) == (11, 11)
        assert found.transcript == ""


def test_nothing_to_say_is_every_word_inserted() -> None:
    found = word_errors("...", "thank you")
    assert (found.words, found.format_insensitive_words, found.characters) == (0, 0, 0)
    assert (found.word_errors, found.format_insensitive_word_errors, found.character_errors) == (
        2,
        2,
        9,
    )
    assert word_errors("", "").word_errors == 0


def test_more_words_than_there_are_can_be_wrong() -> None:
    assert word_errors("No.", "no no no no").word_errors == 3


def test_a_perfect_transcript_has_no_error_whatever_its_case_and_marks() -> None:
    found = word_errors("It's Dr. Smith's colour!", "it is doctor smith's color")
    assert (found.word_errors, found.format_insensitive_word_errors, found.character_errors) == (
        0,
        0,
        0,
    )
