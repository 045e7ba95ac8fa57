"""The demo's part of the checkpoints: its steps, and what it says of them in the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from server.codec_form import FORMS
from server.frames import REALTIME_TOKENS_PER_S
from speech_assets.results.stored import newest
from speech_assets.step import Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from resources.store import Store

# Enough that 4 bits stay within their limit, and no more: 96 texts take minutes to quantize by.
SHORT_CALIBRATION = {"texts": 32, "held_out": 8, "max_tokens": 600}
SHORT_SPEED = {"tokens": 105, "runs": 4}
# A busy machine is forgiven, as under load: what does not count is said.
FORGIVING = {"allow_invalid": True}


def checkpoint_steps(presets: Sequence[str], *, full: bool = False) -> list[Step]:
    """Calibration, then of each preset checkpoint, fidelity and decode speed; codec forms if full.

    Unless full, with fewer texts and shorter runs, which mark the results as reduced.
    """
    if not presets:
        return []
    calibration = _config("calibration", {} if full else SHORT_CALIBRATION)
    speed = _config("decode_speed", FORGIVING if full else {**SHORT_SPEED, **FORGIVING})
    title = "the base model speaks what checkpoints are made and judged by"
    steps = [Step("calibrate", title, config=calibration)]
    for name in presets:
        title = f"checkpoint {name}, and how far it strays"
        steps.append(Step("make_checkpoint", title, name, judges=True))
        steps.append(Step("time_decoding", f"decode speed of {name}", name, speed))
    if full:
        steps += [
            Step("compare_codec_forms", f"the codec's decoder in {form}", form) for form in FORMS
        ]
    return steps


def checkpoint_lines(store: Store, presets: Sequence[str]) -> list[str]:
    """A line of each preset: how it decodes alone, and how far it strays from the base model."""
    lines: list[str] = []
    for name in presets:
        speed, fidelity = newest(store, "decode_speed", name), newest(store, "fidelity", name)
        words: list[str] = []
        if speed is not None:
            rate = speed["figures"]["tokens_per_s"]["value"]
            counts = (
                "" if speed["status"] == "complete" else "; does NOT count, the machine was busy"
            )
            words.append(
                f"{rate:.0f} tokens/s alone (realtime is {REALTIME_TOKENS_PER_S:.0f}{counts})"
            )
        if fidelity is not None:
            kl = fidelity["figures"]["mean_kl_nats"]["value"]
            limit = fidelity["config"]["limit_nats"]
            verdict = "limit" if kl <= limit else "ABOVE its limit, not served:"
            words.append(f"strays {kl:.2g} nats a token from the base model ({verdict} {limit:g})")
        if words:
            lines.append(f"  {name}: {'; '.join(words)}")
    return ["Checkpoints:", *lines] if lines else []


def _config(asset: str, values: dict[str, Any]) -> dict[str, Any]:
    return {"ops": {asset: {"config": values}}}
