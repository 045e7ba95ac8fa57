"""What the engine adds to vLLM's worker, in whichever process that runs.

Importing this module makes the model class known there: vLLM imports it (as `worker_extension_cls`)
before it loads the model.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from typing import TYPE_CHECKING, Any, Literal

from server import engine_model, engine_random
from server.engine_sampler import SlotSampler

if TYPE_CHECKING:
    from server.engine import SamplerChoice

_STARTED = ("EngineCore", "VllmWorker")  # Names that vLLM gives the processes that it starts.
EXTENSION = "server.engine_worker.SpeechWorker"

engine_model.register()
engine_random.register()


def _end_with_parent() -> None:
    """Let a process that vLLM started end when its starter does, however that ends.

    Left to itself, a core lives on after its parent was killed.
    """
    parent = multiprocessing.parent_process()
    if parent is None or not multiprocessing.current_process().name.startswith(_STARTED):
        return

    def follow() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=follow, name="lifeline", daemon=True).start()


_end_with_parent()


class SpeechWorker:
    """Methods that `collective_rpc` calls on the worker."""

    model_runner: Any
    use_v2_model_runner: bool

    def speech_install_sampler(self, sampler: SamplerChoice) -> dict[str, Any]:
        """Give the runner the sampler that its model's logits need; say what is in use."""
        runner = self.model_runner
        model = runner.get_model()
        version = 2 if self.use_v2_model_runner else 1
        if not isinstance(model, engine_model.SpeechLlamaForCausalLM):
            if sampler == "fused":
                raise ValueError("sampler = 'fused' draws from an audio head; set head = 'audio'")
            return {"slot_rule": "dropped", "layers": "vllm", "sampler": "vllm"}
        if model.due_rows_only:
            if version != 1:
                raise ValueError("on a CPU the audio head needs VLLM_USE_V2_MODEL_RUNNER=0")
            if sampler != "auto":
                raise ValueError(
                    f"sampler = {sampler!r} is a GPU's; on a CPU the audio head has its own: set "
                    "sampler = 'auto'"
                )
            from server import engine_cpu  # Of CPU builds of vLLM alone.

            model.body = engine_cpu.body_of(model.model)
            runner.sampler = SlotSampler(runner, model)
            drawn_by = "slot"
        elif version != 2:  # Its sampler knows penalties by id only, of the whole vocabulary.
            raise ValueError("on a GPU the audio head needs VLLM_USE_V2_MODEL_RUNNER=1")
        else:
            drawn_by = _fuse(runner, model, sampler)
        layers = "vllm" if model.body is None else "kernels"
        return {"slot_rule": "enforced", "layers": layers, "sampler": drawn_by}


def _fuse(
    runner: Any, model: engine_model.SpeechLlamaForCausalLM, sampler: SamplerChoice
) -> Literal["fused", "vllm"]:
    """Put the fused sampler around the V2 runner's own, where it is wanted and can be."""
    if sampler == "vllm":
        return "vllm"
    from server.engine_sampler_gpu import FusedSampler  # Of GPU builds of vLLM alone.

    try:
        runner.sampler = FusedSampler(runner.sampler, model)
    except ImportError as error:  # Without Triton.
        if sampler == "auto":
            return "vllm"
        raise ValueError(f"sampler = 'fused': {error}; set sampler = 'auto'") from error
    model.masks_off_slot = False
    return "fused"
