"""Files and models that cannot be imported: each gives one readable message, at once and without large allocations."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilewright import relay
from tilewright.ir.errors import TilewrightError, UnsupportedError

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"
FLOAT = TensorProto.FLOAT


def make_model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple],
    outputs: list[str],
    weights: dict[str, np.ndarray] | None = None,
    opset: int = 18,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def relu_model(shape: tuple = (2, 3)) -> onnx.ModelProto:
    return make_model([helper.make_node("Relu", ["x"], ["y"], name="the_relu")], {"x": shape}, ["y"])


def message_of(action: Callable[[], object]) -> str:
    """The message of the error that ``action`` gives, checked to be one that a user can read."""
    with pytest.raises(TilewrightError) as caught:
        action()
    message = str(caught.value)
    assert message
    assert "Traceback" not in message
    assert len(message) < 2000
    return message


def import_message(model: onnx.ModelProto | Path, **options: object) -> str:
    return message_of(lambda: relay.frontend.from_onnx(model, **options))


def test_missing_file_is_named(tmp_path: Path) -> None:
    assert "nowhere.onnx: no such file" in import_message(tmp_path / "nowhere.onnx")


@pytest.mark.parametrize("content", [b"", b"\x00", b"hello, this is no model", b"\x89PNG\r\n\x1a\n" + bytes(64), b"{}"])
def test_file_that_is_not_onnx_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    assert "not an ONNX model" in import_message(path)


def test_folder_is_refused(tmp_path: Path) -> None:
    assert "is a directory" in import_message(tmp_path)


def test_file_cut_short_at_any_length_is_refused(tmp_path: Path) -> None:
    whole = DIGITS.read_bytes()
    path = tmp_path / "cut.onnx"
    for length in [*range(0, 600, 7), *range(600, len(whole) - 1, 2003), len(whole) - 1]:
        path.write_bytes(whole[:length])
        assert "model" in import_message(path)


def test_file_with_bytes_changed_imports_or_gives_a_message(tmp_path: Path) -> None:
    whole = bytearray(DIGITS.read_bytes())
    random = np.random.default_rng(0)
    path = tmp_path / "damaged.onnx"
    for _ in range(60):
        damaged = bytearray(whole)
        for position in random.integers(0, 4000, 3):
            damaged[position] = random.integers(0, 256)
        path.write_bytes(bytes(damaged))
        try:
            relay.frontend.from_onnx(path)
        except TilewrightError as error:
            assert str(error)


def test_model_without_a_graph_is_refused() -> None:
    assert "no graph" in import_message(onnx.ModelProto())


def test_unknown_operator_fails_the_checker() -> None:
    model = make_model([helper.make_node("NoSuchThing", ["x"], ["y"])], {"x": (1,)}, ["y"])
    assert "checker" in import_message(model)


def test_unsupported_operators_are_all_named_with_their_nodes() -> None:
    nodes = [
        helper.make_node("RegexFullMatch", ["x"], ["u"], name="first_match", pattern="a"),
        helper.make_node("StringNormalizer", ["x"], ["d"], name="lower"),
        helper.make_node("RegexFullMatch", ["x"], ["v"], name="second_match", pattern="b"),
        helper.make_node("Relu", ["x"], ["y"], name="fine"),
    ]
    model = make_model(nodes, {"x": (3, 3)}, ["y"], opset=20)
    with pytest.raises(UnsupportedError) as caught:
        relay.frontend.from_onnx(model)
    message = str(caught.value)
    assert "RegexFullMatch (opset 20): first_match, second_match" in message
    assert "StringNormalizer (opset 20): lower" in message
    assert "fine" not in message


def test_operator_of_another_domain_is_named_with_its_domain() -> None:
    node = helper.make_node("FusedThing", ["x"], ["y"], name="fused", domain="com.example")
    model = make_model([node], {"x": (1,)}, ["y"])
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    assert "com.example.FusedThing (opset 1): fused" in import_message(model)


def test_unsupported_attribute_names_the_node() -> None:
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], name="cell", hidden_size=2, clip=1.0)
    weights = {"w": np.zeros((1, 8, 3), "float32"), "r": np.zeros((1, 8, 2), "float32")}
    message = import_message(make_model([node], {"x": (4, 1, 3)}, ["y"], weights))
    assert "'cell' (LSTM)" in message
    assert "clip" in message


@pytest.mark.parametrize("kind", [TensorProto.STRING, TensorProto.COMPLEX64])
def test_unsupported_data_type_of_an_input_is_named(kind: int) -> None:
    model = relu_model()
    model.graph.node[0].op_type = "Identity"
    model.graph.input[0].type.tensor_type.elem_type = kind
    model.graph.output[0].type.tensor_type.elem_type = kind
    message = import_message(model)
    assert TensorProto.DataType.Name(kind) in message
    assert "'x'" in message


def test_unsupported_data_type_of_a_weight_is_named() -> None:
    model = make_model([helper.make_node("Identity", ["x"], ["y"])], {"x": (1,)}, ["y"])
    model.graph.initializer.append(helper.make_tensor("names", TensorProto.STRING, (1,), [b"a"]))
    message = import_message(model)
    assert "STRING" in message
    assert "'names'" in message


def test_newer_opset_than_the_onnx_package_has_is_refused() -> None:
    model = relu_model()
    model.opset_import[0].version = 1000
    assert "opset 1000" in import_message(model)


def test_what_needs_a_known_dimension_says_which_and_how_to_give_it() -> None:
    model = make_model([helper.make_node("LRN", ["x"], ["y"], size=2)], {"x": (1, "c", 2, 2)}, ["y"])
    message = import_message(model)
    assert "--input-shape" in message
    assert "(1, c, 2, 2)" in message
    module, _ = relay.frontend.from_onnx(model, {"x": (1, 4, 2, 2)})
    assert "Tensor[(1, 4, 2, 2), float32]" in str(module)


@pytest.mark.parametrize(
    ("dims", "said"),
    [
        ({"rows": (1, 8)}, "no input has a dimension 'rows'"),
        ({"batch": (8, 1)}, "'batch'"),
        ({"batch": (1, 7, 8)}, "'batch'"),
        ({"batch": "8"}, "'batch'"),
    ],
)
def test_wrong_limits_of_a_dimension_are_explained(dims: dict, said: str) -> None:
    assert said in import_message(relu_model(("batch", 3)), dims=dims)


def test_input_without_any_shape_asks_for_one() -> None:
    model = relu_model()
    model.graph.input[0].type.tensor_type.ClearField("shape")
    assert "--input-shape x:" in import_message(model)


def test_all_inputs_without_a_shape_are_named_at_once() -> None:
    model = make_model([helper.make_node("Add", ["a", "b"], ["y"])], {"a": (1,), "b": (1,)}, ["y"])
    for value in model.graph.input:
        value.type.tensor_type.ClearField("shape")
    assert "inputs 'a', 'b' have no shape" in import_message(model)
    assert "input 'b' has no shape" in import_message(model, shape={"a": (3,)})
    relay.frontend.from_onnx(model, {"a": ("n", 3), "b": (3,)})


def test_an_operator_that_is_written_out_is_named_where_a_part_of_it_is_refused() -> None:
    node = helper.make_node("MeanVarianceNormalization", ["x"], ["y"], name="scaled", axes=[7])
    model = make_model([node], {"x": (4, 3)}, ["y"])
    assert "ONNX node 'scaled' (ReduceMean): axis 7 is out of range" in import_message(model)


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ({"nothing": (1,)}, "no input 'nothing'"),
        ({"x": (2, 3, 4)}, "rank 2"),
        ({"x": (2, 4)}, "dimension 1 is 3"),
        ({"x": (-1, 3)}, "dimension 0"),
    ],
)
def test_wrong_input_shape_is_explained(shapes: dict, said: str) -> None:
    assert said in import_message(relu_model(), shape=shapes)


def test_cyclic_graph_is_refused() -> None:
    nodes = [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Relu", ["a"], ["b"])]
    message = import_message(make_model(nodes, {"x": (1,)}, ["a"]))
    assert "checker" in message
    assert "b" in message


@pytest.mark.parametrize("second", ["x", "y"])
def test_name_given_twice_is_refused(second: str) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Neg", ["x"], [second])]
    assert f"{second}" in import_message(make_model(nodes, {"x": (1,)}, ["y"]))


@pytest.mark.parametrize("elements", [2, 4096])
def test_two_weights_of_one_name_are_refused(elements: int) -> None:
    model = make_model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": (elements,)}, ["y"])
    for _ in range(2):
        model.graph.initializer.append(numpy_helper.from_array(np.ones(elements, "float32"), "w"))
    assert "w" in import_message(model)


def test_weight_with_fewer_bytes_than_its_shape_is_refused() -> None:
    model = make_model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": (1,)}, ["y"], {"w": np.ones(4, "float32")})
    model.graph.initializer[0].dims[0] = 1 << 40
    message = import_message(model)
    assert "'w'" in message
    assert "1099511627776" in message


def test_output_that_no_node_gives_is_refused() -> None:
    model = relu_model()
    model.graph.output.append(helper.make_tensor_value_info("ghost", FLOAT, (1,)))
    assert "ghost" in import_message(model)


@pytest.mark.parametrize("operator", ["ConstantOfShape", "Expand"])
def test_huge_claimed_shape_is_refused_without_allocating_it(operator: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    inputs = ["shape"] if operator == "ConstantOfShape" else ["one", "shape"]
    nodes = [
        helper.make_node(operator, inputs, ["big"], name="claims"),
        helper.make_node("Add", ["x", "big"], ["y"]),
    ]
    weights = {"shape": np.array([1 << 20, 1 << 20, 4]), "one": np.ones(1, "float32")}
    message = import_message(make_model(nodes, {"x": (1,)}, ["y"], weights))
    assert "'claims'" in message
    assert "GiB" in message
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10  # KiB


def test_range_of_huge_length_is_refused() -> None:
    weights = {"from": np.array(0), "to": np.array(1 << 60), "by": np.array(1)}
    nodes = [helper.make_node("Range", ["from", "to", "by"], ["r"], name="long"), helper.make_node("Neg", ["r"], ["y"])]
    message = import_message(make_model(nodes, {"x": (1,)}, ["y"], weights))
    assert "'long'" in message


def test_huge_input_is_refused() -> None:
    assert "GiB" in import_message(relu_model((1 << 24, 1 << 24)))


def test_tensors_without_elements_import_and_give_empty_results() -> None:
    import tilewright as tvm
    from tilewright.contrib import graph_executor

    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Concat", ["r", "r"], ["c"], axis=1),
        helper.make_node("Reshape", ["c", "shape"], ["y"]),
    ]
    model = make_model(nodes, {"x": (0, 3)}, ["y"], {"shape": np.array([0, 3, -1])})
    model.graph.node[2].attribute.append(helper.make_attribute("allowzero", 1))
    del model.graph.initializer[:]
    model.graph.initializer.append(numpy_helper.from_array(np.array([2, 3, 0]), "shape"))
    module, params = relay.frontend.from_onnx(model)
    executor = graph_executor.GraphModule(relay.build(module, "llvm", params=params)["default"](tvm.cpu(0)))
    executor.run()
    assert executor.get_output(0).shape == (2, 3, 0)


@pytest.mark.parametrize(
    ("operator", "shapes", "attributes"),
    [
        ("Conv", [(1, 3, 8, 8), (4, 5, 3, 3)], {}),
        ("Conv", [(1, 3, 8, 8), (4, 3, 3, 3)], {"pads": [1, 1]}),
        ("Conv", [(1, 3, 8, 8), (4, 3, 3, 3)], {"strides": [1]}),
        ("Conv", [(1, 3), (4, 3)], {}),
        ("MaxPool", [(1, 3, 8, 8)], {"kernel_shape": [3]}),
        ("MatMul", [(2, 3), (4, 5)], {}),
        ("Gemm", [(2, 3), (4, 5)], {}),
        ("Add", [(2, 3), (4, 5)], {}),
        ("Concat", [(2, 3), (4, 5)], {"axis": 0}),
        ("Concat", [(2, 3), (2, 3)], {"axis": 7}),
        ("Transpose", [(2, 3)], {"perm": [0, 0]}),
        ("Transpose", [(2, 3)], {"perm": [0]}),
        ("Softmax", [(2, 3)], {"axis": 5}),
        ("Einsum", [(2, 3), (4, 5)], {"equation": "ij,jk->ik"}),
        ("Einsum", [(2, 3)], {"equation": "ijk->i"}),
        ("Einsum", [(2, 3)], {"equation": "ij->k"}),
        ("Einsum", [(2, 3)], {"equation": "ij->ii"}),
        ("MaxPool", [(1, 3, 8, 8)], {"kernel_shape": [3, 3], "strides": [0, 0]}),
        ("Conv", [(1, 3, 8, 8), (4, 3, 3, 3)], {"dilations": [1, 0]}),
        ("DepthToSpace", [(1, 3, 2, 2)], {"blocksize": 2}),
        ("LRN", [(1, 3, 2, 2)], {"size": 0}),
    ],
)
def test_shapes_and_attributes_that_do_not_fit_name_the_node(operator: str, shapes: list, attributes: dict) -> None:
    names = [f"x{i}" for i in range(len(shapes))]
    node = helper.make_node(operator, names, ["y"], name="culprit", **attributes)
    message = import_message(make_model([node], dict(zip(names, shapes, strict=True)), ["y"]))
    assert f"'culprit' ({operator})" in message or ("checker" in message and operator in message)


def test_constant_index_out_of_bounds_names_the_node_and_the_extent() -> None:
    for index in (2, -3):
        node = helper.make_node("Gather", ["x", "i"], ["y"], name="culprit")
        model = make_model([node], {"x": (2, 3)}, ["y"], {"i": np.array([0, index])})
        message = import_message(model)
        assert f"'culprit' (Gather): input 1, 'i': index {index} is out of range: expected -2 to 1" in message


@pytest.mark.parametrize("sizes", [[9, 1], [1, 1], [4, -1], [1, 1, 1]])
def test_sizes_that_do_not_split_an_extent_name_the_node_and_both(sizes: list[int]) -> None:
    node = helper.make_node("Split", ["x", "s"], ["y", "z"], name="culprit", axis=1)
    message = import_message(make_model([node], {"x": (2, 3)}, ["y", "z"], {"s": np.array(sizes)}))
    if "checker" not in message:
        assert f"'culprit' (Split): the sizes {sizes} are not those of 2 parts of the extent 3" in message


def test_rank_that_is_not_known_is_explained() -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["n"]),
        helper.make_node("Reshape", ["n", "zero"], ["s"]),
        helper.make_node("Reshape", ["x", "s"], ["y"], name="r"),
    ]
    message = import_message(make_model(nodes, {"x": (2,)}, ["y"], {"zero": np.array([-1])}))
    assert "'r' (Reshape)" in message
    assert "how many dimensions" in message


def external_model(folder: Path, location: str, **entries: str) -> Path:
    """A model in ``folder`` whose weight is said to be at ``location``."""
    model = make_model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": (4,)}, ["y"], {"w": np.ones(4, "float32")})
    weight = model.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        weight.external_data.add(key=key, value=value)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_external_data_beside_the_model_is_read(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(np.arange(6, dtype="float32").tobytes())
    _, params = relay.frontend.from_onnx(external_model(tmp_path, "weights.bin", offset="8", length="16"))
    np.testing.assert_array_equal(params["w"].numpy(), np.arange(2, 6, dtype="float32"))


@pytest.mark.parametrize("how", ["absolute", "parent", "nested parent", "link", "linked folder"])
def test_external_data_outside_the_folder_is_refused(how: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    (folder / "inner").mkdir(parents=True)
    secret = tmp_path / "secret.bin"
    secret.write_bytes(np.ones(4, "float32").tobytes())
    (folder / "link.bin").symlink_to(secret)
    (folder / "up").symlink_to(tmp_path)
    location = {
        "absolute": str(secret),
        "parent": "../secret.bin",
        "nested parent": "inner/../../secret.bin",
        "link": "link.bin",
        "linked folder": "up/secret.bin",
    }[how]
    message = import_message(external_model(folder, location))
    assert "outside the model's folder" in message
    assert "'w'" in message


def test_external_data_of_a_constant_node_is_checked_too(tmp_path: Path) -> None:
    value = numpy_helper.from_array(np.ones(4, "float32"), "value")
    model = make_model(
        [helper.make_node("Constant", [], ["w"], value=value), helper.make_node("Add", ["x", "w"], ["y"])],
        {"x": (4,)},
        ["y"],
    )
    tensor = model.graph.node[0].attribute[0].t
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/hostname")
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    assert "outside the model's folder" in import_message(path)


def test_missing_external_data_is_named(tmp_path: Path) -> None:
    assert "gone.bin, which is not there" in import_message(external_model(tmp_path, "gone.bin"))


@pytest.mark.parametrize(
    "entries", [{"length": str(1 << 50)}, {"offset": "12"}, {"offset": "-4"}, {"length": "many"}, {"length": "8"}]
)
def test_external_data_with_a_wrong_extent_is_refused(entries: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(np.ones(4, "float32").tobytes())
    message = import_message(external_model(tmp_path, "weights.bin", **entries))
    assert "tensor 'w'" in message or "tensor name: w" in message


def test_chain_of_many_nodes_imports_without_recursion_or_quadratic_time() -> None:
    count = 4_000
    nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(count)]
    module, _ = relay.frontend.from_onnx(make_model(nodes, {"v0": (4,)}, [f"v{count}"]))
    assert module["main"] is not None


def _float8(model: onnx.ModelProto) -> onnx.ModelProto:
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT8E4M3FN
    return model


def _with_weight(node: onnx.NodeProto, value: Any, shape: tuple[int, ...]) -> onnx.ModelProto:
    model = make_model([node], {"x": shape}, ["y"])
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), "w"))
    return model


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (_float8(make_model([helper.make_node("Det", ["x"], ["y"], name="n")], {"x": (2, 2)}, ["y"])), "float8_e4m3fn"),
        (_with_weight(helper.make_node("Tile", ["x", "w"], ["y"], name="n"), [1, -1], (2, 3)), "repeats"),
        (_with_weight(helper.make_node("Pad", ["x", "w"], ["y"], name="n", mode="edge"), [1, 0], (0,)), "elements"),
        (_with_weight(helper.make_node("Cast", ["x"], ["y"], name="n", to=0), [1], (2,)), "UNDEFINED"),
    ],
    ids=["float8", "Tile", "Pad", "Cast"],
)
def test_what_an_operator_does_not_take_is_refused_with_its_node(model: onnx.ModelProto, said: str) -> None:
    message = import_message(model)
    assert "'n'" in message and said in message


def test_values_that_cannot_be_computed_name_their_node() -> None:
    tile = helper.make_node("Tile", ["w", "k"], ["y"], name="n")
    model = _with_weight(tile, np.ones(2, "float32"), (1,))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([-1]), "k"))
    assert "'n'" in import_message(model)


def test_an_unknown_element_type_is_refused_by_its_number() -> None:
    model = relu_model()
    model.graph.input[0].type.tensor_type.elem_type = 99
    assert "number 99" in import_message(model)


@pytest.mark.parametrize("shape", [(2**62, 0), (2**40, 2**40), (2**63 - 1, 1)])
def test_inputs_larger_than_any_memory_are_refused_by_name(shape: tuple[int, ...]) -> None:
    assert "input 'x': no memory holds" in import_message(relu_model(shape))


def test_a_named_dimension_has_numbers_that_machines_count() -> None:
    assert "the dimension 'n' is a number" in import_message(relu_model(("n", 3)), dims={"n": (1, 10**20)})
    assert "input 'x'" in import_message(relu_model(("n", 3)), shape={"x": (10**20, 3)})
