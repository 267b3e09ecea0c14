"""``tilewright compare``: comparison of a model's outputs, or of all nodes, with another engine's."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tilewright.driver.dims import combinations, parse_dim_numbers
from tilewright.driver.images import ImageOptions
from tilewright.driver.inputs import make_inputs
from tilewright.driver.library import open_library
from tilewright.driver.options import check_is_file
from tilewright.driver.report import print_json, print_table, print_text
from tilewright.driver.run import run_once
from tilewright.relay.frontend.onnx.importer import open_model
from tilewright.relay.transform.precision.halve_weights import FLOAT32
from tilewright.runtime.error import TVMError
from tilewright.topi.cpu.model.float_tiles import HIGHEST

Array = np.ndarray[Any, Any]

ENGINES = ("onnxruntime", "reference")


@dataclass(frozen=True)
class CompareOptions:
    """Options of the command; ``tolerance`` as of :class:`Difference`, ``layers``: compare every node's outputs."""

    model: Path
    engine: str
    sources: list[str] | None
    image: ImageOptions
    dims: list[str] | None
    input_shape: list[str] | None
    tolerance: float
    layers: bool
    precision: str = FLOAT32
    keep: tuple[str, ...] = ()
    matmul_precision: str = HIGHEST


@dataclass(frozen=True)
class Difference:
    """Difference of a tensor from the other engine's.

    ``largest`` is the largest difference of two elements, ``relative`` the same divided by the largest magnitude of the
    other engine's tensor. Integers and truth values have to be equal.
    """

    tensor: str
    node: str
    dtype: str
    shape: tuple[int, ...]
    largest: float
    relative: float
    agrees: bool


def compare_model(options: CompareOptions, quiet: bool, as_json: bool) -> bool:
    """Run a model here and on another engine, print how far they are apart; return whether they agree."""
    if options.engine not in ENGINES:
        raise TVMError(f"--with takes {' or '.join(ENGINES)}, not {options.engine!r}")
    check_is_file(options.model)
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        file = Path(folder) / "layers.onnx" if options.layers else options.model
        nodes = _with_every_tensor(options.model, file) if options.layers else _producers(options.model)
        inputs, ours = _run_here(file, options)
        theirs = _RUNNERS[options.engine](file, inputs)
    found = [_difference(name, nodes.get(name, ""), ours[name], theirs[name], options.tolerance) for name in nodes]
    wrong = [one for one in found if not one.agrees]
    if as_json:
        first = wrong[0].node if wrong else None
        print_json({"with": options.engine, "agrees": not wrong, "first_node_that_differs": first, "tensors": [
            asdict(one) for one in found
        ]})  # fmt: skip
    elif not quiet:
        print_table(["output", "node", "type", "largest difference", "relative", ""], [_row(one) for one in found])
        if wrong and options.layers:
            print_text(f"the first node that differs is {wrong[0].node}, in {wrong[0].tensor}")
    return not wrong


def _row(one: Difference) -> list[str]:
    kind = f"{one.dtype} {one.shape}"
    return [one.tensor, one.node, kind, f"{one.largest:.3g}", f"{one.relative:.2g}", "" if one.agrees else "differs"]


def _producers(file: Path) -> dict[str, str]:
    """Return each output of a model with the node that makes it."""
    graph = open_model(file).proto.graph
    makers = {name: _label(node) for node in graph.node for name in node.output}
    return {value.name: makers.get(value.name, "") for value in graph.output}


def _label(node: onnx.NodeProto) -> str:
    return f"{node.name} ({node.op_type})" if node.name else node.op_type


def _with_every_tensor(source: Path, target: Path) -> dict[str, str]:
    """Write a model whose outputs are all tensors of its graph; return the tensors with the nodes that make them."""
    model = onnx.load(source)
    graph = model.graph
    typed = {value.name: value for value in _inferred(model).graph.value_info}
    known = {value.name: value for value in graph.output}
    makers = {name: _label(node) for node in graph.node for name in node.output if name in known or name in typed}
    values = [known.get(name) or typed[name] for name in makers if _is_tensor(known.get(name) or typed[name])]
    makers = {value.name: makers[value.name] for value in values}
    del graph.output[:]
    graph.output.extend(values)
    onnx.save(model, target, save_as_external_data=model.ByteSize() > 1 << 30)
    return makers


def _inferred(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with the types of its tensors, as far as ONNX can infer them."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return onnx.shape_inference.infer_shapes(copy)


def _is_tensor(value: onnx.ValueInfoProto) -> bool:
    return value.type.HasField("tensor_type") and value.type.tensor_type.elem_type != onnx.TensorProto.STRING


def _run_here(file: Path, options: CompareOptions) -> tuple[dict[str, Array], dict[str, Array]]:
    precision, matmul_precision = options.precision, options.matmul_precision
    with open_library(
        file, True, options.input_shape, precision=precision, keep=options.keep, matmul_precision=matmul_precision
    ) as opened:
        library = opened.at(next(combinations(parse_dim_numbers(options.dims))))
        inputs = make_inputs(library, options.sources, "random", options.image)
        return inputs, run_once(library, inputs)[1]


def _on_onnxruntime(file: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    try:
        import onnxruntime
    except ImportError:
        raise TVMError("--with onnxruntime needs ONNX Runtime: pip install onnxruntime") from None
    try:
        settings = onnxruntime.SessionOptions()
        settings.log_severity_level = 3
        session = onnxruntime.InferenceSession(str(file), settings, providers=["CPUExecutionProvider"])
        names = [value.name for value in session.get_outputs()]
        taken = {value.name: inputs[value.name] for value in session.get_inputs()}
        return dict(zip(names, session.run(None, taken), strict=True))
    except Exception as error:
        raise TVMError(f"ONNX Runtime does not run {file.name}: {str(error).splitlines()[0]}") from None


def _on_reference(file: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    from onnx.reference import ReferenceEvaluator

    try:
        evaluator = ReferenceEvaluator(str(file))
        taken = {name: inputs[name] for name in evaluator.input_names}
        return dict(zip(evaluator.output_names, evaluator.run(None, taken), strict=True))
    except Exception as error:
        raise TVMError(f"ONNX's reference evaluator does not run {file.name}: {str(error).splitlines()[0]}") from None


_RUNNERS = {"onnxruntime": _on_onnxruntime, "reference": _on_reference}


def _difference(tensor: str, node: str, ours: Array, theirs: Array, tolerance: float) -> Difference:
    theirs = np.asarray(theirs)
    if ours.shape != theirs.shape:
        return Difference(tensor, node, str(ours.dtype), ours.shape, np.inf, np.inf, False)
    exact = theirs.dtype.kind in "biu"
    a, b = ours.astype("float64"), theirs.astype("float64")
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):  # infinity less infinity
        apart = np.where(same, 0, np.abs(a - b))
    largest = float(np.nan_to_num(apart, nan=np.inf).max(initial=0))
    magnitude = float(np.abs(b[np.isfinite(b)]).max(initial=0))
    relative = largest / magnitude if magnitude else largest
    agrees = not largest if exact else relative <= tolerance
    return Difference(tensor, node, str(ours.dtype), ours.shape, largest, relative, agrees)
