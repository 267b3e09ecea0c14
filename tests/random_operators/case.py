"""A case: a model, what it is fed, and how near its outputs must be; and how generators build one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from tests.random_operators.draw import Array, Discard, Draw

from tilewright.relay.frontend.onnx.attributes import _DTYPES

OLDEST = 7
_ELEMENT_TYPES = {f"tensor({kind})": name for kind, name in (
    ("float", "float32"), ("double", "float64"), *((name, name) for name in _DTYPES.values()),
)}  # fmt: skip
_ONNX_TYPES = {name: number for number, name in _DTYPES.items()}


@dataclass(frozen=True)
class Tolerance:
    """How far a floating-point result may be from the exact one. Integers are always compared exactly.

    ``exact``: equal to the reference, which computes in the model's own data types.
    ``ulp``: within ``amount`` units in the last place of the exact result.
    ``linear``: within ``amount`` roundings of the sum of the absolute values of what is added up.
    ``close``: within ``amount`` roundings of the largest number of the result, or of 1.
    ``rough``: within ``amount`` of the exact result, or 1e-6.
    ``truncated``: integers to which the result of a function was rounded towards zero, within 1.
    """

    kind: str = "exact"
    amount: float = 0.0


EXACT = Tolerance()


@dataclass
class Case:
    """One case: a model, its inputs by name, the tolerance, and how to compile it."""

    operator: str
    model: onnx.ModelProto
    inputs: dict[str, Array]
    tolerance: Tolerance
    target: str = "llvm"
    opt_levels: tuple[int, ...] = (3,)
    choices: list[int] = field(default_factory=list)
    undefined: Array | None = None
    """Where the specification leaves the elements of the first output open."""
    rounds: list[dict[str, Array]] = field(default_factory=list)
    """Inputs of several runs, of other shapes, of one program; ``inputs`` are then the first of them."""
    dims: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Least and largest of named dimensions."""
    spelled: onnx.ModelProto | None = None
    """The model in another spelling, for the compiler; the oracles have ``model``."""

    @property
    def nodes(self) -> Sequence[onnx.NodeProto]:
        """The nodes of the model."""
        return list(self.model.graph.node)

    @property
    def opset(self) -> int:
        """The version of ONNX's operators."""
        return int(self.model.opset_import[0].version)

    def attributes(self) -> dict[str, Any]:
        """Attributes of the first node of the case's operator."""
        node = next(n for n in self.nodes if n.op_type == self.operator)
        return {a.name: helper.get_attribute_value(a) for a in node.attribute}

    def arrays(self) -> list[Array | None]:
        """Inputs of the first node of the case's operator, None for what another node gives or nothing."""
        known = self.inputs | {t.name: numpy_helper.to_array(t) for t in self.model.graph.initializer}
        node = next(n for n in self.nodes if n.op_type == self.operator)
        return [known.get(name) for name in node.input]

    def describe(self) -> str:
        """The model as text, and the shapes of what it is fed."""
        fed = "; then ".join(
            ", ".join(f"{name} {array.dtype}{list(array.shape)}" for name, array in inputs.items())
            for inputs in self.rounds or [self.inputs]
        )
        text = "\n".join(line[:400] for line in onnx.printer.to_text(self.model).splitlines())
        text += f"\nspelled as\n{onnx.printer.to_text(self.spelled)[:4000]}" if self.spelled else ""
        return f"{text}\nfed with {fed or 'nothing'}; {self.target}, {self.opt_levels}"


@functools.cache
def versions(operator: str) -> tuple[int, ...]:
    """The opsets at which the operator's definition changed, newest first, from the oldest that we read."""
    found = [
        s.since_version
        for s in onnx.defs.get_all_schemas_with_history()
        if s.domain == "" and s.name == operator and not s.deprecated
    ]
    oldest = max((v for v in found if v <= OLDEST), default=OLDEST)
    return tuple(sorted({max(v, OLDEST) for v in found if v >= oldest}, reverse=True))


def schema(operator: str, opset: int) -> Any:
    """ONNX's definition of an operator."""
    return onnx.defs.get_schema(operator, opset)


def formal_dtypes(operator: str, opset: int, index: int = 0) -> tuple[str, ...]:
    """The data types that input ``index`` may have by the definition, of those that the compiler has."""
    definition = schema(operator, opset)
    formal = definition.inputs[min(index, len(definition.inputs) - 1)]
    found = [_ELEMENT_TYPES[t] for t in formal.types if t in _ELEMENT_TYPES]
    return tuple(sorted(found, key=list(_ELEMENT_TYPES.values()).index))


def onnx_type(dtype: str) -> int:
    """ONNX's number for a data type."""
    return int(_ONNX_TYPES[dtype])


