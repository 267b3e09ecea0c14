"""The interface of converters to a node: inputs, attributes, shapes, constants, images, ONNX's operators as parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.budget import BudgetError, count_nodes
from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Constant, Var, const
from tilewright.relay.frontend.context import ConverterContext, typed
from tilewright.relay.frontend.dimensions import is_number, numbers
from tilewright.relay.frontend.onnx.parts import part_of
from tilewright.relay.frontend.tensorflow.graph import Node
from tilewright.relay.frontend.tensorflow.proto import TensorflowImportError
from tilewright.relay.transform.simplify.fold_constant import constant_value, fold_constant
from tilewright.runtime.ndarray import numpy_dtype, numpy_view

if TYPE_CHECKING:
    from tilewright.relay.frontend.tensorflow.importer import GraphImporter, Scope

Array = np.ndarray[Any, Any]


def described(node: Node) -> str:
    """Return the name of a node in messages."""
    return f"TensorFlow node {node.name!r} ({node.op})"


def channels_first_order(rank: int) -> tuple[int, ...]:
    """Return the axes that put the last dimension second."""
    return (0, rank - 1, *range(1, rank - 1))


def channels_last_order(rank: int) -> tuple[int, ...]:
    """Return the axes that put the second dimension last."""
    return (0, *range(2, rank), 1)


class NodeContext(ConverterContext):
    """One node while it is converted."""

    error = TensorflowImportError
    remedy = "give shapes of numbers: shape="

    @property
    def place(self) -> str:
        """Return the node's name in messages."""
        return described(self.node)

    def __init__(self, importer: GraphImporter, scope: Scope, node: Node, inputs: Sequence[Any]) -> None:
        self.importer = importer
        self.scope = scope
        self.node = node
        self._inputs = list(inputs)

    # ---- inputs and attributes ----

    @property
    def num_inputs(self) -> int:
        """Return the number of inputs."""
        return len(self._inputs)

    def value(self, index: int) -> Any:
        """Return an input: a tensor, or a list of tensors."""
        if index >= len(self._inputs):
            self.fail(f"it has {len(self._inputs)} inputs; input {index} is required")
        return self._inputs[index]

    def values(self) -> list[Any]:
        """Return all inputs."""
        return list(self._inputs)

    def input(self, index: int) -> RelayExpr:
        """Return the tensor in an input."""
        found = self.value(index)
        if not isinstance(found, RelayExpr):
            self.fail(f"input {index}, {self.input_name(index)!r}, is no tensor that can be read")
        return typed(found)

    def inputs(self, first: int = 0, last: int | None = None) -> list[RelayExpr]:
        """Return inputs as tensors."""
        return [self.input(i) for i in range(first, self.num_inputs if last is None else last)]

    def input_name(self, index: int) -> str:
        """Return the name of the node that an input comes from."""
        return self.node.inputs[index].name if index < len(self.node.inputs) else f"#{index}"

    def attr(self, name: str, default: Any = None) -> Any:
        """Return an attribute."""
        return self.node.attrs.get(name, default)

    def text(self, name: str, default: str = "") -> str:
        """Return an attribute of text."""
        found = self.attr(name, default)
        return found.decode("utf-8", "replace") if isinstance(found, bytes) else str(found)

    def required(self, name: str) -> Any:
        """Return an attribute; a missing one is an error."""
        if name not in self.node.attrs:
            self.fail(f"the attribute {name!r} is required and missing")
        return self.node.attrs[name]

    # ---- types ----

    # ---- constants ----

    def constant_or_none(self, expr: Any) -> Array | None:
        """Return the elements of a tensor where they are known while importing."""
        if not isinstance(expr, RelayExpr):
            return None
        if isinstance(expr, Constant):
            return numpy_view(expr.data)
        if isinstance(expr, Var):
            return self.importer.param_value(expr)
        known = self.importer.known_elements.get(expr)
        if known is not None:
            whole = numbers(known)
            return None if whole is None else whole.astype(numpy_dtype(self.dtype(expr)))
        if not self.importer.is_constant_expr(expr):
            return None
        found = constant_value(fold_constant(typed(self.importer.with_params(typed(expr)))))
        return found if isinstance(found, np.ndarray) else None

    def constant(self, index: int, what: str) -> Array:
        """Return the elements of an input, which must be known while importing."""
        found = self.constant_or_none(self.input(index))
        if found is None:
            inputs = self.importer.inputs_of(self.input(index))
            whose = f"computed from {', '.join(map(repr, inputs))}" if inputs else "computed"
            self.unsupported(f"{what} (input {index}, {self.input_name(index)!r}) must be a constant; it is {whose}")
        return found

    def ints(self, index: int, what: str) -> tuple[int, ...]:
        """Return the integers of a constant input."""
        return tuple(int(v) for v in self.constant(index, what).reshape(-1))

    def scalar(self, index: int, what: str) -> Any:
        """Return the number in a constant input."""
        found = self.constant(index, what)
        if found.size != 1:
            self.fail(f"{what} (input {index}, {self.input_name(index)!r}) is one number; found {found.size}")
        return found.reshape(-1)[0].item()

    def like(self, number: float, expr: RelayExpr) -> RelayExpr:
        """Return a number as a scalar of a tensor's data type."""
        return const(number, self.dtype(expr))

    def cast(self, expr: RelayExpr, dtype: str) -> RelayExpr:
        """Return a tensor in a data type."""
        return expr if self.dtype(expr) == dtype else self.part("Cast", [expr], to=_ONNX_TYPES[dtype])

    def chain(self, value: RelayExpr, *steps: Callable[[RelayExpr], RelayExpr]) -> RelayExpr:
        """Apply functions one after the other."""
        for step in steps:
            value = typed(step(value))
        return value

    # ---- images: tensors whose channels are last in TensorFlow, and first in what kernels read ----

    def channels_first(self, expr: RelayExpr) -> RelayExpr:
        """Return a tensor with its last dimension second, as it was made where it was made so."""
        found = self.importer.images.get(expr)
        if found is not None:
            return found
        order = channels_first_order(self.rank(expr))
        value = self.constant_or_none(expr) if isinstance(expr, Constant) else None
        if value is not None:
            return typed(const(np.ascontiguousarray(value.transpose(order))))
        return typed(relay_op.transpose(expr, axes=order))

    def channels_last(self, expr: RelayExpr) -> RelayExpr:
        """Return a tensor with its second dimension last; ``channels_first`` of it gives back ``expr``."""
        return self.importer.channels_last(typed(expr))

    def is_image(self, expr: Any) -> bool:
        """Return whether a tensor was made with its channels first."""
        return isinstance(expr, RelayExpr) and expr in self.importer.images

    def elementwise(self, build: Callable[..., RelayExpr], operands: Sequence[RelayExpr]) -> RelayExpr:
        """Return ``build`` of tensors that broadcast: with channels first where an operand was made so."""
        images = [e for e in operands if self.is_image(e)]
        if not images:
            return typed(build(*operands))
        rank = self.rank(images[0])
        turned = [self._beside_image(e, rank) for e in operands]
        if any(t is None for t in turned):
            return typed(build(*operands))
        return self.channels_last(typed(build(*turned)))

    def _beside_image(self, expr: RelayExpr, rank: int) -> RelayExpr | None:
        """Return an operand with its channels first; None where that takes a transposition when the model runs."""
        own = self.rank(expr)
        if own == 0:
            return expr
        if self.is_image(expr):
            return self.channels_first(expr) if own == rank else None
        value = self.constant_or_none(expr)
        if value is not None and own <= rank:
            whole = value.reshape((1,) * (rank - own) + value.shape)
            return self.importer.constant_tensor(
                f"{self.node.name}/channels_first", np.ascontiguousarray(whole.transpose(channels_first_order(rank)))
            )
        dims = self.dims(expr)
        if own <= rank and all(is_number(d) and d == 1 for d in dims[:-1]) and is_number(dims[-1]):
            return typed(relay_op.reshape(expr, (1, int(dims[-1]), *[1] * (rank - 2))))
        return None

    # ---- parts ----

    def part(self, op_type: str, inputs: Sequence[RelayExpr | None], domain: str = "", outputs: int = 1,
             **attributes: Any) -> Any:  # fmt: skip
        """Return the result of one of ONNX's operators as a part of this node."""
        made = part_of(
            self.importer, described(self.node), self.node.name, op_type, inputs, attributes, domain,
            outputs=outputs, notes=True,
        )  # fmt: skip
        if not all(value is None or self.importer.is_known(value) for value in inputs):
            return made
        return [self.importer.folded(m) for m in made] if outputs > 1 else self.importer.folded(made)

    def int64(self, values: Sequence[int]) -> RelayExpr:
        """Return a constant vector."""
        return const(np.array(values, "int64"))

    def write_out(self, nodes: int, what: str) -> None:
        """Count the nodes that this one is about to be expanded to; raise BudgetError where they are too many."""
        count_nodes(nodes, lambda: f"{described(self.node)}: {what}")

    # ---- errors ----


_ONNX_TYPES = {
    "float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10,
    "float64": 11, "uint32": 12, "uint64": 13, "bfloat16": 16,
}  # fmt: skip


@contextmanager
def errors_of(node: Node) -> Iterator[None]:
    """Name the node in errors that arise in the block."""
    try:
        yield
    except BudgetError:
        raise
    except TilewrightError as error:
        if "TensorFlow node" in str(error) or "\n" in str(error):
            raise
        kind = UnsupportedError if isinstance(error, UnsupportedError) else TensorflowImportError
        raise kind(f"{described(node)}: {error}") from None
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, AssertionError) as error:
        # Attributes that contradict one another or the inputs surface here in many forms.
        raise TensorflowImportError(f"{described(node)}: its inputs or attributes do not fit: {error}") from error


def is_float(dtype: str) -> bool:
    """Return whether a data type is of floating point."""
    return dt.is_float(dtype)
