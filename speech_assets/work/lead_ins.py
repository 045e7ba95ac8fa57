"""Make the lead-ins that a preset's utterances can be seeded with (`seeded_frames`): silent codes.

The preset's own model begins to speak the project's sentences in each of its voices, with seed
after seed; the first frames of what begins with silence are kept. What is decoded decides, not the
codes: no 20 ms of the kept frames, nor of the 30 ms after them, are as loud as an onset.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from resources.store import Store
from server import frames
from server.checkpoint import open_checkpoint
from server.checks import weights_sha256
from server.codec import load_codec, use_threads
from server.codec_decoder import CodecDecoder
from server.codec_form import origin_sha256
from server.engine import Generation, Sampling, find_device, open_engine
from server.files import write_json
from server.lead_in import LeadInConfig, samples_of
from server.lead_ins import MOST_FRAMES, MadeBy, lead_ins_value
from server.level import BLOCK_SAMPLES, amplitude
from server.loading import default_sampling
from server.presets import load_preset
from server.text import TextEncoder
from server.weights import CODEC_FILES, MODEL_FILES, local_folder
from speech_assets.errors import ConfigError
from speech_assets.profiles import DEFAULT_STORE
from speech_assets.quantize.generations import run_generations
from speech_assets.sentences import SENTENCES
from speech_assets.work import worker
from speech_assets.work.device_lock import hold_engine_device

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from server.engine import Engine
    from server.frames import TokenLayout

COUNT = 16
_MORE_FRAMES = 2  # Generated beyond those that are kept, to see that speech does not begin in them.
_TRIES = 4  # Times as many utterances are begun as lead-ins are wanted, before that is given up.
_FIRST_SEED = 7_700


def main() -> None:
    """Entry point of `python -m speech_assets.work.lead_ins`."""
    parser = worker.argument_parser("lead_ins", __doc__ or "")
    add = parser.add_argument
    add("--preset", default="embedded-bf16", help="whose model speaks, by its settings")
    add("--store", default=DEFAULT_STORE, help="where the project keeps checkpoints")
    add("--frames", type=int, choices=range(1, MOST_FRAMES + 1), default=1, help="of each")
    add("--count", type=worker.at_least(1), default=COUNT, help="lead-ins of each voice")
    add("--out", type=Path, required=True, help="the file, for the preset's `lead_ins`")
    parser.set_defaults(out_is_file=True)
    parser.set_defaults(when_interrupted=worker.BEGINS_ANEW)
    worker.run(_work, parser)


def _work(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    # Before torch loads, which reads it then: of its C++ side only errors are for a user.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    preset = load_preset(arguments.preset)
    if preset.untrained:
        raise ConfigError(
            f"preset {preset.name} is untrained and makes up its own lead-ins: seeded_frames alone "
            "is enough; name a preset with weights"
        )
    folder = local_folder(preset.model_location(Store(arguments.store).root), MODEL_FILES)
    codec_folder = local_folder(preset.codec_location(), CODEC_FILES)
    checkpoint = open_checkpoint(folder)
    encoder = TextEncoder(checkpoint.folder, checkpoint.layout)
    with hold_engine_device(preset.device, reporter.notice):
        device = find_device(preset.device)
        use_threads(1)
        decoder = CodecDecoder(load_codec(codec_folder, device))
        engine = open_engine(checkpoint, preset.engine_settings(device))
        try:
            sampling = default_sampling(preset, checkpoint.layout)
            begin = _Beginnings(engine, decoder, encoder, checkpoint.layout, sampling)
            voices = {
                voice: np.stack(begin.silent(voice, arguments.count, arguments.frames))
                for voice in encoder.voices
            }
        finally:
            engine.close()
    made_by = MadeBy(preset.name, weights_sha256(folder), origin_sha256(codec_folder))
    write_json(arguments.out, lead_ins_value(made_by, voices))
    reporter.log(f"{arguments.out}: {arguments.count} lead-ins of {len(voices)} voices")


def is_silent(samples: NDArray[np.floating]) -> bool:
    """Whether 20 ms of `samples` (in -1..1) are nowhere as loud as an onset, without their DC."""
    values = np.round(np.asarray(samples, np.float64) * 32_767)
    windows = np.lib.stride_tricks.sliding_window_view(values, 2 * BLOCK_SAMPLES)[::BLOCK_SAMPLES]
    return bool((windows.std(axis=1) <= amplitude(LeadInConfig().onset_dbfs)).all())


@dataclass(frozen=True, slots=True)
class _Beginnings:
    """What begins utterances of one model."""

    engine: Engine
    decoder: CodecDecoder
    encoder: TextEncoder
    layout: TokenLayout
    sampling: Sampling

    def silent(self, voice: str, count: int, length: int) -> list[NDArray[np.uint16]]:
        """Silent beginnings in a voice, codes of shape (length, 7) each; `length` is of frames.

        Raises:
            ConfigError: too few utterances begin with silence.
        """
        wanted = (length + _MORE_FRAMES) * frames.TOKENS_PER_FRAME
        kept = length * frames.SAMPLES_PER_FRAME + samples_of(LeadInConfig().keep_s)
        found: list[NDArray[np.uint16]] = []
        for number in range(count * _TRIES):
            seed = _FIRST_SEED + number
            tokens = self._begin(SENTENCES[number % len(SENTENCES)], voice, seed, wanted)
            if len(tokens) < wanted:
                continue
            codes = self.layout.codes(tokens)
            if is_silent(self.decoder.decode_utterance(codes, seed)[:kept]):
                found.append(codes[:length])
            if len(found) == count:
                return found
        raise ConfigError(
            f"of {count * _TRIES} utterances of {voice!r} only {len(found)} begin with "
            f"{length} silent frames; this voice has no lead-in to begin with: leave "
            "seeded_frames at 0, or ask for fewer by --count and --frames"
        )

    def _begin(self, text: str, voice: str, seed: int, length: int) -> list[int]:
        name = f"{voice}-{seed}"
        sampling = replace(self.sampling, seed=seed, max_tokens=length)
        asked = Generation(name, self.encoder.encode(text, voice), sampling)
        return run_generations(self.engine, [asked])[name].token_ids


if __name__ == "__main__":
    main()
