"""What the NPU computes by tensor expressions: ``Target("npu")``.

intrinsics.py   the chip's operations, each declared by the loop that it replaces
dense.py        a dense layer: its computation, its schedule with two virtual threads, the strategy for the key "npu"
codegen.py      ``target.build.npu``: lowered functions as programs
"""
