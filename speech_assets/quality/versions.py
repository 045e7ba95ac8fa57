"""Versions of what makes results of kind `wer`."""

JUDGING = "4"
"""Bump when the same clips would be scored otherwise: results by another are not compared."""
