"""Scaled dot-product attention, ``nn.attention``, which RecognizeAttention inserts. Not in TVM 0.8."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import TypeInferenceError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import TensorType, Type
from tilewright.relay.expr import Call
from tilewright.relay.op import relations, slice_rules
from tilewright.relay.op.attributes import call
from tilewright.relay.op.builder import exported
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.nn import kernel_work
from tilewright.relay.op.relations import known
from tilewright.relay.op.strategy import generic as strategies
from tilewright.relay.type_infer.describe import describe_shape


class AttentionAttrs(Attrs):
    """The factor of the scores before the mask is added."""

    scale: float = 1.0


def _agree(what: str, a: Any, b: Any) -> None:
    if known(a) is not None and known(b) is not None and known(a) != known(b):
        raise TypeInferenceError(f"{what} differ, {known(a)} and {known(b)}")


def _check_groups(heads: int | None, groups: int | None) -> None:
    if heads is not None and groups is not None and (groups == 0 or heads % groups):
        raise TypeInferenceError(f"{heads} heads of the query are no multiple of the {groups} of key and value")


def _check_mask(mask: TensorType, scores: tuple[Any, ...]) -> None:
    relations.require_rank(mask, 4, "mask")
    for have, want in zip(mask.shape, scores, strict=True):
        if known(have) is not None and known(want) is not None and known(have) not in (1, known(want)):
            raise TypeInferenceError(
                f"mask {describe_shape(mask.shape)} does not broadcast to the scores {describe_shape(scores)}"
            )


class Attention(OpDef[AttentionAttrs]):
    """softmax(query @ key.T * scale + mask) @ value, for every head.

    query (batch, heads, rows, depth), key (batch, groups, keys, depth), value (batch, groups, keys, width) and an
    optional mask that broadcasts to (batch, heads, rows, keys); the result is (batch, rows, heads, width). As many
    heads as ``heads / groups`` that follow one another share the keys and values of a group.
    """

    name = "nn.attention"
    inputs = None
    pattern = OpPattern.COMM_REDUCE
    kind = "attention"
    multiply_adds = staticmethod(kernel_work.attention_multiply_adds)

    factors = 3

    slice_operands = staticmethod(slice_rules.attention)
    in_float32 = True
    takes_injective = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: AttentionAttrs, solver: TypeSolver) -> Type | None:
        """Check that heads, depth and keys of the operands agree."""
        if len(types) not in (3, 4):
            raise TypeInferenceError(f"takes query, key, value and perhaps a mask, not {len(types)} operands")
        found = relations.tensors(types, ("query", "key", "value", "mask")[: len(types)])
        query, key, value, *masks = found
        for tensor, name in zip((query, key, value), ("query", "key", "value"), strict=True):
            relations.require_rank(tensor, 4, name)
        batch, heads, rows, depth = query.shape
        keys, width = value.shape[2:]
        for other, name in ((key, "key"), (value, "value")):
            _agree(f"the batches of query and {name}", batch, other.shape[0])
        _agree("the heads of key and value", key.shape[1], value.shape[1])
        _check_groups(known(heads), known(key.shape[1]))
        _agree("the depths of query and key", depth, key.shape[3])
        _agree("the numbers of keys and values", key.shape[2], keys)
        for mask in masks:
            _check_mask(mask, (batch, heads, rows, keys))
        return TensorType((batch, rows, heads, width), query.dtype)

    @staticmethod
    def evaluate(attrs: AttentionAttrs, inputs: Sequence[Array]) -> list[Array]:
        query, key, value, *masks = inputs
        if key.shape[1] != query.shape[1]:
            key, value = (np.repeat(x, query.shape[1] // x.shape[1], axis=1) for x in (key, value))
        scores = np.matmul(query, np.swapaxes(key, 2, 3)) * np.asarray(attrs.scale, query.dtype)
        for mask in masks:
            scores = scores + mask
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        context = np.matmul(powers / powers.sum(-1, keepdims=True), value)
        return [np.ascontiguousarray(np.swapaxes(context, 1, 2)).astype(query.dtype, copy=False)]

    strategy = strategies.attention_strategy


@exported
def attention(
    query: RelayExpr, key: RelayExpr, value: RelayExpr, mask: RelayExpr | None = None, scale: float = 1.0
) -> Call:
    """softmax(query @ key.T * scale + mask) @ value of (batch, heads, rows or keys, columns) operands.

    Keys and values may have fewer heads, of which the query's are a multiple: neighbouring heads share them.
    """
    return call("nn.attention", [query, key, value, *([] if mask is None else [mask])], AttentionAttrs(float(scale)))
