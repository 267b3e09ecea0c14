"""ONNX's backend interface: programs by shapes and values, sequences, strings, parts on the host."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tilewright.ir.errors import TilewrightError
from tilewright.relay.frontend.onnx import backend

FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
Array = np.ndarray[Any, Any]


def info(name: str, kind: int, *dims: Any) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, dims)


def model_of(nodes: list, inputs: list, outputs: list, weights: dict | None = None, opset: int = 20, **more: Any):
    tensors = [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, tensors)
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(*item) for item in more.items())]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def texts(*values: Any) -> Array:
    return np.array(values, dtype=object)


def check(model: onnx.ModelProto, *inputs: Any) -> list[Any]:
    """What the model gives, which is what ONNX's reference evaluator gives."""
    found = backend.prepare(model).run(list(inputs))
    names = [value.name for value in model.graph.input]
    expected = ReferenceEvaluator(model).run(None, dict(zip(names, inputs, strict=True)))
    for have, want in zip(found, expected, strict=True):
        np.testing.assert_array_equal(have, np.asarray(want))
    return list(found)


def test_a_program_for_each_combination_of_shapes_and_values() -> None:
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    prepared = backend.prepare(model_of(nodes, [info("x", FLOAT, "n"), info("shape", INT64, 2)], [info("y", FLOAT, 1)]))
    for count, shape in ((6, (2, 3)), (6, (3, 2)), (8, (2, -1)), (6, (2, 3))):
        data = np.arange(count, dtype="float32")
        np.testing.assert_array_equal(prepared.run([data, np.array(shape)])[0], data.reshape(shape))
    assert len(prepared.programs) == 3
    assert prepared.bound == {"shape"}


def test_sequences_go_in_and_out_as_lists() -> None:
    sequence = helper.make_tensor_sequence_value_info
    node = helper.make_node("SequenceInsert", ["s", "x"], ["t"])
    model = model_of([node], [sequence("s", FLOAT, None), info("x", FLOAT, "n")], [sequence("t", FLOAT, None)])
    first, second = np.ones(2, "float32"), np.zeros((3, 1), "float32")
    (found,) = backend.prepare(model).run([[first, second], np.ones(4, "float32")])
    assert [value.shape for value in found] == [(2,), (3, 1), (4,)]


def test_compiled_programs_move_and_compare_strings() -> None:
    nodes = [
        helper.make_node("Gather", ["words", "which"], ["chosen"]),
        helper.make_node("Concat", ["chosen", "more"], ["y"], axis=0),
        helper.make_node("Equal", ["y", "more"], ["same"]),
    ]
    inputs = [info("words", STRING, "n"), info("which", INT64, 2)]
    model = model_of(nodes, inputs, [info("y", STRING, 3), info("same", TensorProto.BOOL, 3)], {"more": texts("héé")})
    found, same = backend.prepare(model).run([texts("a", "", "héé"), np.array([2, 1])])
    assert found.tolist() == ["héé", "", "héé"] and same.tolist() == [True, False, True]


def test_strings_are_made_on_the_host_between_compiled_parts() -> None:
    nodes = [
        helper.make_node("Gather", ["words", "which"], ["chosen"]),
        helper.make_node("StringConcat", ["chosen", "suffix"], ["longer"]),
        helper.make_node("Concat", ["longer", "chosen"], ["y"], axis=0),
        helper.make_node("Relu", ["x"], ["z"]),
    ]
    inputs = [info("words", STRING, "n"), info("which", INT64, "m"), info("x", FLOAT, 2)]
    model = model_of(nodes, inputs, [info("y", STRING, None), info("z", FLOAT, 2)], {"suffix": texts("!")})
    prepared = backend.prepare(model)
    for which in ([1, 0], [2]):
        words, numbers = prepared.run([texts("a", "b", "c"), np.array(which), np.array([-1.0, 2.0], "float32")])
        chosen = ["abc"[i] for i in which]
        assert words.tolist() == [c + "!" for c in chosen] + chosen
        np.testing.assert_array_equal(numbers, [0, 2])


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
def test_n_grams_of_strings_are_counted(mode: str) -> None:
    attributes = {"max_gram_length": 2, "min_gram_length": 1, "max_skip_count": 1, "mode": mode}
    pool = {"ngram_counts": [0, 2], "ngram_indexes": [0, 1, 2, 3], "pool_strings": ["a", "b", "a", "b", "b", "a"]}
    node = helper.make_node("TfIdfVectorizer", ["x"], ["y"], **attributes, **pool, weights=[1.0, 2.0, 0.5, 4.0])
    model = model_of([node], [info("x", STRING, "n")], [info("y", FLOAT, 4)], opset=9)
    (found,) = backend.prepare(model).run([texts("a", "b", "c", "a", "b")])
    counts, weights = np.array([2, 2, 2, 1]), np.array([1, 2, 0.5, 4])  # a; b; a b; b _ a
    expected = {"TF": counts, "IDF": weights, "TFIDF": counts * weights}[mode]
    np.testing.assert_array_equal(found, expected.astype("float32"))


