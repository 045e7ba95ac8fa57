"""A ladder's steps, each served and measured, and kept until the ladder is whole."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resources.errors import WorkError
from resources.scratch import scratch_folder
from resources.speech_server import SpeechServer
from server.presets import VARIABLE
from speech_assets.load.ladder import Measured, changed, slug
from speech_assets.load.levels import LevelRow, largest_passing, level_line, median_of, row_from
from speech_assets.load.sweep import client_faults, sweep
from speech_assets.results.provenance import device_of, git_state, installed_software, utc_now
from speech_assets.work.load_test import keep_requests

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from resources.store import Store
    from server.presets import Preset
    from speech_assets.load.ladder import Ladder
    from speech_assets.load.sweep import SweepOptions
    from speech_assets.work.worker import Reporter

KIND = "ladder"
CODE_VERSION = "1"  # Bump when what a step is measured by changes.
_LOG_STAMP = re.compile(r"^[\d-]+ [\d:,]+ (ERROR|CRITICAL) ")


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of serving a step's preset: its levels, or why it could not be served."""

    name: str
    settings: Mapping[str, Any]
    config_sha256: str = ""
    device: str = ""
    impossible: str = ""
    died: str = ""
    levels: tuple[LevelRow, ...] = ()
    started_at: str = ""  # Of its server.

    @property
    def measured(self) -> Measured:
        """What the rule compares."""
        lowest = min((row.level for row in self.levels), default=0.0)
        rows = [row for row in self.levels if row.level == lowest]
        return Measured(
            largest_passing(self.levels, "generating"),
            median_of(rows, "ttfa_ms_p50"),
            median_of(rows, "ttfs_ms_p50"),
            median_of(rows, "rtf_p50"),
        )


class Trials:
    """Serves and measures steps, and keeps each until the ladder is whole."""

    def __init__(
        self,
        store: Store,
        ladder: Ladder,
        preset: Preset,
        options: SweepOptions,
        reporter: Reporter,
        *,
        client_limit_allowed: bool,
    ) -> None:
        self.store = store
        self._ladder, self._preset, self._options = ladder, preset, options
        self._reporter, self._client_limit_allowed = reporter, client_limit_allowed
        # A step may go on another's measurement only of the same table, code and machine.
        made_with = {
            "code_version": CODE_VERSION,
            "ladder": asdict(ladder),
            "preset": preset.config(),
            "sweep": asdict(options),
            "software": installed_software(),
            "git": git_state(),
            "machine": device_of("cpu"),
        }
        text = json.dumps(made_with, sort_keys=True)
        self._folder = f"{KIND}/{ladder.name}/{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def measure(self, name: str, settings: Mapping[str, Any]) -> Trial:
        """The trial of a step: as kept by an interrupted run, or measured now."""
        key = f"{self._folder}/{slug(name)}.json"
        if self.store.exists(key):
            kept = self.store.read_json(key)
            levels = tuple(row_from(row) for row in kept.pop("levels"))
            is_usable = self._client_limit_allowed or not client_faults(levels)
            if kept["settings"] == dict(settings) and is_usable:
                self.say(f"{name}: was measured before the ladder was interrupted")
                self._reporter.advance(1)
                return Trial(**kept, levels=levels)
        self.say(f"{name}: a server is started")
        trial = self._serve(name, settings)
        self.store.write_json(key, {**asdict(trial), "levels": [asdict(r) for r in trial.levels]})
        self._reporter.advance(1)
        return trial

    def say(self, message: str) -> None:
        """One line for whoever waits."""
        self._reporter.notice(message)

    def forget(self) -> None:
        """Remove the kept steps: the next ladder is measured anew."""
        for key in self.store.keys(self._folder):
            if key.endswith(".json"):
                self.store.delete(key)

    @contextlib.contextmanager
    def _table(self, name: str, settings: Mapping[str, Any]) -> Generator[Path]:
        """The file of presets that holds the step's; kept, to tell later what was served."""
        text = changed(self._preset, slug(name), settings).encode()
        key = f"{self._folder}/{slug(name)}/presets.toml"
        self.store.write_bytes(key, text)
        if self.store.is_local:
            yield Path(self.store.path(key)).resolve()
            return
        with scratch_folder("ladder") as folder:
            path = folder / "presets.toml"
            path.write_bytes(text)
            yield path

    def _serve(self, name: str, settings: Mapping[str, Any]) -> Trial:
        rows: list[LevelRow] = []
        started_at = utc_now()
        with self._table(name, settings) as table:
            config: dict[str, Any] = {}
            environment = {VARIABLE: str(table), "SPEECH_STORE": self.store.root}
            try:
                with SpeechServer.running(
                    slug(name), environment=environment, info_is_shown=False
                ) as server:
                    config = server.config()

                    def keep(row: LevelRow, requests: Any) -> None:
                        rows.append(row)
                        keep_requests(self.store, f"{self._folder}/{slug(name)}", row, requests)
                        self.say(f"{name}: {level_line(row)}")

                    sweep(server.url, self._options, keep)
            except WorkError as error:
                # Not where this machine keeps the step's table: the result is read elsewhere.
                why = reason_of(str(error)).replace(f"{table.parent}{os.sep}", "")
                if not config:
                    return Trial(name, settings, impossible=why, started_at=started_at)
                died = Trial(name, settings, died=why, levels=tuple(rows), **_facts(config))
                return replace(died, started_at=started_at)
        done = Trial(name, settings, levels=tuple(rows), **_facts(config))
        return replace(done, started_at=started_at)


def reason_of(message: str) -> str:
    """Why a server ended, from what it logged last: the last error, else the last line."""
    lines = [line for line in message.splitlines() if line.strip()]
    errors = [_LOG_STAMP.sub("", line) for line in lines if _LOG_STAMP.match(line)]
    return (errors or lines)[-1].strip()


def _facts(config: Mapping[str, Any]) -> dict[str, str]:
    return {"config_sha256": config["config_sha256"], "device": config["engine"]["device"]}
