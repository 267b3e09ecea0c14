"""The interface of converters to a node: inputs, attributes, shapes, constants."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from tilewright.ir import dtype as dt
from tilewright.ir.budget import BudgetError, check_budget, count_nodes
from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.prim_expr import IntImm
from tilewright.ir.type import TensorType, TupleType, Type
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, Constant, Var, const
from tilewright.relay.frontend.context import ConverterContext
from tilewright.relay.frontend.context import typed as typed
from tilewright.relay.frontend.dimensions import Elements, element, is_number, numbers
from tilewright.relay.frontend.onnx.attributes import dtype_of, parse_attributes
from tilewright.relay.frontend.onnx.registry import find_converter
from tilewright.relay.frontend.onnx.strings import StringTable
from tilewright.relay.op.tensor.unary import cast
from tilewright.relay.transform.simplify.fold_constant import constant_value, fold_constant
from tilewright.runtime.ndarray import numpy_dtype, numpy_view
from tilewright.topi.shape_checks import MOST_ELEMENTS

if TYPE_CHECKING:
    from tilewright.relay.frontend.onnx.importer import GraphImporter

_SMALL = ("float8", "float4")
DESCRIBED_AS = "tilewright.described_as"  # metadata of a node that is a part of another format's: its name in messages

# No model needs a larger constant; one that claims it is damaged or hostile.
MAX_CONSTANT_BYTES = 1 << 33


class OnnxImportError(TilewrightError):
    """A model that cannot be imported; the message names the node and the problem."""


class ValueNeededError(OnnxImportError):
    """The import depends on a value that is known only at run time; ``inputs`` are the inputs it comes from."""

    def __init__(self, node: onnx.NodeProto, what: str, inputs: Sequence[str]) -> None:
        whose = f"the model's input{'s' * (len(inputs) != 1)} {', '.join(map(repr, inputs))}" if inputs else "its data"
        super().__init__(
            f"{describe(node)}: {what} must be a constant when the model is compiled, but is computed from {whose}; "
            "store its value in the model, as an initializer"
        )
        self.inputs = tuple(inputs)


class DataNeededError(OnnxImportError):
    """The shape of a node's result depends on data that are known only at run time; ``output`` is its first."""

    def __init__(self, node: onnx.NodeProto) -> None:
        super().__init__(
            f"{describe(node)}: the shape of its result depends on data that are not constant; "
            "tilewright.relay.frontend.onnx.backend runs such operators on the host"
        )
        self.output = next(name for name in node.output if name)


def warn_of_training(found: Sequence[str]) -> None:
    """Warn of nodes that behave as in training; ``found`` describes what each does."""
    if found:
        others = f", and {len(found) - 1} more do what training wants" if len(found) > 1 else ""
        text = f"the model was exported in training mode: {found[0]}{others}; call .eval() before the export"
        warnings.warn(text, UserWarning, stacklevel=4)


class TensorSequence(tuple[RelayExpr, ...]):
    """A sequence of tensors whose length is known; an optional value that is empty is one too."""

    empty_optional = False

    @staticmethod
    def nothing() -> TensorSequence:
        """Return the optional value that is empty."""
        made = TensorSequence()
        made.empty_optional = True
        return made

    @staticmethod
    def is_nothing(value: object) -> bool:
        """Return whether ``value`` is an empty optional."""
        return isinstance(value, TensorSequence) and value.empty_optional


