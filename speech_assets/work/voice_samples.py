"""Speak the held-out sentences with a trained voice, or resynthesise the held-out recordings.

speak: every voice and seed speaks the 50 sentences (--lm, --codec, --texts). resynthesise: 35
recordings go through the codec (--codec, --packs), themselves beside them in `original/`.
recordings: the 50 sentences as they were recorded (--packs), to compare with. Each writes
``speech.flac`` (24 kHz, clips end to end) and ``clips.json`` to --out, which `voice_eval` scores.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

from server.codec import Codec, load_codec, use_exact_float32
from server.files import sha256_of, write_json
from server.frames import TokenLayout, read_layout
from server.packed import plain_folder
from speech_assets.errors import ConfigError
from speech_assets.voice.codes import CODEBOOK_SIZE, levels_from_slots
from speech_assets.voice.held_out import RESYNTHESISED_IDS, SPOKEN_IDS
from speech_assets.voice.llama import LlamaShape, Sampling, SmallLlama, generate
from speech_assets.voice.options import add_device, chosen_device, pack_folders
from speech_assets.voice.packs import SAMPLE_RATE_HZ, Utterance, read_packs
from speech_assets.voice.texts import read_texts
from speech_assets.work import worker


def main() -> None:
    """Entry point of `python -m speech_assets.work.voice_samples`."""
    worker.run(make_samples, argument_parser())


def argument_parser() -> argparse.ArgumentParser:
    """Arguments of the command."""
    parser = worker.argument_parser("voice_samples", __doc__ or "")
    parser.add_argument("what", choices=("speak", "resynthesise", "recordings"))
    parser.add_argument("--lm", type=Path, help="folder of the language model")
    parser.add_argument("--codec", type=Path, help="folder of the codec")
    parser.add_argument("--texts", type=Path, help="text.jsonl or text.jsonl.xz")
    parser.add_argument("--packs", action="append", default=[], metavar="VOICE=DIR")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--voices", default="", help="by comma; all of the model's if not given")
    parser.add_argument("--seeds", default="0", help="by comma")
    parser.add_argument("--temperature", type=float, default=0.6)
    parser.add_argument("--top-p", type=float, default=0.9)
    parser.add_argument("--most", type=int, default=0, help="sentences or recordings; 0 is all")
    parser.add_argument("--max-frames", type=int, default=240, help="of one clip; 12 are a second")
    add_device(parser)
    return parser


def make_samples(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    """Make the samples that the command line asks for.

    Raises:
        SpeechAssetsError, ServerError: an argument is missing, or weights or texts do not load.
    """
    use_exact_float32()
    needed = {
        "speak": ("lm", "codec", "texts"),
        "resynthesise": ("codec", "packs"),
        "recordings": ("packs",),
    }[arguments.what]
    if missing := [f"--{name}" for name in needed if not getattr(arguments, name)]:
        raise ConfigError(f"{arguments.what} needs {' and '.join(missing)}; give them")
    {"speak": speak, "resynthesise": resynthesise, "recordings": recordings}[arguments.what](
        arguments, reporter
    )


def speak(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    """Every voice and seed speaks every sentence, all as one batch of prompts a seed."""
    began_s = time.monotonic()
    device = chosen_device(arguments)
    codec = load_codec(plain_folder(arguments.codec), device)
    lm, layout, stride = load_lm(arguments.lm, device)
    texts = read_texts(arguments.texts)
    ids = SPOKEN_IDS[: arguments.most or None]
    voices = [v for v in arguments.voices.split(",") if v] or list(layout.voices)
    if absent := [str(number) for number in ids if number not in texts]:
        raise ConfigError(f"{arguments.texts} has no text {', '.join(absent)}: it is another set")
    if strange := sorted(set(voices) - set(layout.voices)):
        raise ConfigError(
            f"--voices {', '.join(strange)}: the model has {', '.join(layout.voices)}"
        )
    who = [(number, voice) for voice in voices for number in ids]
    prompts = [layout.prompt(phoneme_ids(layout, texts[n].phonemes), voice) for n, voice in who]
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    clips: list[NDArray[np.int16]] = []
    rows: list[dict[str, object]] = []
    reporter.start(len(seeds) * len(who), "clips")
    for seed in seeds:
        sampling = Sampling(arguments.temperature, arguments.top_p, seed, arguments.max_frames)
        spoken = generate(
            lm,
            prompts,
            sampling,
            audio_base=layout.audio_base,
            codes_per_slot=stride,
            end_of_speech=layout.end_of_speech,
        )
        for (number, voice), (codes, stopped) in zip(who, spoken, strict=True):
            clips.append(decode(codec, codes))
            rows.append(
                {
                    "id": number,
                    "voice": voice,
                    "seed": seed,
                    "samples": len(clips[-1]),
                    "frames": len(codes),
                    "stopped": stopped,
                }
            )
            reporter.advance(1)
    made = {"lm": lm_name(arguments.lm, lm), **_codec_facts(codec), **_machine(device)}
    write_samples(arguments.out, clips, rows, vars(arguments), made)
    seconds = sum(map(len, clips)) / SAMPLE_RATE_HZ
    stopped = sum(bool(row["stopped"]) for row in rows)
    reporter.result(
        "samples",
        clips=len(rows),
        seconds=seconds,
        ended_by_themselves=stopped,
        took_s=time.monotonic() - began_s,
    )


@torch.inference_mode()
def resynthesise(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    """Held-out recordings through the codec, each whole, beside the recordings themselves."""
    device = chosen_device(arguments)
    codec = load_codec(plain_folder(arguments.codec), device)
    clips: list[NDArray[np.int16]] = []
    found = _held_out(arguments, RESYNTHESISED_IDS)
    reporter.start(len(found), "clips")
    for clip in found:
        x = torch.from_numpy(clip.samples).to(device).float()[None, None] / 32768
        torch.manual_seed(clip.id)  # Of the decoder's noise.
        clips.append(to_pcm(codec.model(x)[0][0, 0].cpu().numpy()))
        reporter.advance(1)
    rows = _rows(found)
    made = {**_codec_facts(codec), **_machine(device)}
    write_samples(arguments.out, clips, rows, vars(arguments), made)
    write_samples(
        arguments.out / "original",
        [clip.samples for clip in found],
        rows,
        vars(arguments),
        {"name": "recordings"},
    )
    reporter.result("samples", clips=len(rows), codec=codec.identity.name)


def recordings(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    """The sentences that a model speaks, as they were recorded."""
    found = _held_out(arguments, SPOKEN_IDS)
    samples = [clip.samples for clip in found]
    write_samples(arguments.out, samples, _rows(found), vars(arguments), {"name": "recordings"})
    reporter.result("samples", clips=len(found))


def load_lm(folder: Path, device: torch.device) -> tuple[SmallLlama, TokenLayout, int]:
    """A checkpoint's model (float32), its layout, and the ids between slots in its rows.

    `folder` is one of `voice_lm` (compact rows), a plain checkpoint or a packed one.
    """
    folder = plain_folder(folder)
    layout = read_layout(folder)
    compact = folder / "compact.safetensors"
    path = compact if compact.exists() else folder / "model.safetensors"
    state = {name: t.float() for name, t in load_file(path).items() if name != "lm_head.weight"}
    config = json.loads((folder / "config.json").read_text("utf-8"))
    shape = LlamaShape(
        vocab_size=len(state["model.embed_tokens.weight"]),
        hidden=config["hidden_size"],
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        feed_forward=config["intermediate_size"],
        max_positions=config["max_position_embeddings"],
        rope_theta=config["rope_theta"],
        norm_eps=config["rms_norm_eps"],
    )
    lm = SmallLlama(shape)
    lm.load_state_dict(state)
    return lm.to(device).eval(), layout, layout.live_codes if path == compact else CODEBOOK_SIZE


def phoneme_ids(layout: TokenLayout, phonemes: str) -> list[int]:
    """Ids of the symbols of `phonemes`; those that the model never saw are left out."""
    place = {symbol: layout.phoneme_base + n for n, symbol in enumerate(layout.phonemes)}
    return [place[symbol] for symbol in phonemes if symbol in place]


def lm_name(folder: Path, lm: SmallLlama) -> str:
    """Name of a language model by its size and the content of its weights' file."""
    names = ("compact.safetensors", "packed.safetensors", "model.safetensors")
    path = next(folder / name for name in names if (folder / name).exists())
    parameters = sum(p.numel() for p in lm.parameters())
    return f"voice-{parameters / 1e6:.1f}M-{sha256_of(path)[:12]}"


