import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from snac import SNAC  # noqa: E402

from speech_assets.voice.codes import levels_from_slots, slots_from_levels  # noqa: E402
from speech_assets.voice.layout import VoiceLayout  # noqa: E402
from speech_assets.voice.llama import LlamaShape, Sampling, SmallLlama, generate  # noqa: E402
from speech_assets.voice.losses import SpectralLoss  # noqa: E402
from speech_assets.voice.vq import participation, retire_codes, train_quantizers  # noqa: E402
from speech_assets.work.voice_codec import CodecTraining  # noqa: E402
from speech_assets.work.voice_lm import row_bias  # noqa: E402


def small_lm() -> SmallLlama:
    torch.manual_seed(0)
    shape = LlamaShape(64 + 7 * 16, hidden=64, layers=2, heads=2, kv_heads=1, feed_forward=96)
    return SmallLlama(shape).eval()


def test_the_small_llama_is_transformers_llama():
    transformers = pytest.importorskip("transformers")
    lm = small_lm()
    config = transformers.LlamaConfig(**lm.shape.hf_config(begin=1, end=4, pad=0))
    other = transformers.LlamaForCausalLM(config).float().eval()
    other.load_state_dict(lm.state_dict(), strict=False)
    other.tie_weights()
    ids = torch.randint(0, lm.shape.vocab_size, (2, 40))
    with torch.no_grad():
        ours = lm(ids) @ lm.model.embed_tokens.weight.t()
        assert torch.allclose(ours, other(ids).logits, atol=1e-5)


def test_generation_in_a_padded_batch_is_that_of_each_prompt_alone():
    lm = small_lm()
    prompts = [[1, 5, 8, 9, 2, 3], [1, 6, 8, 2, 3]]
    rule = {"audio_base": 64, "codes_per_slot": 16, "end_of_speech": 4}
    greedy = Sampling(temperature=0.0, max_frames=3)
    together = generate(lm, prompts, greedy, **rule)
    assert together == [generate(lm, [p], greedy, **rule)[0] for p in prompts]
    assert all(len(frame) == 7 for codes, _ in together for frame in codes)


def test_slots_and_levels_are_inverse():
    codes = torch.randint(0, 4096, (2, 5, 7))
    levels = levels_from_slots(codes)
    assert [level.shape[1] for level in levels] == [5, 10, 20]
    assert torch.equal(slots_from_levels(levels), codes)


def test_the_package_chooses_the_codes_that_training_chose_and_never_a_dead_one():
    torch.manual_seed(0)
    config = CodecTraining(encoder_dim=4, decoder_dim=32, live_codes=64).snac_config()
    codec = SNAC(**config).train()
    training = train_quantizers(codec, live_codes=64)
    x = 0.1 * torch.randn(2, 1, 8192)
    codec(x)
    assert torch.isfinite(training.loss())
    training.fill([quantizer.latest for quantizer in training.quantizers])
    codec.eval()
    trained = codec.encode(x)
    plain = SNAC(**config).eval()
    plain.load_state_dict(retire_codes(codec.state_dict(), live_codes=64))
    for ours, theirs in zip(trained, plain.encode(x), strict=True):
        assert torch.equal(ours, theirs)
        assert int(theirs.max()) < 64


def test_one_dead_row_counts_as_all_dead_codes():
    layout = VoiceLayout(live_codes=8)
    compact = torch.randn(layout.compact_size)
    rows = torch.from_numpy(layout.row_of_id())
    bias = row_bias(layout)
    padded = F.pad(compact, (0, len(bias) - len(compact))) + bias
    assert torch.allclose(padded.logsumexp(0), compact[rows].logsumexp(0))


def test_spectral_loss_is_zero_of_equal_sound_and_has_a_gradient_at_silence():
    loss = SpectralLoss()
    target = 0.1 * torch.randn(1, 8192)
    assert all(float(part) < 1e-3 for part in loss(target, target))
    silent = torch.zeros(1, 8192, requires_grad=True)
    mel, linear = loss(target, silent)
    (mel + linear).backward()
    assert torch.isfinite(silent.grad).all()


def test_participation_counts_the_dimensions_that_vary_wherever_their_mean_is():
    torch.manual_seed(0)
    rows = torch.randn(20_000, 8)
    assert 7.9 < participation(rows + 100) <= 8.01
    line = torch.randn(1_000, 1) @ torch.randn(1, 8) + 5
    assert abs(participation(line) - 1) < 1e-3
    assert participation(torch.ones(5, 8)) == participation(torch.zeros(0, 8)) == 0.0
