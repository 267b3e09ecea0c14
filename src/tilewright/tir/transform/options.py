"""Options of the passes, for ``PassContext(config={...})``; the files of the passes say what each means."""

from __future__ import annotations

from tilewright.ir.transform import PassContext

_OPTIONS = {
    "tir.HoistIfThenElse": "options of HoistIfThenElse (none are needed)",
    "tir.InjectDoubleBuffer": "options of InjectDoubleBuffer (split_loop is accepted)",
    "tir.LoopPartition": "options of LoopPartition, see tir/transform/loop_partition.py",
    "tir.UnrollLoop": "options of UnrollLoop, see tir/transform/unroll_loop.py",
}

for _name, _doc in _OPTIONS.items():
    PassContext.register_option(_name, dict, {}, _doc)
