"""Networks written in Relay, with parameters, and helpers of tests; as ``tvm.relay.testing``.

Each network module has ``get_net(...)``, the function, and ``get_workload(...)``, a typed module with parameters:
mlp, resnet, mobilenet, vgg, squeezenet, densenet, inception_v3, dcgan, dqn, lstm, synthetic. ``layers`` names the
parameters of a layer after it; ``init`` makes their values, the same in every run. ``numeric`` checks gradients;
``nat`` has natural numbers as a data type; ``py_converter`` makes Python scripts of programs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.transform import Pass
from tilewright.relay.expr import Call, Function
from tilewright.relay.prelude import Prelude
from tilewright.relay.testing import (
    dcgan,
    densenet,
    dqn,
    inception_v3,
    init,
    layers,
    lstm,
    mlp,
    mobilenet,
    resnet,
    squeezenet,
    synthetic,
    vgg,
)
from tilewright.relay.testing.init import create_workload
from tilewright.relay.testing.nat import count, make_nat_expr, make_nat_value
from tilewright.relay.testing.numeric import _np_randn_from_type as _np_randn_from_type
from tilewright.relay.testing.numeric import check_grad
from tilewright.relay.testing.py_converter import run_as_python, to_python
from tilewright.relay.transform.autodiff.gradient import gradient
from tilewright.relay.transform.infer_type import InferType
from tilewright.relay.visitor import post_order_visit
from tilewright.runtime import ndarray as nd
from tilewright.testing import enabled_targets as enabled_targets


def run_opt_pass(expr: RelayExpr, opt_pass: Pass, import_prelude: bool = False) -> RelayExpr:
    """Run a pass on ``expr``. An expression that is no function becomes the body of one, and comes back as a body.

    With ``import_prelude`` the module has the definitions of ``Prelude``.
    """
    mod = IRModule.from_expr(expr)
    if import_prelude:
        Prelude(mod)
    entry = opt_pass(InferType()(mod))["main"]
    result: RelayExpr = entry if isinstance(expr, Function) else entry.body
    return result


def run_infer_type(expr: RelayExpr) -> Any:
    """Return ``expr`` with its types inferred."""
    return run_opt_pass(expr, InferType())


def rand(dtype: str = "float32", *shape: int) -> nd.NDArray:
    """Return an array of uniform random numbers in [0, 1), from numpy's global generator."""
    return nd.array(np.random.rand(*shape).astype(nd.numpy_dtype(dtype)))


def count_ops(expr: RelayExpr) -> dict[str, int]:
    """Return the number of calls of each operator."""
    found: dict[str, int] = {}

    def count(node: RelayExpr) -> None:
        if isinstance(node, Call) and isinstance(node.op, Op):
            found[node.op.name] = found.get(node.op.name, 0) + 1

    post_order_visit(expr, count)
    return found


__all__ = [
    "check_grad",
    "count",
    "count_ops",
    "create_workload",
    "dcgan",
    "densenet",
    "dqn",
    "gradient",
    "inception_v3",
    "init",
    "layers",
    "lstm",
    "make_nat_expr",
    "make_nat_value",
    "mlp",
    "mobilenet",
    "rand",
    "resnet",
    "run_as_python",
    "run_infer_type",
    "run_opt_pass",
    "squeezenet",
    "synthetic",
    "to_python",
    "vgg",
]  # fmt: skip
