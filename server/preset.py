"""A preset: one configuration of model, codec, engine and planner, and where its weights are."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from server.checks import CHECKS_FILE
from server.engine import EngineSettings, fastest_cpu_dtype
from server.engine_arguments import argument_fault
from server.errors import ConfigurationError, WeightsError
from server.files import PLAIN_NAME, is_plain_name, user_path
from server.plan import PlannerConfig
from server.recipe import Recipe
from server.weights import WeightsLocation, parse_location

if TYPE_CHECKING:
    from collections.abc import Mapping

STORE = "store"
"""The `model` of a preset whose checkpoint the project makes; `store:NAME` is another preset's."""
CHECKPOINTS = "checkpoints"  # Folder of the store; a folder of each preset in it.
_NOT_CONFIG = frozenset({"base", "description", "aliases", "checkpoint"})

Dtype = Literal["float32", "float16", "bfloat16"]
Device = Literal["cpu", "cuda"]


@dataclass(frozen=True, slots=True)
class Preset:
    """One configuration. Settings are those of the table's rows.

    Attributes:
        base: folder that relative folders of the row are in.
        model: folder, OWNER/NAME@REVISION, "store", or "store:NAME" for preset NAME's checkpoint.
        codec: folder or OWNER/NAME@REVISION.
        dtype: of the language model, and `cpu_dtype` of it on a CPU where that differs; "auto" is
            bfloat16 on a CPU that multiplies it (AVX512-BF16), else float32.
        head: "audio" computes and samples only what can follow in speech, "full" every row.
        engine: "in_process" steps vLLM's core in the server's thread, "child" has it in another
            process, behind vLLM's AsyncLLM.
        sampler: what draws on a GPU: "fused" is one kernel over the due slot's rows, for the audio
            head; "vllm" vLLM's own over all; "auto" fused where it can be.
        kv_cache_mib: memory of keys and values; None is what the streams take on a CPU, and what is
            left on a GPU.
        temperature, top_p, repetition_penalty: None is what the checkpoint's layout says.
        decoder: "batched" decodes rows of many streams in a call, "per_stream" one row.
        decode: "cropped" computes what a hop needs, "window" four frames a hop as upstream does.
        first_chunk_frames, largest_hop, longest_wait_ms, tick_frames: `PlannerConfig`'s.
        codec_kernels: `DecoderOptions.kernels`: what runs the codec's layers on a GPU.
        codec_device: where the codec runs; None is where the language model does.
        codec_place: "engine_thread" runs the codec on the thread that steps the engine, "thread" on
            another of that process, "process" in a process of its own, on a GPU with a context of
            its own.
        cuda_graphs: whether the codec's calls are captured on a GPU.
        noise: whether the codec adds the noise that it was trained with.
        lead_ins: file of lead-ins, made for its codec by `speech_assets.work.lead_ins`.
        seeded_frames: each utterance begins with so many frames of a lead-in instead of generating
            them (0: it generates all), which is meant to bring speech sooner.
        untrained: `model` and `codec` have no weights but config.json alone: random ones of that
            shape are served, for measuring speed (`server.untrained`).
        vllm: any other argument of vLLM's EngineArgs, over all of the above.
        checkpoint: how the project makes the preset's checkpoint; the server does not read it.
    """

    name: str
    base: Path
    model: str
    codec: str
    description: str = ""
    aliases: tuple[str, ...] = ()
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Dtype = "bfloat16"
    cpu_dtype: Dtype | Literal["auto"] | None = None
    head: Literal["audio", "full"] = "audio"
    engine: Literal["in_process", "child"] = "in_process"
    sampler: Literal["auto", "fused", "vllm"] = "auto"
    max_streams: int = 16
    max_queue: int = 16
    max_model_len: int = 4_096
    kv_cache_mib: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    decoder: Literal["batched", "per_stream"] = "batched"
    decode: Literal["cropped", "window"] = "cropped"
    first_chunk_frames: int | None = None
    largest_hop: int = 4
    longest_wait_ms: float = 40.0
    tick_frames: int = 512
    codec_dtype: Dtype = "float32"
    codec_kernels: Literal["auto", "torch", "triton"] = "auto"
    codec_device: Device | None = None
    codec_place: Literal["engine_thread", "thread", "process"] = "engine_thread"
    cuda_graphs: bool = True
    noise: bool = True
    lead_ins: str | None = None
    seeded_frames: int = 0
    untrained: bool = False
    vllm: dict[str, Any] = field(default_factory=dict[str, Any])
    checkpoint: Recipe | None = None

    def engine_settings(self, device: Device) -> EngineSettings:
        """How the engine runs on `device`.

        Raises:
            ConfigurationError: the sampler is not of that device, or vLLM has no such argument.
        """
        if (fault := self.sampler_fault(device)) is not None:
            raise ConfigurationError(f"presets.{self.name}.{fault}")
        if (fault := argument_fault(self.vllm, self.engine)) is not None:
            raise ConfigurationError(f"presets.{self.name}.{fault}")
        dtype = self.dtype
        if device == "cpu" and self.cpu_dtype is not None:
            dtype = fastest_cpu_dtype() if self.cpu_dtype == "auto" else self.cpu_dtype
        return EngineSettings(
            dtype=dtype,
            head=self.head,
            form=self.engine,
            device=device,
            max_streams=self.max_streams,
            max_model_len=self.max_model_len,
            kv_cache_mib=self.kv_cache_mib,
            sampler=self.sampler,
            vllm_args=self.vllm,
        )

    def sampler_fault(self, device: Literal["auto", "cpu", "cuda"]) -> str | None:
        """Why the sampler cannot draw on `device`, from its key on; None where it can."""
        if self.sampler == "fused" and self.head == "full":
            return (
                "sampler is 'fused', which draws from an audio head, and head is 'full'; set "
                'head = "audio" or sampler = "auto"'
            )
        if self.sampler != "auto" and self.head == "audio" and device == "cpu":
            return (
                f"sampler is {self.sampler!r}, which is a GPU's, and the device is the CPU, where "
                'the audio head has its own; set sampler = "auto" or device = "cuda"'
            )
        return None

    def planner_config(self) -> PlannerConfig:
        """How decodes are planned.

        Raises:
            ConfigurationError: a setting is out of range.
        """
        return PlannerConfig(
            form=self.decode,
            batched=self.decoder == "batched",
            first_chunk_frames=self.first_chunk_frames,
            largest_hop=self.largest_hop,
            longest_wait_ms=self.longest_wait_ms,
            tick_frames=self.tick_frames,
        )

    def model_location(self, store: str | None = None) -> WeightsLocation:
        """Where the language model is; `store` is the store's root.

        Raises:
            ConfigurationError: no such folder, or no store where one is needed.
            WeightsError: the store has no checkpoint of this preset.
        """
        if self.stored_as is None:
            return parse_location(self.model, base=self.base)
        folder = self._stored(self.stored_as, store)
        if not folder.is_dir():
            raise WeightsError(
                f"{folder}: preset {self.name} has no checkpoint yet; materialize checkpoints and "
                f"fidelity for {self.stored_as}, or give one by --model"
            )
        return WeightsLocation(folder=folder)

    def checks_path(self, store: str | None) -> Path:
        """The file of the preset's checks, there or not.

        Raises:
            ConfigurationError: the store is not a folder.
        """
        return self._stored(self.name, store) / CHECKS_FILE

    def _stored(self, name: str, store: str | None) -> Path:
        """The folder of the preset `name` in the store: never that of all, nor one elsewhere."""
        if not is_plain_name(name):
            raise ConfigurationError(
                f"preset {self.name!r}: {name!r} names a folder of the store; give {PLAIN_NAME}"
            )
        if not store or "://" in store:
            raise ConfigurationError(
                f"preset {self.name}: its checkpoint is in the store, and the store {store!r} is "
                "not a folder; give one by SPEECH_STORE or --store, or the checkpoint by --model"
            )
        return user_path(store).resolve() / CHECKPOINTS / name

    @property
    def stored_as(self) -> str | None:
        """Preset whose checkpoint in the store this one is served from; None without."""
        if self.model == STORE:
            return self.name
        head, colon, name = self.model.partition(":")
        return name if head == STORE and colon else None

    def base_location(self) -> WeightsLocation:
        """Where the model is that the preset's checkpoint is made from.

        Raises:
            ConfigurationError: the preset has no `checkpoint` table, or names no base.
        """
        if self.checkpoint is None:
            raise ConfigurationError(
                f"preset {self.name} has no checkpoint table, so that nothing is made for it; give "
                'it one as checkpoint = { scheme = "w4a16", base = "..." }'
            )
        if not self.checkpoint.base and self.stored_as is not None:
            raise ConfigurationError(
                f"presets.{self.name}.checkpoint.base is missing; give the base model, a folder or "
                "OWNER/NAME@REVISION"
            )
        return parse_location(self.checkpoint.base or self.model, base=self.base)

    def codec_location(self) -> WeightsLocation:
        """Where the codec is.

        Raises:
            ConfigurationError: no such folder.
        """
        return parse_location(self.codec, base=self.base)

    @property
    def lead_ins_path(self) -> Path | None:
        """The file that utterances begin from; None where they begin by themselves."""
        if not self.seeded_frames or not self.lead_ins:
            return None
        return self.base / user_path(self.lead_ins)

    def config(self) -> dict[str, Any]:
        """The settings by name as JSON has them, without what only describes or places the row."""
        value = dataclasses.asdict(self)
        return {name: value[name] for name in value if name not in _NOT_CONFIG}


def config_sha256(config: Mapping[str, Any]) -> str:
    """Hash of a configuration: the same for the same values, in whatever order."""
    text = json.dumps(config, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
