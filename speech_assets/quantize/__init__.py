"""Checkpoints of every precision from one base model: made, checked, timed."""
