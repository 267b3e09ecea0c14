"""Options of TIR's passes and of ``tvm.lower``, for ``PassContext(config={...})``; their files say what each means."""

from tilewright.ir.transform import PassContext

_OF_PASSES = {
    "tir.HoistIfThenElse": "options of HoistIfThenElse, see tir/transform/hoist_if_then_else.py",
    "tir.InjectDoubleBuffer": "options of InjectDoubleBuffer (split_loop is accepted)",
    "tir.LoopPartition": "options of LoopPartition, see tir/transform/loop_partition.py",
    "tir.UnrollLoop": "options of UnrollLoop, see tir/transform/unroll_loop.py",
}

for _name, _doc in _OF_PASSES.items():
    PassContext.register_option(_name, dict, {}, _doc)

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
