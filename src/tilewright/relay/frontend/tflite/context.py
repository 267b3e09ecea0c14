"""The interface of converters to an operator: tensors, options, constants, integers with scales."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.budget import BudgetError, check_budget, count_nodes
from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.context import ConverterContext
from tilewright.relay.frontend.context import typed as typed
from tilewright.relay.frontend.tflite.flatbuffer import TfliteImportError
from tilewright.relay.frontend.tflite.model import Operator, Tensor
from tilewright.relay.frontend.tflite.schema import ACTIVATIONS, TYPES
from tilewright.relay.qnn import op as qnn

if TYPE_CHECKING:
    from tilewright.relay.frontend.tflite.importer import GraphImporter

Array = np.ndarray[Any, Any]
# No model needs a larger tensor out of a few numbers; one that claims it is damaged or hostile.
_MOST_BYTES = 1 << 30
FIRST = (0, 3, 1, 2)  # from channels last to channels first
LAST = (0, 2, 3, 1)


class OperatorContext(ConverterContext):
    """One operator while it is converted; ``first`` says that tensors of rank 4 have their channels first."""

    error = TfliteImportError
    remedy = "give numbers for the inputs"

    def __init__(self, importer: GraphImporter, operator: Operator, first: bool) -> None:
        self.importer = importer
        self.operator = operator
        self.first = first

    # ------------------------------------------------------------------------------------------- tensors

    @property
    def num_inputs(self) -> int:
        """Return how many inputs are listed, omitted ones included."""
        return len(self.operator.inputs)

    def has(self, index: int) -> bool:
        """Return whether the input ``index`` is there."""
        return index < len(self.operator.inputs) and self.operator.inputs[index] >= 0

    def tensor(self, index: int) -> Tensor:
        """Return what the file says of an input; an omitted one is an error."""
        if not self.has(index):
            self.fail(f"input {index} is required and missing")
        return self.importer.graph.tensors[self.operator.inputs[index]]

    def out(self, index: int = 0) -> Tensor:
        """Return what the file says of an output."""
        if index >= len(self.operator.outputs) or self.operator.outputs[index] < 0:
            self.fail(f"output {index} is required and missing")
        return self.importer.graph.tensors[self.operator.outputs[index]]

    def intermediate(self, index: int) -> Tensor:
        """Return what the file says of an intermediate tensor; an omitted one is an error."""
        between = self.operator.intermediates
        if index >= len(between) or between[index] < 0:
            self.fail(f"its intermediate tensor {index} is required and missing")
        return self.importer.graph.tensors[between[index]]

    def raw(self, index: int) -> RelayExpr:
        """Return an input as it is stored: of a quantized tensor, its integers."""
        return self.importer.value(self.operator, self.tensor(index).index, self.first)

    def plain(self, index: int) -> RelayExpr:
        """Return an input as it is stored, in the order of the file."""
        return self.importer.value(self.operator, self.tensor(index).index, False)

    def real(self, index: int) -> RelayExpr:
        """Return the numbers that an input stands for."""
        return self.dequantized(self.raw(index), self.tensor(index))

    def dequantized(self, value: RelayExpr, tensor: Tensor) -> RelayExpr:
        """Return the numbers that integers of a tensor stand for."""
        if tensor.scale is None or not dt.is_int(tensor.dtype):
            return value
        axis = self.axis_of(tensor.axis, len(tensor.shape)) if tensor.is_per_axis else -1
        return typed(qnn.dequantize(value, parameter(tensor.scale), parameter(tensor.zero), axis))

    def reals(self) -> list[RelayExpr]:
        """Return the numbers that all inputs stand for."""
        return [self.real(i) for i in range(self.num_inputs)]

    def result(self, value: RelayExpr, index: int = 0) -> RelayExpr:
        """Return numbers as the tensor of an output holds them: integers where it is quantized."""
        tensor = self.out(index)
        if tensor.scale is None or not dt.is_int(tensor.dtype):
            return value
        if tensor.is_per_axis:
            self.unsupported(f"a result {tensor.name!r} with {tensor.scale.size} scales")
        return qnn.quantize(value, parameter(tensor.scale), parameter(tensor.zero), out_dtype=tensor.dtype)

    # ------------------------------------------------------------------------------------------- options

    def option(self, name: str, default: Any = None) -> Any:
        """Return an option; the default where the operator has no options."""
        options = self.operator.options
        if options is None and default is not None:
            return default
        if not hasattr(options, name):
            self.fail(f"it has no option {name!r}; the file gives it the options of another operator, or none")
        return getattr(options, name)

    def activation(self, value: RelayExpr, default: int = 0) -> RelayExpr:
        """Return numbers after the activation that is fused into the operator."""
        number = self.option("activation", default)
        if not 0 <= number < len(ACTIVATIONS):
            self.fail(f"activation {number} is unknown")
        apply = ACTIVATION.get(ACTIVATIONS[number])
        return value if apply is None else apply(value)

    def finished(self, value: RelayExpr) -> RelayExpr:
        """Return numbers after the fused activation, as the output holds them."""
        return self.result(self.activation(value))

    def dtype_option(self, name: str, default: int) -> str:
        """Return a data type that an option gives by number."""
        number = self.option(name, default)
        if not 0 <= number < len(TYPES):
            self.fail(f"data type {number} is unknown")
        return TYPES[number]

    # ------------------------------------------------------------------------------------------- shapes

    def axis(self, axis: int, rank: int) -> int:
        """Return an axis of the file, counted from the front, in the order of the tensors at hand."""
        return self.axis_of(super().axis(axis, rank), rank)

    def axis_of(self, axis: int, rank: int) -> int:
        """Return where an axis of the file stands."""
        return FIRST.index(axis) if self.first and rank == 4 else axis

    # ------------------------------------------------------------------------------------------- constants

    def constant(self, index: int, what: str) -> Array:
        """Return the elements of an input, in the order of the file, which must be known."""
        value = self.constant_or_none(index)
        if value is None:
            self.unsupported(
                f"{what} (input {index}, {self.tensor(index).name!r}) that is computed; it must be a constant"
            )
        return value

    def constant_or_none(self, index: int) -> Array | None:
        """Return the elements of an input where they are known."""
        return self.importer.known_value(self.tensor(index).index)

    def ints(self, index: int, what: str) -> tuple[int, ...]:
        """Return the integers of a constant input."""
        return tuple(int(v) for v in self.constant(index, what).reshape(-1))

    def weight(self, index: int, arrange: Callable[[Array], Array]) -> RelayExpr:
        """Return the elements of an input in another order: of a constant, a parameter in that order."""
        return self.importer.arranged(self.operator, self.tensor(index).index, arrange)

    def subgraph(self, number: int, inputs: Sequence[RelayExpr]) -> list[RelayExpr]:
        """Return the results of a subgraph for inputs."""
        return self.importer.called(self.operator, number, inputs)

    # ------------------------------------------------------------------------------------------- errors

    def unsupported(self, message: str) -> NoReturn:
        """Raise an UnsupportedError that names this operator."""
        raise UnsupportedError(f"{self.place}: {message} is not supported")

    @property
    def place(self) -> str:
        """Return the operator's name in messages."""
        return self.importer.place(self.operator)

    def check_size(self, shape: Sequence[int], dtype: str) -> None:
        """Refuse to make a tensor that no machine holds."""
        size = int(np.prod([float(d) for d in shape])) * dt.nbytes(dtype)
        if size > _MOST_BYTES or any(d < 0 for d in shape):
            self.fail(f"its result of shape {tuple(shape)} has {size / 2**30:.3g} GiB; refusing")
        check_budget(lambda: f"{self.place}: its result of shape {tuple(shape)}", size)

    def write_out(self, nodes: int, what: str) -> None:
        """Count the nodes that the operator is about to be expanded to."""
        count_nodes(nodes, lambda: f"{self.place}: {what}")


