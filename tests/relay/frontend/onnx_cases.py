"""The onnx package's own cases of single operators: which are in scope, and how to run one."""

from __future__ import annotations

import functools
import re
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

from tilewright.relay.frontend.onnx.attributes import _DTYPES
from tilewright.relay.frontend.onnx.importer import _with_subgraphs
from tilewright.relay.frontend.onnx.registry import find_converter

# Inputs that must be known when the model is compiled; the cases feed them when it runs.
CONSTANT_INPUTS: dict[str, tuple[int, ...]] = {
    "AffineGrid": (1,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "Col2Im": (1, 2),
    "ConstantOfShape": (0,),
    "CumProd": (1,),
    "CumSum": (1,),
    "DFT": (1, 2),
    "Dropout": (1, 2),
    "Expand": (1,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "If": (0,),
    "LSTM": (4,),
    "Loop": (0, 1),
    "MaxUnpool": (2,),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "NonZero": (0,),
    "OneHot": (1,),
    "Pad": (1, 2, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "STFT": (1, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "SplitToSequence": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
    **{
        f"Reduce{kind}": (1,)
        for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
    },
}

# Operators without a converter, which ONNX defines by others.
WRITTEN_OUT = frozenset(
    [
        *("AffineGrid", "Attention", "BlackmanWindow", "CausalConvWithState", "CenterCropPad", "DynamicQuantizeLinear"),
        *("FlexAttention", "HammingWindow", "HannWindow", "MeanVarianceNormalization", "NegativeLogLikelihoodLoss"),
        *("LinearAttention", "RMSNormalization", "RotaryEmbedding", "SoftmaxCrossEntropyLoss", "SwiGLU", "Swish"),
    ]
)

# Cases of supported operators that are out of scope: a pattern of their names, and what the message says.
OUT_OF_SCOPE: dict[str, str] = {
    # training
    "test_batchnorm_.*_training_mode": "training mode",
    "test_training_dropout(_default)?(_mask)?": "training mode",
    # a scale for each block
    "test_(de)?quantizelinear_blocked(_asymmetric|_symmetric)?": "block",
    # no tensors
    "test_identity_(sequence|opt)": "not a tensor",
    "test_if_(seq|opt)|test_loop1[36]_seq(_none)?": "not a tensor",
    "test_sequence_(map|insert)_.*|test_split_to_sequence_.*": "not a tensor",
    "test_optional_get_element_(optional_.*|sequence)": "not a tensor",
    "test_optional_has_element_(tensor|optional|empty_optional)_input": "not a tensor",
    # operators that Relay lacks
    "test_maxpool_with_argmax_2d_precomputed_(pads|strides)": "indices",
    "test_deform_conv_with_mask_bias": "mask",
    "test_roialign_mode_max": "mode max",
    # an opset that is too old
    "test_not_[234]d": "opset 1",
}

# Rounding at every step of a computation in few bits adds up; the stored outputs round in another order.
_TOLERANCES = {"float16": (1e-2, 1e-3), "bfloat16": (5e-2, 1e-2)}
# Stored outputs of float32 transforms, where the exact result is 0.
_NOISE = {"DFT": 1e-6}


@dataclass(frozen=True)
class Case:
    """One case: a model of one operator, inputs by name, outputs in order."""

    name: str
    op_type: str
    model: onnx.ModelProto
    inputs: dict[str, Any]
    outputs: list[Any]
    rtol: float
    atol: float


@functools.cache
def all_cases() -> dict[str, Case]:
    """Every case of the onnx package by name; the ``_expanded`` ones have the operator of the case they expand."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = {case.name: case for case in load_model_tests(kind="node")}
    cases = {}
    for name, case in found.items():
        base = found.get(name.removesuffix("_expanded"), case)
        given, expected = ([_array(v) for v in values] for values in case.data_sets[0])
        names = [value.name for value in case.model.graph.input]
        cases[name] = Case(
            name,
            base.model.graph.node[0].op_type,
            case.model,
            dict(zip(names, given, strict=True)),
            expected,
            case.rtol,
            case.atol,
        )
    return cases


def _array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def opset(case: Case) -> int:
    """The version of ONNX's own operators that the case uses."""
    return max((o.version for o in case.model.opset_import if o.domain in ("", "ai.onnx")), default=1)


def unsupported_operators(case: Case) -> list[str]:
    """Operators of the case that have no converter and are not written out."""
    return [
        node.op_type
        for node in _with_subgraphs(case.model.graph.node)
        if node.op_type not in WRITTEN_OUT and find_converter(node.domain, node.op_type, opset(case)) is None
    ]


def has_unsupported_dtype(case: Case) -> bool:
    """Whether an input, an output or an attribute has a data type that the compiler lacks."""
    values = [*case.model.graph.input, *case.model.graph.output]
    types = [v.type.tensor_type.elem_type for v in values if v.type.HasField("tensor_type")]
    for node in case.model.graph.node:
        types.extend(a.t.data_type for a in node.attribute if a.HasField("t"))
        types.extend(a.i for a in node.attribute if a.name == "to")
    return any(t not in _DTYPES for t in types)


def reason_out_of_scope(case: Case) -> str | None:
    """What the message for a case of a supported operator says, or None for a case that must work."""
    for pattern, reason in OUT_OF_SCOPE.items():
        if re.fullmatch(pattern, case.name):
            return reason
    return "data type" if has_unsupported_dtype(case) else None


def bind_constants(case: Case) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """The model with what must be constant as initializers, and the other inputs."""
    names = list(case.inputs)
    bound = {names[i] for i in CONSTANT_INPUTS.get(case.op_type, ()) if i < len(names)}
    # Where optional inputs are omitted, places in the node and in the graph's list differ; go by the node's.
    if not case.name.endswith("_expanded"):
        node = case.model.graph.node[0]
        bound = {node.input[i] for i in CONSTANT_INPUTS.get(case.op_type, ()) if i < len(node.input)} & set(names)
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    for name in sorted(bound):
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(case.inputs[name]), name))
    return model, {name: value for name, value in case.inputs.items() if name not in bound}


def import_case(case: Case) -> Any:
    """The Relay module and parameters of a case, and the inputs that remain."""
    from tilewright import relay

    model, inputs = bind_constants(case)
    shapes = {
        name: np.shape(value)
        for name, value in inputs.items()
        if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind not in "OU"
    }
    module, params = relay.frontend.from_onnx(model, shapes)
    return module, params, inputs


def run_case(case: Case) -> None:
    """Compile a case, run it, and compare with the stored outputs."""
    import tilewright as tvm
    from tilewright import relay
    from tilewright.contrib import graph_executor

    module, params, inputs = import_case(case)
    with tvm.transform.PassContext(opt_level=1):
        factory = relay.build(module, "llvm", params=params)
    executor = graph_executor.GraphModule(factory["default"](tvm.cpu(0)))
    for name, value in inputs.items():
        executor.set_input(name, value)
    executor.run()
    found = [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]
    assert len(found) == len(case.outputs)
    for value, expected in zip(found, case.outputs, strict=True):
        wanted = np.asarray(expected)
        assert value.shape == wanted.shape
        assert value.dtype == wanted.dtype
        _assert_close(value, wanted, case)


def _assert_close(value: np.ndarray, wanted: np.ndarray, case: Case) -> None:
    if wanted.dtype.kind in "iub":
        np.testing.assert_array_equal(value, wanted)
        return
    rtol, atol = _TOLERANCES.get(str(wanted.dtype), (case.rtol, case.atol))
    atol = max(atol, _NOISE.get(case.op_type, 0))
    np.testing.assert_allclose(value.astype("float64"), wanted.astype("float64"), rtol=rtol, atol=atol)
