import numpy as np
import pytest

from speech_assets.voice.lead import audible_part, pad_batch, place
from speech_assets.voice.packs import Utterance, read_index, read_packs, trim, write_pack


def tone(number: int, seconds: float, *, before_s: float = 0.1) -> Utterance:
    time = np.arange(round(seconds * 24_000)) / 24_000
    speech = 8_000 * np.sin(2 * np.pi * 220 * time)
    quiet = np.zeros(round(before_s * 24_000))
    return Utterance(number, "heart", np.concatenate([quiet, speech, quiet]).astype(np.int16))


def test_packs_keep_lengths_ids_and_order(tmp_path):
    clips = [tone(n, 0.3 + 0.1 * n) for n in range(3)]
    write_pack(tmp_path, clips[:2])
    write_pack(tmp_path, clips[2:])
    read, numbers = read_packs(tmp_path, "heart")
    assert numbers == {0, 1}
    assert [(u.id, len(u.samples)) for u in read] == [(u.id, len(u.samples)) for u in clips]
    assert np.corrcoef(read[1].samples, clips[1].samples)[0, 1] > 0.99


def test_a_pack_that_has_not_arrived_is_left_for_later(tmp_path):
    write_pack(tmp_path, [tone(0, 0.3)])
    write_pack(tmp_path, [tone(1, 0.3)])
    hidden = tmp_path / "p001.opus"
    hidden.rename(tmp_path / "elsewhere")
    assert [u.id for u in read_packs(tmp_path, "heart")[0]] == [0]
    (tmp_path / "elsewhere").rename(hidden)
    assert [u.id for u in read_packs(tmp_path, "heart", skip=frozenset({0}))[0]] == [1]


def test_a_pack_shorter_than_its_index_is_refused(tmp_path):
    write_pack(tmp_path, [tone(0, 0.3)])
    index = read_index(tmp_path)
    (tmp_path / "index.json").write_text(str([[[0, index[0][0][1] + 5]]]))
    with pytest.raises(ValueError, match="the index says"):
        read_packs(tmp_path, "heart")


def test_trim_keeps_the_margins_asked_for():
    samples = tone(0, 0.5, before_s=0.5).samples.astype(np.float32)
    kept = trim(samples, before_s=0.15, after_s=0.3)
    assert abs(len(kept) / 24_000 - 0.95) < 0.01


def test_a_placed_clip_has_its_lead_in_its_tail_and_whole_frames():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    clips = [tone(0, 0.4), tone(1, 0.9)]
    places = [place(clip, audible_part(clip), rng) for clip in clips]
    generator = torch.Generator().manual_seed(0)
    batch = pad_batch(clips, places, device=torch.device("cpu"), generator=generator)
    assert batch.shape == (2, 1, max(p.frames for p in places) * 2048)
    for clip, at, row in zip(clips, places, batch[:, 0].numpy(), strict=True):
        audible = np.flatnonzero(np.abs(row) > 0.01)
        assert 0.19 < audible[0] / 24_000 < 0.61
        assert at.frames * 2048 - audible[-1] >= 0.34 * 24_000
        start = at.before_samples
        assert np.allclose(row[start : start + len(clip.samples)] * 32768, clip.samples)
        assert np.abs(row[:start]).max() < 1e-3
        assert np.abs(row[:start]).max() > 0 or start == 0
