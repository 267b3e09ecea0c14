"""Declaring tensor expressions: ``te.placeholder``, ``te.compute``, ``te.extern``, ``te.scan``, and axes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import TilewrightError
from tilewright.ir.memory import Buffer, decl_buffer
from tilewright.ir.prim_expr import PrimExpr, SizeVar, Var
from tilewright.ir.type import as_shape
from tilewright.te.operation import ComputeOp, ComputeParts, ExternOp, PlaceholderOp, ScanOp, as_attrs
from tilewright.te.tag import resolve_tag
from tilewright.te.tensor import Tensor
from tilewright.te.tensorize import TensorIntrinCall
from tilewright.tir.expr import IterVar, IterVarType, Range
from tilewright.tir.stmt import Evaluate, Stmt


def var(name: str = "tindex", dtype: str = "int32", span: object = None) -> Var:
    """Create a variable."""
    return Var(name, dtype)


def size_var(name: str = "size", dtype: str = "int32", span: object = None) -> SizeVar:
    """Create a variable that is known to be non-negative, for dimensions of shapes."""
    return SizeVar(name, dtype)


def const(value: Any, dtype: str | None = None, span: object = None) -> PrimExpr:
    """Create a literal; int32, float32 or bool by default."""
    return ops.const(value, dtype)


def placeholder(shape: Any, dtype: str | None = None, name: str = "placeholder", read_between: int = 0) -> Tensor:
    """Declare an input tensor.

    Parameters
    ----------
    shape : int, expression, or sequence of these
    dtype : float32 by default
    read_between : bytes that the program reads between two runs of the kernel, as far as is known
    """
    kind = dt.in_full(dtype or "float32")
    return PlaceholderOp(name, "", as_attrs(None), as_shape(shape), kind, read_between).output(0)


def compute(
    shape: Any,
    fcompute: Callable[..., Any],
    name: str = "compute",
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
    varargs_names: Sequence[str] | None = None,
    parts: ComputeParts | None = None,
) -> Any:
    """Declare a tensor by the value of each of its elements.

    Parameters
    ----------
    shape : the output's shape
    fcompute : (*indices) -> expression, or list of expressions for several outputs of one shape
    tag : the kind of the operation, which schedules look up
    attrs : further information for schedules
    varargs_names : names of the indices when ``fcompute`` takes ``*indices``
    parts : the tensors of a compute of several steps, for its schedule

    Returns
    -------
    The output tensor, or the list of them when ``fcompute`` returns several values.
    """
    tag = resolve_tag(tag)
    dims = _of_one_width(as_shape(shape))
    names = _index_names(fcompute, len(dims), name, varargs_names)
    axis = [IterVar(Range(0, extent), n, IterVarType.DataPar) for n, extent in zip(names, dims, strict=False)]
    body = fcompute(*[iv.var for iv in axis])
    if isinstance(body, TensorIntrinCall):
        return body.as_compute(name, tag, attrs, axis, dims)
    if len(axis) != len(dims):
        raise TilewrightError(
            f"compute {name}: the shape has {len(dims)} dimensions, the function takes {len(axis)} indices"
        )
    bodies = [_as_body(name, b) for b in (body if isinstance(body, (list, tuple)) else [body])]
    op = ComputeOp(name, tag, attrs, axis, bodies, parts=parts)
    outputs = list(op.outputs)
    return outputs[0] if len(outputs) == 1 else outputs


def _of_one_width(dims: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
    """Return dimensions of which one has 64 bits in 64 bits, so that loops over several of them can be fused."""
    wide = any(d.dtype == "int64" for d in dims)
    return tuple(ops.cast("int64", d) if d.dtype == "int32" else d for d in dims) if wide else dims


def _as_body(name: str, value: Any) -> PrimExpr:
    try:
        return ops.as_expr(value)
    except TypeError:
        hint = "index the tensor, as in A[i, j]" if isinstance(value, Tensor) else "return a scalar expression"
        raise TilewrightError(
            f"compute {name}: the function gives a {type(value).__name__} for an element; {hint}"
        ) from None


def _index_names(function: Any, ndim: int, name: str, varargs_names: Sequence[str] | None) -> list[str]:
    parameters = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if any(p.kind == p.VAR_POSITIONAL for p in parameters):
        rest = ndim - len(positional)
        given = list(varargs_names) if varargs_names is not None else [f"i{d}" for d in range(len(positional), ndim)]
        if len(given) != rest:
            raise TilewrightError(f"compute {name}: {rest} indices are free, but varargs_names has {len(given)}")
        positional += given
    if len(positional) > ndim:
        raise TilewrightError(
            f"compute {name}: the shape has {ndim} dimensions, but the function takes {len(positional)} indices"
        )
    return positional


def scan(
    init: Tensor | Sequence[Tensor],
    update: Tensor | Sequence[Tensor],
    state_placeholder: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor] | None = None,
    name: str = "scan",
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
) -> Any:
    """Declare a recurrence along the first dimension.

    Parameters
    ----------
    init : the first steps of each state, shape (k, ...)
    update : each state at step t, written in terms of ``state_placeholder`` at earlier steps
    state_placeholder : placeholders that stand for the states, shape (T, ...)
    inputs : other tensors that the update reads

    Returns
    -------
    The states, each of the shape of its placeholder.
    """
    tag = resolve_tag(tag)
    inits, updates, states = _as_list(init), _as_list(update), _as_list(state_placeholder)
    if not len(inits) == len(updates) == len(states) or not inits:
        raise TilewrightError(
            f"scan {name}: init, update and state_placeholder need one tensor for each state, "
            f"got {len(inits)}, {len(updates)} and {len(states)}"
        )
    for i, u, s in zip(inits, updates, states, strict=True):
        if not i.dtype == u.dtype == s.dtype or not i.ndim == u.ndim == s.ndim:
            raise TilewrightError(
                f"scan {name}: init, update and state {s.name} differ in dtype or number of dimensions"
            )
    low = inits[0].shape[0]
    axis = IterVar(Range.from_min_extent(low, updates[0].shape[0] - low), f"{name}.idx", IterVarType.Ordered)
    op = ScanOp(name, tag, attrs, axis, inits, updates, states, _as_list(inputs) if inputs is not None else [])
    return op.output(0) if op.num_outputs == 1 else list(op.outputs)


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def extern(
    shape: Any,
    inputs: Sequence[Tensor],
    fcompute: Callable[[list[Buffer], list[Buffer]], Any],
    name: str = "extern",
    dtype: str | Sequence[str] | None = None,
    in_buffers: Buffer | Sequence[Buffer] | None = None,
    out_buffers: Buffer | Sequence[Buffer] | None = None,
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
) -> Any:
    """Declare tensors that hand-written statements, or a call of an external function, compute.

    Parameters
    ----------
    shape : the output's shape, or a list of shapes
    fcompute : (input buffers, output buffers) -> statement, or call expression
    dtype : of the outputs; by default that of the inputs, which must then agree
    in_buffers, out_buffers : buffers to use instead of compact ones

    Returns
    -------
    The output tensor, or the list of them.
    """
    tag = resolve_tag(tag)
    shapes = list(shape) if isinstance(shape, (list, tuple)) else [shape]
    if not shapes or not isinstance(shapes[0], (list, tuple)):
        shapes = [tuple(shapes)]
    ins = _extern_inputs(name, inputs, in_buffers)
    outs = _as_list(out_buffers) if out_buffers is not None else _extern_outputs(name, shapes, dtype, inputs)
    if len(outs) != len(shapes):
        raise TilewrightError(f"extern {name}: {len(shapes)} shapes are given, but {len(outs)} output buffers")
    body = fcompute(ins, outs)
    if isinstance(body, PrimExpr):
        body = Evaluate(body)
    if not isinstance(body, Stmt):
        raise TilewrightError(
            f"extern {name}: the function gives a {type(body).__name__}; return a statement or a call expression"
        )
    op = ExternOp(name, tag, as_attrs(attrs), tuple(inputs), tuple(ins), tuple(outs), body)
    return op.output(0) if op.num_outputs == 1 else list(op.outputs)


def _extern_inputs(name: str, inputs: Sequence[Tensor], given: Any) -> list[Buffer]:
    for t in inputs:
        if not isinstance(t, Tensor):
            raise TilewrightError(f"extern {name}: inputs are tensors, got {type(t).__name__}")
    if given is None:
        return [decl_buffer(t.shape, t.dtype, t.op.name) for t in inputs]
    buffers = _as_list(given)
    if len(buffers) != len(inputs):
        raise TilewrightError(f"extern {name}: {len(inputs)} inputs are given, but {len(buffers)} input buffers")
    return buffers


def _extern_outputs(name: str, shapes: list[Any], dtype: Any, inputs: Sequence[Tensor]) -> list[Buffer]:
    if dtype is None:
        kinds = list(dict.fromkeys(t.dtype for t in inputs))
        if len(kinds) != 1:
            raise TilewrightError(
                f"extern {name}: the output dtype is not clear from the inputs ({kinds}); give dtype="
            )
        dtype = kinds[0]
    dtypes = [dtype] * len(shapes) if isinstance(dtype, str) else list(dtype)
    if len(dtypes) != len(shapes):
        raise TilewrightError(f"extern {name}: {len(shapes)} shapes are given, but {len(dtypes)} dtypes")
    return [decl_buffer(s, d, name) for s, d in zip(shapes, dtypes, strict=True)]


def extern_primfunc(input_tensors: Sequence[Tensor], primfunc: Any, name: str = "extern", tag: str = "") -> Any:
    """Declare the outputs of a TIR function: its first buffers are ``input_tensors``, the rest are outputs."""
    buffers = [primfunc.buffer_map[p] for p in primfunc.params]
    if len(input_tensors) >= len(buffers):
        raise TilewrightError(f"extern_primfunc {name}: the function has no output buffer besides the inputs")
    count = len(input_tensors)
    op = ExternOp(
        name, resolve_tag(tag), as_attrs({"primfunc": primfunc}), tuple(input_tensors), tuple(buffers[:count]),
        tuple(buffers[count:]), primfunc.body,
    )  # fmt: skip
    return op.output(0) if op.num_outputs == 1 else list(op.outputs)


def reduce_axis(dom: Any, name: str = "rv", thread_tag: str = "", span: object = None) -> IterVar:
    """Create a reduction axis over ``dom``: a Range or a (begin, end) pair."""
    return IterVar(_as_range(dom), name, IterVarType.CommReduce, thread_tag)


def thread_axis(dom: Any = None, tag: str = "", name: str = "", span: object = None) -> IterVar:
    """Create a thread axis: ``te.thread_axis("threadIdx.x")``, ``te.thread_axis((0, 8), "vthread")``.

    Parameters
    ----------
    dom : the threads' range: an extent, a (begin, end) pair, or None to take the bound axis's; or the tag
    tag : blockIdx.x, threadIdx.x, vthread, cthread or pipeline
    """
    if isinstance(dom, str):
        dom, tag = None, dom
    if not tag:
        raise TilewrightError("thread_axis needs a tag, such as 'threadIdx.x' or 'vthread'")
    return IterVar(None if dom is None else _as_range(dom), name or tag, IterVarType.ThreadIndex, tag)


def _as_range(dom: Any) -> Range:
    if isinstance(dom, Range):
        return dom
    if isinstance(dom, (list, tuple)):
        if len(dom) != 2:
            raise TilewrightError(f"a range is (begin, end), got {len(dom)} values")
        return Range(dom[0], dom[1])
    return Range(0, dom)
