"""What the transcribers raise; every message names the value, its place and the remedy."""

from __future__ import annotations

from speech_assets.errors import SpeechAssetsError


class AsrWeightsError(SpeechAssetsError):
    """Weights of a speech recogniser are missing, damaged or not what they must be."""


class AsrDownloadError(SpeechAssetsError):
    """Weights could not be downloaded; trying again may help."""

    retryable = True
