"""TorchScript's operators of numbers, lists and strings in Python, and those that ask tensors questions.

``STRUCTURE`` makes and takes apart lists, tuples and dictionaries. ``SCALAR`` has operators whose arguments have no
tensors among them. ``QUERY`` asks a tensor, or makes a number of one. The rest are torch's own.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
from torch.utils._python_dispatch import _disable_current_modes

from tilewright.ir.errors import TilewrightError
from tilewright.relay.frontend.pytorch.values import Known, Truth, as_tensors

SCALAR_TYPES = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.float32: 6,
    torch.float64: 7,
    torch.complex32: 8,
    torch.complex64: 9,
    torch.complex128: 10,
    torch.bool: 11,
    torch.qint8: 12,
    torch.quint8: 13,
    torch.qint32: 14,
    torch.bfloat16: 15,
}
"""The numbers by which TorchScript names data types."""


# ---- lists, tuples, dictionaries ----


def _dictionary(node: Any, *items: Any) -> dict[Any, Any]:
    return dict(zip(items[::2], items[1::2], strict=True))


def _raise(node: Any, message: Any, *_: Any) -> NoReturn:
    raise TilewrightError(f"the TorchScript module raises an exception for such inputs: {message}")


STRUCTURE: dict[str, Callable[..., Any]] = {
    "prim::ListConstruct": lambda node, *items: list(items),
    "prim::TupleConstruct": lambda node, *items: tuple(items),
    "prim::DictConstruct": _dictionary,
    "prim::ListUnpack": lambda node, items: list(items),
    "prim::TupleUnpack": lambda node, items: list(items),
    "prim::TupleIndex": lambda node, items, index: items[index],
    "prim::TupleSlice": lambda node, items: items[node.i("beg") : node.i("end")],
    "prim::Uninitialized": lambda node: None,
    "prim::unchecked_cast": lambda node, value: value,
    "prim::data": lambda node, value: value,
    "prim::RaiseException": _raise,
    "prim::Print": lambda node, *items: None,
    "aten::warn": lambda node, *items: None,
    "prim::profile": lambda node, *items: items[0],
}


# ---- numbers, lists, strings ----


def _append(items: list[Any], item: Any) -> list[Any]:
    items.append(item)
    return items


def _extend(items: list[Any], others: list[Any]) -> list[Any]:
    items.extend(others)
    return items


def _set_item(items: Any, index: Any, value: Any) -> Any:
    items[index] = value
    return items


def _slice(items: Any, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    return items[slice(start, end, step)]


def _range_length(low: int, high: int, step: int) -> int:
    return max(0, -((low - high) // step)) if step > 0 else max(0, -((high - low) // -step))


def _truncated(a: Any, b: Any, rounding: str | None = None) -> Any:
    if rounding is None:
        return a / b
    return a // b if rounding == "floor" else math.trunc(a / b)


def _add(a: Any, b: Any, alpha: Any = 1) -> Any:
    return a + b if alpha == 1 else a + alpha * b


def _sub(a: Any, b: Any, alpha: Any = 1) -> Any:
    return a - b if alpha == 1 else a - alpha * b


SCALAR: dict[str, Callable[..., Any]] = {
    "aten::add": _add,
    "aten::add_": lambda a, b: _extend(a, b) if isinstance(a, list) else a + b,
    "aten::sub": _sub,
    "aten::mul": operator.mul,
    "aten::div": _truncated,
    "aten::floordiv": operator.floordiv,
    "aten::remainder": operator.mod,
    "aten::fmod": math.fmod,
    "aten::pow": operator.pow,
    "aten::neg": operator.neg,
    "aten::abs": abs,
    "aten::eq": operator.eq,
    "aten::ne": operator.ne,
    "aten::lt": operator.lt,
    "aten::le": operator.le,
    "aten::gt": operator.gt,
    "aten::ge": operator.ge,
    "aten::__and__": operator.and_,
    "aten::__or__": operator.or_,
    "aten::__xor__": operator.xor,
    "aten::__not__": operator.not_,
    "aten::Int": int,
    "aten::Float": float,
    "aten::Bool": bool,
    "aten::str": str,
    "aten::floor": math.floor,
    "aten::ceil": math.ceil,
    "aten::round": round,
    "aten::sqrt": math.sqrt,
    "aten::exp": math.exp,
    "aten::log": math.log,
    "prim::min": lambda *items: min(*items),
    "prim::max": lambda *items: max(*items),
    "aten::format": lambda text, *items: text.format(*items),
    "aten::keys": lambda items: list(items.keys()),
    "aten::values": lambda items: list(items.values()),
    "aten::items": lambda items: list(items.items()),
    "aten::__range_length": _range_length,
    "aten::__derive_index": lambda index, start, step: start + index * step,
    "aten::is_scripting": lambda: True,
    "prim::is_scripting": lambda: True,
    "aten::sum": sum,
}
"""Operators of which no argument has a tensor."""


# ---- questions about tensors, and numbers of them ----


def known_number(value: Any) -> Known:
    """Return a number as a tensor whose value is known."""
    with _disable_current_modes():
        return Known(value if isinstance(value, torch.SymInt) else torch.tensor(value))


def _known_number(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def of(value: Any) -> Any:
        if isinstance(value, Known):
            return convert(value.number())
        return convert(value) if not isinstance(value, (torch.Tensor, Truth)) else _run_time_number(convert, value)

    return of


def _run_time_number(convert: Callable[[Any], Any], value: Any) -> Any:
    tensor = as_tensors(value)
    if convert is bool:
        return Truth(tensor)
    return (tensor.to(torch.int64) if convert is int else tensor.to(torch.float64)).item()


def _scalar(value: Any) -> Any:
    if isinstance(value, Known):
        return value.number()
    return value.item() if isinstance(value, torch.Tensor) else value


def _size(value: Any, dim: int | None = None) -> Any:
    shape = as_tensors(value).shape
    return list(shape) if dim is None else shape[dim]


def _item(items: Any, index: Any) -> Any:
    return items[index.number() if isinstance(index, Known) else index]


def _length(value: Any) -> int:
    return as_tensors(value).shape[0] if isinstance(value, (torch.Tensor, Known)) else len(value)


def _same(a: Any, b: Any) -> bool:
    return a is b or (a is not None and b is not None and type(a) is type(b) and not has_memory(a) and a == b)


def has_memory(value: Any) -> bool:
    """Return whether a value is a tensor."""
    return isinstance(value, (torch.Tensor, Known, Truth))


def _narrow(value: Any, dim: int, start: Any, length: Any) -> Any:
    value, length = as_tensors(value), _scalar(length)
    if isinstance(start, torch.Tensor):
        first = torch.where(start < 0, start + value.shape[dim], start)
        return torch.index_select(value, dim, first + torch.arange(length))
    start = _scalar(start)
    start = start + value.shape[dim] if isinstance(start, int) and start < 0 else start
    return torch.ops.aten.slice.Tensor(value, dim, start, start + length)


def _copy(items: Any) -> Any:
    return list(items) if isinstance(items, list) else dict(items)


def _maybe_not(value: Any) -> Any:
    return Truth(torch.logical_not(value.tensor)) if isinstance(value, Truth) else not value


QUERY: dict[str, Callable[..., Any]] = {
    "aten::Int": _known_number(int),
    "aten::Float": _known_number(float),
    "aten::Bool": _known_number(bool),
    "aten::IntImplicit": _known_number(int),
    "aten::FloatImplicit": _known_number(float),
    "aten::ScalarImplicit": _scalar,
    "aten::item": _scalar,
    "aten::__not__": _maybe_not,
    "prim::NumToTensor": known_number,
    "aten::size": _size,
    "aten::dim": lambda value: as_tensors(value).dim(),
    "aten::numel": lambda value: as_tensors(value).numel(),
    "aten::len": _length,
    "prim::dtype": lambda value: SCALAR_TYPES[as_tensors(value).dtype],
    "prim::device": lambda value: torch.device("cpu"),
    "prim::layout": lambda value: 0,
    "prim::is_cuda": lambda value: False,
    "prim::is_quantized": lambda value: False,
    "prim::requires_grad": lambda value: False,
    "aten::device": lambda text: torch.device("cpu"),
    "aten::is_floating_point": lambda value: as_tensors(value).is_floating_point(),
    "aten::is_complex": lambda value: as_tensors(value).is_complex(),
    "aten::__is__": _same,
    "aten::__isnot__": lambda a, b: not _same(a, b),
    "aten::__contains__": lambda items, item: item in items,
    "aten::__getitem__": _item,
    "aten::_set_item": _set_item,
    "aten::append": _append,
    "aten::extend": _extend,
    "aten::list": list,
    "aten::copy": _copy,
    "aten::detach": lambda value: value,
    "aten::contiguous": lambda value, _: value,
    "aten::narrow": _narrow,
    "prim::shape": lambda value: list(as_tensors(value).shape),
}
"""Operators whose arguments may have tensors, whose results are numbers, lists, or the tensors as they were."""


# ---- operators that torch has under another name, or that are not for tracing ----


def _tensor(data: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
    if isinstance(data, (list, tuple)):
        rows = [_tensor(item, dtype) for item in data]
        return torch.stack(rows) if rows else torch.zeros(0, dtype=dtype or torch.float32)
    if isinstance(data, torch.Tensor):
        return data if dtype is None else data.to(dtype)
    kind = dtype or (torch.float32 if isinstance(data, float) else None)
    return torch.full((), data, dtype=kind)


def _convolution(*args: Any) -> Any:
    return torch.ops.aten.convolution.default(*args[:9])


def _slice_any(items: Any, *bounds: Any, **named: Any) -> Any:
    if not isinstance(items, torch.Tensor):
        return _slice(items, *bounds)
    return torch.ops.aten.slice.Tensor(items, *bounds, **named)


def _view(value: Any, shape: Any) -> Any:
    """Return a view: what is one for real tensors may have other strides while tracing."""
    if isinstance(shape, torch.dtype):
        return torch.ops.aten.view.dtype(value, shape)
    return torch.ops.aten.reshape.default(value, shape)


OTHER_NAMES: dict[str, Callable[..., Any]] = {
    "aten::tensor": _tensor,
    "aten::as_tensor": _tensor,
    "aten::_convolution": _convolution,
    "aten::slice": _slice_any,
    "aten::view": _view,
}


def folded(operator_: Any, positional: Sequence[Any], named: dict[str, Any]) -> Any:
    """Compute an operator of known tensors now, outside of tracing."""
    with _disable_current_modes(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = operator_(*_real(positional), **{key: _real(value) for key, value in named.items()})
    return _wrapped(result)


def _real(value: Any) -> Any:
    if isinstance(value, Known):
        return value.value
    return type(value)(map(_real, value)) if isinstance(value, (list, tuple)) else value


def _wrapped(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return Known(value)
    return type(value)(map(_wrapped, value)) if isinstance(value, (list, tuple)) else value