class NodeContext(ConverterContext):
    """One ONNX node while it is converted."""

    error = OnnxImportError
    remedy = "give numbers for the model's inputs (--input-shape)"
    normalize_axis = ConverterContext.axis

    @property
    def place(self) -> str:
        """Return the node's name in messages."""
        return describe(self.node)

    def __init__(
        self, importer: GraphImporter, node: onnx.NodeProto, inputs: Sequence[RelayExpr | TensorSequence | None]
    ) -> None:
        self.importer = importer
        self.node = node
        self.opset = importer.opset
        self.attrs = parse_attributes(node)
        self._inputs = list(inputs)
        self.result_elements: Elements | None = None  # set by a converter that knows those of the first output

    def in_float32(self, weights: Sequence[int]) -> tuple[NodeContext, str | None]:
        """Return the node with float16 and bfloat16 inputs widened, and their type; None if it has none.

        ``weights``, which Relay's operators widen, stay, unless they were computed in float32.
        """
        wide = self.importer.unrounded
        narrow = [i for i, e in enumerate(self._inputs) if isinstance(e, RelayExpr) and dt.is_half(self.dtype(e))]
        if not narrow:
            return self, None
        inputs = [
            self._widened(e) if isinstance(e, RelayExpr) and i in narrow and (i not in weights or e in wide) else e
            for i, e in enumerate(self._inputs)
        ]
        return NodeContext(self.importer, self.node, inputs), self.dtype(self.input(narrow[0]))

    def _widened(self, value: RelayExpr) -> RelayExpr:
        before = self.importer.unrounded.get(value)
        return typed(cast(value, "float32")) if before is None else before

    def rounded(self, value: RelayExpr, dtype: str) -> RelayExpr:
        """Return a result that was computed in float32 as ``dtype``; operators that compute in float32 read it as it
        was.
        """
        wide = typed(value)
        result = typed(cast(wide, dtype))
        if self.dtype(wide) == "float32":
            self.importer.unrounded[result] = wide
        return result

    def is_half(self, index: int) -> bool:
        """Return whether the input ``index`` is a tensor of float16 or bfloat16."""
        value = self._inputs[index] if self.has_input(index) else None
        return isinstance(value, RelayExpr) and dt.is_half(self.dtype(value))

    @property
    def reads_rounded(self) -> bool:
        """Return whether an input was computed in float32 and rounded to half precision."""
        return any(isinstance(e, RelayExpr) and e in self.importer.unrounded for e in self._inputs)

    @property
    def num_inputs(self) -> int:
        """Return the number of inputs, omitted ones included."""
        return len(self._inputs)

    @property
    def num_outputs(self) -> int:
        """Return the number of outputs that the node names."""
        return len(self.node.output)

    def has_input(self, index: int) -> bool:
        """Return whether the optional input ``index`` is present."""
        return index < len(self._inputs) and self._inputs[index] is not None

    def input(self, index: int) -> RelayExpr:
        """Return the tensor in input ``index``, typed; an omitted one is an error."""
        value = self.value(index)
        if isinstance(value, TensorSequence):
            self.fail(f"input {index}, {self.node.input[index]!r}, is a sequence; a tensor is expected")
        return value

    def sequence(self, index: int) -> TensorSequence:
        """Return the sequence in input ``index``."""
        value = self.value(index)
        if not isinstance(value, TensorSequence):
            self.fail(f"input {index}, {self.node.input[index]!r}, is a tensor; a sequence is expected")
        return value

    def value(self, index: int) -> RelayExpr | TensorSequence:
        """Return the tensor or sequence in input ``index``; an omitted one is an error."""
        if not self.has_input(index):
            self.fail(f"input {index} is required and missing")
        value = self._inputs[index]
        assert value is not None
        return value

    def optional(self, index: int) -> RelayExpr | None:
        """Return the input ``index``, or None when it is omitted."""
        return self.input(index) if self.has_input(index) else None

    def inputs(self) -> list[RelayExpr]:
        """Return all inputs; none may be omitted."""
        return [self.input(i) for i in range(self.num_inputs)]

    def attr(self, name: str, default: Any = None) -> Any:
        """Return an attribute, or its default; attributes are float32, and so is a default."""
        found = self.attrs.get(name, default)
        return float(np.float32(found)) if isinstance(found, float) else found

    def through_float(self, data: RelayExpr, build: Callable[[RelayExpr], RelayExpr]) -> RelayExpr:
        """Apply ``build`` to ``data``; integers are computed in floating point, and rounded towards zero."""
        dtype = self.dtype(data)
        if dt.is_float(dtype):
            return build(data)
        return relay_op.cast(build(relay_op.cast(data, "float32" if dt.bits(dtype) <= 16 else "float64")), dtype)

    def required(self, name: str) -> Any:
        """Return an attribute; a missing one is an error."""
        if name not in self.attrs:
            self.fail(f"attribute {name!r} is required and missing")
        return self.attrs[name]

    def extent(self, expr: RelayExpr, axis: int) -> int:
        """Return one dimension, which must be known."""
        found = self.tensor_type(expr)
        dim = found.shape[axis]
        if not isinstance(dim, IntImm):
            self.unsupported(
                f"dimension {axis} of {found} must be known; give a number for the model's input (--input-shape)"
            )
        return int(dim.value)

    def elements(self, expr: RelayExpr) -> Elements | None:
        """Return what is known of the elements of an integer tensor (``elements.py``)."""
        return self.importer.elements(self, expr)

    def shape_elements(self, index: int) -> list[Any] | None:
        """Return the elements of an integer input; None where their number is unknown."""
        found = self.elements(self.input(index))
        if self.importer.static:
            return list(self.ints(index, "what decides a shape"))
        if found is not None:
            return list(found.reshape(-1))
        shape = self.tensor_type(self.input(index)).shape
        count = element(shape[0]) if len(shape) == 1 else 1
        return [None] * count if is_number(count) else None

    def reshaped(self, data: RelayExpr, like: RelayExpr, replaced: int, first: int, last: int) -> RelayExpr:
        """Return ``data`` with its first ``replaced`` dimensions replaced by those ``first`` to ``last`` of
        ``like``.
        """
        own, other = self.tensor_type(data), self.tensor_type(like)
        if not own.is_dynamic and not other.is_dynamic and 0 not in (*own.concrete_shape, *other.concrete_shape):
            shape = (*other.concrete_shape[first:last], *own.concrete_shape[replaced:])
            return relay_op.reshape(data, newshape=shape)
        return relay_op.reshape_like(data, like, lhs_begin=0, lhs_end=replaced, rhs_begin=first, rhs_end=last)

    def onnx_dtype(self, onnx_type: int) -> str:
        """Return the compiler's data type of an ONNX element type."""
        return dtype_of(onnx_type, describe(self.node))

    def subgraph(self, graph: onnx.GraphProto, inputs: Sequence[Any]) -> list[Any]:
        """Return the outputs of a graph in this node's attributes for inputs; it also sees the values around the
        node.
        """
        return self.importer.convert_subgraph(graph, inputs)

    @property
    def strings(self) -> StringTable:
        """Return the numbers of strings; without the backend's table there are none."""
        if self.importer.strings is None:
            self.unsupported("strings; tilewright.relay.frontend.onnx.backend compiles and runs models that have them")
        return self.importer.strings

    def constant(self, index: int, what: str) -> np.ndarray[Any, Any]:
        """Return the value of input ``index``, which must be known at compile time."""
        name = self.node.input[index] if index < len(self.node.input) else ""
        return self.known(self.input(index), f"{what} (input {index}, {name!r})")

    def known(self, expr: RelayExpr, what: str) -> np.ndarray[Any, Any]:
        """Return the value of the expression ``what``; raise ValueNeededError where it is unknown."""
        value = self.constant_or_none(expr)
        if value is None:
            raise ValueNeededError(self.node, what, self.importer.inputs_of(expr))
        return value

    def constant_if_known(self, index: int, what: str) -> np.ndarray[Any, Any] | None:
        """Return the value of input ``index``, None where it is known at run time only; in a static import it must
        be known.
        """
        return self.constant(index, what) if self.importer.static else self.constant_or_none(self.input(index))

    def ints(self, index: int, what: str) -> tuple[int, ...]:
        """Return the integers of a constant input of rank 0 or 1."""
        return tuple(int(v) for v in self.constant(index, what).reshape(-1))

    def ints_or_none(self, index: int, what: str) -> tuple[int, ...] | None:
        """Return the integers of an optional constant input."""
        return self.ints(index, what) if self.has_input(index) else None

    def scalar(self, index: int, what: str, default: float | None = None) -> float:
        """Return ``what``, the number in a constant input of one element, or the default when it is omitted."""
        if not self.has_input(index) and default is not None:
            return default
        value = self.constant(index, what)
        if value.size != 1:
            self.fail(f"{what} (input {index}, {self.node.input[index]!r}) should be one number, found {value.size}")
        return value.reshape(-1)[0].item()

    def count(self, index: int, what: str, least: int = 1) -> int:
        """Return ``what``, the whole number in a constant input of one element; fail for one below ``least`` or for
        more elements than a tensor has.
        """
        value = self.scalar(index, what)
        if not least <= value <= MOST_ELEMENTS:
            name = self.node.input[index]
            self.fail(f"{what} (input {index}, {name!r}) is {value}: expected {least} to {MOST_ELEMENTS}")
        return int(value)

    def constant_or_none(self, expr: RelayExpr) -> np.ndarray[Any, Any] | None:
        """Return the value of an expression if it is known at compile time."""
        known = self.importer.known_elements.get(expr)
        if known is not None and isinstance(expr, Call):
            values = known if dt.is_bool(self.dtype(expr)) and None not in known.reshape(-1) else numbers(known)
            return None if values is None else values.astype(numpy_dtype(self.dtype(expr)))
        if isinstance(expr, Var):
            return self.importer.param_value(expr)
        if isinstance(expr, Constant):
            return numpy_view(expr.data)
        if not self.importer.is_constant_expr(expr):
            return None
        return self.folded(expr)

    def folded(self, expr: RelayExpr) -> np.ndarray[Any, Any] | None:
        """Return the value of an expression that comes from weights and constants alone."""
        found = constant_value(fold_constant(typed(self.importer.with_params(typed(expr)))))
        return found if isinstance(found, np.ndarray) else None

    def check_constant(self, shape: Sequence[int], dtype: str) -> None:
        """Refuse to make a constant that is larger than any model needs."""
        if any(extent < 0 for extent in shape):
            self.fail(f"its result would have the shape {tuple(shape)}: expected extents of 0 and more")
        size = math.prod(shape) * dt.nbytes(dtype)
        if size > MAX_CONSTANT_BYTES:
            self.fail(f"its result of shape {tuple(shape)} has {size / 2**30:.3g} GiB; refusing")
        check_budget(lambda: f"{describe(self.node)}: its result of shape {tuple(shape)}", size)

    def write_out(self, nodes: int, what: str) -> None:
        """Count the nodes that the node is about to be expanded to; raise BudgetError where they are too many."""
        count_nodes(nodes, lambda: f"{describe(self.node)}: {what}")

    def is_known(self, *inputs: int) -> bool:
        """Return whether inputs depend on weights and constants alone; omitted ones do."""
        return all(not self.has_input(i) or self.importer.is_known(self.value(i)) for i in inputs)

    def called(
        self,
        op_type: str,
        inputs: Sequence[RelayExpr | TensorSequence | None],
        attributes: Mapping[str, Any],
        opset: int | None = None,
    ) -> RelayExpr:
        """Convert ONNX's operator ``op_type`` of the inputs, as a part of this node."""
        opset = opset or self.opset
        convert = find_converter("", op_type, opset)
        if convert is None:
            self.unsupported(f"the operator {op_type!r} of opset {opset}")
        names = ["" if value is None else f"input {i}" for i, value in enumerate(inputs)]
        node = onnx.helper.make_node(op_type, names, self.node.output[:1], name=self.node.name, **attributes)
        context = NodeContext(self.importer, node, inputs)
        context.opset = opset
        made = convert(context)
        assert isinstance(made, RelayExpr)
        return typed(made)

    def runs_as_in_training(self, doing: str) -> None:
        """Record for a warning that this node behaves as in training."""
        self.importer.in_training.append(f"{describe(self.node)} {doing}")


