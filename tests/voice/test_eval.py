import pytest

pytest.importorskip("torch")
pytest.importorskip("jiwer")
pytest.importorskip("whisper")

from speech_assets.work.voice_eval import Scored, compare, summarise


def scored(number: int, *, errors: int, voice: str = "heart", mos: float = 3.0) -> Scored:
    return Scored(
        id=number,
        voice=voice,
        seed=0,
        seconds=2.0,
        reference="",
        transcript="",
        words=10,
        word_errors=errors,
        characters=50,
        character_errors=2 * errors,
        mos=(mos, mos, mos, mos),
    )


def test_rates_are_over_all_words_and_lie_within_their_intervals():
    figures = summarise([scored(n, errors=n % 3) for n in range(30)])["all"]
    assert figures["words"] == 300
    assert figures["wer"] == pytest.approx(0.1)
    assert figures["wer_ci"][0] < figures["wer"] < figures["wer_ci"][1]
    assert figures["cer"] == pytest.approx(60 / 1500)
    assert figures["dnsmos_overall"] == 3.0
    assert figures["dnsmos_overall_ci"] == [3.0, 3.0]


def test_a_constant_difference_is_found_without_spread_though_sentences_differ():
    first = [scored(n, errors=n % 4, mos=3 + n % 2) for n in range(20)]
    other = [scored(n, errors=n % 4 + 1, mos=2.5 + n % 2) for n in range(20)]
    versus = compare(first, other)
    assert versus["all"] == versus["voice heart"]
    assert versus["all"]["wer"] == pytest.approx(0.1)
    assert versus["all"]["wer_ci"] == pytest.approx([0.1, 0.1])
    assert versus["all"]["dnsmos_overall_ci"] == pytest.approx([-0.5, -0.5])


def test_only_sentences_of_both_are_compared():
    first = [scored(n, errors=0) for n in range(5)]
    other = [scored(n, errors=5) for n in range(3, 9)]
    assert compare(first, other)["all"]["sentences"] == 2


def test_nothing_shared_gives_no_comparison():
    assert compare([scored(0, errors=0)], [scored(0, errors=0, voice="michael")]) == {}
