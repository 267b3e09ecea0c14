"""Tensor arrays, whose flow stands for their contents, and tensor lists."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.context import typed
from tilewright.relay.frontend.tensorflow import lists
from tilewright.relay.frontend.tensorflow.context import NodeContext
from tilewright.relay.frontend.tensorflow.lists import TensorList
from tilewright.relay.frontend.tensorflow.registry import converter


def _list(ctx: NodeContext, index: int) -> TensorList:
    found = ctx.value(index)
    if not isinstance(found, TensorList):
        ctx.fail(f"input {index}, {ctx.input_name(index)!r}, is no list of tensors")
    return found


def _shape(ctx: NodeContext, index: int) -> tuple[int | None, ...] | None:
    """Return the shape of elements in an input: -1 for an unknown dimension; a number -1 for an unknown rank."""
    value = ctx.constant_or_none(ctx.input(index))
    if value is None or value.ndim == 0:
        return None
    return tuple(int(d) if d >= 0 else None for d in value)


# ---- tensor arrays: the handle names the array, the flow holds it ----


@converter("TensorArrayV3")
def convert_tensor_array(ctx: NodeContext) -> list[Any]:
    """An array of so many tensors: its handle and its flow."""
    made = lists.reserved(ctx, ctx.required("dtype"), ctx.attr("element_shape"), ctx.input(0))
    return [made, made]


@converter("TensorArrayWriteV3")
def convert_tensor_array_write(ctx: NodeContext) -> TensorList:
    """The array with one element replaced."""
    return lists.with_item(ctx, _list(ctx, 3), ctx.input(1), ctx.input(2))


@converter("TensorArrayReadV3")
def convert_tensor_array_read(ctx: NodeContext) -> RelayExpr:
    """One element."""
    return lists.item(ctx, _list(ctx, 2), ctx.input(1))


@converter("TensorArraySizeV3")
def convert_tensor_array_size(ctx: NodeContext) -> RelayExpr:
    """The number of elements."""
    return lists.count(ctx, _list(ctx, 1))


@converter("TensorArrayScatterV3")
def convert_tensor_array_scatter(ctx: NodeContext) -> TensorList:
    """The array with the slices of a tensor at indices."""
    return _scattered(ctx, _list(ctx, 3), ctx.input(1), ctx.input(2))


@converter("TensorArrayGatherV3")
def convert_tensor_array_gather(ctx: NodeContext) -> RelayExpr:
    """The elements at indices, along a new first axis."""
    return _gathered(ctx, _list(ctx, 2), ctx.input(1))


@converter("TensorArraySplitV3")
def convert_tensor_array_split(ctx: NodeContext) -> TensorList:
    """The array of the pieces of a tensor."""
    return lists.split(ctx, _list(ctx, 3), ctx.input(1), ctx.ints(2, "the lengths of the pieces"))


@converter("TensorArrayConcatV3")
def convert_tensor_array_concat(ctx: NodeContext) -> list[RelayExpr]:
    """The elements along their first axis, and the extents of these."""
    return list(lists.joined(ctx, _list(ctx, 1)))


@converter("TensorArrayCloseV3")
def convert_tensor_array_close(ctx: NodeContext) -> list[Any]:
    """Nothing: the array is forgotten."""
    return []


def _scattered(ctx: NodeContext, given: TensorList, indices: RelayExpr, values: RelayExpr) -> TensorList:
    places = ctx.constant_or_none(indices)
    if places is not None and given.items is not None:
        for row, place in enumerate(places.reshape(-1)):
            slice_ = typed(relay_op.take(values, const(row, "int32"), axis=0))
            given = lists.with_item(ctx, given, const(int(place), "int32"), slice_)
        return given
    rows = lists.stacked(ctx, given, typed(relay_op.take(values, const(0, "int32"), axis=0)))
    where = typed(relay_op.expand_dims(relay_op.cast(indices, "int64"), axis=1))
    return TensorList(given.dtype, given.shape, rows=ctx.part("ScatterND", [rows, where, values]))


def _gathered(ctx: NodeContext, given: TensorList, indices: RelayExpr) -> RelayExpr:
    places = ctx.constant_or_none(indices)
    if places is not None and given.items is not None and places.size:
        return typed(relay_op.stack([lists.item(ctx, given, const(int(p), "int32")) for p in places], axis=0))
    return lists.taken(ctx, given, indices)


# ---- tensor lists ----


@converter("TensorListReserve")
def convert_tensor_list_reserve(ctx: NodeContext) -> TensorList:
    """A list of so many tensors."""
    return lists.reserved(ctx, ctx.required("element_dtype"), _shape(ctx, 0), ctx.input(1))


@converter("EmptyTensorList")
def convert_empty_tensor_list(ctx: NodeContext) -> TensorList:
    """A list of no tensors."""
    return TensorList(ctx.required("element_dtype"), _shape(ctx, 0), items=())


@converter("TensorListFromTensor")
def convert_tensor_list_from_tensor(ctx: NodeContext) -> TensorList:
    """The slices of a tensor."""
    return lists.of_rows(ctx, ctx.input(0))


@converter("TensorListScatterV2", "TensorListScatter")
def convert_tensor_list_scatter(ctx: NodeContext) -> TensorList:
    """The slices of a tensor at indices."""
    places = ctx.ints(1, "the indices")
    count = ctx.scalar(3, "the number of elements") if ctx.node.op.endswith("V2") else -1
    count = max(count, *(p + 1 for p in places), 0)
    given = TensorList(ctx.required("element_dtype"), _shape(ctx, 2), items=(None,) * count)
    return _scattered(ctx, given, ctx.input(1), ctx.input(0))


@converter("TensorListScatterIntoExistingList")
def convert_tensor_list_scatter_into_existing_list(ctx: NodeContext) -> TensorList:
    """The list with the slices of a tensor at indices."""
    return _scattered(ctx, _list(ctx, 0), ctx.input(2), ctx.input(1))


@converter("TensorListSetItem")
def convert_tensor_list_set_item(ctx: NodeContext) -> TensorList:
    """The list with one element replaced."""
    return lists.with_item(ctx, _list(ctx, 0), ctx.input(1), ctx.input(2))


@converter("TensorListGetItem")
def convert_tensor_list_get_item(ctx: NodeContext) -> RelayExpr:
    """One element."""
    return lists.item(ctx, _list(ctx, 0), ctx.input(1))


@converter("TensorListPushBack")
def convert_tensor_list_push_back(ctx: NodeContext) -> TensorList:
    """The list with one more element at the end."""
    given, value = _list(ctx, 0), ctx.input(1)
    if given.items is not None:
        return TensorList(given.dtype, given.shape, items=(*given.items, value))
    rows = relay_op.concatenate([lists.stacked(ctx, given, value), relay_op.expand_dims(value, axis=0)], axis=0)
    return TensorList(given.dtype, given.shape, rows=typed(rows))


@converter("TensorListPopBack")
def convert_tensor_list_pop_back(ctx: NodeContext) -> list[Any]:
    """The list without its last element, and that."""
    given = _list(ctx, 0)
    if given.items is None:
        rows = lists.stacked(ctx, given)
        last = typed(relay_op.take(rows, typed(relay_op.subtract(lists.count(ctx, given), const(1, "int32"))), axis=0))
        return [
            TensorList(given.dtype, given.shape, rows=ctx.part("Slice", [rows, ctx.int64([0]), ctx.int64([-1])])),
            last,
        ]
    if not given.items:
        ctx.fail("the list is empty")
    last = lists.item(ctx, given, const(len(given.items) - 1, "int32"))
    return [TensorList(given.dtype, given.shape, items=given.items[:-1]), last]


@converter("TensorListResize")
def convert_tensor_list_resize(ctx: NodeContext) -> TensorList:
    """The list cut off, or with more elements that are not written."""
    given, size = _list(ctx, 0), int(ctx.scalar(1, "the number of elements"))
    if given.items is None:
        ctx.unsupported("another length of a list that is written when the model runs")
    kept = given.items[:size]
    return TensorList(given.dtype, given.shape, items=kept + (None,) * (size - len(kept)))


@converter("TensorListStack")
def convert_tensor_list_stack(ctx: NodeContext) -> RelayExpr:
    """The elements along a new first axis."""
    given = _list(ctx, 0)
    shape = _shape(ctx, 1)
    if given.shape is None and shape is not None:
        given = TensorList(given.dtype, shape, given.items, given.rows, given.length)
    return lists.stacked(ctx, given)


@converter("TensorListGather")
def convert_tensor_list_gather(ctx: NodeContext) -> RelayExpr:
    """The elements at indices, along a new first axis."""
    return _gathered(ctx, _list(ctx, 0), ctx.input(1))


@converter("TensorListConcatV2", "TensorListConcat")
def convert_tensor_list_concat(ctx: NodeContext) -> list[RelayExpr]:
    """The elements along their first axis, and the extents of these."""
    return list(lists.joined(ctx, _list(ctx, 0)))


@converter("TensorListSplit")
def convert_tensor_list_split(ctx: NodeContext) -> TensorList:
    """The pieces of a tensor."""
    given = TensorList(ctx.required("element_dtype"), _shape(ctx, 1), items=())
    return lists.split(ctx, given, ctx.input(0), ctx.ints(2, "the lengths of the pieces"))


@converter("TensorListLength")
def convert_tensor_list_length(ctx: NodeContext) -> RelayExpr:
    """The number of elements."""
    return lists.count(ctx, _list(ctx, 0))


@converter("TensorListElementShape")
def convert_tensor_list_element_shape(ctx: NodeContext) -> RelayExpr:
    """The shape of the elements, -1 for an unknown dimension."""
    given, dtype = _list(ctx, 0), ctx.attr("shape_type", "int32")
    shape: tuple[Any, ...] | None = given.shape
    if given.is_settled:
        shape = ctx.tensor_type(lists.stacked(ctx, given)).shape[1:]
    if shape is None:
        return const(np.array(-1, dtype))
    dims = [getattr(d, "value", d) for d in shape]
    return const(np.array([d if isinstance(d, int) else -1 for d in dims], dtype))
