"""The kernels of a compiled model: which kind, what shapes, how much work, and what the cost models say of them."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tilewright.doctor import peak
from tilewright.ir import dtype as dt
from tilewright.ir.op import Op
from tilewright.ir.type import TensorType, TupleType, Type
from tilewright.relay.expr import Call, Function
from tilewright.relay.op.definition import OpPattern
from tilewright.relay.op.nn.conv_common import canonical_shape
from tilewright.relay.visitor import post_order
from tilewright.target.features import CpuFeatures, features
from tilewright.target.target import Target

Shape = tuple[int, ...]
OperatorCall = Any  # a Call of an Op, whose attributes are those of its name

KINDS = (
    *("conv", "depthwise", "dense", "batch_matmul", "attention", "pool", "softmax", "norm"),
    *("reduce", "elementwise", "gather", "other"),
)

EFFORTS = {
    "TReorders": "its elements change their order",
    "TTranscendental": "functions of each element cost more than to move it",
    "TIndirect": "addresses depend on data",
}
"""Traits of operators that cost more than to move the bytes, with what is to be said of them; the first counts."""


@dataclass(frozen=True)
class Kernel:
    """A distinct kernel of a compiled model.

    `traits`: those of `EFFORTS` that an operator of it has. `window`: elements of a convolution's window, 1 for other
    kernels. `flops`: two for each multiply-add of the plain method, whatever the implementation. `bytes_read`,
    `bytes_written`: sizes of arguments and results. `cost`: modelled time of one thread in vector multiply-adds at the
    machine's peak, None without a model. `calls`: how many times a run of the model calls it.
    """

    name: str
    digest: str
    kind: str
    operators: str
    traits: tuple[str, ...]
    shape: str
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    window: int
    flops: int
    bytes_read: int
    bytes_written: int
    calls: int
    implementation: str
    schedule: str
    cost: float | None

    @property
    def reuses_arguments(self) -> bool:
        """Whether arithmetic is meant to limit the kernel: not so for products with one row and depthwise windows."""
        return self.kind != "depthwise" and self.flops >= 4 * self.bytes

    @property
    def bytes(self) -> int:
        """Bytes read and written."""
        return self.bytes_read + self.bytes_written


def limit(kernel: Kernel, threads: int, machine: peak.Machine, cold: bool) -> tuple[str, float]:
    """The memory level that holds a kernel's arrays (DRAM when `cold`) and its measured GB/s.

    Of a kernel that writes little, such as a product with one row, the reading bandwidth, else that of copies.
    """
    level = "DRAM"
    if not cold and kernel.bytes <= peak.cache_bytes(3) // 2:
        level = "L2" if kernel.bytes <= peak.cache_bytes(2) * threads // 2 else "L3"
    rates = machine.read_gbps if kernel.bytes_written * 8 < kernel.bytes_read else machine.copy_gbps
    return level, rates[level][threads]


def kernels_of(factory: Any) -> Iterator[Kernel]:
    """The distinct kernels of what `relay.build` gave, in the order in which the model calls them first."""
    nodes = [node["attrs"] for node in json.loads(factory.get_graph_json())["nodes"] if node["op"] != "null"]
    nodes = [node for node in nodes if "run_once" not in node]
    names = {node["hash"]: node["func_name"] for node in nodes if "hash" in node}
    calls = Counter(node["func_name"] for node in nodes)
    report, target = factory.build_report, Target(factory.target)
    for digest, name in names.items():
        func = factory.function_metadata[name].relay_primfuncs[target]
        yield _describe(func, name, digest, calls[name], report, target)


def _operators(func: Function) -> tuple[list[OperatorCall], OperatorCall]:
    """The operators of a kernel, and the one whose schedule it has."""
    found: list[OperatorCall] = [e for e in post_order(func.body) if isinstance(e, Call) and isinstance(e.op, Op)]
    return found, max(found, key=lambda c: c.op.get_attr("TOpPattern", OpPattern.OPAQUE))


def _describe(func: Function, name: str, digest: str, calls: int, report: Any, target: Target) -> Kernel:
    operators, anchor = _operators(func)
    inputs = tuple(t for p in func.params for t in _tensors(p.checked_type))
    outputs = _tensors(func.body.checked_type)
    return Kernel(
        name,
        digest,
        kind_of(anchor),
        " ".join(c.op.name.removeprefix("nn.").removeprefix("contrib_") for c in operators),
        tuple(trait for trait in EFFORTS if any(c.op.get_attr(trait) for c in operators)),
        label(anchor),
        inputs,
        outputs,
        _window(anchor)[0],
        sum(flops_of(c) for c in operators),
        sum(map(nbytes, inputs)),
        sum(map(nbytes, outputs)),
        calls,
        report.implementations[name],
        report.schedules[name],
        modelled_cost(_operators(func)[1], features(target)),
    )


def kind_of(call: OperatorCall) -> str:
    """Which of `KINDS` an operator call is, as its operator says, or else its pattern."""
    kind, pattern = call.op.get_attr("TKernelKind"), call.op.get_attr("TOpPattern", OpPattern.OPAQUE)
    if kind is not None:
        grouped = _window(call)[1] == 1 and int(getattr(call.attrs, "groups", 1)) > 1
        return "depthwise" if grouped else str(kind)
    if pattern <= OpPattern.INJECTIVE:
        return "elementwise"
    return "reduce" if pattern == OpPattern.COMM_REDUCE else "other"


def flops_of(call: OperatorCall) -> int:
    """Two operations for each multiply-add of a convolution, product or attention; 0 for other operators."""
    multiply_adds = call.op.get_attr("FMultiplyAdds")
    return 0 if multiply_adds is None else 2 * int(multiply_adds(call))


def _window(call: OperatorCall) -> tuple[int, int]:
    """Elements of a convolution's window and input channels of a group; 1 and 0 of other operators."""
    window = call.op.get_attr("FWindow")
    return (1, 0) if window is None else window(call)


