"""Train the embedded voice's codec: a small `snac.SNAC` with adversaries, from packs of speech.

Writes to --out: ``config.json`` and ``pytorch_model.bin`` (float16, loads with
``SNAC.from_pretrained``), ``figures.json`` and ``state.pt``, from which the same command goes on.
With --start-from it begins with a trained codec's weights and widths, and with its codebooks where
all 4,096 codes stay live: what encodes speech already has no collapse to fear. On a GPU the whole
step is one CUDA graph over fused kernels; on a CPU the same code runs slowly, for trials. Exit code
3: it does not learn with this --seed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import pickle
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from snac import SNAC
from torch import Tensor, nn

from server.files import sha256_of, write_json
from speech_assets.errors import ConfigError
from speech_assets.voice.foreach import copy_each, lerp_each
from speech_assets.voice.losses import (
    Discriminators,
    SpectralLoss,
    feature_loss,
    judge_loss,
    maker_loss,
)
from speech_assets.voice.options import (
    add_device,
    add_settings,
    chosen_device,
    pack_folders,
    settings,
)
from speech_assets.voice.packs import Utterance
from speech_assets.voice.pool import SpeechPool
from speech_assets.voice.versions import CODEC_CODE_VERSION as CODE_VERSION
from speech_assets.voice.vq import retire_codes, train_quantizers
from speech_assets.work import worker

FILL_STEPS = 20  # Steps whose vectors fill the codebooks.
STALLED = 3
"""Exit status of a training that does not learn, so that a script can go on with another seed."""


@dataclass(frozen=True, slots=True)
class CodecTraining:
    """How long, how large and how fast."""

    minutes: float = 9.0
    encoder_dim: int = 24
    decoder_dim: int = 384
    live_codes: int = 1024  # Of 4,096 a codebook; fewer are easier for the language model.
    batch: int = 32
    crop_samples: int = 16_384
    judged_samples: int = 8_192  # The middle of each crop, which the discriminators see.
    adversaries_from: float = 0.2  # Of the time.
    revive_until: float = 0.6
    learning_rate: float = 6e-4
    warm_up_steps: int = 200
    quantize_step: int = 1_000  # Until here the encoder learns without quantizing.
    mel_weight: float = 15.0
    linear_weight: float = 2.0
    feature_weight: float = 0.67
    average_decay: float = 0.999  # Of the moving average of weights that is written.
    save_every_s: float = 150.0
    stalled_step: int = 2_500  # Where the mel loss must be below `stalled_mel`, else it ends.
    # One run stood at 0.75-0.95 for 2,000 steps; a healthy one has 0.24 at 3,000.
    stalled_mel: float = 0.6
    # That run's vectors filled 1.4 of 8 dimensions in the end, a good codec's 2.6 to 3.8.
    stalled_dimensions: float = 2.0
    seed: int = 1
    started_from: str = ""  # sha256 of the weights that it began with.

    def snac_config(self) -> dict[str, Any]:
        """Arguments of `snac.SNAC`: SNAC 24 kHz with other widths."""
        return {
            "sampling_rate": 24_000,
            "encoder_dim": self.encoder_dim,
            "encoder_rates": [2, 4, 8, 8],
            "decoder_dim": self.decoder_dim,
            "decoder_rates": [8, 8, 4, 2],
            "attn_window_size": None,
            "codebook_size": 4096,
            "codebook_dim": 8,
            "vq_strides": [4, 2, 1],
            "noise": True,
            "depthwise": True,
        }


def main() -> None:
    """Entry point of `python -m speech_assets.work.voice_codec`."""
    worker.run(train, argument_parser())


def argument_parser() -> argparse.ArgumentParser:
    """Arguments of the command."""
    parser = worker.argument_parser("voice_codec", __doc__ or "")
    parser.add_argument("--packs", action="append", required=True, metavar="VOICE=DIR")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=0, help="stop after this many (for trials)")
    parser.add_argument("--profile", action="store_true", help="time kernels of 5 steps, then end")
    parser.add_argument(
        "--start-from", type=Path, metavar="DIR", help="folder of a trained codec to begin with"
    )
    add_device(parser)
    add_settings(parser, CodecTraining)
    return parser


def train(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    """Train as the command line says; ends the process with status 3 when it stalled.

    Raises:
        SpeechAssetsError: packs or device are not what they must be.
    """
    config, weights = settings(CodecTraining, arguments), None
    if arguments.start_from is not None:
        config, weights = start_from(arguments.start_from, config)
    folders = pack_folders(arguments.packs)
    device = chosen_device(arguments)
    pool = SpeechPool(folders, device)
    try:
        if len(pool.samples) <= config.crop_samples:
            raise ConfigError(
                f"{len(pool.samples)} samples to train on are fewer than a crop of "
                f"{config.crop_samples}; give more packs"
            )
        reporter.log(f"{pool.hours:.2f} h to train on, {len(pool.held)} held-out utterances")
        trainer = Trainer(config, pool, device, arguments.out, reporter, weights)
        if arguments.profile:
            trainer.profile()
            return
        reporter.start(config.minutes * 60, "s")
        trainer.run(max_steps=arguments.steps)
    except StalledTraining as error:
        message = f"{error}; nothing is written, give another --seed"
        reporter.log(message)
        reporter.result("stalled", message=message, seed=config.seed)
        raise SystemExit(STALLED) from error
    finally:
        pool.close()
    last = trainer.history[-1]
    reporter.result(
        "voice_codec",
        weights_sha256=sha256_of(arguments.out / "pytorch_model.bin"),
        corpus_sum=fingerprint(pool),
        code_version=CODE_VERSION,
        hours=pool.hours,
        seed=config.seed,
        live_codes=config.live_codes,
        step=trainer.step,
        elapsed_s=trainer.elapsed_s,
        **{f"held_out_mel_{voice}": mel for voice, mel in last["average"]["mel"].items()},
        **{f"dimensions_{n}": value for n, value in enumerate(last["dimensions"])},
    )


def start_from(folder: Path, config: CodecTraining) -> tuple[CodecTraining, dict[str, Tensor]]:
    """The settings that go on from the codec in `folder`, and its weights in float32.

    Its codebooks are kept where all codes stay live, else filled anew from what its encoder gives.

    Raises:
        ConfigError: there is no codec, or it is not of this class.
    """
    try:
        shape = json.loads((folder / "config.json").read_text("utf-8"))
        path = folder / "pytorch_model.bin"
        weights = torch.load(path, map_location="cpu", weights_only=True)
        config = dataclasses.replace(
            config,
            encoder_dim=shape["encoder_dim"],
            decoder_dim=shape["decoder_dim"],
            quantize_step=0 if config.live_codes == shape["codebook_size"] else FILL_STEPS,
            started_from=sha256_of(path),
        )
    except (OSError, ValueError, KeyError, pickle.UnpicklingError, RuntimeError) as error:
        raise ConfigError(
            f"--start-from {folder}: no codec there ({type(error).__name__}: {error}); give a "
            "folder with config.json and pytorch_model.bin, such as server/embedded/codec"
        ) from error
    if config.snac_config() != shape:
        raise ConfigError(
            f"--start-from {folder}: its config.json is {shape}, and only widths may differ from "
            f"{config.snac_config()}"
        )
    return config, {k: v.float() if v.is_floating_point() else v for k, v in weights.items()}


class StalledTraining(RuntimeError):
    """The codec has not begun to learn when it should have."""


class Trainer:
    """One training of one codec; `run` goes on from the folder's state if there is one."""

    def __init__(
        self,
        config: CodecTraining,
        pool: SpeechPool,
        device: torch.device,
        out: Path,
        reporter: worker.Reporter,
        weights: dict[str, Tensor] | None = None,
    ) -> None:
        self.config, self.pool, self.device, self.out = config, pool, device, out
        self.reporter = reporter
        out.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(config.seed)
        cuda = device.type == "cuda"
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = cuda
        self.codec = SNAC(**config.snac_config())
        if weights is not None:
            self.codec.load_state_dict(weights)
        self.codec.to(device).train()
        self.judges = Discriminators().to(device)
        self.judges.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        self.spectral = SpectralLoss().to(device)
        self.quantizers = train_quantizers(self.codec, live_codes=config.live_codes)
        if config.quantize_step == 0:
            self.quantizers.quantizing.fill_(1.0)
        if cuda:
            from speech_assets.voice.kernels import fuse

            fuse(self.codec)
        keep_tail_exact(self.codec)
        self.codec_params = list(self.codec.parameters())
        self.judge_params = list(self.judges.parameters())
        for p in (*self.codec_params, *self.judge_params):
            p.grad = torch.zeros_like(p)
        self.codec_opt = self._optimizer(self.codec.named_parameters(), config.learning_rate)
        self.judge_opt = self._optimizer(self.judges.named_parameters(), config.learning_rate / 2)
        self.average = [p.detach().clone() for p in self.codec_params]
        self.vectors: list[list[Tensor]] = [[] for _ in self.quantizers.quantizers]
        self.step, self.elapsed_s = 0, 0.0
        self.batch = torch.zeros(config.batch, 1, config.crop_samples, device=device)
        self.metrics: dict[str, Tensor] = {}
        self.graphs: dict[bool, torch.cuda.CUDAGraph] = {}
        self.history: list[dict[str, Any]] = []
        self._load()
        millions = [
            sum(p.numel() for p in ps) / 1e6 for ps in (self.codec_params, self.judge_params)
        ]
        self.reporter.log(
            f"codec {millions[0]:.2f} M parameters, discriminators {millions[1]:.2f} M"
        )

    def run(self, *, max_steps: int = 0) -> None:
        """Train until the time (or `max_steps`) is spent, saving as it goes."""
        config = self.config
        total_s = config.minutes * 60
        before_s, began = self.elapsed_s, time.monotonic()
        saved_s, said_s, said_step = before_s, before_s, self.step
        while self.elapsed_s < total_s and not (max_steps and self.step >= max_steps):
            share = self.elapsed_s / total_s
            self._set_rates(share)
            quantizing = self.step >= config.quantize_step
            self._advance(adversarial=quantizing and share >= config.adversaries_from)
            self.step += 1
            if config.quantize_step - FILL_STEPS < self.step <= config.quantize_step:
                self._gather()
            if self.step % 10 == 0:
                if self.step > config.quantize_step + 100 and share < config.revive_until:
                    self.quantizers.revive()
                if self.step % 100 == 0 and self.pool.take():
                    self.reporter.log(f"{self.pool.hours:.2f} h to train on")
            if self.step % 250 == 0 or (max_steps and max_steps < 250):
                values = {name: float(value) for name, value in self.metrics.items()}
                self.elapsed_s = before_s + time.monotonic() - began
                rate = (self.step - said_step) / (self.elapsed_s - said_s)
                self.reporter.advance(self.elapsed_s - said_s, steps=str(self.step))
                said_s, said_step = self.elapsed_s, self.step
                told = " ".join(f"{name} {value:.4g}" for name, value in values.items())
                filled = "/".join(f"{d:.1f}" for d in self.quantizers.dimensions())
                self.reporter.log(
                    f"{self.elapsed_s:.0f} s step {self.step} {rate:.1f} steps/s {told} "
                    f"dimensions {filled}"
                )
                if not math.isfinite(values["mel"]):
                    raise FloatingPointError(f"step {self.step}: mel loss is {values['mel']}")
                self._check_learning(values["mel"])
            self.elapsed_s = before_s + time.monotonic() - began
            if self.elapsed_s - saved_s > config.save_every_s:
                saved_s = self.elapsed_s
                self.save("snapshot")
        if not self.history or self.history[-1]["step"] != self.step:
            self.save("final")

    def _gather(self) -> None:
        """Keep the step's vectors; with the last of them, fill the codebooks and quantize."""
        for kept, quantizer in zip(self.vectors, self.quantizers.quantizers, strict=True):
            kept.append(quantizer.latest.clone())
        if self.step == self.config.quantize_step:
            self.quantizers.fill([torch.cat(kept) for kept in self.vectors])
            self.vectors = [[] for _ in self.quantizers.quantizers]
            self.reporter.log(f"step {self.step}: codebooks filled, quantizing from here")

    def _check_learning(self, mel: float) -> None:
        config = self.config
        if self.step != config.stalled_step:
            return
        dimensions = self.quantizers.dimensions()
        if mel > config.stalled_mel or min(dimensions) < config.stalled_dimensions:
            filled = "/".join(f"{d:.1f}" for d in dimensions)
            raise StalledTraining(
                f"step {self.step}: mel loss {mel:.3f} (at most {config.stalled_mel}), dimensions "
                f"{filled} (at least {config.stalled_dimensions}), seed {config.seed}: it does not "
                "learn"
            )

    def profile(self) -> None:
        """Print where 5 eager steps of each kind spend device time, then rates of the graphs."""
        self.batch.copy_(self.pool.crops(self.config.batch, self.config.crop_samples))
        for adversarial in (False, True):
            for _ in range(3):
                self._train_step(adversarial)
            activities = [torch.profiler.ProfilerActivity.CUDA]
            if self.device.type == "cpu":
                activities = [torch.profiler.ProfilerActivity.CPU]
            with torch.profiler.profile(activities=activities) as profile:
                for _ in range(5):
                    self._train_step(adversarial)
            by = "self_cuda_time_total" if self.device.type == "cuda" else "self_cpu_time_total"
            table = profile.key_averages().table(
                sort_by=by, row_limit=28, max_name_column_width=70, header=f"{adversarial=}"
            )
            keep = [line[:72] + line[-75:] for line in table.splitlines()]
            self.reporter.log("\n".join(keep))
        for adversarial in (False, True):
            for _ in range(3):
                self._advance(adversarial=adversarial)
            self._wait()
            began = time.monotonic()
            for _ in range(30):
                self._advance(adversarial=adversarial)
            self._wait()
            self.reporter.log(f"{adversarial=}: {30 / (time.monotonic() - began):.1f} steps/s")

    def save(self, tag: str) -> None:
        """Write weights (the average), figures of held-out speech, and the state to go on from."""
        raw = [p.detach().clone() for p in self.codec_params]
        figures: dict[str, Any] = {"raw": self._held_out_figures()}
        with torch.no_grad():
            for p, average in zip(self.codec_params, self.average, strict=True):
                p.copy_(average)
        figures["average"] = self._held_out_figures()
        state = {k: v.detach().cpu() for k, v in self.codec.state_dict().items()}
        with torch.no_grad():
            for p, value in zip(self.codec_params, raw, strict=True):
                p.copy_(value)
        state = retire_codes(state, live_codes=self.config.live_codes)
        write_codec(self.out, self.config.snac_config(), state)
        figures |= {
            "step": self.step,
            "elapsed_s": round(self.elapsed_s, 1),
            "tag": tag,
            "losses": {name: round(float(value), 4) for name, value in self.metrics.items()},
            "dimensions": [round(d, 2) for d in self.quantizers.dimensions()],
        }
        self.history.append(figures)
        self.reporter.log(f"{tag}: {json.dumps(figures)}")
        report = {
            "schema_version": 1,
            "kind": "voice_codec_training",
            "code_version": CODE_VERSION,
            "config": dataclasses.asdict(self.config),
            "snac": self.config.snac_config(),
            "device": torch.cuda.get_device_name() if self.device.type == "cuda" else "cpu",
            "software": {"torch": torch.__version__},
            "hours": round(self.pool.hours, 3),
            "corpus_sum": fingerprint(self.pool),
            "history": self.history,
        }
        write_json(self.out / "figures.json", report)
        whole = {
            "codec": self.codec.state_dict(),
            "judges": self.judges.state_dict(),
            "average": self.average,
            "codec_opt": self.codec_opt.state_dict(),
            "judge_opt": self.judge_opt.state_dict(),
            "step": self.step,
            "elapsed_s": self.elapsed_s,
            "history": self.history,
            "config": dataclasses.asdict(self.config),
        }
        temporary = self.out / "state.tmp"
        torch.save(whole, temporary)
        temporary.replace(self.out / "state.pt")

    def _load(self) -> None:
        path = self.out / "state.pt"
        if not path.exists():
            return
        whole = torch.load(path, map_location=self.device, weights_only=True)
        shape = {
            k: v for k, v in dataclasses.asdict(self.config).items() if k.endswith(("dim", "codes"))
        }
        had = {k: whole["config"][k] for k in shape}
        if had != shape:
            raise ValueError(f"{path} is of {had}, asked for {shape}; use another --out")
        self.codec.load_state_dict(whole["codec"])
        self.judges.load_state_dict(whole["judges"])
        self.codec_opt.load_state_dict(whole["codec_opt"])
        self.judge_opt.load_state_dict(whole["judge_opt"])
        self.average = [t.to(self.device) for t in whole["average"]]
        self.step, self.elapsed_s = whole["step"], whole["elapsed_s"]
        self.history = whole["history"]
        if self.step >= self.config.quantize_step:
            self.quantizers.quantizing.fill_(1.0)
        self.reporter.log(f"going on from step {self.step}, {self.elapsed_s:.0f} s")

    def _optimizer(
        self, named: Iterable[tuple[str, nn.Parameter]], learning_rate: float
    ) -> torch.optim.AdamW:
        cuda = self.device.type == "cuda"
        groups: dict[bool, list[nn.Parameter]] = {True: [], False: []}
        for name, p in named:
            groups["codebook" in name].append(p)

        def rate() -> Tensor | float:  # Each group its own: a captured step reads it on the device.
            return torch.tensor(learning_rate, device=self.device) if cuda else learning_rate

        return torch.optim.AdamW(
            [
                {"params": ps, "lr": rate(), "weight_decay": 0.0 if is_codebook else 1e-3}
                for is_codebook, ps in groups.items()
                if ps
            ],
            lr=rate(),
            betas=(0.8, 0.99),
            fused=cuda,
            capturable=cuda,
        )

    def _set_rates(self, share: float) -> None:
        warm = min(1.0, (self.step + 1) / self.config.warm_up_steps)
        cosine = 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, share)))
        rate = self.config.learning_rate * warm * cosine
        for optimizer, value in ((self.codec_opt, rate), (self.judge_opt, rate / 2)):
            for group in optimizer.param_groups:
                if isinstance(group["lr"], Tensor):
                    group["lr"].fill_(value)
                else:
                    group["lr"] = value

    def _advance(self, *, adversarial: bool) -> None:
        if self.device.type != "cuda":
            self.batch.copy_(self.pool.crops(self.config.batch, self.config.crop_samples))
            self._train_step(adversarial)
            return
        if adversarial not in self.graphs:
            self.graphs.clear()
            self.graphs[adversarial] = self._capture(adversarial)
        self.batch.copy_(self.pool.crops(self.config.batch, self.config.crop_samples))
        self.graphs[adversarial].replay()

    def _capture(self, adversarial: bool) -> torch.cuda.CUDAGraph:
        """One step as a CUDA graph, after 4 real steps on a side stream (chooses kernels)."""
        began = time.monotonic()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(4):
                self.batch.copy_(self.pool.crops(self.config.batch, self.config.crop_samples))
                self._train_step(adversarial)
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._train_step(adversarial)
        self.reporter.log(f"captured the step ({adversarial=}) in {time.monotonic() - began:.1f} s")
        return graph

    def _train_step(self, adversarial: bool) -> None:
        config, x = self.config, self.batch
        self.quantizers.clear()
        with self._autocast():
            made, _ = self.codec(x)
        target, made = x[:, 0], made.float()[:, 0]
        mel, linear = self.spectral(target, made)
        quantizing = self.quantizers.loss()
        loss = config.mel_weight * mel + config.linear_weight * linear + quantizing
        spread = torch.stack(self.quantizers.spread).sum()
        self.metrics = {"mel": mel, "linear": linear, "vq": quantizing, "spread": spread}
        if adversarial:
            edge = (config.crop_samples - config.judged_samples) // 2
            middle = slice(edge, edge + config.judged_samples)
            with self._autocast():
                of_real, of_made = self.judges(target[:, middle]), self.judges(made[:, middle])
            judging = judge_loss(of_real, of_made)
            grads = torch.autograd.grad(judging, self.judge_params, retain_graph=True)
            copy_each([p.grad for p in self.judge_params], grads)
            fooling, features = maker_loss(of_made), feature_loss(of_real, of_made)
            loss = loss + fooling + config.feature_weight * features
            self.metrics |= {"judging": judging, "fooling": fooling, "features": features}
        grads = torch.autograd.grad(loss, self.codec_params)
        copy_each([p.grad for p in self.codec_params], grads)
        if adversarial:
            nn.utils.clip_grad_norm_(self.judge_params, 10.0, foreach=True)
            self.judge_opt.step()
        self.metrics["norm"] = nn.utils.clip_grad_norm_(self.codec_params, 20.0, foreach=True)
        self.metrics = {name: value.detach() for name, value in self.metrics.items()}
        self.codec_opt.step()
        with torch.no_grad():
            decay = self.config.average_decay
            lerp_each(self.average, self.codec_params, 1 - decay)

    def _autocast(self) -> torch.autocast:
        cuda = self.device.type == "cuda"
        return torch.autocast(
            self.device.type, dtype=torch.bfloat16, enabled=cuda, cache_enabled=False
        )

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    @torch.no_grad()
    def _held_out_figures(self, most: int = 40) -> dict[str, object]:
        """Mel distance by voice over held-out clips; codes used and entropy in bits by level."""
        torch.backends.cudnn.benchmark = False
        self.codec.eval()
        mels: dict[str, list[float]] = {}
        for clip in pick(self.pool.held, most):
            x = torch.from_numpy(clip.samples).to(self.device).float()[None, None] / 32768
            made = self.codec(x)[0]
            mels.setdefault(clip.voice, []).append(float(self.spectral(x[:, 0], made[:, 0])[0]))
        counts = [torch.zeros(4096, device=self.device) for _ in range(3)]
        for _ in range(20):
            codes = self.codec.encode(self.pool.crops(self.config.batch, self.config.crop_samples))
            for count, level in zip(counts, codes, strict=True):
                ones = torch.ones(level.numel(), device=self.device)
                count.index_add_(0, level.flatten(), ones)
        shares = [c / c.sum() for c in counts]
        entropies = [float(-(s * (s + 1e-12).log2()).sum()) for s in shares]
        self.codec.train()
        torch.backends.cudnn.benchmark = self.device.type == "cuda"
        return {
            "mel": {voice: round(sum(v) / len(v), 4) for voice, v in mels.items()},
            "codes_used": [int((c > 0).sum()) for c in counts],
            "entropy_bits": [round(e, 2) for e in entropies],
        }


