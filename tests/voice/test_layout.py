import numpy as np
import pytest

from speech_assets.voice.layout import VoiceLayout, read_layout


def test_a_prompt_is_begin_voice_phonemes_end_of_text_start_of_speech():
    layout = VoiceLayout()
    prompt = layout.prompt("ðə", "michael")
    assert prompt[:2] == [layout.begin, layout.voice_base + 1]
    assert prompt[-2:] == [layout.end_of_text, layout.start_of_speech]
    assert len(prompt) == 6


def test_symbols_the_model_never_saw_are_left_out():
    layout = VoiceLayout()
    assert layout.phoneme_ids("ð€ə") == layout.phoneme_ids("ðə")


def test_an_unknown_voice_is_refused_with_the_voices_there_are():
    with pytest.raises(ValueError, match="heart, michael"):
        VoiceLayout().prompt("ə", "tara")


def test_row_of_id_agrees_with_compact_ids_and_sends_dead_codes_to_the_last_row():
    layout = VoiceLayout(live_codes=10)
    codes = np.arange(70).reshape(-1, 7) % 10
    rows = layout.row_of_id()
    assert len(rows) == layout.vocab_size
    assert (rows[layout.audio_ids(codes)] == layout.audio_ids(codes, compact=True)).all()
    assert rows[layout.audio_base + 10] == layout.compact_size - 1 == rows[-1]


def test_a_written_layout_reads_back(tmp_path):
    layout = VoiceLayout(live_codes=1024)
    layout.write(tmp_path)
    assert read_layout(tmp_path) == layout


def test_overlapping_ids_are_refused():
    with pytest.raises(ValueError, match="overlap"):
        VoiceLayout(voices=("a", "b", "c"))
