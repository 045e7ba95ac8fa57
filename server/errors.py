"""What the server and its codec raise: every message names the value, its place and the remedy."""

from __future__ import annotations


class ServerError(Exception):
    """Base of the server's errors."""


class ConfigurationError(ServerError):
    """A setting has a value that cannot work."""


class WeightsError(ServerError):
    """Weights are missing, unreadable or not what they claim to be."""


class EngineDiedError(ServerError):
    """The engine stopped for good; what it ran is lost."""
