"""Streaming speech server and the token layout, presets and codec that everything else uses."""
