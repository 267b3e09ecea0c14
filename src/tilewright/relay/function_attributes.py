"""Attributes of functions and modules of Relay: meaning, writers, readers and lifetime of each.

``ir.function_attributes`` describes declarations, and has those that PrimFuncs share; they are exported here too.
docs/passes.md has all of them as a table.
"""

from __future__ import annotations

from tilewright.ir.function_attributes import (
    DEVICE_TYPE,
    GLOBAL_SYMBOL,
    INTEGER,
    INTEGER_PAIRS,
    INTEGERS,
    MARK,
    SKIP_OPTIMIZATION,
    TARGET,
    TEXT,
    TEXT_PAIRS,
    TEXTS,
    Carrier,
    Stage,
    declare,
    declared_attributes,
)

# Which functions are kernels, and whose.

PRIMITIVE = declare(
    "Primitive",
    MARK,
    "the function is one kernel: passes leave its body alone",
    writers="FuseOps, IsolateViews, PlanViews, PartitionGraph, users",
    readers="every pass, LowerTE",
    carriers=Carrier.PRIMITIVE | Carrier.EXTERNAL | Carrier.OPEN,
    last=Stage.LOWERED,
)
COMPILER = declare(
    "Compiler",
    TEXT,
    "the external compiler that makes the function's code",
    writers="PartitionGraph, users",
    readers="every pass, relay.backend.external",
    carriers=Carrier.EXTERNAL | Carrier.OPEN,
    last=Stage.LOWERED,
)
COMPOSITE = declare(
    "Composite",
    TEXT,
    "the name of the pattern that the function's body matched",
    writers="MergeComposite, users",
    readers="AnnotateTarget, external compilers",
    carriers=Carrier.RELAY,
    last=Stage.LOWERED,
)
PARTITIONED_FROM = declare(
    "PartitionedFromPattern",
    TEXT,
    "the operators of the match, in order, each followed by an underscore",
    writers="DFPattern.partition, MergeComposite",
    readers="the pattern matcher, external compilers",
    carriers=Carrier.RELAY,
    last=Stage.LOWERED,
)
INLINE = declare(
    "Inline",
    MARK,
    "the function is to become a part of its callers",
    writers="PartitionGraph, MarkInline of relay.build, users",
    readers="Inline",
    carriers=Carrier.RELAY,
    last=Stage.LOWERED,
)
CLOSURE = declare(
    "Closure",
    MARK,
    "the function's result is a function over its parameters",
    writers="LambdaLift",
    readers="ManifestAlloc, the virtual machine's code generator",
    carriers=Carrier.OPEN,
    last=Stage.LOWERED,
)
CHECKPOINT = declare(
    "annotation.checkpoint",
    MARK,
    "the function's body is computed again in the backward pass",
    writers="Gradient",
    readers="Gradient",
    carriers=Carrier.OPEN,
    last=Stage.PASS,
)

# Where values are.

PARAM_DEVICE_TYPES = declare(
    "param_device_types",
    INTEGERS,
    "DLPack's number of each parameter's device",
    writers="PlanDevices, relay.annotation.function_on_device",
    readers="PlanDevices, ForEachDevice, the executors' code generators",
    carriers=Carrier.OPEN,
    last=Stage.LOWERED,
)
RESULT_DEVICE_TYPE = declare(
    "result_device_type",
    INTEGER,
    "DLPack's number of the result's device",
    writers="PlanDevices, relay.annotation.function_on_device",
    readers="PlanDevices, ForEachDevice, the executors' code generators",
    carriers=Carrier.OPEN,
    last=Stage.LOWERED,
)
MACHINE_PARAM_DEVICES = declare(
    "vm.param_devices",
    INTEGERS,
    "the devices of main's parameters in a program of the virtual machine for several devices",
    writers="relay.backend.vm_build",
    readers="the virtual machine's code generator",
    carriers=Carrier.OPEN,
    last=Stage.LOWERED,
)

# Notes on kernels before they are lowered.

