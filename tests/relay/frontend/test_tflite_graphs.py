"""Recurrent networks, branches, loops and detections of TensorFlow Lite files, beside LiteRT."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter
from flatbuffers import flexbuffers
from tests.relay.frontend.tflite_files import Array, File, interpreted, litert, one_operator

import tilewright
from tilewright.ir.errors import TilewrightError

T, B, N, U = 5, 2, 3, 4


class Weights:
    """Random constants of a file."""

    def __init__(self, file: File) -> None:
        self.file, self.rng = file, np.random.default_rng(1)

    def __call__(self, *shape: int) -> int:
        return self.file.constant((self.rng.normal(size=shape) * 0.5).astype("float32"))

    def unless(self, omitted: bool, *shape: int) -> int:
        return -1 if omitted else self(*shape)


def _close(data: bytes, inputs: list[Array], kind: str = "debug") -> None:
    for got, want in zip(interpreted(data, inputs, kind), litert(data, inputs), strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "forms",
    [{}, {"coupled", "peepholes"}, {"projection", "time first", "clip"}, {"norms", "peepholes"}],
    ids=lambda forms: ", ".join(sorted(forms)) or "plain",
)
def test_an_lstm_over_a_sequence(forms: set[str]) -> None:
    file, coupled = File(), "coupled" in forms
    g, width = Weights(file), 3 if "projection" in forms else U
    shape = (T, B) if "time first" in forms else (B, T)
    x, y = file.tensor((*shape, N)), file.tensor((*shape, width))
    inputs = [x, *(g.unless(coupled and not i, U, N) for i in range(4))]
    inputs += [g.unless(coupled and not i, U, width) for i in range(4)]
    inputs += [g.unless("peepholes" not in forms or (coupled and not i), U) for i in range(3)]
    inputs += [g.unless(coupled and not i, U) for i in range(4)]
    inputs += [g.unless("projection" not in forms, width, U), g.unless("projection" not in forms, width)]
    inputs += [file.tensor((B, width), variable=True), file.tensor((B, U), variable=True)]
    inputs += [g(U) for _ in range(4)] if "norms" in forms else []
    values: dict[str, Any] = {"timeMajor": "time first" in forms, "cellClip": 0.5 if "clip" in forms else 0.0}
    file.op(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        inputs,
        [y],
        "UnidirectionalSequenceLSTMOptions",
        fusedActivationFunction=4,
        **values,
    )
    _close(file.ends([x], [y]).data, [g.rng.normal(size=(*shape, N)).astype("float32")])


def test_an_elman_network_over_a_sequence() -> None:
    file = File()
    g, x, y = Weights(file), file.tensor((B, T, N)), file.tensor((B, T, U))
    inputs = [x, g(U, N), g(U, U), g(U), file.tensor((B, U), variable=True)]
    file.op("UNIDIRECTIONAL_SEQUENCE_RNN", inputs, [y], "SequenceRNNOptions", fusedActivationFunction=1)
    _close(file.ends([x], [y]).data, [g.rng.normal(size=(B, T, N)).astype("float32")])


@pytest.mark.parametrize("merge", [False, True])
def test_an_elman_network_in_both_directions(merge: bool) -> None:
    file = File()
    g, x = Weights(file), file.tensor((B, T, N))
    outputs = [file.tensor((B, T, 2 * U))] if merge else [file.tensor((B, T, U)) for _ in range(2)]
    inputs = [x]
    for _ in range(2):
        inputs += [g(U, N), g(U, U), g(U), file.tensor((B, U), variable=True)]
    options = {"fusedActivationFunction": 4, "mergeOutputs": merge}
    file.op("BIDIRECTIONAL_SEQUENCE_RNN", [*inputs, -1, -1, -1], outputs, "BidirectionalSequenceRNNOptions", **options)
    _close(file.ends([x], outputs).data, [g.rng.normal(size=(B, T, N)).astype("float32")])


@pytest.mark.parametrize("holds", [True, False])
def test_a_branch_is_taken_at_run_time(holds: bool) -> None:
    file = File()
    condition, x, y = file.tensor((), "bool"), file.tensor((3,)), file.tensor((3,))
    file.op("IF", [condition, x], [y], "IfOptions", thenSubgraphIndex=1, elseSubgraphIndex=2)
    file.ends([condition, x], [y])
    for name in ("NEG", "EXP"):
        file.subgraph()
        inner = file.tensor((3,)), file.tensor((3,))
        file.op(name, [inner[0]], [inner[1]])
        file.ends([inner[0]], [inner[1]])
    _close(file.data, [np.array(holds), np.float32([1, -2, 3])])


def test_a_loop_runs_while_its_condition_holds() -> None:
    file = File()
    n, x, last, y = file.tensor((), "int32"), file.tensor((3,)), file.tensor((), "int32"), file.tensor((3,))
    file.op("WHILE", [n, x], [last, y], "WhileOptions", condSubgraphIndex=1, bodySubgraphIndex=2)
    file.ends([n, x], [last, y])
    file.subgraph()
    n, x, go = file.tensor((), "int32"), file.tensor((3,)), file.tensor((), "bool")
    file.op("LESS", [n, file.constant(np.int32(5))], [go])
    file.ends([n, x], [go])
    file.subgraph()
    n, x, more, double = file.tensor((), "int32"), file.tensor((3,)), file.tensor((), "int32"), file.tensor((3,))
    file.op("ADD", [n, file.constant(np.int32(1))], [more], "AddOptions")
    file.op("ADD", [x, x], [double], "AddOptions")
    file.ends([n, x], [more, double])
    _close(file.data, [np.array(1, "int32"), np.float32([1, -2, 3])])


def detection_options(**more: Any) -> bytes:
    """Options of TFLite_Detection_PostProcess."""
    builder = flexbuffers.Builder()
    with builder.Map():
        for key, value in {"max_detections": 5, "max_classes_per_detection": 1, "num_classes": 3}.items():
            builder.Int(key, value)
        scales = {f"{name}_scale": 10.0 for name in "yxhw"}
        for key, number in {"nms_score_threshold": 0.1, "nms_iou_threshold": 0.5, **scales}.items():
            builder.Float(key, number)
        for key, flag in more.items():
            builder.Bool(key, flag)
    return bytes(builder.Finish())


@pytest.mark.parametrize("by_class", [False, True])
def test_boxes_that_overlap_better_ones_are_left_out(by_class: bool) -> None:
    rng, count = np.random.default_rng(2), 12
    anchors = np.concatenate([rng.random((count, 2)), 0.2 + rng.random((count, 2))], axis=1).astype("float32")
    inputs = [rng.normal(size=(1, count, 4)).astype("float32"), rng.random((1, count, 4)).astype("float32")]
    outputs = [((1, 5, 4), "float32"), ((1, 5), "float32"), ((1, 5), "float32"), ((1,), "float32")]
    options = detection_options(use_regular_nms=by_class)
    data, _ = one_operator("TFLite_Detection_PostProcess", inputs, [anchors], outputs, custom=options)
    _close(data, inputs, "graph")


def counter(first: bool = True) -> File:
    """A file that adds its input to the variable ``total``, which begins as [1, 2], and returns the sum times 3."""
    file = File()

    def handle() -> int:
        made = file.tensor((), "resource")
        file.op("VAR_HANDLE", [], [made], "VarHandleOptions", container="", sharedName="total")
        return made

    x, before, after, y = (file.tensor((2,)) for _ in range(4))
    if first:
        file.op("CALL_ONCE", [], [], "CallOnceOptions", initSubgraphIndex=1)
    total = handle()
    file.op("READ_VARIABLE", [total], [before], "ReadVariableOptions")
    file.op("ADD", [before, x], [after], "AddOptions")
    file.op("ASSIGN_VARIABLE", [total, after], [], "AssignVariableOptions")
    again = file.tensor((2,))
    file.op("READ_VARIABLE", [total], [again], "ReadVariableOptions")
    file.op("MUL", [again, file.constant(np.float32(3))], [y], "MulOptions")
    file.ends([x], [y])
    file.subgraph()
    file.op("ASSIGN_VARIABLE", [handle(), file.constant(np.float32([1, 2]))], [], "AssignVariableOptions")
    return file.ends([], [])


def test_variables_keep_what_a_run_assigns() -> None:
    data, inputs = counter().data, [np.float32([1, 10]), np.float32([2, -4]), np.float32([0, 0.5])]
    interpreter = Interpreter(model_content=data)
    interpreter.allocate_tensors()
    model = tilewright.compile(schema.Model.GetRootAs(data))
    for x in inputs:
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
        interpreter.invoke()
        want = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
        np.testing.assert_array_equal(model(x), want)
    assert {name: value.tolist() for name, value in model.state.items()} == {"total": [4, 8.5]}
    model.reset()
    np.testing.assert_array_equal(model(inputs[0]), np.float32([6, 36]))


def test_a_variable_that_is_only_read_is_a_constant() -> None:
    file = counter()
    del file.model.subgraphs[0].operators[4]  # the assignment
    mod, params = tilewright.relay.frontend.from_tflite(file.data)
    assert len(mod["main"].params) == 1 and not params
    _close(file.data, [np.float32([5, 7])])


def test_a_variable_without_a_value_is_an_error() -> None:
    with pytest.raises(TilewrightError, match=r"READ_VARIABLE.*'total' is read before a value"):
        tilewright.relay.frontend.from_tflite(counter(first=False).data)


@pytest.mark.parametrize("shape", [(3, 2), (1, 6), (-1, 3)])
def test_a_shape_that_is_computed_is_known_in_a_run(shape: tuple[int, int]) -> None:
    file = File()
    x, wanted, y = file.tensor((2, 3)), file.tensor((2,), "int32"), file.tensor((1, 1))
    file.op("RESHAPE", [x, wanted], [y])
    data = file.ends([x, wanted], [y]).data
    _close(data, [np.arange(6, dtype="float32").reshape(2, 3), np.int32(shape)], "vm")


@pytest.mark.parametrize("bounds", [(1, 9, 3), (5, -1, -2), (-3, 1, 5)])
def test_bounds_that_are_computed_are_known_in_a_run(bounds: tuple[int, int, int]) -> None:
    file = File()
    ends, numbers, count = (
        [file.tensor((), "int32") for _ in bounds],
        file.tensor((1,), "int32"),
        file.tensor((1,), "int32"),
    )
    file.op("RANGE", ends, [numbers])
    file.op("SHAPE", [numbers], [count], "ShapeOptions", outType=schema.TensorType.INT32)
    _close(file.ends(ends, [numbers, count]).data, [np.array(bound, "int32") for bound in bounds], "vm")
