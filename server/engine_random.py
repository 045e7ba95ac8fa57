"""Random weights in place of a checkpoint's: what vLLM loads for a shape alone.

The speed of a step does not depend on what the weights are, so that every precision of a model can
be timed where its weights are not.
"""

from __future__ import annotations

import functools
from typing import Any

LOAD_FORMAT = "speech_random"
_CACHE_SCALES = ("q_scale", "k_scale", "v_scale", "prob_scale")


@functools.cache
def register() -> None:
    """Make `LOAD_FORMAT` known to vLLM in this process, whose environment is set.

    It is vLLM's "dummy" with two differences. Packed 4-bit weights are random, not what the memory
    held before, which is often zeros. Scales of cached keys and values are 1, as of a checkpoint
    that has none: random ones can be negative, and kernels refuse those.
    """
    from vllm.model_executor.model_loader import register_model_loader
    from vllm.model_executor.model_loader.dummy_loader import DummyModelLoader

    class RandomLoader(DummyModelLoader):
        def load_weights(self, model: Any, model_config: Any) -> None:
            super().load_weights(model, model_config)
            for module in model.modules():
                for name, tensor in module.named_parameters(recurse=False):
                    if name.endswith("packed"):
                        tensor.data.random_(-(1 << 31), (1 << 31) - 1)
                for name, tensor in module.state_dict(keep_vars=False).items():
                    if name.removeprefix("_") in _CACHE_SCALES:
                        tensor.fill_(1.0)

    register_model_loader(LOAD_FORMAT)(RandomLoader)
