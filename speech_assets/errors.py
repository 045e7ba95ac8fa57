"""What the project raises: every message names the value, its place and the remedy.

`retryable` says whether trying again can help; Dagster's retry policy and the exit code of a work
process follow it.
"""

from __future__ import annotations


class SpeechAssetsError(Exception):
    """Base of the project's errors."""

    retryable = False
    skips = False
    """Whether what was asked for is not for this machine: to be passed over, not to be mended."""


class ConfigError(SpeechAssetsError):
    """A profile, corpus or environment variable has a value that cannot work."""


class CorpusError(SpeechAssetsError):
    """A source file is not what a corpus needs: the whole file is refused, not a row of it."""


class ShardError(SpeechAssetsError):
    """A stored shard is missing, damaged or not of this schema."""


class AgreementError(SpeechAssetsError):
    """Batched codes disagree with the reference beyond the limit: the shard must not be used."""