HASH = declare(
    "hash",
    TEXT,
    "the structural hash by which kernels are shared; the graph JSON carries it",
    writers="LabelOps, LowerTE",
    readers="LowerTE, the executors' code generators",
    carriers=Carrier.PRIMITIVE | Carrier.KERNEL,
    last=Stage.CODE,
)
NETWORK_WEIGHTS = declare(
    "network_weights",
    INTEGER,
    "bytes of all constants of the network",
    writers="CountWeights",
    readers="LowerTE",
    carriers=Carrier.PRIMITIVE,
    last=Stage.LOWERED,
)
PACKED_WEIGHTS = declare(
    "PackedWeights",
    INTEGERS,
    "indices of the parameters whose constants are packed as a schedule reads them",
    writers="AutoSchedulerLayoutRewrite",
    readers="the auto-scheduler's records",
    carriers=Carrier.PRIMITIVE,
    last=Stage.LOWERED,
)
REINTERPRET = declare(
    "Reinterpret",
    MARK,
    "reshapes of parameters and of the result compute nothing: the kernel reads the same bytes by other extents",
    writers="MergeRows",
    readers="LowerTE",
    carriers=Carrier.PRIMITIVE,
    last=Stage.RELAY,
)
SLACK = declare(
    "room",
    INTEGER_PAIRS,
    "pairs of a parameter's index and the axis behind which its memory has slack",
    writers="MarkSlack",
    readers="LowerTE",
    carriers=Carrier.PRIMITIVE,
    last=Stage.RELAY,
)

# Views, and where they are called: PlanViews writes marks on functions, LowerTE moves those of calls to the calls.

VIEW = declare(
    "view",
    TEXT,
    '"reshape", "join" or "cut": the function moves nothing, its result lies in memory that is there',
    writers="PlanViews",
    readers="LowerTE, the graph executor's code generator",
    carriers=Carrier.PRIMITIVE,
    last=Stage.LOWERED,
)
OFFSETS = declare(
    "offsets",
    INTEGERS,
    "bytes from the start of a view's memory to each of its parts",
    writers="PlanViews",
    readers="the graph executor's code generator",
    carriers=Carrier.PRIMITIVE,
    last=Stage.LOWERED,
)
RUN_ONCE = declare(
    "run_once",
    MARK,
    "the kernel runs once, before the first run of the graph; on a call too",
    writers="PlanViews",
    readers="LowerTE, the graph executor's code generator",
    carriers=Carrier.PRIMITIVE,
    last=Stage.RELAY,
)
IN_PLACE = declare(
    "in_place",
    MARK,
    "the kernel copies a tensor to its place in a view; on a call too",
    writers="PlanViews",
    readers="LowerTE, the graph executor's code generator",
    carriers=Carrier.PRIMITIVE,
    last=Stage.RELAY,
)

# What the virtual machine's main carries.

INTERFACE = declare(
    "interface",
    TEXT,
    "types of main's inputs and outputs, a line each, that are checked at every call",
    writers="relay.backend.vm_build",
    readers="the virtual machine's code generator",
    carriers=Carrier.OPEN,
    last=Stage.LOWERED,
)
SPECIALIZATIONS = declare(
    "specialised",
    TEXT,
    "JSON: pairs of the name of a specialization of main and its guard",
    writers="relay.backend.vm_specialize",
    readers="the virtual machine's code generator",
    carriers=Carrier.OPEN,
    last=Stage.LOWERED,
)
IS_SPECIALIZATION = declare(
    "version",
    MARK,
    "the function is a specialization of main",
    writers="relay.backend.vm_specialize",
    readers="AppendInPlace, MarkSlack, the virtual machine's code generator",
    carriers=Carrier.OPEN,
    last=Stage.LOWERED,
)
TAKES_SLACK = declare(
    "takes_room",
    INTEGERS,
    "indices of main's parameters that may be views of memory with slack",
    writers="MarkSlack",
    readers="the virtual machine's code generator",
    carriers=Carrier.OPEN,
    last=Stage.LOWERED,
)

# What LowerTE notes on kernels.

