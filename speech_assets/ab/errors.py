"""What comparisons raise; every message names the value, its place and the remedy."""

from __future__ import annotations

from speech_assets.errors import SpeechAssetsError


class AskError(SpeechAssetsError):
    """An arm did not answer as a comparison needs it; `retryable` where another try may help."""

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable


class VoidError(SpeechAssetsError):
    """Raw rows of an arm are missing, changed or of other clips: there is nothing to compare."""