def describe(node: onnx.NodeProto) -> str:
    """Return the name of a node in messages: its operator and its name, or its first output."""
    for entry in node.metadata_props:
        if entry.key == DESCRIBED_AS:
            return entry.value
    if node.name:
        return f"ONNX node {node.name!r} ({node.op_type})"
    output = next((o for o in node.output if o), "")
    return f"ONNX node giving {output!r} ({node.op_type})"


def without_shapes(inputs: Iterable[onnx.ValueInfoProto], known: Collection[str]) -> OnnxImportError:
    """Return the message for tensors that have no shape in the model and are not ``known``."""
    tensors = [v for v in inputs if v.type.HasField("tensor_type") and v.name not in known]
    names = [v.name for v in tensors if not v.type.tensor_type.HasField("shape")]
    some = f"inputs {', '.join(map(repr, names))} have" if len(names) > 1 else f"input {names[0]!r} has"
    return OnnxImportError(
        f"{some} no shape, not even a number of dimensions; give each a shape of numbers, and of names for what is "
        f"known when the model runs: --input-shape {names[0]}:batch,128 (in Python {{{names[0]!r}: ('batch', 128)}})"
    )


def refuse_small_types(node: onnx.NodeProto, opset: int, inputs: Sequence[Any]) -> None:
    """Refuse inputs of 8-bit and 4-bit floating-point types for operators whose definition does not have them."""
    types = [getattr(value, "checked_type", None) for value in inputs]
    small = [(i, t.dtype) for i, t in enumerate(types) if isinstance(t, TensorType) and t.dtype.startswith(_SMALL)]
    if not small or node.domain not in ("", "ai.onnx") or not onnx.defs.has(node.op_type, opset, ""):
        return
    schema = onnx.defs.get_schema(node.op_type, opset, "")
    for index, dtype in small:
        allowed = schema.inputs[min(index, len(schema.inputs) - 1)].types
        if not any(name.removeprefix("tensor(").startswith(_SMALL) for name in allowed):
            raise OnnxImportError(
                f"{describe(node)}: input {index}, {node.input[index]!r}, is {dtype}, which {node.op_type} does not "
                f"take in opset {opset}; cast it to float32"
            )


