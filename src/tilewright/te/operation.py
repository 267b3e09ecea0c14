"""Operations of tensor expressions: the computations behind tensors.

Grammar::

    op ::= PlaceholderOp(shape, dtype, read_between)          an input
         | ComputeOp(axis*, reduce_axis*, body*)              body[k] is element ``axis`` of output k
         | TensorComputeOp(axis*, reduce_axis*, intrin, ...)  whole blocks of the output by a tensor intrinsic
         | ScanOp(scan_axis, init*, update*, state*)          state[t] from state[t-1], state[t-2], ...
         | ExternOp(inputs*, buffers, body)                   hand-written statements
         | HybridOp(inputs*, buffers, body, axis*)            such, whose loops a schedule may change

The functions that declare operations (``te.compute`` and the others) are in ``te/declare.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from tilewright.ir import walk
from tilewright.ir.attrs import DictAttrs
from tilewright.ir.errors import TilewrightError
from tilewright.ir.memory import Buffer
from tilewright.ir.node import Node
from tilewright.ir.prim_expr import IntImm, PrimExpr, Var
from tilewright.te.tensor import Tensor
from tilewright.tir.expr import IterVar, IterVarType, ProducerLoad, Range, Reduce
from tilewright.tir.stmt import Stmt


class Operation(Node):
    """Base of operations; identity matters."""

    name: str
    tag: str
    attrs: DictAttrs
    __slots__ = ("_inputs", "_outputs")

    @property
    def num_outputs(self) -> int:
        """The number of output tensors."""
        return 1

    def output_shape(self, index: int) -> tuple[PrimExpr, ...]:
        """Return the shape of output ``index``."""
        raise TypeError(f"{type(self).__name__} does not define output_shape()")

    def output_dtype(self, index: int) -> str:
        """Return the dtype of output ``index``."""
        raise TypeError(f"{type(self).__name__} does not define output_dtype()")

    def _find_inputs(self) -> tuple[Tensor, ...]:
        return ()

    def output(self, index: int) -> Tensor:
        """Output tensor ``index``: always the same object."""
        outputs: tuple[Tensor, ...] | None = getattr(self, "_outputs", None)
        if outputs is None:
            outputs = tuple(
                Tensor(self.output_shape(k), self.output_dtype(k), self, k) for k in range(self.num_outputs)
            )
            object.__setattr__(self, "_outputs", outputs)
        return outputs[index]

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """All output tensors."""
        return tuple(self.output(k) for k in range(self.num_outputs))

    @property
    def input_tensors(self) -> tuple[Tensor, ...]:
        """The tensors that are read, each once, in the order in which they appear."""
        inputs: tuple[Tensor, ...] | None = getattr(self, "_inputs", None)
        if inputs is None:
            inputs = self._find_inputs()
            object.__setattr__(self, "_inputs", inputs)
        return inputs

    @property
    def root_iter_vars(self) -> tuple[IterVar, ...]:
        """The iteration variables before any schedule."""
        return ()

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.name})"


class PlaceholderOp(Operation):
    """An input tensor.

    ``read_between``: bytes that the program is known to read between two runs of the kernel that this is an input of; 0
    for a kernel alone. Data that no cache holds besides them comes from memory.
    """

    shape: tuple[PrimExpr, ...]
    dtype: str
    read_between: int = 0

    def output_shape(self, index: int) -> tuple[PrimExpr, ...]:
        """The declared shape."""
        return self.shape

    def output_dtype(self, index: int) -> str:
        """The declared dtype."""
        return self.dtype


class BaseComputeOp(Operation):
    """An operation with data-parallel axes and reduction axes."""

    axis: tuple[IterVar, ...]
    reduce_axis: tuple[IterVar, ...]

    @property
    def root_iter_vars(self) -> tuple[IterVar, ...]:
        """The axes, then the reduction axes."""
        return self.axis + self.reduce_axis

    def output_shape(self, index: int) -> tuple[PrimExpr, ...]:
        """Extents of the axes."""
        return tuple(iv.dom.extent for iv in self.axis if iv.dom is not None)


class ComputeParts:
    """Base of the ``parts`` of a compute of several steps: a frozen dataclass of its tensors, for the schedule."""


class ComputeOp(BaseComputeOp):
    """Outputs defined element by element: ``out_k[axis] = body[k]``.

    ``parts``, on the last of several steps, names the others for the schedule; whoever rebuilds the operation passes it
    on.
    """

    body: tuple[PrimExpr, ...]
    parts: ComputeParts | None

    def __init__(
        self,
        name: str,
        tag: str,
        attrs: DictAttrs | Mapping[str, Any] | None,
        axis: Sequence[IterVar],
        body: Sequence[PrimExpr],
        reduce_axis: Sequence[IterVar] | None = None,
        parts: ComputeParts | None = None,
    ) -> None:
        body = tuple(body)
        if not body:
            raise TilewrightError(f"compute {name}: the body is empty")
        if reduce_axis is None:
            reduce_axis = body[0].axis if isinstance(body[0], Reduce) else ()
        self._init(name, tag, as_attrs(attrs), tuple(axis), tuple(reduce_axis), body, parts)
        _check_reductions(self)

    def with_body(self, body: Sequence[PrimExpr]) -> ComputeOp:
        """Return the operation with another body over the same axes; the caller guarantees that it is well formed."""
        op = object.__new__(ComputeOp)
        op._init(self.name, self.tag, self.attrs, self.axis, self.reduce_axis, tuple(body), self.parts)
        return op

    @property
    def num_outputs(self) -> int:
        return len(self.body)

    def output_dtype(self, index: int) -> str:
        return self.body[index].dtype

    @property
    def data_axes(self) -> tuple[IterVar, ...]:
        """The reduction axes whose ends are read from tensors, as ``te.reduce_axis((0, count[i]))``."""
        return tuple(iv for iv in self.reduce_axis if producer_loads(_ends_to_read(iv)))

    def loads(self) -> list[ProducerLoad]:
        """Return the distinct tensor reads of the body, and then those of the reduction axes' ends."""
        return producer_loads([*self.body, *(end for iv in self.reduce_axis for end in _ends_to_read(iv))])

    def _find_inputs(self) -> tuple[Tensor, ...]:
        return unique_tensors(load.producer for load in self.loads())