def keep_tail_exact(codec: SNAC) -> None:
    """Run the decoder's last block and output in float32 also under autocast, in place.

    In bfloat16 each activation is rounded at -54 dB of itself, which buries the faint high bands of
    speech that the losses compare.
    """
    layers: Any = codec.decoder.model
    block, inner = layers[-4], layers[-4].forward
    tail = layers[-3:]

    def in_float(x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            return inner(x.float())

    block.forward = in_float
    for layer in tail:
        layer.forward = _without_autocast(layer.forward)


def _without_autocast(forward: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def run(x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            return forward(x.float())

    return run


def pick(clips: list[Utterance], most: int) -> list[Utterance]:
    """At most `most` of `clips`, spread evenly."""
    every = max(1, math.ceil(len(clips) / most))
    return clips[::every]


def write_codec(out: Path, config: dict[str, object], state: dict[str, Tensor]) -> None:
    """Write what ``SNAC.from_pretrained(out)`` reads, weights in float16."""
    half = {k: v.half() if v.is_floating_point() else v for k, v in state.items()}
    temporary = out / "pytorch_model.tmp"
    torch.save(half, temporary)
    temporary.replace(out / "pytorch_model.bin")
    write_json(out / "config.json", config)


def fingerprint(pool: SpeechPool) -> str:
    """Sum over the training speech in order (its 64-bit sum and length, in hex)."""
    return f"{int(pool.samples.long().sum()) & (2**64 - 1):016x}-{len(pool.samples)}"


if __name__ == "__main__":
    main()