@contextmanager
def errors_of(node: onnx.NodeProto) -> Iterator[None]:
    """Name the node in errors that arise in the block."""
    try:
        yield
    except BudgetError as error:
        raise _budget_error_in(node, error) from None
    except (OnnxImportError, UnsupportedError):
        raise
    except TilewrightError as error:
        raise OnnxImportError(f"{describe(node)}: {error}") from None
    except (ValueError, TypeError, LookupError, ArithmeticError) as error:
        # Attributes that contradict one another or the inputs surface here in many forms.
        raise OnnxImportError(f"{describe(node)}: its inputs or attributes do not fit: {error}") from error


def _budget_error_in(node: onnx.NodeProto, error: BudgetError) -> BudgetError:
    """Return the error with the innermost node in which it arose: the loop that does not end."""
    inside = any(a.HasField("g") for a in node.attribute) and not str(error).startswith(describe(node))
    return BudgetError(f"{describe(node)}: {error}") if inside else error


def is_static(type_: Type) -> bool:
    """Return whether all dimensions are known."""
    if isinstance(type_, TupleType):
        return all(is_static(t) for t in type_.fields)
    return isinstance(type_, TensorType) and all(isinstance(d, IntImm) for d in type_.shape)


def int_const(values: Sequence[int], dtype: str = "int64") -> Constant:
    """Return a rank-1 integer constant."""
    return const(np.array(values, dtype=dtype), dtype)
