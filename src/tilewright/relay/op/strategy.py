"""Choice among implementations of an operator, and the wrappers that adapt topi functions to operator hooks.

A strategy is a list of specializations; each holds, under an optional condition on symbolic shapes, implementations
with priorities. The back end takes the tuned implementation if there is a record, else the one of highest ``plevel``::

    strategy = OpStrategy()
    schedule = wrap_topi_schedule(topi.generic.schedule_conv2d_nchw)
    strategy.add_implementation(wrap_compute_conv2d(topi.nn.conv2d_nchw), schedule, "conv2d_nchw.generic")
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from tilewright.arith import Analyzer
from tilewright.ir import prim_ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.relay.op.attributes import ints

Compute = Callable[[Any, Sequence[Any], Any], Any]
Schedule = Callable[[Any, Sequence[Any], Any], Any]


class SpecializedCondition:
    """A conjunction of conditions under which implementations are valid; a context manager, as in TVM.

    ``with SpecializedCondition(batch > 16): strategy.add_implementation(...)``
    """

    _local: ClassVar[threading.local] = threading.local()

    def __init__(self, conditions: Any) -> None:
        clauses = list(conditions) if isinstance(conditions, (list, tuple)) else [conditions]
        self.clauses: list[PrimExpr] = [prim_ops.as_expr(c) for c in clauses]

    def holds(self) -> bool:
        """Whether every condition is certainly true."""
        analyzer = Analyzer()
        return all(analyzer.can_prove(clause) for clause in self.clauses)

    @classmethod
    def current(cls) -> SpecializedCondition | None:
        """The innermost condition in force, None when there is none."""
        stack = getattr(cls._local, "stack", None)
        return stack[-1] if stack else None

    def __enter__(self) -> Self:
        if not hasattr(self._local, "stack"):
            self._local.stack = []
        self._local.stack.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        self._local.stack.pop()


@dataclass(frozen=True, eq=False)
class OpImplementation:
    """One way to compute an operator: a compute, its schedule, a name for logs and records, and a priority."""

    fcompute: Compute
    fschedule: Schedule
    name: str = "default"
    plevel: int = 10

    def compute(self, attrs: Any, inputs: Sequence[Any], out_type: Any) -> list[Any]:
        """The output tensors."""
        outs = self.fcompute(attrs, inputs, out_type)
        return list(outs) if isinstance(outs, (list, tuple)) else [outs]

    def schedule(self, attrs: Any, outs: Sequence[Any], target: Any) -> Any:
        """The schedule of a kernel whose heaviest operator this is."""
        return self.fschedule(attrs, outs, target)


@dataclass(eq=False)
class OpSpecialization:
    """Implementations that are valid under ``condition`` (None: always)."""

    condition: SpecializedCondition | None = None
    implementations: list[OpImplementation] = field(default_factory=list)

    def add_implementation(self, compute: Compute, schedule: Schedule, name: str = "default", plevel: int = 10) -> None:
        """Add one."""
        self.implementations.append(OpImplementation(compute, schedule, name, plevel))


@dataclass(eq=False)
class OpStrategy:
    """What a strategy function gives back."""

    specializations: list[OpSpecialization] = field(default_factory=list)

    def add_implementation(self, compute: Compute, schedule: Schedule, name: str = "default", plevel: int = 10) -> None:
        """Add an implementation, valid under the ``SpecializedCondition`` in force."""
        condition = SpecializedCondition.current()
        for item in self.specializations:
            if item.condition is condition:
                break
        else:
            item = OpSpecialization(condition)
            self.specializations.append(item)
        item.add_implementation(compute, schedule, name, plevel)


def one_implementation(compute: Compute, schedule: Schedule, name: str) -> OpStrategy:
    """A strategy without a choice."""
    strategy = OpStrategy()
    strategy.add_implementation(compute, schedule, name)
    return strategy


def wrap_topi_schedule(topi_schedule: Callable[..., Any]) -> Schedule:
    """A schedule ``(attrs, outs, target)`` of a topi schedule ``(outs)``."""

    def schedule(attrs: Any, outs: Sequence[Any], target: Any) -> Any:
        with target:
            return topi_schedule(outs)

    return schedule


def wrap_topi_compute(topi_compute: Callable[..., Any]) -> Compute:
    """A compute ``(attrs, inputs, out_type)`` of a topi function that takes only the input tensors."""

    def compute(attrs: Any, inputs: Sequence[Any], out_type: Any) -> list[Any]:
        return [topi_compute(*inputs)]

    return compute


def output_dtype(attrs: Any, inputs: Sequence[Any]) -> str:
    """The dtype that an accumulating operator gives: the attribute ``out_dtype``, else that of the first input."""
    dtype: str = attrs.out_dtype or inputs[0].dtype
    return inputs[0].dtype if dtype == "same" else dtype


def wrap_compute_conv2d(
    topi_compute: Callable[..., Any],
    need_data_layout: bool = False,
    need_out_layout: bool = False,
    has_groups: bool = False,
) -> Compute:
    """A compute of a topi convolution ``(data, kernel, strides, padding, dilation, [groups, layouts,] out_dtype)``."""

    def compute(attrs: Any, inputs: Sequence[Any], out_type: Any) -> list[Any]:
        args: list[Any] = [
            inputs[0],
            inputs[1],
            ints(attrs.strides),
            ints(attrs.padding),
            ints(attrs.dilation),
        ]
        if has_groups:
            args.append(int(attrs.groups))
        if need_data_layout:
            args.append(attrs.data_layout)
        if need_out_layout:
            args.append(attrs.out_layout or attrs.data_layout)
        args.append(output_dtype(attrs, inputs))
        return [topi_compute(*args)]

    return compute


def wrap_compute_conv1d(topi_compute: Callable[..., Any]) -> Compute:
    """A compute of a topi 1-D convolution ``(data, kernel, strides, padding, dilation, out_dtype)``."""
    return wrap_compute_conv2d(topi_compute)


def wrap_compute_group_conv1d(topi_compute: Callable[..., Any]) -> Compute:
    """A compute of a grouped topi 1-D convolution."""
    return wrap_compute_conv2d(topi_compute, has_groups=True)


def wrap_compute_conv3d(topi_compute: Callable[..., Any], need_layout: bool = False) -> Compute:
    """A compute of a topi 3-D convolution ``(data, kernel, strides, padding, dilation, groups, out_dtype)``."""
    return wrap_compute_conv2d(topi_compute, has_groups=True)


def wrap_compute_conv2d_transpose(topi_compute: Callable[..., Any]) -> Compute:
    """A compute of a topi transposed convolution ``(data, kernel, strides, padding, out_dtype, output_padding)``."""

    def compute(attrs: Any, inputs: Sequence[Any], out_type: Any) -> list[Any]:
        dtype, extra = output_dtype(attrs, inputs), ints(attrs.output_padding)
        return [topi_compute(inputs[0], inputs[1], ints(attrs.strides), ints(attrs.padding), dtype, extra)]

    return compute


def wrap_compute_dense(topi_compute: Callable[..., Any]) -> Compute:
    """A compute of a topi dense layer ``(data, weight, bias, out_dtype)``."""

    def compute(attrs: Any, inputs: Sequence[Any], out_type: Any) -> list[Any]:
        return [topi_compute(inputs[0], inputs[1], None, output_dtype(attrs, inputs))]

    return compute


def wrap_compute_batch_matmul(topi_compute: Callable[..., Any], need_out_dtype: bool = False) -> Compute:
    """A compute of a topi batched product ``(x, y, oshape, [out_dtype, transpose_a, transpose_b])``."""

    def compute(attrs: Any, inputs: Sequence[Any], out_type: Any) -> list[Any]:
        args: list[Any] = [inputs[0], inputs[1], out_type.shape]
        if need_out_dtype:
            args += [output_dtype(attrs, inputs), bool(attrs.transpose_a), bool(attrs.transpose_b)]
        return [topi_compute(*args)]

    return compute


def wrap_compute_softmax(topi_compute: Callable[..., Any]) -> Compute:
    """A compute of a topi softmax ``(data, axis)``."""

    def compute(attrs: Any, inputs: Sequence[Any], out_type: Any) -> list[Any]:
        return [topi_compute(inputs[0], int(attrs.axis))]

    return compute
