"""Shape functions of external functions: the shapes of another compiler's results, where arguments have unknown ones.

Another compiler's code writes results whose memory it is given. How large that is, the operators of its function say::

    fn (%x: Tensor[(?, 16), float32], Compiler="mine", global_symbol="mine_0") { nn.relu(nn.dense(%x, ...)) }
        ->  shape_func_mine_0(shape of x, result's shape, result's bytes)
"""

from __future__ import annotations

from tilewright import te
from tilewright.ir.errors import UnsupportedError
from tilewright.ir.prim_expr import Any as AnyDim
from tilewright.ir.type import tensors_of
from tilewright.relay.backend.symbolic import inputs_with_variables, shape_function, symbolic
from tilewright.relay.expr import Function
from tilewright.relay.function_attributes import SHAPE_CHECKS, SHAPE_FUNCTION, SHAPE_INPUTS, SHAPE_VALUES
from tilewright.relay.transform.functional.inline_calls import called_function, inline_calls
from tilewright.target.target import Target
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import AssertStmt


def with_shape_function(func: Function, symbol: str, name: str, host: Target) -> tuple[Function, PrimFunc]:
    """Return an external function with the attributes of its shape function, and that.

    Parameters
    ----------
    func : a typed external function of unknown shapes
    symbol : its name, for errors
    name : the shape function's
    host : the target that computes shapes

    Raises
    ------
    UnsupportedError : how large a result is does not follow from the arguments
    """
    unknown = symbolic(Function(func.params, inline_calls(func.body, called_function), None))
    results = list(tensors_of(unknown.func.body.checked_type))
    if any(isinstance(d, AnyDim) for t in results for d in t.shape):
        raise UnsupportedError(
            f"@{symbol}: how large the results of another compiler's function are must follow from its arguments; "
            "leave the operators of unknown results unpartitioned"
        )
    given = [t for p in unknown.func.params for t in tensors_of(p.checked_type)]
    inputs, outputs = ([te.placeholder(t.shape, t.dtype) for t in group] for group in (given, results))
    shapes = shape_function(name, inputs, outputs, unknown, host)
    attrs = {
        SHAPE_FUNCTION.key: name,
        SHAPE_CHECKS.key: isinstance(shapes.body, AssertStmt),
        SHAPE_INPUTS.key: tuple(inputs_with_variables(inputs)),
        SHAPE_VALUES.key: unknown.values,
    }
    return func.with_attr(attrs), shapes
