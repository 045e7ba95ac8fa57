"""Train the embedded voice's language model on the codes of a trained codec.

Each clip is encoded --variants times with other lead-ins, so other codes of the same speech. Writes
to --out: ``config.json``, ``compact.safetensors`` (float16, from which `voice_export` makes a
checkpoint for others), ``layout.json`` and ``figures.json``; ``tokens.npz`` and ``state.pt`` let
the same command go on. On a GPU each batch shape is one CUDA graph.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors.torch import save_file
from snac import SNAC
from torch import Tensor, nn

from server.files import sha256_of, write_json
from speech_assets.errors import ConfigError
from speech_assets.voice.codes import CODEBOOK_SIZE, TOKENS_PER_FRAME, slots_from_levels
from speech_assets.voice.foreach import copy_each, lerp_each
from speech_assets.voice.held_out import HELD_OUT_IDS
from speech_assets.voice.layout import VoiceLayout
from speech_assets.voice.lead import audible_part, pad_batch, place
from speech_assets.voice.llama import LlamaShape, SmallLlama
from speech_assets.voice.options import (
    add_device,
    add_settings,
    chosen_device,
    pack_folders,
    settings,
)
from speech_assets.voice.packs import Utterance, read_packs
from speech_assets.voice.texts import VoiceText, read_texts
from speech_assets.voice.versions import LM_CODE_VERSION as CODE_VERSION
from speech_assets.work import worker

CODEC_WEIGHTS = "pytorch_model.bin"


@dataclass(frozen=True, slots=True)
class LmTraining:
    """How long, how large and how fast."""

    minutes: float = 7.0
    hidden: int = 384
    layers: int = 6
    heads: int = 6
    kv_heads: int = 3
    feed_forward: int = 1024
    dropout: float = 0.15
    corrupted: float = 0.05  # Share of input codes replaced by a random one of their slot.
    batch_tokens: int = 32_768
    learning_rate: float = 1.2e-3
    warm_up_steps: int = 300
    weight_decay: float = 0.1
    average_decay: float = 0.999
    variants: int = 8
    most_tokens: int = 2_048  # Longer sequences are left out (about 23 s).
    validate_every_s: float = 30.0
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Sequences:
    """Token sequences end to end: `flat` int32; start, length and prompt length of each."""

    flat: Tensor
    starts: Tensor
    lengths: Tensor
    prompts: Tensor
    voices: Tensor

    def batch(self, rows: Tensor, length: int, pad: int) -> tuple[Tensor, Tensor]:
        """Ids (rows, length) padded on the right, and where they are speech or its end."""
        column = torch.arange(length, device=rows.device)[None]
        inside = column < self.lengths[rows][:, None]
        at = (self.starts[rows][:, None] + column).clamp(max=len(self.flat) - 1)
        ids = torch.where(inside, self.flat[at].long(), pad)
        return ids, inside & (column >= self.prompts[rows][:, None])


def main() -> None:
    """Entry point of `python -m speech_assets.work.voice_lm`."""
    worker.run(train, argument_parser())


def argument_parser() -> argparse.ArgumentParser:
    """Arguments of the command."""
    parser = worker.argument_parser("voice_lm", __doc__ or "")
    parser.add_argument("--packs", action="append", required=True, metavar="VOICE=DIR")
    parser.add_argument("--texts", type=Path, required=True, help="text.jsonl or text.jsonl.xz")
    parser.add_argument("--codec", type=Path, required=True, help="folder of the trained codec")
    parser.add_argument("--live-codes", type=int, required=True, help="codes a codebook uses")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tokens", type=Path, help="tokens to use (made if absent)")
    parser.add_argument("--steps", type=int, default=0, help="stop after this many (for trials)")
    parser.add_argument("--only-tokens", action="store_true", help="encode, then end")
    parser.add_argument("--most-clips", type=int, default=0, help="per folder (for trials)")
    add_device(parser)
    add_settings(parser, LmTraining)
    return parser


def train(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    """Tokenise and train as the command line says.

    Raises:
        SpeechAssetsError: packs, texts, codec or device are not what they must be.
    """
    config = settings(LmTraining, arguments)
    device = chosen_device(arguments)
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    layout = VoiceLayout(live_codes=arguments.live_codes)
    texts = read_texts(arguments.texts)
    folders = pack_folders(arguments.packs)
    codec_weights = arguments.codec / CODEC_WEIGHTS
    if not codec_weights.is_file():
        raise ConfigError(f"--codec {arguments.codec}: no {codec_weights.name}; train one first")
    tokens: Path = arguments.tokens or out / "tokens.npz"
    if not tokens.exists():
        clips: list[Utterance] = []
        for folder, voice in folders.items():
            clips += read_packs(folder, voice)[0][: arguments.most_clips or None]
        reporter.log(tokenise(clips, arguments.codec, tokens, config, device))
    if arguments.only_tokens:
        return
    check_codec(tokens, sha256_of(codec_weights))
    training, held = load_sequences(tokens, texts, layout, config, device)
    reporter.log(
        f"{len(training.lengths)} training sequences, {len(training.flat) / 1e6:.2f} M tokens; "
        f"{len(held.lengths)} held out"
    )
    trainer = Trainer(config, layout, training, held, device, out, reporter)
    trainer.facts = {
        "tokens_sha256": sha256_of(tokens),
        "codec_sha256": sha256_of(codec_weights),
        "texts_sha256": sha256_of(arguments.texts),
        "voices": sorted(set(folders.values())),
    }
    reporter.start(config.minutes * 60, "s")
    trainer.run(max_steps=arguments.steps)
    reporter.result(
        "voice_lm",
        weights_sha256=sha256_of(out / "compact.safetensors"),
        code_version=CODE_VERSION,
        step=trainer.step,
        elapsed_s=trainer.elapsed_s,
        train_tokens=len(training.flat),
        **{f"held_out_nats_{v}": nats for v, nats in trainer.history[-1]["held_out_nats"].items()},
        **trainer.facts,
    )


@torch.inference_mode()
def tokenise(
    clips: list[Utterance], codec_folder: Path, path: Path, config: LmTraining, device: torch.device
) -> str:
    """Encode every clip `config.variants` times with other lead-ins; write codes to `path`.

    Gives what was encoded, in words.
    """
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    codec = SNAC.from_pretrained(str(codec_folder)).float().to(device)
    if device.type == "cuda":
        from speech_assets.voice.kernels import fuse

        fuse(codec)
    clips = sorted(clips, key=lambda c: len(c.samples))
    rng = np.random.default_rng(config.seed)
    generator = torch.Generator(device=device).manual_seed(config.seed)
    began = time.monotonic()
    codes: list[NDArray[np.uint16]] = []
    rows: list[tuple[int, str, int]] = []
    first = 0
    while first < len(clips):
        last = min(len(clips), first + 64)
        while last - first > 1 and (last - first) * len(clips[last - 1].samples) > 24_000 * 400:
            last -= 1
        batch = clips[first:last]
        first = last
        audible = [audible_part(clip) for clip in batch]
        for variant in range(config.variants):
            places = [place(clip, part, rng) for clip, part in zip(batch, audible, strict=True)]
            x = pad_batch(batch, places, device=device, generator=generator)
            slots = slots_from_levels(codec.encode(x)).cpu().numpy().astype(np.uint16)
            for clip, at, row in zip(batch, places, slots, strict=True):
                codes.append(row[: at.frames].reshape(-1))
                rows.append((clip.id, clip.voice, variant))
    flat = np.concatenate(codes)
    temporary = path.with_suffix(".part.npz")
    np.savez(
        temporary,
        codes=flat,
        sizes=np.array([len(c) for c in codes]),
        ids=np.array([r[0] for r in rows]),
        voices=np.array([r[1] for r in rows]),
        codec=np.array(sha256_of(codec_folder / CODEC_WEIGHTS)),
    )
    temporary.replace(path)
    hours = sum(len(c.samples) for c in clips) / 24_000 / 3600
    return (
        f"encoded {len(clips)} clips, {hours:.2f} h, x {config.variants} "
        f"in {time.monotonic() - began:.0f} s"
    )


def check_codec(path: Path, codec_sha256: str) -> None:
    """Whether the tokens of `path` are of the codec with this hash.

    Raises:
        ConfigError: they are of another.
    """
    with np.load(path) as file:
        found = str(file["codec"]) if "codec" in file else codec_sha256
    if found != codec_sha256:
        raise ConfigError(
            f"{path}: made with the codec of sha256 {found[:12]}, --codec has {codec_sha256[:12]}; "
            "delete the file, or use another --out"
        )


def load_sequences(
    path: Path,
    texts: dict[int, VoiceText],
    layout: VoiceLayout,
    config: LmTraining,
    device: torch.device,
) -> tuple[Sequences, Sequences]:
    """Training and held-out sequences, compact ids: prompt, audio, end of speech.

    Raises:
        ConfigError: codes beyond the layout's, clips without a text, or nothing to train on.
    """
    with np.load(path) as file:
        codes, sizes, ids, voices = (file[n] for n in ("codes", "sizes", "ids", "voices"))
    highest = int(codes.max())
    if highest >= layout.live_codes:
        raise ConfigError(
            f"{path}: code {highest}, but --live-codes says {layout.live_codes}; give the number "
            "that the codec was trained with"
        )
    if absent := sorted({int(number) for number in ids} - texts.keys()):
        raise ConfigError(f"{path}: clip {absent[0]} has no text; give the texts of its corpus")
    ends = np.cumsum(sizes)
    parts: tuple[list[NDArray[np.int64]], ...] = ([], [])
    prompts: tuple[list[int], ...] = ([], [])
    names: tuple[list[int], ...] = ([], [])
    known: dict[tuple[int, str], list[int]] = {}
    for number, voice, size, end in zip(ids, voices, sizes, ends, strict=True):
        frames = codes[end - size : end].reshape(-1, TOKENS_PER_FRAME)
        key = (int(number), str(voice))
        if key not in known:
            known[key] = layout.prompt(texts[key[0]].phonemes, key[1])
        prompt = known[key]
        sequence = np.concatenate(
            [prompt, layout.audio_ids(frames, compact=True), [layout.end_of_speech]]
        )
        if len(sequence) > config.most_tokens:
            continue
        which = int(number) in HELD_OUT_IDS
        parts[which].append(sequence)
        prompts[which].append(len(prompt))
        names[which].append(layout.voices.index(str(voice)))
    made: list[Sequences] = []
    for sequences, sizes_of_prompts, speakers in zip(parts, prompts, names, strict=True):
        lengths = torch.tensor([len(s) for s in sequences])
        flat = np.concatenate(sequences) if sequences else np.zeros(1, np.int64)
        made.append(
            Sequences(
                torch.from_numpy(flat.astype(np.int32)).to(device),
                (lengths.cumsum(0) - lengths).to(device),
                lengths.to(device),
                torch.tensor(sizes_of_prompts).to(device),
                torch.tensor(speakers).to(device),
            )
        )
    if not len(made[0].lengths):
        raise ConfigError(
            f"{path}: no clip to train on within {config.most_tokens} tokens; give more packs"
        )
    return made[0], made[1]


class Trainer:
    """One training of one model; `run` goes on from the folder's state if there is one."""

    def __init__(
        self,
        config: LmTraining,
        layout: VoiceLayout,
        train: Sequences,
        held: Sequences,
        device: torch.device,
        out: Path,
        reporter: worker.Reporter,
    ) -> None:
        self.config, self.layout, self.train, self.held = config, layout, train, held
        self.device, self.out, self.reporter = device, out, reporter
        torch.manual_seed(config.seed)
        torch.backends.cuda.matmul.allow_tf32 = True
        self.shape = LlamaShape(
            vocab_size=layout.compact_size,
            hidden=config.hidden,
            layers=config.layers,
            heads=config.heads,
            kv_heads=config.kv_heads,
            feed_forward=config.feed_forward,
        )
        self.lm = SmallLlama(self.shape, config.dropout).to(device).train()
        self.params = list(self.lm.parameters())
        for p in self.params:
            p.grad = torch.zeros_like(p)
        cuda = device.type == "cuda"
        rate = lambda: torch.tensor(0.0, device=device) if cuda else 0.0  # noqa: E731
        decay = [p for p in self.params if p.ndim > 1]
        plain = [p for p in self.params if p.ndim == 1]
        self.optimizer = torch.optim.AdamW(
            [
                {"params": decay, "lr": rate(), "weight_decay": config.weight_decay},
                {"params": plain, "lr": rate(), "weight_decay": 0.0},
            ],
            lr=rate(),
            betas=(0.9, 0.95),
            fused=cuda,
            capturable=cuda,
        )
        self.average = [p.detach().clone() for p in self.params]
        self.facts: dict[str, Any] = {}
        self.history: list[dict[str, Any]] = []
        self.step, self.elapsed_s = 0, 0.0
        self.smooth_loss = torch.full((), 8.0, device=device)
        self.row_bias = row_bias(layout).to(device)
        self.graphs: dict[int, tuple[torch.cuda.CUDAGraph, Tensor, Tensor]] = {}
        self.rng = np.random.default_rng(config.seed)
        self._buckets()
        self._load()
        body = sum(p.numel() for p in self.params) - self.lm.model.embed_tokens.weight.numel()
        reporter.log(
            f"body {body / 1e6:.2f} M parameters, {layout.compact_size} rows of {config.hidden}"
        )

    def run(self, *, max_steps: int = 0) -> None:
        """Train until the time (or `max_steps`) is spent."""
        total_s = self.config.minutes * 60
        before_s, began = self.elapsed_s, time.monotonic()
        told_s, told_step = before_s, self.step
        epoch = 0
        while self.elapsed_s < total_s and not (max_steps and self.step >= max_steps):
            for length, rows in self._epoch():
                share = self.elapsed_s / total_s
                if share >= 1 or (max_steps and self.step >= max_steps):
                    break
                self._set_rate(share)
                ids, speech = self.train.batch(rows.to(self.device), length, self.layout.pad)
                self._advance(length, ids, speech)
                self.step += 1
                if self.step % 100 == 0:
                    float(self.smooth_loss)  # Keeps the host from running ahead of the device.
                self.elapsed_s = before_s + time.monotonic() - began
                if self.elapsed_s - told_s > self.config.validate_every_s:
                    rate = (self.step - told_step) / (self.elapsed_s - told_s)
                    self._tell(epoch, rate)
                    self.reporter.advance(self.elapsed_s - told_s, steps=str(self.step))
                    told_s, told_step = self.elapsed_s, self.step
                    self.elapsed_s = before_s + time.monotonic() - began
            epoch += 1
        if not self.history or self.history[-1]["step"] != self.step:
            self._tell(epoch, 0.0)
        self.save()

    def save(self) -> None:
        """Write the averaged weights as a checkpoint, the last ones beside it, figures, state."""
        self.export(self.out, self.average)
        self.export(self.out / "last", [p.detach() for p in self.params])
        report = {
            "schema_version": 1,
            "kind": "voice_lm_training",
            "code_version": CODE_VERSION,
            "config": dataclasses.asdict(self.config),
            "device": torch.cuda.get_device_name() if self.device.type == "cuda" else "cpu",
            "software": {"torch": torch.__version__},
            "train_tokens": len(self.train.flat),
            **self.facts,
            "history": self.history,
        }
        write_json(self.out / "figures.json", report)
        whole = {
            "lm": self.lm.state_dict(),
            "average": self.average,
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "elapsed_s": self.elapsed_s,
            "history": self.history,
        }
        temporary = self.out / "state.tmp"
        torch.save(whole, temporary)
        temporary.replace(self.out / "state.pt")

    def export(self, folder: Path, params: list[Tensor]) -> None:
        """Write `params` in compact rows: config.json, layout.json, compact.safetensors."""
        folder.mkdir(parents=True, exist_ok=True)
        names = [name for name, _ in self.lm.named_parameters()]
        tensors = {
            n: t.detach().half().cpu().contiguous() for n, t in zip(names, params, strict=True)
        }
        save_file(tensors, folder / "compact.safetensors")
        full = dataclasses.replace(self.shape, vocab_size=self.layout.vocab_size)
        config = full.hf_config(
            begin=self.layout.begin, end=self.layout.end_of_speech, pad=self.layout.pad
        )
        write_json(folder / "config.json", config)
        self.layout.write(folder)

    def _load(self) -> None:
        path = self.out / "state.pt"
        if not path.exists():
            return
        whole = torch.load(path, map_location=self.device, weights_only=True)
        self.lm.load_state_dict(whole["lm"])
        self.optimizer.load_state_dict(whole["optimizer"])
        self.average = [t.to(self.device) for t in whole["average"]]
        self.step, self.elapsed_s = whole["step"], whole["elapsed_s"]
        self.history = whole["history"]
        self.reporter.log(f"going on from step {self.step}, {self.elapsed_s:.0f} s")

    def _buckets(self) -> None:
        """Sequences by padded length: multiples of 64 to 512, of 128 to 1,024, then of 256."""
        lengths = self.train.lengths.cpu().numpy()
        unit = np.where(lengths <= 512, 64, np.where(lengths <= 1024, 128, 256))
        padded = -(-lengths // unit) * unit
        self.buckets = {int(n): np.flatnonzero(padded == n) for n in np.unique(padded)}

    def _epoch(self):
        """(length, row numbers) of every batch of one epoch, in random order.

        The last batch of a length is filled up with random rows of the same.
        """
        batches: list[tuple[int, Tensor]] = []
        for length, rows in self.buckets.items():
            count = max(1, self.config.batch_tokens // length)
            order = self.rng.permutation(rows)
            missing = -len(order) % count
            order = np.concatenate([order, self.rng.choice(rows, missing)])
            batches += [(length, torch.from_numpy(b)) for b in order.reshape(-1, count)]
        for n in self.rng.permutation(len(batches)):
            yield batches[n]

    def _set_rate(self, share: float) -> None:
        warm = min(1.0, (self.step + 1) / self.config.warm_up_steps)
        cosine = 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, share)))
        for group in self.optimizer.param_groups:
            value = self.config.learning_rate * warm * cosine
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(value)
            else:
                group["lr"] = value

    def _advance(self, length: int, ids: Tensor, speech: Tensor) -> None:
        if self.device.type != "cuda":
            self._train_step(ids, speech)
            return
        if length not in self.graphs:
            self.graphs[length] = self._capture(ids, speech)
            return
        graph, static_ids, static_speech = self.graphs[length]
        static_ids.copy_(ids)
        static_speech.copy_(speech)
        graph.replay()

    def _capture(self, ids: Tensor, speech: Tensor) -> tuple[torch.cuda.CUDAGraph, Tensor, Tensor]:
        """The step for one batch shape as a CUDA graph, after 2 real steps on a side stream."""
        ids, speech = ids.clone(), speech.clone()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self._train_step(ids, speech)
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        pool = next(iter(self.graphs.values()))[0].pool() if self.graphs else None
        with torch.cuda.graph(graph, pool=pool):
            self._train_step(ids, speech)
        return graph, ids, speech

    def _train_step(self, ids: Tensor, speech: Tensor) -> None:
        loss = self._loss(ids, speech, corrupted=self.config.corrupted)
        grads = torch.autograd.grad(loss, self.params)
        copy_each([p.grad for p in self.params], grads)
        nn.utils.clip_grad_norm_(self.params, 1.0, foreach=True)
        self.optimizer.step()
        with torch.no_grad():
            self.smooth_loss.lerp_(loss.detach(), 0.02)
            weight = 1 - self.config.average_decay
            lerp_each(self.average, self.params, weight)

    def _loss(self, ids: Tensor, speech: Tensor, *, corrupted: float = 0.0) -> Tensor:
        """Mean cross entropy in nats over audio ids and the end, of ids (batch, steps)."""
        layout, given = self.layout, ids
        if corrupted:
            live = layout.live_codes
            slot = (ids - layout.audio_base).div(live, rounding_mode="floor")
            random = layout.audio_base + slot * live + torch.randint_like(ids, live)
            chosen = torch.rand(ids.shape, device=ids.device) < corrupted
            given = torch.where(chosen & speech & (ids >= layout.audio_base), random, ids)
        cuda = self.device.type == "cuda"
        with torch.autocast(
            self.device.type, dtype=torch.bfloat16, enabled=cuda, cache_enabled=False
        ):
            hidden = self.lm(given)[:, :-1].flatten(0, 1)
            rows = self.lm.model.embed_tokens.weight.to(hidden.dtype)
            rows = F.pad(rows, (0, 0, 0, len(self.row_bias) - len(rows)))
            logits = hidden @ rows.t()
        logits = logits.float() + self.row_bias
        target = torch.where(speech, ids, -100)[:, 1:].flatten()
        return F.cross_entropy(logits, target, ignore_index=-100)

    @torch.no_grad()
    def _held_out_losses(self) -> dict[str, float]:
        """Nats a token of the average by voice."""
        raw = [p.detach().clone() for p in self.params]
        for p, average in zip(self.params, self.average, strict=True):
            p.copy_(average)
        self.lm.eval()
        losses = {}
        for number, voice in enumerate(self.layout.voices):
            rows = (self.held.voices == number).nonzero()[:, 0][::7][:64]
            if len(rows):
                length = int(self.held.lengths[rows].max())
                parts = [
                    float(self._loss(*self.held.batch(part, length, self.layout.pad)))
                    for part in rows.split(16)
                ]
                losses[voice] = round(sum(parts) / len(parts), 4)
        self.lm.train()
        for p, value in zip(self.params, raw, strict=True):
            p.copy_(value)
        return losses

    def _tell(self, epoch: int, rate: float) -> None:
        loss = float(self.smooth_loss)
        if not math.isfinite(loss):
            raise FloatingPointError(f"step {self.step}: loss is {loss}")
        line = {
            "elapsed_s": round(self.elapsed_s, 1),
            "step": self.step,
            "epoch": epoch,
            "train_nats": round(loss, 4),
            "held_out_nats": self._held_out_losses(),
        }
        self.history.append(line)
        self.reporter.log(f"{json.dumps(line)} {rate:.1f} steps/s")


def row_bias(layout: VoiceLayout) -> Tensor:
    """What to add to the logits of compact rows, padded to a multiple of 64 for fast products.

    The last row stands for all dead codes, so it counts as many times; padding never counts.
    """
    size = layout.compact_size
    bias = torch.full((-(-size // 64) * 64,), -1e9)
    bias[: size - 1] = 0.0
    dead = TOKENS_PER_FRAME * (CODEBOOK_SIZE - layout.live_codes)
    bias[size - 1] = math.log(dead) if dead else -1e9
    return bias


if __name__ == "__main__":
    main()
