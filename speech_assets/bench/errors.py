"""What a load test raises before it has measured anything."""

from __future__ import annotations

from speech_assets.errors import SpeechAssetsError


class BenchError(SpeechAssetsError):
    """Options, texts or an output folder that a load test cannot work with."""


class ClientDiedError(SpeechAssetsError):
    """A client process ended while it was needed: what it measured is lost."""
