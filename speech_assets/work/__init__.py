"""Processes the assets start; each runs by hand as `python -m speech_assets.work.<name>`."""
