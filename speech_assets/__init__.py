"""Dagster lineage that makes, serves and measures Orpheus-class text-to-speech."""
