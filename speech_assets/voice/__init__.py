"""The embedded voice: a small codec and a small language model of the project's own, from texts up.

Pure pieces that the commands in `speech_assets/work/voice_*` put together. Modules that need torch
are imported by those commands alone.
"""