class TensorComputeOp(BaseComputeOp):
    """Outputs computed block by block by a tensor intrinsic.

    ``axis`` holds the loops outside the block, then the block's own axes; ``schedulable_ndim`` counts the former.
    ``input_regions[k]`` is the region of ``inputs[k]`` that the intrinsic's input k stands for.
    """

    schedulable_ndim: int
    intrin: Any
    inputs: tuple[Tensor, ...]
    input_regions: tuple[tuple[Range, ...], ...]
    scalar_inputs: tuple[PrimExpr, ...]

    @property
    def num_outputs(self) -> int:
        """The intrinsic's outputs."""
        return int(self.intrin.op.num_outputs)

    def output_dtype(self, index: int) -> str:
        """The dtype of the intrinsic's output."""
        return str(self.intrin.op.output_dtype(index))

    @property
    def root_iter_vars(self) -> tuple[IterVar, ...]:
        """The axes outside the block, and the reduction axes."""
        return self.axis[: self.schedulable_ndim] + self.reduce_axis

    def _find_inputs(self) -> tuple[Tensor, ...]:
        return unique_tensors(self.inputs)


class ScanOp(Operation):
    """A recurrence along the first dimension."""

    scan_axis: IterVar
    init: tuple[Tensor, ...]
    update: tuple[Tensor, ...]
    state_placeholder: tuple[Tensor, ...]
    inputs: tuple[Tensor, ...]
    spatial_axis: tuple[IterVar, ...]

    def __init__(
        self,
        name: str,
        tag: str,
        attrs: DictAttrs | Mapping[str, Any] | None,
        scan_axis: IterVar,
        init: Sequence[Tensor],
        update: Sequence[Tensor],
        state_placeholder: Sequence[Tensor],
        inputs: Sequence[Tensor] = (),
        spatial_axis: Sequence[IterVar] | None = None,
    ) -> None:
        if spatial_axis is None:
            spatial_axis = [
                IterVar(Range(0, extent), f"{name}.out{k}.i{d}", IterVarType.Opaque)
                for k, state in enumerate(update)
                for d, extent in enumerate(state.shape[1:], 1)
            ]
        self._init(
            name, tag, as_attrs(attrs), scan_axis, tuple(init), tuple(update), tuple(state_placeholder),
            tuple(inputs), tuple(spatial_axis),
        )  # fmt: skip

    @property
    def num_outputs(self) -> int:
        return len(self.update)

    def output_shape(self, index: int) -> tuple[PrimExpr, ...]:
        """The shape of the state."""
        return self.state_placeholder[index].shape

    def output_dtype(self, index: int) -> str:
        """The dtype of the state."""
        return self.update[index].dtype

    def _find_inputs(self) -> tuple[Tensor, ...]:
        return unique_tensors(self.init + self.update)

    @property
    def root_iter_vars(self) -> tuple[IterVar, ...]:
        """The scan axis, then the spatial axes of each state."""
        return (self.scan_axis, *self.spatial_axis)

    @property
    def spatial_axis_(self) -> tuple[IterVar, ...]:
        """TVM's name of ``spatial_axis``."""
        return self.spatial_axis

    def state_axes(self, index: int) -> tuple[IterVar, ...]:
        """The spatial axes of state ``index``."""
        start = sum(len(s.shape) - 1 for s in self.update[:index])
        return self.spatial_axis[start : start + len(self.update[index].shape) - 1]