@pytest.mark.parametrize("operator", ["NonZero", "Unique"])
def test_what_depends_on_data_runs_on_the_host_and_what_follows_is_compiled(operator: str) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["positive"]),
        helper.make_node(operator, ["positive"], ["found"]),
        helper.make_node("Cast", ["found"], ["numbers"], to=FLOAT),
        helper.make_node("ReduceSum", ["numbers"], ["y"], keepdims=0),
    ]
    model = model_of(
        nodes,
        [info("x", FLOAT, "n", "m")],
        [info("found", 7 if operator == "NonZero" else FLOAT, None), info("y", FLOAT)],
    )
    prepared = backend.prepare(model)
    expected = ReferenceEvaluator(model)
    for seed in range(3):
        data = np.random.default_rng(seed).integers(-3, 4, (3, 5)).astype("float32")
        for have, want in zip(prepared.run([data]), expected.run(None, {"x": data}), strict=True):
            np.testing.assert_array_equal(have, want)


def test_boxes_that_are_computed_are_suppressed() -> None:
    nodes = [
        helper.make_node("Mul", ["boxes", "two"], ["large"]),
        helper.make_node("NonMaxSuppression", ["large", "scores", "limit", "share"], ["kept"]),
        helper.make_node("Gather", ["kept", "last"], ["places"], axis=1),
    ]
    weights = {"two": np.float32(2), "limit": np.array([3]), "share": np.array([0.5], "float32"), "last": np.array(2)}
    inputs = [info("boxes", FLOAT, 1, "n", 4), info("scores", FLOAT, 1, 2, "n")]
    rng = np.random.default_rng(0)
    corners = rng.uniform(0, 5, (1, 9, 2))
    boxes = np.concatenate([corners, corners + rng.uniform(1, 5, (1, 9, 2))], -1).astype("float32")
    check(model_of(nodes, inputs, [info("places", INT64, None)], weights), boxes, rng.random((1, 2, 9), "float32"))


def test_numbers_become_text_and_back() -> None:
    nodes = [helper.make_node("Cast", ["x"], ["text"], to=STRING), helper.make_node("Cast", ["text"], ["y"], to=FLOAT)]
    model = model_of(nodes, [info("x", FLOAT, "n")], [info("text", STRING, "n"), info("y", FLOAT, "n")])
    values = np.array([0.5, -3.0, 1e-7, np.inf, np.nan], "float32")
    text, numbers = backend.prepare(model).run([values])
    assert text.tolist()[1:2] == ["-3"] and text.tolist()[3:] == ["INF", "NaN"]
    np.testing.assert_array_equal(numbers, values)


def test_images_are_decoded() -> None:
    images = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, (4, 5, 3)).astype("uint8")
    file = io.BytesIO()
    images.fromarray(pixels).save(file, "PNG")
    node = helper.make_node("ImageDecoder", ["x"], ["y"], pixel_format="BGR")
    model = model_of([node], [info("x", TensorProto.UINT8, "n")], [info("y", TensorProto.UINT8, None, None, 3)])
    (found,) = backend.prepare(model).run([np.frombuffer(file.getvalue(), "uint8")])
    np.testing.assert_array_equal(found, pixels[:, :, ::-1])
    with pytest.raises(TilewrightError, match="ImageDecoder"):
        backend.prepare(model).run([np.zeros(9, "uint8")])


def test_random_numbers_have_their_distribution() -> None:
    kinds = {"RandomNormal": {"mean": 2.0, "scale": 3.0}, "RandomUniform": {"low": -1.0, "high": 3.0}}
    nodes = [helper.make_node(k, [], [k], shape=[40, 500], seed=1.0, **a) for k, a in kinds.items()]
    nodes += [
        helper.make_node("Bernoulli", ["p"], ["b"]),
        helper.make_node("Multinomial", ["l"], ["m"], sample_size=5000),
    ]
    names = [*kinds, "b", "m"]
    weights = {"p": np.full(20000, 0.25, "float32"), "l": np.log(np.array([[0.5, 0.2, 0.3]], "float32"))}
    normal, uniform, coins, classes = backend.prepare(
        model_of(nodes, [], [info(n, FLOAT if n != "m" else 6, None) for n in names], weights)
    ).run([])
    assert abs(normal.mean() - 2) < 0.1 and abs(normal.std() - 3) < 0.1
    assert uniform.min() >= -1 and uniform.max() < 3 and abs(uniform.mean() - 1) < 0.05
    assert abs(coins.mean() - 0.25) < 0.02
    np.testing.assert_allclose(np.bincount(classes[0]) / 5000, [0.5, 0.2, 0.3], atol=0.03)


def test_one_operator_runs_without_a_model() -> None:
    (found,) = backend.run_node(
        helper.make_node("Add", ["a", "b"], ["c"]), [np.ones(3, "float32"), np.ones(3, "float32")]
    )
    np.testing.assert_array_equal(found, [2, 2, 2])


def test_wrong_inputs_are_told() -> None:
    prepared = backend.prepare(
        model_of([helper.make_node("Relu", ["x"], ["y"])], [info("x", FLOAT, 2)], [info("y", FLOAT, 2)])
    )
    with pytest.raises(TilewrightError, match="1 inputs, x; 2 were given"):
        prepared.run([np.ones(2, "float32")] * 2)
    with pytest.raises(TilewrightError, match="'x'"):
        prepared.run({"x": np.ones((2, 2), "float32")})
    with pytest.raises(TilewrightError, match="device 'CUDA'"):
        backend.prepare(prepared.model, "CUDA")
