"""Train the whole embedded voice in one go: codec, resynthesis, language model, speech.

Made for a GPU machine that is there for a limited time and has no Dagster: each step is the command
of its name in a process of its own, and the next begins by itself. First everything is rehearsed, a
few steps of a small model each, so that a missing package or file ends it in a minute and not in
twenty. Steps that are done are skipped, unfinished trainings go on: give the same command again.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from speech_assets.errors import SpeechAssetsError
from speech_assets.work import worker
from speech_assets.work.voice_codec import STALLED

if TYPE_CHECKING:
    from collections.abc import Sequence

_END_WITHIN_S = 60.0  # A training that is told to end keeps what it has.
# Small enough for seconds; of the same code, kernels and captures as the real ones.
REHEARSED_CODEC = (
    *("--steps", "3", "--quantize-step", "1", "--stalled-step", "0", "--adversaries-from", "0"),
    *("--encoder-dim", "8", "--decoder-dim", "64", "--batch", "2", "--crop-samples", "8192"),
    *("--judged-samples", "4096"),
)
REHEARSED_LM = (
    *("--steps", "3", "--most-clips", "4", "--variants", "1", "--hidden", "128", "--heads", "2"),
    *("--kv-heads", "1", "--layers", "2", "--feed-forward", "256", "--batch-tokens", "1024"),
)


class TrainingFailedError(SpeechAssetsError):
    """A step of the chain failed; its own message stands above."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Where everything comes from and goes to."""

    packs: tuple[str, ...]
    judged: tuple[str, ...]
    texts: Path
    live_codes: int
    device: tuple[str, ...]
    start_from: tuple[str, ...] = ()

    def codec(self, out: Path, options: Sequence[str]) -> list[str]:
        """The command that trains the codec into `out`/codec."""
        return [
            "voice_codec",
            *_each("--packs", self.packs),
            *("--out", str(out / "codec"), "--live-codes", str(self.live_codes)),
            *(*self.start_from, *self.device, *options),
        ]

    def resynthesis(self, out: Path, options: Sequence[str] = ()) -> list[str]:
        """The command that puts held-out recordings through that codec."""
        return [
            *("voice_samples", "resynthesise", *_each("--packs", self.judged)),
            *("--codec", str(out / "codec"), "--out", str(out / "resynthesis")),
            *(*self.device, *options),
        ]

    def lm(self, out: Path, options: Sequence[str]) -> list[str]:
        """The command that trains the language model on that codec's codes."""
        return [
            *("voice_lm", *_each("--packs", self.packs), "--texts", str(self.texts)),
            *("--codec", str(out / "codec"), "--out", str(out / "lm")),
            *("--live-codes", str(self.live_codes), *self.device, *options),
        ]

    def speech(self, out: Path, seed: str, options: Sequence[str] = ()) -> list[str]:
        """The command that has both speak the held-out sentences."""
        return [
            *("voice_samples", "speak", "--lm", str(out / "lm"), "--codec", str(out / "codec")),
            *("--texts", str(self.texts), "--seeds", seed, "--out", str(out / f"speech-{seed}")),
            *(*self.device, *options),
        ]


def main() -> None:
    """Entry point of `python -m speech_assets.work.voice_train`."""
    parser = worker.argument_parser("voice_train", __doc__ or "")
    parser.add_argument("--packs", action="append", required=True, metavar="VOICE=DIR")
    parser.add_argument(
        "--judged", action="append", required=True, metavar="VOICE=DIR",
        help="packs with the held-out recordings",
    )  # fmt: skip
    parser.add_argument("--texts", type=Path, required=True, help="text.jsonl or text.jsonl.xz")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", choices=("cuda", "cpu"))
    parser.add_argument("--live-codes", type=int, default=2_048)
    parser.add_argument(
        "--start-from", type=Path, metavar="DIR", help="folder of a trained codec to begin with"
    )
    parser.add_argument("--decoder-dim", type=int, default=384)
    parser.add_argument("--codec-minutes", type=float, default=10.0)
    parser.add_argument("--lm-minutes", type=float, default=8.5)
    parser.add_argument("--codec-seeds", default="1,2,3", help="tried in turn until one learns")
    parser.add_argument("--speech-seeds", default="0,1,2")
    parser.add_argument("--rehearse-only", action="store_true", help="end after the rehearsal")
    worker.run(_work, parser)


