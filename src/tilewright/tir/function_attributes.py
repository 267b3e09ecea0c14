"""Attributes that only PrimFuncs carry; ``ir.function_attributes`` explains the declarations."""

from __future__ import annotations

from tilewright.ir.function_attributes import INTEGER, MARK, NODES, Carrier, Stage, declare

NOALIAS = declare(
    "tir.noalias",
    MARK,
    "no two parameters share memory",
    writers="te.lower (option tir.noalias), SplitHostDevice, users",
    readers="code generators",
    carriers=Carrier.KERNEL,
    last=Stage.CODE,
)
CALLING_CONV = declare(
    "calling_conv",
    INTEGER,
    "how the function is called: a value of ir.expr.CallingConv",
    writers="MakePackedAPI, MakeUnpackedAPI, SplitHostDevice",
    readers="MakePackedAPI, MakeUnpackedAPI, SplitHostDevice, code generators, tir.analysis",
    carriers=Carrier.KERNEL,
    last=Stage.CODE,
)
IS_ENTRY = declare(
    "tir.is_entry_func",
    MARK,
    "other files call the function; without a runtime all others are private",
    writers="the code generator of ahead-of-time programs",
    readers="C's code generator",
    carriers=Carrier.KERNEL,
    last=Stage.CODE,
)
POOL_BYTES = declare(
    "tir.pool_bytes",
    INTEGER,
    "bytes of the buffer that the function takes as its last parameter for what it allocated; 0: it takes none",
    writers="PoolAllocations",
    readers="PoolAllocations, the code generator of ahead-of-time programs",
    carriers=Carrier.KERNEL,
    last=Stage.CODE,
)
FROM_SCHEDULE = declare(
    "from_legacy_te_schedule",
    MARK,
    "a TE schedule made the function",
    writers="te.lower",
    readers="UnifyThreadBinding",
    carriers=Carrier.KERNEL,
    last=Stage.CODE,
)
DEVICE_THREAD_AXES = declare(
    "tir.device_thread_axis",
    NODES,
    "the axes that a device kernel's threads are bound to, in the order of its launch arguments",
    writers="SplitHostDevice",
    readers="target.device_build",
    carriers=Carrier.KERNEL,
    last=Stage.CODE,
)
DYNAMIC_SHARED_MEMORY = declare(
    "tir.device_use_dyn_shared_memory",
    MARK,
    "the last launch argument of the device kernel is a size of shared memory in bytes",
    writers="SplitHostDevice",
    readers="target.device_build, OpenCL's code generator",
    carriers=Carrier.KERNEL,
    last=Stage.CODE,
)
IS_GLOBAL_FUNCTION = declare(
    "tir.is_global_func",
    MARK,
    "the function is a kernel that a host launches, as TVM 0.8 marks it",
    writers="SplitHostDevice",
    readers="programs that look for it in the module's text",
    carriers=Carrier.KERNEL,
    last=Stage.CODE,
)
