"""What the resources raise: every message names the value, its place and the remedy."""

from __future__ import annotations


class ResourceError(Exception):
    """Base of the resources' errors. `retryable` says whether trying again can help."""

    retryable = True


class StoreError(ResourceError):
    """The store could not be read or written."""

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.retryable = retryable


class WorkError(ResourceError):
    """A work process failed; the message ends with what it said last."""

    def __init__(self, message: str, *, retryable: bool) -> None:
        super().__init__(message)
        self.retryable = retryable


class DownloadError(ResourceError):
    """A file could not be had from where it is published."""

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable


class ChangedError(DownloadError):
    """What is published is not what was observed before: both values are named."""
