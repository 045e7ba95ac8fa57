"""Decode-only codecs in several forms: their record, and what a form changes beside its parent."""
