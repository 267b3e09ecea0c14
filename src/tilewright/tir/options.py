"""Options of TIR's passes and of ``tvm.lower``, for ``PassContext(config={...})``; each pass documents its own."""

from typing import Any

from tilewright.ir.transform import PassContext

_OF_PASSES: dict[str, dict[str, Any]] = {  # the fields and their defaults; the pass's file says what they mean
    "HoistIfThenElse": {"support_block_scope_hosting": False},
    "InjectDoubleBuffer": {"split_loop": 1},
    "LoopPartition": {"partition_const_loop": False, "no_unroll_loop_with_extent_one": False},
    "UnrollLoop": {
        "auto_max_step": 0, "auto_max_depth": 8, "auto_max_extent": 0, "explicit_unroll": True,
        "unroll_local_access": False,
    },
}  # fmt: skip

for _name, _fields in _OF_PASSES.items():
    PassContext.register_option(f"tir.{_name}", dict, {}, f"options of the pass {_name}", _fields)

PassContext.register_option(
    "tir.add_lower_pass", list, [], "(phase, pass) pairs: extra passes of lower, after phase 0 to 3"
)
PassContext.register_option(
    "tir.debug_keep_trivial_loop", bool, False, "schedules keep loops that run once, for who looks at all loops"
)
PassContext.register_option("tir.disable_assert", bool, False, "lower leaves out assertions")
PassContext.register_option("tir.disable_storage_rewrite", bool, False, "allocations stay where the schedule puts them")
PassContext.register_option(
    "tir.instrument_bound_checkers", bool, False, "programs check that they stay inside buffers"
)
PassContext.register_option("tir.noalias", bool, True, "the buffers of a lowered schedule do not overlap")
PassContext.register_option("tir.disable_vectorize", bool, False, "run vectorized loops as serial ones")