def label(call: OperatorCall) -> str:
    """The shapes of an operator call: m x k x n of products, logical ones of convolutions, else all as they are."""
    kind, result = kind_of(call), _shape(call)
    if kind == "dense":
        *rows, columns = result
        return f"{math.prod(rows)} x {flops_of(call) // (2 * math.prod(result) or 1)} x {columns}"
    if kind in ("conv", "depthwise") and getattr(call.attrs, "kernel_size", None) is not None:
        rank = len(call.attrs.kernel_size)
        data, out = (
            canonical_shape(_tensors(e.checked_type)[0].shape, layout, "NC" + "DHW"[3 - rank :], "data")
            for e, layout in (
                (call.args[0], call.attrs.data_layout),
                (call, call.attrs.out_layout or call.attrs.data_layout),
            )
        )
        strides = max(int(s) for s in call.attrs.strides)
        return f"{_by(data)}, {_by(call.attrs.kernel_size)}{f'/{strides}' if strides > 1 else ''} -> {_by(out[1:])}"
    arguments = [t for arg in call.args for t in _tensors(arg.checked_type)]
    text = " ".join(_by(t.concrete_shape) for t in arguments[:3]) + " ..." * (len(arguments) > 3) + " -> " + _by(result)
    return text + (
        f", {_by(call.attrs.pool_size)}/{int(call.attrs.strides[0])}" if hasattr(call.attrs, "pool_size") else ""
    )


def modelled_cost(call: OperatorCall, cpu: CpuFeatures) -> float | None:
    """The cost model's time of one thread in vector multiply-adds at the machine's peak; None without a model."""
    cost = call.op.get_attr("FModelledCost")
    known = isinstance(call.checked_type, TensorType) and call.checked_type.dtype == "float32"
    return cost(call, cpu) if known and cost is not None else None


def _tensors(type_: Type) -> tuple[TensorType, ...]:
    if isinstance(type_, TupleType):
        return tuple(t for item in type_.fields for t in _tensors(item))
    assert isinstance(type_, TensorType)
    return (type_,)


def _shape(expr: Any) -> Shape:
    return tuple(int(extent) for extent in _tensors(expr.checked_type)[0].concrete_shape)


def nbytes(type_: TensorType) -> int:
    """Bytes of a tensor of known shape."""
    return math.prod(type_.concrete_shape) * dt.nbytes(type_.dtype)


def _by(extents: Any) -> str:
    return "x".join(str(int(extent)) for extent in extents) or "scalar"
