"""VerifyGPUCode: raise an error unless the kernels of a module stay within the limits of a GPU.

Refused with ``VerifyGPUCode({"max_threads_per_block": 256})``::

    attr [IterVar(threadIdx.x)] "thread_extent" = 512
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.ir.errors import TilewrightError
from tilewright.ir.function_attributes import GLOBAL_SYMBOL
from tilewright.ir.transform import Pass
from tilewright.tir.function import PrimFunc
from tilewright.tir.transform.common import function_pass
from tilewright.tir.verify_gpu_code import gpu_code_problems


def VerifyGPUCode(constraints: Mapping[str, Any]) -> Pass:
    """Check the kernels against the constraints (see ``tir.analysis.verify_gpu_code``); changes nothing."""

    def check(func: PrimFunc) -> PrimFunc:
        problems = gpu_code_problems(func, constraints)
        if problems:
            name = GLOBAL_SYMBOL.get(func, "main")
            raise TilewrightError(f"VerifyGPUCode: in {name} " + "; ".join(problems))
        return func

    return function_pass("VerifyGPUCode", check)
