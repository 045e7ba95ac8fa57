"""Speak the held-out sentences with a trained voice, or resynthesise the held-out recordings.

    python -m speech_assets.work.voice_samples speak --lm DIR --codec DIR --texts FILE --out DIR
        [--voices heart,michael] [--seeds 0,1,2] [--temperature 0.6] [--top-p 0.9]
    python -m speech_assets.work.voice_samples resynthesise --codec DIR --packs VOICE=DIR --out DIR

Writes ``speech.flac`` (24 kHz, clips end to end) and ``clips.json`` to --out, which `voice_eval`
scores.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import soundfile
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from snac import SNAC

from speech_assets.voice.codes import CODEBOOK_SIZE, levels_from_slots
from speech_assets.voice.held_out import RESYNTHESISED_IDS, SPOKEN_IDS
from speech_assets.voice.layout import VoiceLayout, read_layout
from speech_assets.voice.llama import LlamaShape, Sampling, SmallLlama, generate
from speech_assets.voice.packs import SAMPLE_RATE_HZ, read_packs
from speech_assets.voice.texts import read_texts
from speech_assets.work.voice_codec import say, write_json


def main(argv: list[str] | None = None) -> int:
    """Make the samples that the command line asks for; 0 when written."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("speak", "resynthesise"))
    parser.add_argument("--lm", type=Path)
    parser.add_argument("--codec", type=Path, required=True)
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--packs", action="append", default=[], metavar="VOICE=DIR")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--voices", default="heart,michael")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--temperature", type=float, default=0.6)
    parser.add_argument("--top-p", type=float, default=0.9)
    parser.add_argument("--most", type=int, default=0, help="sentences or recordings (for tests)")
    parser.add_argument("--max-frames", type=int, default=240, help="of one clip; 12 are a second")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    device = torch.device(args.device)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    codec = SNAC.from_pretrained(str(args.codec)).float().to(device)
    if args.what == "speak":
        speak(args, codec, device)
    else:
        resynthesise(args, codec, device)
    return 0


def speak(args: argparse.Namespace, codec: SNAC, device: torch.device) -> None:
    """Every voice and seed speaks every sentence, all as one batch of prompts a seed."""
    texts = read_texts(args.texts)
    lm, layout, stride = load_lm(args.lm, device)
    ids = SPOKEN_IDS[: args.most or None]
    who = [(number, voice) for voice in args.voices.split(",") for number in ids]
    prompts = [layout.prompt(texts[number].phonemes, voice) for number, voice in who]
    clips, rows = [], []
    began = time.monotonic()
    for seed in (int(s) for s in args.seeds.split(",")):
        sampling = Sampling(args.temperature, args.top_p, seed, args.max_frames)
        spoken = generate(
            lm,
            prompts,
            sampling,
            audio_base=layout.audio_base,
            codes_per_slot=stride,
            end_of_speech=layout.end_of_speech,
        )
        for (number, voice), (codes, stopped) in zip(who, spoken, strict=True):
            samples = decode(codec, codes, device)
            clips.append(samples)
            rows.append(
                {
                    "id": number,
                    "voice": voice,
                    "seed": seed,
                    "samples": len(samples),
                    "frames": len(codes),
                    "stopped": stopped,
                }
            )
    write_samples(args.out, clips, rows, vars(args))
    seconds = sum(map(len, clips)) / SAMPLE_RATE_HZ
    stopped = sum(row["stopped"] for row in rows)
    say(
        f"{len(rows)} clips, {seconds:.0f} s, {stopped} ended by themselves, "
        f"{time.monotonic() - began:.0f} s"
    )


@torch.inference_mode()
def resynthesise(args: argparse.Namespace, codec: SNAC, device: torch.device) -> None:
    """Held-out recordings through the codec, each whole, beside the recordings themselves."""
    clips, originals, rows = [], [], []
    for pair in args.packs:
        voice, folder = pair.split("=", 1)
        found = [c for c in read_packs(Path(folder), voice)[0] if c.id in RESYNTHESISED_IDS]
        for clip in found[: args.most or None]:
            x = torch.from_numpy(clip.samples).to(device).float()[None, None] / 32768
            torch.manual_seed(clip.id)
            made = codec(x)[0][0, 0].cpu().numpy()
            clips.append(to_pcm(made))
            originals.append(clip.samples)
            rows.append({"id": clip.id, "voice": voice, "seed": 0, "samples": len(made)})
    write_samples(args.out, clips, rows, vars(args))
    write_samples(args.out / "original", originals, rows, vars(args))
    say(f"{len(rows)} recordings resynthesised")


def load_lm(folder: Path, device: torch.device) -> tuple[SmallLlama, VoiceLayout, int]:
    """A checkpoint's model (float32), its layout, and the ids between slots in its rows."""
    layout = read_layout(folder)
    compact = folder / "compact.safetensors"
    path = compact if compact.exists() else folder / "model.safetensors"
    state = {name: t.float() for name, t in load_file(path).items() if name != "lm_head.weight"}
    rows, hidden = state["model.embed_tokens.weight"].shape
    layers = 1 + max(int(n.split(".")[2]) for n in state if n.startswith("model.layers."))
    shape = LlamaShape(
        vocab_size=rows,
        hidden=hidden,
        layers=layers,
        heads=hidden // 64,
        kv_heads=state["model.layers.0.self_attn.k_proj.weight"].shape[0] // 64,
        feed_forward=state["model.layers.0.mlp.up_proj.weight"].shape[0],
    )
    lm = SmallLlama(shape)
    lm.load_state_dict(state)
    return lm.to(device).eval(), layout, layout.live_codes if path == compact else CODEBOOK_SIZE


@torch.inference_mode()
def decode(codec: SNAC, codes: list[list[int]], device: torch.device) -> NDArray[np.int16]:
    """Samples (int16) of codes by frame, decoded whole; the codec's noise is seeded."""
    if not codes:
        return np.zeros(SAMPLE_RATE_HZ // 10, np.int16)
    torch.manual_seed(0)
    levels = levels_from_slots(torch.tensor(codes, device=device)[None])
    return to_pcm(codec.decode(levels)[0, 0].cpu().numpy())


def to_pcm(samples: NDArray[np.float32]) -> NDArray[np.int16]:
    """float32 in -1..1 as int16."""
    return (np.clip(samples, -1, 1) * 32767).round().astype(np.int16)


def write_samples(
    out: Path,
    clips: list[NDArray[np.int16]],
    rows: list[dict[str, object]],
    asked: dict[str, object],
) -> None:
    """Write ``speech.flac`` and ``clips.json``."""
    out.mkdir(parents=True, exist_ok=True)
    soundfile.write(out / "speech.flac", np.concatenate(clips), SAMPLE_RATE_HZ)
    said = {key: str(value) if isinstance(value, Path) else value for key, value in asked.items()}
    write_json(out / "clips.json", {"schema_version": 1, "asked": said, "clips": rows})


if __name__ == "__main__":
    sys.exit(main())
