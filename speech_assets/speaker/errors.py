"""What the speaker encoder raises; every message names the value, its place and the remedy."""

from __future__ import annotations

from speech_assets.errors import SpeechAssetsError


class SpeakerWeightsError(SpeechAssetsError):
    """Weights of the speaker encoder are missing or not those of their release."""
