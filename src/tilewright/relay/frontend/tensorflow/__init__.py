"""TensorFlow import: one converter for each operator, grouped by family.

proto.py     the messages of graph files                graph.py     nodes, functions, constants
loading.py   GraphDef, .pb files, SavedModel folders    importer.py  converts what outputs need
context.py   the interface of converters                registry.py  converters by name
frames.py    Switch, Merge and frames of TensorFlow 1   control.py   If, While and calls of TensorFlow 2
loops.py     what both kinds of control flow become     lists.py     lists of tensors; arrays.py their operators
elementwise.py conv.py images.py shape.py indexing.py reduce.py linear.py normalization.py recurrent.py sparse.py
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.relay.budget import in_budget
from tilewright.relay.frontend.tensorflow import (
    arrays,
    control,
    conv,
    elementwise,
    images,
    indexing,
    linear,
    normalization,
    recurrent,
    reduce,
    shape,
    sparse,
)
from tilewright.relay.frontend.tensorflow.context import NodeContext
from tilewright.relay.frontend.tensorflow.frames import FRAME_OPERATORS
from tilewright.relay.frontend.tensorflow.graph import Graph, Ref
from tilewright.relay.frontend.tensorflow.importer import GraphImporter, Scope
from tilewright.relay.frontend.tensorflow.lists import TensorList, stacked
from tilewright.relay.frontend.tensorflow.loading import Source, ends, read
from tilewright.relay.frontend.tensorflow.proto import TensorflowImportError
from tilewright.runtime import ndarray as nd

_CONFIG = ("use_dense", "use_nt_batch_matmul")


@in_budget()
def from_tensorflow(
    graph: Any,
    layout: str | None = "NHWC",
    shape: Mapping[str, Sequence[Any]] | None = None,
    outputs: Sequence[str] | None = None,
    convert_config: Mapping[str, Any] | None = None,
) -> tuple[IRModule, dict[str, nd.NDArray]]:
    """Import a TensorFlow graph.

    Parameters
    ----------
    graph : a frozen ``GraphDef`` or its bytes, a ``tf.Graph``, the path of a frozen file, or that of a SavedModel
        folder, which TensorFlow itself freezes.
    layout : "NHWC" or "NCHW", or None; kernels get channels first in any case, inputs and outputs stay as they are.
    shape : shapes of inputs by name, where they differ from the graph's: numbers, and names of dimensions.
    outputs : names of nodes, or of their results, such as ``"Softmax:0"``; by default the last node of a graph, and
        what a SavedModel returns.
    convert_config : ``use_dense=False`` makes matrix products ``nn.matmul``; ``use_nt_batch_matmul`` has no effect.

    Returns
    -------
    The module, whose attribute ``output_names`` has the names of the outputs; and the constants by name.

    Raises
    ------
    TensorflowImportError for a graph that is not valid; UnsupportedError naming every operator that has no converter.
    """
    return import_source(read(graph), shape, outputs, convert_config)


def import_source(
    source: Source,
    shape: Mapping[str, Sequence[Any]] | None = None,
    outputs: Sequence[str] | None = None,
    convert_config: Mapping[str, Any] | None = None,
    channels_first: bool = False,
) -> tuple[IRModule, dict[str, nd.NDArray]]:
    """Import a graph that was read; see ``from_tensorflow``.

    ``channels_first``: inputs and outputs with 4 dimensions and more have their channels second.
    """
    config = dict(convert_config or {})
    for name in config:
        if name not in _CONFIG:
            raise TensorflowImportError(f"convert_config has no option {name!r}; it has {', '.join(_CONFIG)}")
    importer = GraphImporter(source.graph, _shapes(source.graph, shape), config, channels_first)
    given = [str(name) for name in outputs] if outputs else list(source.outputs)
    wanted = [_ref(name) for name in given]
    importer.check_operators(wanted, not outputs)
    scope = Scope(importer, source.graph)
    found: list[tuple[str, RelayExpr]] = []
    for name, ref in zip(given, wanted, strict=True):
        all_of = not outputs and ":" not in name and scope.node(ref.name).op not in FRAME_OPERATORS
        values = scope.results_of(ref.name) if all_of else [scope.value(ref)]
        for place, value in enumerate(values):
            tensor = _tensor(importer, scope, ref, value, all_of)
            if tensor is not None:
                label = source.names.get(name, name.removesuffix(":0"))
                found.append((label if place == 0 else f"{label}:{place}", importer.returned(tensor)))
    if not found:
        raise TensorflowImportError(f"the outputs {', '.join(map(repr, given))} have no values")
    return importer.module(found)


def _tensor(importer: GraphImporter, scope: Scope, ref: Ref, value: Any, may_miss: bool) -> RelayExpr | None:
    """Return an output as a tensor; None for one that has no value and need not."""
    if isinstance(value, TensorList):
        return stacked(NodeContext(importer, scope, scope.node(ref.name), []), value)
    if isinstance(value, RelayExpr):
        return value
    if may_miss:
        return None
    raise TensorflowImportError(f"the output {ref.name}:{ref.index} is no tensor that can be read")


def _ref(name: str) -> Ref:
    node, _, index = name.removeprefix("^").partition(":")
    if index and not index.isdigit():
        raise TensorflowImportError(f"the output {name!r}: expected the name of a node, or name:0")
    return Ref(node, int(index or 0))


def _shapes(graph: Graph, shape: Mapping[str, Sequence[Any]] | None) -> dict[str, Sequence[Any]]:
    """Return the shapes by the names of nodes; "x:0" and a node that is no input are allowed, as in TVM."""
    found = {name.split(":")[0]: dims for name, dims in (shape or {}).items() if name}
    inputs = [n.name for n in graph.nodes.values() if n.op.startswith("Placeholder")]
    for name in found:
        if name not in graph.nodes:
            known = ", ".join(map(repr, inputs)) or "none"
            raise TensorflowImportError(f"the graph has no input {name!r}; its inputs are {known}")
    return found


def load(
    source: Any, shape: Mapping[str, Sequence[Any]] | None = None, outputs: Sequence[str] | None = None
) -> tuple[IRModule, dict[str, nd.NDArray]]:
    """Import a file, a folder or an object for ``import_model``: of a graph, what no node reads are the outputs."""
    found = read(source)
    return import_source(found, shape, outputs or (None if found.names else ends(found.graph)))


__all__ = [
    "TensorflowImportError", "arrays", "control", "conv", "elementwise", "from_tensorflow", "images", "indexing",
    "linear", "load", "normalization", "recurrent", "reduce", "shape", "sparse",
]  # fmt: skip