class Graph:
    """What a generator builds: a graph of one or a few nodes."""

    def __init__(self, draw: Draw, operator: str, opset: int) -> None:
        self.draw = draw
        self.operator = operator
        self.opset = opset
        self.inputs: dict[str, Array] = {}
        self.constants: dict[str, Array] = {}
        self.nodes: list[onnx.NodeProto] = []
        self.outputs: list[str] = []
        self.undefined: Array | None = None
        self.rounds: list[dict[str, Array]] = []
        self.names: dict[str, tuple[int, ...]] = {}
        self.declared: dict[str, int] = {}  # element types of outputs that ONNX does not infer
        self.other_nodes: list[onnx.NodeProto] = []  # nodes that mean the same, for the compiler
        self._spelled: dict[str, Sequence[int | str]] = {}

    def dtype(self, index: int = 0, among: Sequence[str] | None = None) -> str:
        """A data type for input ``index`` of the operator."""
        options = [d for d in formal_dtypes(self.operator, self.opset, index) if among is None or d in among]
        if not options:
            raise Discard
        return str(self.draw.of(*options))

    def has(self, attribute: str) -> bool:
        """Whether the operator has this attribute at this opset."""
        return attribute in schema(self.operator, self.opset).attributes

    def input(self, array: Array) -> str:
        """A tensor that is fed, or one time in four an initializer."""
        return self.fixed(array) if self.draw.chance(4) else self.fed(array)

    def fed(self, array: Array) -> str:
        """A tensor that is fed."""
        name = f"x{len(self.inputs)}"
        self.inputs[name] = np.asarray(array)
        return name

    def fed_by_rounds(self, arrays: Sequence[Array], shape: Sequence[int | str]) -> str:
        """A tensor that is fed another one in each round; its shape as the model spells it."""
        name = self.fed(arrays[0])
        self.rounds = self.rounds or [{} for _ in arrays]
        for inputs, array in zip(self.rounds, arrays, strict=True):
            inputs[name] = array
        self._spelled[name] = shape
        return name

    def fixed(self, array: Array) -> str:
        """A tensor that is part of the model."""
        name = f"w{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def ints(self, *values: int, dtype: str = "int64") -> str:
        """A list of integers that is part of the model."""
        return self.fixed(np.array(values, dtype=dtype))

    def data(self, dtype: str, shape: Sequence[int], kinds: str = "any") -> str:
        """A tensor of drawn numbers."""
        return self.input(self.draw.array(dtype, shape, kinds))

    def emit(
        self, inputs: Sequence[str], outputs: int = 1, operator: str | None = None, domain: str = "", **attributes: Any
    ) -> list[str]:
        """A node; its outputs are outputs of the model, and no longer those that it reads."""
        while inputs and not inputs[-1]:
            inputs = inputs[:-1]
        names = [f"y{len(self.nodes)}_{i}" for i in range(outputs)]
        node = helper.make_node(operator or self.operator, list(inputs), names, domain=domain, **attributes)
        self.nodes.append(node)
        self.outputs = [name for name in self.outputs if name not in inputs] + names
        return names

    def case(self, tolerance: Tolerance) -> Case:
        """The case, with the outputs typed by ONNX's own inference."""
        given = [
            helper.make_tensor_value_info(name, onnx_type(str(a.dtype)), self._spelled.get(name, a.shape))
            for name, a in self.inputs.items()
        ]
        weights = [numpy_helper.from_array(a, name) for name, a in self.constants.items()]
        outputs = [onnx.ValueInfoProto(name=name) for name in self.outputs]
        graph = helper.make_graph(self.nodes, self.operator, given, outputs, weights)
        opsets = [helper.make_opsetid("", self.opset)]
        opsets += [helper.make_opsetid(domain, 1) for domain in sorted({n.domain for n in self.nodes} - {""})]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10 if self.opset < 23 else 12)
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
        for value in model.graph.output:
            if not value.type.tensor_type.elem_type:
                value.type.tensor_type.elem_type = self.declared.get(value.name) or self._declared_type()
        used = {d for shape in self._spelled.values() for d in shape}
        dims = {name: (min(1, *extents), max(extents)) for name, extents in self.names.items() if name in used}
        return Case(
            self.operator, model, self.inputs, tolerance, undefined=self.undefined, rounds=self.rounds, dims=dims,
            spelled=self._with_other_nodes(model),
        )  # fmt: skip

    def _with_other_nodes(self, model: onnx.ModelProto) -> onnx.ModelProto | None:
        if not self.other_nodes:
            return None
        other = onnx.ModelProto()
        other.CopyFrom(model)
        del other.graph.node[:], other.graph.value_info[:]
        other.graph.node.extend(self.other_nodes)
        for domain in sorted({n.domain for n in self.other_nodes} - {"", *(o.domain for o in other.opset_import)}):
            other.opset_import.append(helper.make_opsetid(domain, 1))
        return other

    def _declared_type(self) -> int:
        """The element type of the first output by the definition, which names it like that of an input."""
        definition, known = schema(self.operator, self.opset), self.inputs | self.constants
        for formal, name in zip(definition.inputs, self.nodes[-1].input, strict=False):
            if formal.type_str == definition.outputs[0].type_str:
                return onnx_type(str(known[name].dtype))
        raise ValueError(f"neither inference nor the definition types the output of {self.operator}")


Generator = Callable[[Graph], Tolerance]
GENERATORS: dict[str, Generator] = {}


def generator(*operators: str) -> Callable[[Generator], Generator]:
    """Register the generator of cases of some operators."""

    def register(function: Generator) -> Generator:
        for operator in operators:
            assert operator not in GENERATORS, operator
            GENERATORS[operator] = function
        return function

    return register