def _work(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    chain = Chain(
        tuple(arguments.packs),
        tuple(arguments.judged),
        arguments.texts,
        arguments.live_codes,
        ("--device", arguments.device) if arguments.device else (),
        ("--start-from", str(arguments.start_from)) if arguments.start_from else (),
    )
    out: Path = arguments.out
    rehearse(chain, out / "rehearsal", reporter)
    if arguments.rehearse_only:
        return
    _train_codec(chain, arguments, reporter)
    _step(chain.resynthesis(out), out, "resynthesis", reporter)
    _step(chain.lm(out, ["--minutes", str(arguments.lm_minutes)]), out, "lm", reporter)
    for seed in arguments.speech_seeds.split(","):
        _step(chain.speech(out, seed), out, f"speech-{seed}", reporter)
    reporter.log(f"all done: {out}")


def rehearse(chain: Chain, out: Path, reporter: worker.Reporter) -> None:
    """Run every step once, small; leaves nothing.

    Raises:
        TrainingFailedError: a step failed.
    """
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    few = ["--most", "2"]
    _step(chain.codec(out, REHEARSED_CODEC), out, "codec", reporter)
    _step(chain.resynthesis(out, few), out, "resynthesis", reporter)
    _step(chain.lm(out, REHEARSED_LM), out, "lm", reporter)
    _step(chain.speech(out, "0", [*few, "--max-frames", "4"]), out, "speech-0", reporter)
    shutil.rmtree(out)
    reporter.log("rehearsed: every step runs here")


def _train_codec(chain: Chain, arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    """Train the codec with the first seed that learns."""
    out: Path = arguments.out
    options = ["--minutes", str(arguments.codec_minutes)]
    options += ["--decoder-dim", str(arguments.decoder_dim)]
    seeds = arguments.codec_seeds.split(",")
    for seed in seeds:
        if (out / f"stalled-{seed}").exists():
            continue
        command = chain.codec(out, [*options, "--seed", seed])
        if _step(command, out, "codec", reporter, allowed=STALLED) != STALLED:
            return
        reporter.log(f"seed {seed} does not learn")
        # Snapshots of a training that stalled must not be gone on from by another seed.
        (out / "codec").rename(out / f"stalled-{seed}")
    raise TrainingFailedError(
        f"no codec learns with the seeds {', '.join(seeds)}; change something in voice_codec"
    )


def _step(
    command: list[str], out: Path, name: str, reporter: worker.Reporter, *, allowed: int = 0
) -> int:
    """Run one command unless it is done already; its exit code, 0 or `allowed`."""
    done = out / f"{name}.done"
    asked = " ".join(command)
    if done.exists() and done.read_text("utf-8") == asked:
        reporter.log(f"{name}: done before")
        return 0
    began_s = time.monotonic()
    code = _run(command)
    seconds = time.monotonic() - began_s
    if code not in (0, allowed):
        raise TrainingFailedError(
            f"{name} failed with exit code {code} after {seconds:.0f} s: {asked}"
        )
    if code == 0:
        done.write_text(asked, "utf-8")
    reporter.log(f"{name}: {seconds:.0f} s")
    return code


def _run(command: list[str]) -> int:
    """Run a work command until it ends; it ends with us, too."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", f"speech_assets.work.{command[0]}"),
            *(*command[1:], "--exit-on-stdin-eof"),
        ],
        stdin=subprocess.PIPE,
    )
    with process:
        try:
            return process.wait()
        except BaseException:
            process.terminate()
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_END_WITHIN_S)
            finally:
                # After Ctrl-C Popen itself would not wait for it.
                process.kill()
                process.wait()
            raise


def _each(flag: str, values: Sequence[str]) -> list[str]:
    return [part for value in values for part in (flag, value)]


if __name__ == "__main__":
    main()