class ExternOp(Operation):
    """Statements over buffers: ``input_placeholders`` stand for ``inputs``, ``output_placeholders`` for outputs."""

    inputs: tuple[Tensor, ...]
    input_placeholders: tuple[Buffer, ...]
    output_placeholders: tuple[Buffer, ...]
    body: Stmt

    @property
    def num_outputs(self) -> int:
        return len(self.output_placeholders)

    def output_shape(self, index: int) -> tuple[PrimExpr, ...]:
        """The buffer's shape."""
        return self.output_placeholders[index].shape

    def output_dtype(self, index: int) -> str:
        """The buffer's dtype."""
        return self.output_placeholders[index].dtype

    def _find_inputs(self) -> tuple[Tensor, ...]:
        return unique_tensors(self.inputs)


class HybridOp(ExternOp):
    """A hybrid script's computation: statements whose loops are the operation's axes, in the order of the text."""

    axis: tuple[IterVar, ...]

    @property
    def root_iter_vars(self) -> tuple[IterVar, ...]:
        """The loops of the body."""
        return self.axis


def as_attrs(attrs: DictAttrs | Mapping[str, Any] | None) -> DictAttrs:
    """Convert a mapping to ``DictAttrs``."""
    return attrs if isinstance(attrs, DictAttrs) else DictAttrs(attrs)


def unique_tensors(tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """Return the distinct tensors in order of first appearance."""
    return tuple(dict.fromkeys(tensors))


def sub_expressions(roots: Iterable[PrimExpr]) -> list[PrimExpr]:
    """Return every distinct expression below ``roots``, operands before their users."""
    return walk.post_order(roots, _operands)


def _operands(expr: PrimExpr) -> list[PrimExpr]:
    found: list[PrimExpr] = []
    for name, is_tuple in _child_fields(type(expr)):
        if is_tuple:
            found += getattr(expr, name)
        else:
            found.append(getattr(expr, name))
    return found


@cache
def _child_fields(cls: type[PrimExpr]) -> tuple[tuple[str, bool], ...]:
    """Return the fields of a class that hold an expression or (True) a tuple of them."""
    annotations = {name: str(a) for base in cls.__mro__ for name, a in vars(base).get("__annotations__", {}).items()}
    kinds = [(f, annotations[f]) for f in cls._fields]
    return tuple(
        (f, kind != "PrimExpr") for f, kind in kinds if kind == "PrimExpr" or kind.startswith("tuple[PrimExpr")
    )


def producer_loads(roots: Iterable[PrimExpr]) -> list[ProducerLoad]:
    """Return the distinct tensor reads below ``roots``, inner ones first."""
    return [e for e in sub_expressions(roots) if isinstance(e, ProducerLoad)]


def _ends_to_read(axis: IterVar) -> list[PrimExpr]:
    """Return the minimum and the extent of an axis; none where they are literals or variables."""
    ends = () if axis.dom is None else (axis.dom.min, axis.dom.extent)
    return [end for end in ends if not isinstance(end, (IntImm, Var))]


def _check_reductions(op: ComputeOp) -> None:
    first = op.body[0]
    if isinstance(first, Reduce):
        for other in op.body[1:]:
            same = isinstance(other, Reduce) and all(
                getattr(other, f) == getattr(first, f) for f in ("combiner", "source", "axis", "condition", "init")
            )
            if not same:
                raise TilewrightError(f"compute {op.name}: all outputs must come from one and the same reduction")
        roots: list[PrimExpr] = [*first.source, first.condition, *first.init]
    else:
        roots = list(op.body)
    if any(isinstance(e, Reduce) for e in sub_expressions(roots)):
        raise TilewrightError(
            f"compute {op.name}: a reduction stands inside a larger expression; reductions are allowed only as the "
            "whole body of a compute: give the reduction a compute of its own and use its result"
        )
