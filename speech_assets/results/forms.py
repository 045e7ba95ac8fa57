"""The form of a result file: what all have, and what the table and asset of a kind read of it."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError

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
_MOST = 2**53  # Of what is counted: as a float it is still exact.
_Count = Annotated[int, Field(ge=0, le=_MOST)]
_Words = Annotated[int, Field(ge=1, le=_MOST)]
_Cosine = Annotated[float, Field(ge=-1.001, le=1.001)]  # Rounding goes a little beyond 1.
_Side = TypeVar("_Side")


@dataclass(frozen=True, slots=True)
class _Figure:
    value: _Number
    unit: str
    n: int
    ci_low: _Number | None = None
    ci_high: _Number | None = None
    sentences: int | None = None

    def __post_init__(self) -> None:
        if self.ci_low is not None and self.ci_high is not None and self.ci_low > self.ci_high:
            raise ValueError(f"its interval is reversed, {self.ci_low:g} to {self.ci_high:g}")


def _within(figures: dict[str, _Figure]) -> dict[str, _Figure]:
    """The figures, if none is outside its interval: of a rate and of its resampled ones none is,
    nor is a median outside the range of what it is of."""
    for name, figure in figures.items():
        low, high = figure.ci_low, figure.ci_high
        if (low is not None and figure.value < low) or (high is not None and figure.value > high):
            raise ValueError(
                f"figure {name} is {figure.value:g}, outside its interval, {low} to {high}"
            )
    return figures


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
class _DemoDevice(_Device):
    cores: int


@dataclass(frozen=True, slots=True)
class _DemoStep:
    step: str
    seconds: _Number


@dataclass(frozen=True, slots=True)
class _Demo:
    device: _DemoDevice
    rows: Annotated[list[_DemoStep], Field(min_length=1)]
    figures: Annotated[_Figures, AfterValidator(_with("total_s"))]


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
class _PipelineConfig:
    codec: str
    trained: bool
    cores: _Count
    speech_processes: _Count
    decoding_processes: _Count


@dataclass(frozen=True, slots=True)
class _PipelineRow:
    encoder_s: _Number
    pipeline_s: _Number
    start_s: _Number


@dataclass(frozen=True, slots=True)
class _Pipeline:
    config: _PipelineConfig
    rows: Annotated[list[_PipelineRow], Field(min_length=1)]
    figures: Annotated[
        _Figures,
        AfterValidator(
            _with(
                *("pipeline_hours_per_min", "encoder_hours_per_min", "share_of_encoder"),
                *("start_s", "speech_hours_per_min"),
                *("speech_one_process_hours_per_min", "tokens_hours_per_min"),
                *("read_capacity_hours_per_min", "encode_capacity_hours_per_min"),
                *("finish_capacity_hours_per_min", "device_busy_share", "agreement"),
            )
        ),
    ]


@dataclass(frozen=True, slots=True)
class _AblationConfig:
    codec: str
    trained: bool
    audio_minutes: _Number


@dataclass(frozen=True, slots=True)
class _AblationRow:
    way: str
    error: str = ""
    encoder_hours_per_min: _Number | None = None
    loop_hours_per_min: _Number | None = None
    loop_s: list[_Number] | None = None
    device_busy_share: _Number | None = None
    loop_device_busy_share: _Number | None = None
    peak_memory_gib: _Number | None = None
    codes_compared: _Count | None = None
    agreement: _Number | None = None
    codes_changed_level_0: _Count | None = None
    codes_changed_level_1: _Count | None = None
    codes_changed_level_2: _Count | None = None
    read_capacity_hours_per_min: _Number | None = None
    encode_capacity_hours_per_min: _Number | None = None
    finish_capacity_hours_per_min: _Number | None = None

    def __post_init__(self) -> None:
        if not self.error and (self.encoder_hours_per_min is None or self.agreement is None):
            raise ValueError(f"way {self.way!r} has neither a speed and an agreement nor an error")


@dataclass(frozen=True, slots=True)
class _Ablation:
    config: _AblationConfig
    rows: Annotated[list[_AblationRow], Field(min_length=1)]
    figures: _Figures


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
class _SoakConfig:
    streams: _Count
    held_streams: _Count
    slow_readers: _Count
    cancel_share: _Number
    errors: list[str]


@dataclass(frozen=True, slots=True)
class _SoakRow:
    at_s: _Number
    rss_mib: _Number


@dataclass(frozen=True, slots=True)
class _Soak:
    config: _SoakConfig
    rows: Annotated[list[_SoakRow], Field(min_length=1)]
    figures: Annotated[
        _Figures,
        AfterValidator(
            _with(*("minutes", "rss_growth_mib", "rss_mib_max", "requests", "errors", "cancels"))
        ),
    ]


@dataclass(frozen=True, slots=True)
class _BackfillConfig:
    partitions: _Count
    shards_per_run: _Count
    storage: str


@dataclass(frozen=True, slots=True)
class _BackfillRow:
    status: str
    waited_s: _Number
    run_s: _Number


@dataclass(frozen=True, slots=True)
class _Backfill:
    config: _BackfillConfig
    rows: Annotated[list[_BackfillRow], Field(min_length=1)]
    figures: Annotated[
        _Figures,
        AfterValidator(
            _with(
                *("partitions", "runs", "failed_runs", "wall_s", "s_per_partition"),
                *("lock_errors", "storage_mib"),
            )
        ),
    ]


@dataclass(frozen=True, slots=True)
class _CurveRow:
    varied: Literal["clip_s", "batch_samples", "cores"]
    hours_per_min: _Number
    seconds: Annotated[list[_Number], Field(min_length=1)]
    clip_s: _Number | None = None
    batch_samples: _Count | None = None
    cores: _Count | None = None
    peak_memory_gib: _Number | None = None

    def __post_init__(self) -> None:
        if getattr(self, self.varied) is None:
            raise ValueError(f"it says that {self.varied} is varied, and has none")


@dataclass(frozen=True, slots=True)
class _CurveConfig:
    codec: str
    trained: bool


@dataclass(frozen=True, slots=True)
class _Curve:
    config: _CurveConfig
    rows: Annotated[list[_CurveRow], Field(min_length=1)]
    figures: Annotated[
        _Figures,
        AfterValidator(_with("encoder_hours_per_min_most", "speech_hours_per_min_all_cores")),
    ]


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
    figures: Annotated[_Figures, AfterValidator(_within)]

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
class _CodecSpeedConfig:
    trained: bool


@dataclass(frozen=True, slots=True)
class _CodecSpeedRow:
    way: str
    frames: int
    rows: int
    us_per_frame_p50: _Number
    error_db: _Number


@dataclass(frozen=True, slots=True)
class _CodecSpeed:
    config: _CodecSpeedConfig
    rows: Annotated[list[_CodecSpeedRow], Field(min_length=1)]
    figures: _Figures


@dataclass(frozen=True, slots=True)
class _WerConfig:
    base: _Name
    asr: _Name


@dataclass(frozen=True, slots=True)
class _WerClip:
    """A row as `ClipScore` has it; whole, since that is made of it again."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    sentence_id: _Count
    kind: str
    seed: _Count
    text: str
    transcript: str
    words: _Words
    word_errors: _Count
    format_insensitive_words: _Words
    format_insensitive_word_errors: _Count
    characters: _Words
    character_errors: _Count
    seconds: _Number
    finish_reason: str
    spoke: bool
    leading_silence_s: _Number | None
    flags: list[str]
    dnsmos_overall: _Number | None = None
    dnsmos_signal: _Number | None = None
    dnsmos_noise: _Number | None = None
    # Of results from before voices were compared there is neither.
    speaker_similarity: _Cosine | None = None
    speaker_left_out: str = ""
    error: str = ""
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class _Wer:
    config: _WerConfig
    rows: Annotated[list[_WerClip], Field(min_length=1)]
    figures: Annotated[
        _Figures,
        AfterValidator(_with("wer", "wer_format_insensitive", "cer", "clips", "clips_not_spoken")),
        AfterValidator(_within),
    ]

    def __post_init__(self) -> None:
        if any(row.speaker_similarity is not None for row in self.rows):
            _with("speaker_similarity")(self.figures)


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
    has_audio: bool
    samples: int
    wall_ms: _Number
    flags: list[str]
    speaker_similarity: _Cosine | None = None


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
                *("clips_without_audio_a", "clips_without_audio_b"),
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


