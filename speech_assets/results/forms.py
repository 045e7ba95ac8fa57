"""The form of a result file: what all have, and what the table and asset of a kind read of it."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from speech_assets.ab.plan import texts_sha256
from speech_assets.errors import ConfigError
from speech_assets.load.ladder import Outcome
from speech_assets.load.levels import LevelRow, Load
from speech_assets.results.result import SCHEMA_VERSION, slug

_STARTED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_REMEDY = "measure it again, or take the file as it was written"


def check_form(data: bytes, where: str) -> None:
    """Nothing, if `data` is a result as its kind must be; `where` it was read from.

    Raises:
        ConfigError: it is not; with the first place that is wrong.
    """
    try:
        found = _RESULT.validate_json(data, strict=True)
        if found.kind in KINDS:
            KINDS[found.kind].validate_json(data, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        why = first["msg"].removeprefix("Value error, ")
        if not place and first["type"] != "value_error":
            raise ConfigError(f"{where} is not a result file: {why}") from error
        if first["type"] == "missing":
            raise ConfigError(f"{where} has no {place}; {_REMEDY}") from error
        shown = f" is {reprlib.repr(first['input'])}" if place else ""
        raise ConfigError(f"{where}: {place}{shown}: {why}; {_REMEDY}") from error


def _version(number: int) -> int:
    if number != SCHEMA_VERSION:
        raise ValueError(f"this version reads {SCHEMA_VERSION}")
    return number


def _name(text: str) -> str:
    if not text.isprintable() or not slug(text):
        raise ValueError("it must be a name, on one line")
    return text


def _started(text: str) -> str:
    try:
        is_time = bool(_STARTED.fullmatch(text) and datetime.fromisoformat(text))
    except ValueError:
        is_time = False
    if not is_time:
        raise ValueError("it must be a time as 2026-11-29T10:00:00Z")
    return text


_Number = Annotated[float, Field(allow_inf_nan=False)]
_Name = Annotated[str, AfterValidator(_name)]
_Side = TypeVar("_Side")


@dataclass(frozen=True, slots=True)
class _Figure:
    value: _Number
    unit: str
    n: int
    ci_low: _Number | None = None
    ci_high: _Number | None = None


_Figures = Annotated[dict[str, _Figure], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class _Device:
    name: _Name


@dataclass(frozen=True, slots=True)
class _Result:
    schema_version: Annotated[int, AfterValidator(_version)]
    kind: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    name: _Name
    status: Literal["complete", "invalid"]
    reduced: bool
    started_at: Annotated[str, AfterValidator(_started)]
    device: _Device
    software: dict[str, str]
    git: dict[str, Any]
    command: str
    config: dict[str, Any]
    config_sha256: str
    seeds: list[int]
    rows: list[dict[str, Any]]
    figures: _Figures
    content_sha256: str = ""


def _with(*names: str) -> Callable[[dict[str, _Figure]], dict[str, _Figure]]:
    """A check that figures have these names."""

    def check(figures: dict[str, _Figure]) -> dict[str, _Figure]:
        if absent := [name for name in names if name not in figures]:
            raise ValueError(f"it has no figure {', '.join(absent)}")
        return figures

    return check


@dataclass(frozen=True, slots=True)
class _TokenizeConfig:
    codec: str


@dataclass(frozen=True, slots=True)
class _Tokenize:
    config: _TokenizeConfig
    figures: Annotated[
        _Figures,
        AfterValidator(
            _with(
                *("hours_per_min", "encoder_hours_per_min", "share_of_encoder", "agreement"),
                *("device_busy_share", "peak_memory_gib"),
            )
        ),
    ]


@dataclass(frozen=True, slots=True)
class _Engine:
    dtype: str = ""


@dataclass(frozen=True, slots=True)
class _ServerConfig:
    engine: _Engine = field(default_factory=_Engine)


@dataclass(frozen=True, slots=True)
class _Server:
    config: _ServerConfig
    figures: Annotated[_Figures, AfterValidator(_with("rtf_p50"))]


@dataclass(frozen=True, slots=True)
class _LevelFigure:
    value: _Number | None
    unit: str
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Level(LevelRow):
    level: _Number
    figures: Mapping[str, _LevelFigure]  # pyright: ignore[reportIncompatibleVariableOverride, reportGeneralTypeIssues]


@dataclass(frozen=True, slots=True)
class _Sweep:
    duration_s: _Number


@dataclass(frozen=True, slots=True)
class _LoadTestConfig:
    sweep: _Sweep
    client_faults: list[str]
    no_level_failed: list[Load] = field(default_factory=list[Load])


@dataclass(frozen=True, slots=True)
class _LoadTest:
    config: _LoadTestConfig
    rows: Annotated[list[_Level], Field(min_length=1)]
    figures: _Figures

    def __post_init__(self) -> None:
        for load in {row.load for row in self.rows}:
            name = f"max_realtime_streams_{load}"
            _with(name, f"{name}_with_margin")(self.figures)


@dataclass(frozen=True, slots=True)
class _Preset:
    name: str


@dataclass(frozen=True, slots=True)
class _LadderConfig:
    sweep: _Sweep
    client_faults: list[str]
    preset: _Preset


@dataclass(frozen=True, slots=True)
class _LadderRow:
    name: str
    switch: str
    value: Any
    note: str
    outcome: Outcome
    why: str
    max_realtime_streams: _Number | None
    ttfa_ms_p50: _Number | None
    ttfs_ms_p50: _Number | None
    rtf_p50: _Number | None
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    levels: list[_Level] = field(default_factory=list[_Level])


@dataclass(frozen=True, slots=True)
class _Ladder:
    config: _LadderConfig
    rows: Annotated[list[_LadderRow], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class _Clip:
    voice: str


@dataclass(frozen=True, slots=True)
class _Speech:
    rows: list[_Clip]
    figures: _Figures

    def __post_init__(self) -> None:
        self._need("wer", "cer", *(f"wer_{voice}" for voice in {row.voice for row in self.rows}))

    def _need(self, *names: str) -> None:
        _with(*names)(self.figures)
        for name in (*names, "dnsmos_overall", "reference_dnsmos_overall"):
            figure = self.figures.get(name)
            if figure is not None and (figure.ci_low is None or figure.ci_high is None):
                raise ValueError(f"figure {name} has no interval, ci_low and ci_high")


@dataclass(frozen=True, slots=True)
class _Codec(_Speech):
    def __post_init__(self) -> None:
        _Speech.__post_init__(self)
        self._need("reference_wer")


@dataclass(frozen=True, slots=True)
class _Measurement:
    streams: int
    profile_steps: int = 0


@dataclass(frozen=True, slots=True)
class _SpeedEngine:
    head: str


@dataclass(frozen=True, slots=True)
class _SpeedConfig:
    preset: str
    scheme: str
    weights: Literal["random", "real"]
    shape: str
    engine: _SpeedEngine
    measurement: _Measurement


@dataclass(frozen=True, slots=True)
class _DecodeSpeed:
    config: _SpeedConfig
    figures: Annotated[
        _Figures,
        AfterValidator(
            _with(
                *("ms_per_token_p50", "tokens_per_s", "rtf", "bytes_per_step", "floor_share"),
                *("start_s", "peak_memory_gib", "weights_gib"),
            )
        ),
    ]


@dataclass(frozen=True, slots=True)
class _FidelityConfig:
    limit_nats: _Number


@dataclass(frozen=True, slots=True)
class _Fidelity:
    config: _FidelityConfig
    figures: Annotated[_Figures, AfterValidator(_with("mean_kl_nats", "top1_agreement"))]


@dataclass(frozen=True, slots=True)
class _CodecForm:
    figures: _Figures


@dataclass(frozen=True, slots=True)
class _WerConfig:
    base: _Name
    asr: _Name


@dataclass(frozen=True, slots=True)
class _WerClip:
    sentence_id: int
    kind: str
    seed: int
    text: str
    transcript: str
    words: Annotated[int, Field(ge=1)]
    word_errors: int
    loose_words: Annotated[int, Field(ge=1)]
    loose_word_errors: int
    spoke: bool


@dataclass(frozen=True, slots=True)
class _Wer:
    config: _WerConfig
    rows: Annotated[list[_WerClip], Field(min_length=1)]
    figures: Annotated[
        _Figures,
        AfterValidator(_with("wer", "wer_format_insensitive", "cer", "clips", "clips_not_spoken")),
    ]


@dataclass(frozen=True, slots=True)
class _AbArm:
    label: _Name
    config_sha256: str
    weights: dict[str, str]


@dataclass(frozen=True, slots=True)
class _AbRaw:
    key: _Name
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


@dataclass(frozen=True, slots=True)
class _AbSides(Generic[_Side]):
    a: _Side
    b: _Side


@dataclass(frozen=True, slots=True)
class _AbConfig:
    a: _AbArm
    b: _AbArm
    raw: _AbSides[_AbRaw]
    asked: Annotated[list[tuple[int, int]], Field(min_length=1)]
    texts_sha256: str
    same_configuration: bool
    memory_measure: str


@dataclass(frozen=True, slots=True)
class _AbSide:
    spoke: bool
    samples: int
    wall_ms: _Number
    flags: list[str]


@dataclass(frozen=True, slots=True)
class _AbClip:
    sentence_id: int
    seed: int
    text: str
    a: _AbSide
    b: _AbSide


@dataclass(frozen=True, slots=True)
class _Ab:
    config: _AbConfig
    rows: list[_AbClip]
    figures: Annotated[
        _Figures,
        AfterValidator(
            _with(
                *("clips", "sentences", "same_samples_share", "same_frames_share"),
                *("same_bytes_share", "clips_of_other_length"),
                *("clips_not_spoken_a", "clips_not_spoken_b"),
                *("flagged_clips_a", "flagged_clips_b"),
            )
        ),
    ]

    def __post_init__(self) -> None:
        # Without a row of both arms for each clip, and no other, there was nothing to compare.
        if sorted((row.sentence_id, row.seed) for row in self.rows) != sorted(self.config.asked):
            raise ValueError("its rows are not the clips that were asked for")
        if texts_sha256((row.sentence_id, row.text) for row in self.rows) != (
            self.config.texts_sha256
        ):
            raise ValueError("its rows are not of the sentences that were asked for")


_RESULT = TypeAdapter(_Result)
KINDS: Mapping[str, TypeAdapter[Any]] = {
    "tokenize": TypeAdapter(_Tokenize),
    "server": TypeAdapter(_Server),
    "load_tests": TypeAdapter(_LoadTest),
    "ladder": TypeAdapter(_Ladder),
    "decode_speed": TypeAdapter(_DecodeSpeed),
    "fidelity": TypeAdapter(_Fidelity),
    "codec_checkpoint": TypeAdapter(_CodecForm),
    "wer": TypeAdapter(_Wer),
    "ab": TypeAdapter(_Ab),
    "voice_codec": TypeAdapter(_Codec),
    "voice_speech": TypeAdapter(_Speech),
}
"""Kinds that a page shows; only these are published."""