@torch.inference_mode()
def decode(codec: Codec, codes: list[list[int]]) -> NDArray[np.int16]:
    """Samples (int16) of codes by frame, decoded whole; the codec's noise is seeded."""
    if not codes:
        return np.zeros(SAMPLE_RATE_HZ // 10, np.int16)
    torch.manual_seed(0)
    levels = levels_from_slots(torch.tensor(codes, device=codec.device)[None])
    return to_pcm(codec.model.decode(levels)[0, 0].cpu().numpy())


def to_pcm(samples: NDArray[np.float32]) -> NDArray[np.int16]:
    """float32 in -1..1 as int16."""
    return (np.clip(samples, -1, 1) * 32767).round().astype(np.int16)


def write_samples(
    out: Path,
    clips: list[NDArray[np.int16]],
    rows: list[dict[str, object]],
    asked: dict[str, Any],
    made: dict[str, Any],
) -> None:
    """Write ``speech.flac`` and ``clips.json``: what was asked for and what it was made with."""
    out.mkdir(parents=True, exist_ok=True)
    soundfile.write(out / "speech.flac", np.concatenate(clips), SAMPLE_RATE_HZ)
    said = {
        key: value.name if isinstance(value, Path) else value
        for key, value in asked.items()
        if key in ("what", "voices", "seeds", "temperature", "top_p", "most", "max_frames")
    }
    write_json(
        out / "clips.json", {"schema_version": 2, "asked": said, "made": made, "clips": rows}
    )


def _held_out(arguments: argparse.Namespace, ids: tuple[int, ...]) -> list[Utterance]:
    found: list[Utterance] = []
    for folder, voice in pack_folders(arguments.packs).items():
        clips = [clip for clip in read_packs(folder, voice)[0] if clip.id in ids]
        found += clips[: arguments.most or None]
    if not found:
        raise ConfigError(f"--packs {' '.join(arguments.packs)}: none of the held-out texts in it")
    return found


def _rows(clips: list[Utterance]) -> list[dict[str, object]]:
    return [
        {"id": clip.id, "voice": clip.voice, "seed": 0, "samples": len(clip.samples)}
        for clip in clips
    ]


def _codec_facts(codec: Codec) -> dict[str, str]:
    return {"codec": codec.identity.name, "codec_sha256": codec.identity.weights_sha256}


def _machine(device: torch.device) -> dict[str, str]:
    name = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    return {"device": name, "torch": torch.__version__}


if __name__ == "__main__":
    main()
