"""Quantizes a checkpoint with llm-compressor: the script that runs in `.venv-quantize`.

Started by file path with one argument, the job's JSON file; it imports nothing of the project,
which is not installed there. Progress goes to stderr; its last line is a JSON object, ``{"error":
...}`` or ``{"done": {...}}``. It ends when its standard input does: then its starter is gone.

A job: base, out (folders), modifier ("GPTQ" or "data_free"), config_groups and ignore (as in
`quantization_config`), calibration (a safetensors file of `ids` and `lengths`, or null), device,
seed, shard_bytes.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

EXIT_FAILED = 1
_LOG_LEVEL = "WARNING"


def main() -> int:
    """Run the job; 0 when the checkpoint is in its folder, else 1."""
    threading.Thread(target=_die_with_starter, name="lifeline", daemon=True).start()
    try:
        job = json.loads(Path(sys.argv[1]).read_text("utf-8"))
        done = quantize(job)
    except Exception as error:  # Whatever it is, the starter makes one line of it.
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=sys.stderr)
        return EXIT_FAILED
    print(json.dumps({"done": done}), file=sys.stderr)
    return 0


def quantize(job: dict[str, Any]) -> dict[str, Any]:
    """Write the quantized checkpoint of `job`; versions and times of what made it."""
    started_s = time.monotonic()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    # Read at import: its own progress lines are of modules, thousands of them.
    os.environ.setdefault("LLM_COMPRESSOR_LOG_LEVEL", _LOG_LEVEL)
    import compressed_tensors
    import llmcompressor  # pyright: ignore[reportMissingImports]
    import torch
    import transformers
    from llmcompressor import oneshot  # pyright: ignore[reportMissingImports]

    torch.manual_seed(job["seed"])
    base, out, device = Path(job["base"]), Path(job["out"]), str(job["device"])
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(base, dtype="auto")
    stored = torch.bfloat16 if model.dtype == torch.float32 else model.dtype
    # A CPU multiplies float16 at a tenth of float32's speed; a GPU has no memory to waste.
    model = model.to(device, torch.float32 if device == "cpu" else stored).eval()
    imported_s = time.monotonic()
    arguments: dict[str, Any] = {"recipe": _modifier(job), "processor": _NoTokenizer()}
    if job["calibration"]:
        arguments |= {"dataset": _samples(Path(job["calibration"]))}
    oneshot(model=model, **arguments)
    quantized_s = time.monotonic()
    model.to("cpu", stored)
    out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(out, save_compressed=True, max_shard_size=job["shard_bytes"])
    return {
        "versions": {
            "llmcompressor": llmcompressor.__version__,
            "compressed-tensors": compressed_tensors.__version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "load_s": round(imported_s - started_s, 2),
        "quantize_s": round(quantized_s - imported_s, 2),
        "save_s": round(time.monotonic() - quantized_s, 2),
    }


class _NoTokenizer:
    """In place of a tokenizer, which samples of ids need none of; llm-compressor looks for one."""

    def save_pretrained(self, *_: object) -> None:
        """Nothing to save: the starter copies the base's own files."""


def _modifier(job: dict[str, Any]) -> Any:
    groups: dict[str, Any] = {"config_groups": job["config_groups"], "ignore": job["ignore"]}
    if job["modifier"] == "GPTQ":
        from llmcompressor.modifiers.gptq import GPTQModifier  # pyright: ignore[reportMissingImports]

        return GPTQModifier(**groups)
    from llmcompressor.modifiers.quantization import QuantizationModifier  # pyright: ignore[reportMissingImports]

    return QuantizationModifier(**groups)


def _samples(path: Path) -> Any:
    """A loader of one sample a batch, in the file's order: `input_ids` (1, n), int64."""
    import torch
    from safetensors.torch import load_file
    from torch.utils.data import DataLoader

    tensors = load_file(path)
    pieces: Any = list(tensors["ids"].long().split(tensors["lengths"].tolist()))

    def collate(rows: list[Tensor]) -> dict[str, Tensor]:
        batch = torch.stack(rows)
        return {"input_ids": batch, "attention_mask": torch.ones_like(batch)}

    return DataLoader(pieces, batch_size=1, shuffle=False, collate_fn=collate)


def _die_with_starter() -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    os._exit(EXIT_FAILED)


if __name__ == "__main__":
    sys.exit(main())
