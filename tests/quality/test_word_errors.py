"""Words and characters wrong in a transcript, counted by hand."""

from __future__ import annotations

from speech_assets.quality.word_errors import WordErrors, word_errors


def test_substitutions_deletions_and_insertions_are_added_up() -> None:
    # the -> a, brown deleted, now inserted: 3 of 5 words. Letters: "the" -> "a" is 3 (two fewer,
    # one other), "brown " is 6, " now" is 4: 13 of 23 characters.
    found = word_errors("The quick brown fox ran.", "A quick fox ran now.")
    assert found == WordErrors(
        words=5,
        word_errors=3,
        loose_words=5,
        loose_word_errors=3,
        characters=23,
        character_errors=13,
        reference="the quick brown fox ran",
        transcript="a quick fox ran now",
    )


def test_the_strict_form_is_whispers_and_the_loose_one_blind_to_writing() -> None:
    # Whisper's form keeps "4 30" of "4:30" and makes "430" of "four thirty".
    found = word_errors("Come at 4:30, please.", "Come at four thirty, please.")
    assert (found.reference, found.transcript) == ("come at 4 30 please", "come at 430 please")
    assert (found.words, found.word_errors) == (5, 2)
    assert (found.loose_words, found.loose_word_errors) == (4, 0)
    assert found.character_errors == 1


def test_a_number_misheard_is_an_error_in_both_forms() -> None:
    found = word_errors("It costs fifteen dollars.", "It costs $50.")
    assert (found.words, found.word_errors, found.loose_word_errors) == (3, 1, 1)


def test_nothing_heard_is_every_word_deleted() -> None:
    for transcript in ("", "  ...  "):
        found = word_errors("Hello there.", transcript)
        assert (found.words, found.word_errors, found.loose_word_errors) == (2, 2, 2)
        assert (found.characters, found.character_errors) == (11, 11)
        assert found.transcript == ""


def test_nothing_to_say_is_every_word_inserted() -> None:
    found = word_errors("...", "thank you")
    assert (found.words, found.loose_words, found.characters) == (0, 0, 0)
    assert (found.word_errors, found.loose_word_errors, found.character_errors) == (2, 2, 9)
    assert word_errors("", "").word_errors == 0


def test_more_words_than_there_are_can_be_wrong() -> None:
    assert word_errors("No.", "no no no no").word_errors == 3


def test_a_perfect_transcript_has_no_error_whatever_its_case_and_marks() -> None:
    found = word_errors("It's Dr. Smith's colour!", "it is doctor smith's color")
    assert (found.word_errors, found.loose_word_errors, found.character_errors) == (0, 0, 0)