def parameter(values: Array) -> RelayExpr:
    """Return a scale or zero point: a number, or a vector."""
    return const(values.reshape(()) if values.size == 1 else values)


def relu6(value: RelayExpr) -> RelayExpr:
    """Return numbers between 0 and 6."""
    return relay_op.clip(value, 0.0, 6.0)


ACTIVATION: dict[str, Callable[[RelayExpr], RelayExpr]] = {
    "RELU": relay_op.nn.relu,
    "RELU_N1_TO_1": lambda value: relay_op.clip(value, -1.0, 1.0),
    "RELU6": relu6,
    "TANH": relay_op.tanh,
    "SIGN_BIT": lambda value: relay_op.cast(relay_op.less(value, const(0.0)), "float32"),
}


@contextmanager
def errors_of(place: Callable[[], str]) -> Iterator[None]:
    """Name the operator in errors that arise in the block."""
    try:
        yield
    except (BudgetError, TfliteImportError, UnsupportedError):
        raise
    except TilewrightError as error:
        raise TfliteImportError(f"{place()}: {error}") from None
    except (ValueError, TypeError, LookupError, ArithmeticError, AssertionError) as error:
        # Options that contradict one another or the inputs surface here in many forms.
        raise TfliteImportError(f"{place()}: its inputs or options do not fit: {error}") from error
