"""Passes over TIR, one a file; each file also has the plain function that does the work on a statement or function.

In the order in which lowering runs them: inject_prefetch, storage_flatten, bf16_legalize, small_types,
narrow_data_type, simplify, loop_partition, vectorize_loop, inject_virtual_thread, inject_double_buffer,
storage_rewrite, unroll_loop, remove_no_op, rewrite_unsafe_select, hoist_if_then_else; then, for code generation,
transpose_loads, round_to_bytes, combine_context_call, verify_memory, make_packed_api (or pool_allocations and
make_unpacked_api), split_host_device, lower_tvm_builtin, lower_intrin; for GPUs unify_thread_binding first of all,
before the split thread_sync, infer_fragment, lower_thread_allreduce, merge_dynamic_shared_memory_allocations, after it
lower_warp_memory.
apply_filter makes passes of functions. Only on demand: convert_for_loops_to_serial, instrument_bound_checkers,
inject_copy_intrin, legalize_packed_calls, lift_attr_scope, lower_device_storage_access_info, skip_assert,
verify_gpu_code.
"""

from __future__ import annotations

import importlib
from typing import Any

from tilewright.runtime.renamed import warn_renamed

_PASSES = {
    "Apply": "apply_filter",
    "BF16CastElimination": "bf16_legalize",
    "BF16Legalize": "bf16_legalize",
    "BF16Promote": "bf16_legalize",
    "CombineContextCall": "combine_context_call",
    "ConvertForLoopsToSerial": "convert_for_loops_to_serial",
    "DecorateDeviceScope": "split_host_device",
    "Filter": "apply_filter",
    "HoistIfThenElse": "hoist_if_then_else",
    "InferFragment": "infer_fragment",
    "InjectCopyIntrin": "inject_copy_intrin",
    "InjectDoubleBuffer": "inject_double_buffer",
    "InjectPrefetch": "inject_prefetch",
    "InjectVirtualThread": "inject_virtual_thread",
    "InstrumentBoundCheckers": "instrument_bound_checkers",
    "LegalizePackedCalls": "legalize_packed_calls",
    "LiftAttrScope": "lift_attr_scope",
    "LoopPartition": "loop_partition",
    "LowerCustomDatatypes": "lower_custom_datatypes",
    "LowerDeviceStorageAccessInfo": "lower_device_storage_access_info",
    "LowerIntrin": "lower_intrin",
    "LowerTVMBuiltin": "lower_tvm_builtin",
    "LowerThreadAllreduce": "lower_thread_allreduce",
    "LowerWarpMemory": "lower_warp_memory",
    "MakePackedAPI": "make_packed_api",
    "MakeUnpackedAPI": "make_unpacked_api",
    "MergeDynamicSharedMemoryAllocations": "merge_dynamic_shared_memory_allocations",
    "NarrowDataType": "narrow_data_type",
    "PrimFuncPass": "apply_filter",
    "RemoveNoOp": "remove_no_op",
    "RewriteUnsafeSelect": "rewrite_unsafe_select",
    "RoundToBytes": "round_to_bytes",
    "Simplify": "simplify",
    "SkipAssert": "skip_assert",
    "SmallTypes": "small_types",
    "SpecializeTails": "specialize_tails",
    "SplitHostDevice": "split_host_device",
    "StorageFlatten": "storage_flatten",
    "StorageRewrite": "storage_rewrite",
    "ThreadSync": "thread_sync",
    "TransposeLoads": "transpose_loads",
    "UnifyThreadBinding": "unify_thread_binding",
    "UnrollLoop": "unroll_loop",
    "VectorizeLoop": "vectorize_loop",
    "VerifyGPUCode": "verify_gpu_code",
    "VerifyMemory": "verify_memory",
    "prim_func_pass": "apply_filter",
}

_RENAMED = {"SpecializeRests": "SpecializeTails"}  # names of the last release

__all__ = sorted(_PASSES)


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        warn_renamed(f"tir.transform.{name}", _RENAMED[name])
        name = _RENAMED[name]
    if name in _PASSES:
        return getattr(importlib.import_module(f"{__name__}.{_PASSES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