IMPLEMENTATION = declare(
    "implementation",
    TEXT,
    "the name of the strategy's implementation",
    writers="LowerTE",
    readers="reports",
    carriers=Carrier.KERNEL,
    last=Stage.CODE,
)
SCHEDULE = declare(
    "schedule",
    TEXT,
    "the schedule's choices in words",
    writers="LowerTE",
    readers="reports",
    carriers=Carrier.KERNEL,
    last=Stage.CODE,
)
SCHEDULE_REASON = declare(
    "schedule_reason",
    TEXT,
    "why the schedule has these choices: a tuning record, or none",
    writers="LowerTE",
    readers="reports",
    carriers=Carrier.KERNEL,
    last=Stage.CODE,
)
LAYOUTS = declare(
    "layouts",
    TEXT_PAIRS,
    "the operators' layout attributes, which the graph JSON carries",
    writers="LowerTE",
    readers="the graph executor's code generator",
    carriers=Carrier.KERNEL,
    last=Stage.CODE,
)
SHAPE_FUNCTION = declare(
    "shape_function",
    TEXT,
    "the name of the PrimFunc that computes the shapes of the results",
    writers="LowerTE",
    readers="verify_lowered, the virtual machine's code generator",
    carriers=Carrier.KERNEL | Carrier.EXTERNAL,
    last=Stage.CODE,
)
SHAPE_INPUTS = declare(
    "shape_inputs",
    INTEGERS,
    "indices of the arguments whose shapes the shape function reads",
    writers="LowerTE",
    readers="the virtual machine's code generator",
    carriers=Carrier.KERNEL | Carrier.EXTERNAL,
    last=Stage.CODE,
)
SHAPE_VALUES = declare(
    "shape_values",
    INTEGERS,
    "indices of the arguments whose elements the shape function reads",
    writers="LowerTE",
    readers="the virtual machine's code generator",
    carriers=Carrier.KERNEL | Carrier.EXTERNAL,
    last=Stage.CODE,
)
SHAPE_CHECKS = declare(
    "shape_checks",
    MARK,
    "the shape function checks what the operators take for granted",
    writers="LowerTE",
    readers="the virtual machine's code generator",
    carriers=Carrier.KERNEL | Carrier.EXTERNAL,
    last=Stage.CODE,
)
MOVES_NOTHING = declare(
    "moves_nothing",
    MARK,
    "the kernel's result is its first argument in another shape",
    writers="LowerTE",
    readers="the virtual machine's code generator",
    carriers=Carrier.KERNEL,
    last=Stage.CODE,
)

# Of modules.

OUTPUT_NAMES = declare(
    "output_names",
    TEXTS,
    "names of main's results",
    writers="importers",
    readers="the executors' code generators",
    carriers=Carrier.MODULE,
    last=Stage.CODE,
)
STATE_INPUTS = declare(
    "state_inputs",
    TEXTS,
    "parameters of main that keep values from run to run: the result called NAME.next is the next value of NAME",
    writers="from_exported_program, from_tflite",
    readers="tilewright.compile",
    carriers=Carrier.MODULE,
    last=Stage.CODE,
)

__all__ = [
    "CHECKPOINT",
    "CLOSURE",
    "COMPILER",
    "COMPOSITE",
    "DEVICE_TYPE",
    "GLOBAL_SYMBOL",
    "HASH",
    "IMPLEMENTATION",
    "INLINE",
    "INTERFACE",
    "IN_PLACE",
    "IS_SPECIALIZATION",
    "LAYOUTS",
    "MACHINE_PARAM_DEVICES",
    "MOVES_NOTHING",
    "NETWORK_WEIGHTS",
    "OFFSETS",
    "OUTPUT_NAMES",
    "PACKED_WEIGHTS",
    "PARAM_DEVICE_TYPES",
    "PARTITIONED_FROM",
    "PRIMITIVE",
    "REINTERPRET",
    "RESULT_DEVICE_TYPE",
    "RUN_ONCE",
    "SCHEDULE",
    "SCHEDULE_REASON",
    "SHAPE_CHECKS",
    "SHAPE_FUNCTION",
    "SHAPE_INPUTS",
    "SHAPE_VALUES",
    "SKIP_OPTIMIZATION",
    "SLACK",
    "SPECIALIZATIONS",
    "STATE_INPUTS",
    "TAKES_SLACK",
    "TARGET",
    "VIEW",
    "declared_attributes",
]  # fmt: skip
