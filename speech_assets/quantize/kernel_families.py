"""Families of kernels, by their names: what the time of a decode step is spent on."""

from __future__ import annotations

import re

FAMILIES: dict[str, re.Pattern[str]] = {
    name: re.compile(pattern, re.IGNORECASE)
    for name, pattern in {
        "attention": r"flash|fmha|attention|attn|paged|reshape_and_cache|concat_and_cache",
        "matrix products": r"gemm|gemv|marlin|machete|cutlass|nvjet|cublas|splitk|wna16|scaled_mm"
        r"|linear|matmul|onednn|(?:^|[:_])(?:add|b)?mm(?:$|[_.])",
        "sampling": r"sampl|top_?[kp]|sort|softmax|gumbel|arg_?max|penalt|multinomial|exponential"
        r"|cumsum|\bscan|radix|philox|random|bincount|min_p|temperature|logprob",
        "norms and activations": r"triton_(?:red|poi|per)_fused|norm|silu|gelu|swiglu|act_and_mul"
        r"|rotary|rope|fp8_quant|scaled_quant",
        "copies": r"memcpy|memset|copy|cat(?:$|_|array)|gather|scatter|index|embedding|fill"
        r"|slice|aten::to$",
    }.items()
}
"""Kernel families by the name of a kernel or operation, the first that fits."""
OTHER = "other"


def family(name: str) -> str:
    """The family of a kernel (`nvjet_tst_64x8_...`) or operation (`aten::mm`) by its name."""
    return next((known for known, pattern in FAMILIES.items() if pattern.search(name)), OTHER)
