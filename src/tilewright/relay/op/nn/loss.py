"""nn.cross_entropy and nn.cross_entropy_with_logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import TensorType, Type
from tilewright.relay.expr import Call
from tilewright.relay.op import relations
from tilewright.relay.op.attributes import call
from tilewright.relay.op.definition import OpPattern, declare
from tilewright.relay.op.families import Array


def _loss_type(types: Sequence[Type], attrs: Any, solver: Any) -> Type | None:
    found = relations.tensors(types, ("predictions", "targets"))
    if found is None:
        return None
    predictions, targets = found
    relations.require_rank(predictions, 2, "predictions")
    relations.require_rank(targets, 2, "targets")
    relations.require_same_dtype(found)
    for a, b in zip(predictions.shape, targets.shape, strict=True):
        solver.assert_equal(a, b, "shape of the targets")
    return TensorType((), predictions.dtype)


def _declare(name: str, doc: str, log: Any, log_array: Any) -> None:
    def compute(attrs: Any, inputs: Sequence[Any], out_type: Any) -> list[Any]:
        x, y = inputs
        total = topi.sum(topi.multiply(log(x), y), [0, 1])
        return [topi.divide(topi.negative(total), x.shape[0].astype(x.dtype))]

    def evaluate(attrs: Any, inputs: Sequence[Array]) -> list[Array]:
        x, y = inputs
        return [np.asarray(-np.sum(log_array(x) * y) / x.shape[0], x.dtype)]

    declare(
        name,
        doc,
        inputs=("predictions", "targets"),
        pattern=OpPattern.OPAQUE,
        in_float32=True,
        infer_type=_loss_type,
        compute=compute,
        evaluate=evaluate,
    )


_declare("nn.cross_entropy", "-sum(log(predictions) * targets) / batch", topi.log, np.log)
_declare("nn.cross_entropy_with_logits", "-sum(predictions * targets) / batch", lambda x: x, lambda x: x)


def cross_entropy(predictions: RelayExpr, targets: RelayExpr) -> Call:
    """Cross entropy of probabilities ``predictions`` (batch, classes), averaged over the batch."""
    return call("nn.cross_entropy", [predictions, targets])


def cross_entropy_with_logits(predictions: RelayExpr, targets: RelayExpr) -> Call:
    """Cross entropy of log-probabilities ``predictions``, averaged over the batch."""
    return call("nn.cross_entropy_with_logits", [predictions, targets])
