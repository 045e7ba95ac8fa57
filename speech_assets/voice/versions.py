"""Code versions of what the voice is made with; one that changes makes its assets stale.

They stand apart from the commands, because the definitions load no torch.
"""

from __future__ import annotations

TEXTS_CODE_VERSION = 1
CORPUS_CODE_VERSION = 1
CODEC_CODE_VERSION = 3
LM_CODE_VERSION = 1
SCORES_CODE_VERSION = 1
CHECKPOINT_CODE_VERSION = 1
