"""What the scaling page takes for given besides published results, each with label and source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, with_config

from server.frames import ORPHEUS
from server.recipe import Scheme
from speech_assets.quantize.shapes import SHAPES, LlamaShape
from speech_assets.scaling.layouts import Cluster, Pass

Label = Literal["input", "assumption", "data sheet", "published by others"]


def _day(text: str) -> str:
    try:
        date.fromisoformat(text)
    except ValueError:
        raise ValueError("it must be a day as 2026-11-30") from None
    return text


_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Count = Annotated[int, Field(gt=0, le=10**12)]
_Text = Annotated[str, Field(min_length=1)]
_Day = Annotated[str, AfterValidator(_day)]


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class Value:
    """One number, with where it is from."""

    value: _Positive
    unit: _Text
    label: Label
    source: _Text
    date: _Day


def _share(value: Value) -> Value:
    if value.value > 1:
        raise ValueError("its value must be a share, above 0 and at most 1")
    return value


def _whole(value: Value) -> Value:
    if value.value != int(value.value):
        raise ValueError("its value must be a whole number")
    return value


_Share = Annotated[Value, AfterValidator(_share)]
_Whole = Annotated[Value, AfterValidator(_whole)]


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class Values:
    """The single numbers, by name."""

    utilisation: _Share
    bought_per_stream_hour: Value
    corpus_hours: Value
    example_clips: _Whole
    example_hours: Value
    padding_frames: _Share
    tokenize_devices: _Whole
    tokenize_days: Value
    mfu: _Share
    sequence_tokens: _Whole
    sequences: _Whole
    gpus: _Whole
    gpus_per_node: _Whole
    tensor_degree: _Whole
    memory_reserve: _Share
    node_gb_per_s: Value
    network_gb_per_s: Value


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class Price:
    """What an hour of a device costs, in whatever money."""

    device: _Text
    per_hour: _Positive
    label: Label
    source: _Text
    date: _Day


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class Device:
    """A GPU by its data sheet: GB are 1e9 bytes, `bf16_tflops` are without sparsity."""

    name: _Text
    memory_gb: _Positive
    bandwidth_gb_per_s: _Positive
    bf16_tflops: _Positive
    label: Label
    source: _Text
    date: _Day


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class OthersStreams:
    """Realtime streams on one device that others publish; `with_margin` where they give it."""

    who: _Text
    device: _Text
    streams: _Count
    rule: _Text
    source: _Text
    date: _Day
    with_margin: _Count | None = None


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class OthersTokenize:
    """Hours of audio that others tokenize in a minute on one device."""

    who: _Text
    device: _Text
    hours_per_min: _Positive
    source: _Text
    date: _Day


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class OthersSpeed:
    """Decoding at batch 1 that others publish, of Orpheus 3B with its whole head."""

    precision: _Text
    scheme: Scheme
    device: _Text
    tokens_per_s: _Positive
    source: _Text
    date: _Day


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class Model:
    """A model to train: a shape of the project's by name, or its sizes. Orpheus' vocabulary."""

    name: _Text
    tied: bool
    label: Label
    source: _Text
    date: _Day
    shape: str = ""
    hidden: _Count | None = None
    inner: _Count | None = None
    layers: _Count | None = None
    query_heads: _Count | None = None
    kv_heads: _Count | None = None
    head_size: _Count | None = None

    def __post_init__(self) -> None:
        sizes = self._sizes()
        if self.shape:
            if self.shape not in SHAPES:
                raise ValueError(f"there is no shape {self.shape!r}; there are {', '.join(SHAPES)}")
            if any(sizes.values()):
                raise ValueError("give either a shape or sizes")
        elif absent := [name for name, size in sizes.items() if size is None]:
            raise ValueError(f"it has no {', '.join(absent)}, and no shape")

    @property
    def llama(self) -> LlamaShape:
        """Its shape."""
        if self.shape:
            return SHAPES[self.shape]
        sizes = {name: size or 0 for name, size in self._sizes().items()}
        return LlamaShape(vocabulary_size=ORPHEUS.vocabulary_size, **sizes)

    def _sizes(self) -> dict[str, int | None]:
        return {
            "hidden": self.hidden,
            "inner": self.inner,
            "layers": self.layers,
            "query_heads": self.query_heads,
            "kv_heads": self.kv_heads,
            "head_size": self.head_size,
        }


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class Assumptions:
    """All that is taken for given."""

    streams: Annotated[Sequence[_Count], Field(min_length=1)]
    training_device: str
    values: Values
    prices: Sequence[Price]
    devices: Annotated[Sequence[Device], Field(min_length=1)]
    streams_by_others: Sequence[OthersStreams]
    tokenize_by_others: Sequence[OthersTokenize]
    speeds_by_others: Sequence[OthersSpeed]
    models: Annotated[Sequence[Model], Field(min_length=1)]

    def __post_init__(self) -> None:
        known = [device.name for device in self.devices]
        speeds = [speed.device for speed in self.speeds_by_others]
        for name in (self.training_device, *speeds):
            if name not in known:
                raise ValueError(f"there is no device {name!r}; there are {', '.join(known)}")
        degree = self.cluster.tensor_degree
        for model in self.models:
            if model.llama.query_heads % degree:
                raise ValueError(
                    f"tensor_degree {degree} does not divide the {model.llama.query_heads} heads "
                    f"of model {model.name!r}"
                )

    @property
    def cluster(self) -> Cluster:
        """The GPUs that training is spread over."""
        values = self.values
        return Cluster(
            gpus=int(values.gpus.value),
            gpus_per_node=int(values.gpus_per_node.value),
            tensor_degree=int(values.tensor_degree.value),
        )

    @property
    def batch(self) -> Pass:
        """What goes through a model at once."""
        return Pass(int(self.values.sequences.value), int(self.values.sequence_tokens.value))

    def price_of(self, device_name: str) -> Price | None:
        """The price of the device that a result names: `NVIDIA L4` is an `L4`, no `L40S`."""
        words = device_name.split()
        return next((price for price in self.prices if price.device in words), None)

    def device_of(self, device_name: str) -> Device | None:
        """The device that a result names, by the same words."""
        words = device_name.split()
        return next((device for device in self.devices if device.name in words), None)

    def device(self, name: str) -> Device:
        """The device of that name, which there is."""
        return next(device for device in self.devices if device.name == name)