@dataclass(frozen=True, slots=True)
class _CostConfig:
    preset: _Name
    weights: Literal["random", "real"]
    context_tokens: _Number | None


@dataclass(frozen=True, slots=True)
class _CostLevel:
    streams: Annotated[int, Field(ge=1, le=_MOST)]
    steps: _Count
    late_chunks: _Count
    thread_cores: dict[Literal["engine", "event_loop", "others"], _Number]
    step_ms_mean: _Number | None
    beside_ms_mean: _Number | None
    between_ms_mean: _Number | None
    interval_ms_mean: _Number | None
    rtf: _Number | None
    host_memory_mib: _Number
    device_memory_gib: _Number | None
    step_ms_p50: _Number | None = None
    ttfa_ms_p50: _Number | None = None
    ttfs_ms_p50: _Number | None = None
    lm_ms: _Number | None = None
    codec_ms: _Number | None = None
    overlap_ms: _Number | None = None
    idle_ms: _Number | None = None

    def __post_init__(self) -> None:
        if len(self.thread_cores) < 3:
            raise ValueError("its thread_cores are not of engine, event_loop and others")
        traced = (self.lm_ms, self.codec_ms, self.overlap_ms, self.idle_ms)
        if any(part is None for part in traced) != all(part is None for part in traced):
            raise ValueError("of a trace it has some parts and not others")


@dataclass(frozen=True, slots=True)
class _CostCurve:
    config: _CostConfig
    rows: Annotated[list[_CostLevel], Field(min_length=1)]
    figures: Annotated[_Figures, AfterValidator(_with("streams_without_late_chunk"))]


_RESULT = TypeAdapter(_Result)
KINDS: Mapping[str, TypeAdapter[Any]] = {
    "demo": TypeAdapter(_Demo),
    "tokenize": TypeAdapter(_Tokenize),
    "tokenize_pipeline": TypeAdapter(_Pipeline),
    "tokenize_ablation": TypeAdapter(_Ablation),
    "tokenize_curve": TypeAdapter(_Curve),
    "server": TypeAdapter(_Server),
    "soak": TypeAdapter(_Soak),
    "backfill": TypeAdapter(_Backfill),
    "load_tests": TypeAdapter(_LoadTest),
    "ladder": TypeAdapter(_Ladder),
    "cost_curve": TypeAdapter(_CostCurve),
    "decode_speed": TypeAdapter(_DecodeSpeed),
    "fidelity": TypeAdapter(_Fidelity),
    "codec_checkpoint": TypeAdapter(_CodecForm),
    "codec_speed": TypeAdapter(_CodecSpeed),
    "wer": TypeAdapter(_Wer),
    "ab": TypeAdapter(_Ab),
    "voice_codec": TypeAdapter(_Codec),
    "voice_speech": TypeAdapter(_Speech),
}
"""Kinds that a page shows; only these are published."""
