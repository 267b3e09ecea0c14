"""Passes over TIR, one a file; each file also has the plain function that does the work on a statement or function.

In the order in which lowering runs them: inject_prefetch, storage_flatten, bf16_legalize, narrow_data_type, simplify,
loop_partition, vectorize_loop, inject_virtual_thread, inject_double_buffer, storage_rewrite, unroll_loop, remove_no_op,
rewrite_unsafe_select, hoist_if_then_else; then, for code generation, transpose_loads, combine_context_call,
verify_memory, make_packed_api, split_host_device, lower_tvm_builtin, lower_intrin. apply_filter makes passes of
functions. Only on demand: instrument_bound_checkers, inject_copy_intrin, skip_assert.
"""

from __future__ import annotations

import importlib
from typing import Any

_PASSES = {
    "Apply": "apply_filter",
    "BF16Legalize": "bf16_legalize",
    "CombineContextCall": "combine_context_call",
    "DecorateDeviceScope": "split_host_device",
    "Filter": "apply_filter",
    "HoistIfThenElse": "hoist_if_then_else",
    "InjectCopyIntrin": "inject_copy_intrin",
    "InjectDoubleBuffer": "inject_double_buffer",
    "InjectPrefetch": "inject_prefetch",
    "InjectVirtualThread": "inject_virtual_thread",
    "InstrumentBoundCheckers": "instrument_bound_checkers",
    "LoopPartition": "loop_partition",
    "LowerIntrin": "lower_intrin",
    "LowerTVMBuiltin": "lower_tvm_builtin",
    "MakePackedAPI": "make_packed_api",
    "NarrowDataType": "narrow_data_type",
    "RemoveNoOp": "remove_no_op",
    "RewriteUnsafeSelect": "rewrite_unsafe_select",
    "Simplify": "simplify",
    "SkipAssert": "skip_assert",
    "SplitHostDevice": "split_host_device",
    "StorageFlatten": "storage_flatten",
    "StorageRewrite": "storage_rewrite",
    "TransposeLoads": "transpose_loads",
    "UnrollLoop": "unroll_loop",
    "VectorizeLoop": "vectorize_loop",
    "VerifyMemory": "verify_memory",
    "prim_func_pass": "apply_filter",
}

__all__ = sorted(_PASSES)


def __getattr__(name: str) -> Any:
    if name in _PASSES:
        return getattr(importlib.import_module(f"{__name__}.{_PASSES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
