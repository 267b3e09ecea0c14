"""Models of TensorFlow Lite as files and objects, and what is refused of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tflite
from ai_edge_litert import schema_py_generated as schema
from tests.relay.frontend.tflite_files import File, interpreted, one_operator
from tests.relay.frontend.tflite_networks import MobileNet

from tilewright import relay
from tilewright.ir.errors import UnsupportedError
from tilewright.relay.frontend.tflite import TfliteImportError
from tilewright.relay.frontend.tflite.flexbuffer import read_map


def _relu() -> bytes:
    return one_operator("RELU", [np.float32([[1, -2, 3]])], [], [((1, 3), "float32")])[0]


def test_a_file_is_read_by_its_suffix(tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(_relu())
    mod, params = relay.frontend.import_model(path, {"t0": (4, 3)})
    assert tuple(mod["main"].params[0].checked_type.concrete_shape) == (4, 3)
    assert not params


def test_objects_of_schema_packages_are_read() -> None:
    for model in (tflite.Model.GetRootAs(_relu(), 0), schema.Model.GetRootAs(_relu(), 0)):
        mod, _ = relay.frontend.import_model(model)
        assert "nn.relu" in str(mod)


def test_outputs_keep_their_names() -> None:
    mod, _ = relay.frontend.from_tflite(_relu())
    assert list(mod.attrs["output_names"]) == ["t1"]


def test_weights_are_parameters() -> None:
    _, params = relay.frontend.from_tflite(MobileNet("float32", 32, 8, 1).file.data)
    assert max(array.shape for array in params.values()) > (1, 1)


def test_all_operators_without_a_converter_are_named_with_their_outputs() -> None:
    file = File()
    x, y, z = (file.tensor((3,)) for _ in range(3))
    file.op("Mystery", [x], [y])
    file.op("RFFT2D", [y], [z], "Rfft2dOptions")
    with pytest.raises(UnsupportedError, match=r"(?s)Mystery \(custom\): 't1'.*RFFT2D: 't2'"):
        relay.frontend.from_tflite(file.ends([x], [z]).data)


def test_a_subclass_of_the_converter_adds_operators_as_the_guide_says(tmp_path: Path) -> None:
    guide = (Path(__file__).parents[3] / "docs" / "frontends.md").read_text().split("## TensorFlow Lite")[1]
    names: dict[str, Any] = {}
    exec(compile(guide.split("```python\n")[1].split("```")[0], "docs/frontends.md", "exec"), names)
    x = np.ones((8, 224, 224, 3), "float32")
    file = File()
    image, half = file.tensor(x.shape), file.tensor(x.shape)
    file.graph.tensors[image].name = b"image"
    file.op("Half", [image], [half])
    path = tmp_path / "net.tflite"
    path.write_bytes(file.ends([image], [half]).data)
    mod, _ = names["load_net"](path)
    assert "multiply(%image, 0.5f" in str(mod)


def test_a_sparse_weight_is_made_dense() -> None:
    file = File()
    x, y = file.tensor((2, 3)), file.tensor((2, 2))
    weight = file.tensor((2, 3), data=np.float32([5, 7]))
    sparsity = schema.SparsityParametersT()
    rows, columns = schema.DimensionMetadataT(), schema.DimensionMetadataT()
    rows.format, rows.denseSize = schema.DimensionType.DENSE, 2
    columns.format = schema.DimensionType.SPARSE_CSR
    for name, values in (("arraySegments", [0, 1, 2]), ("arrayIndices", [2, 0])):
        vector = schema.Int32VectorT()
        vector.values = values
        setattr(columns, name, vector)
        setattr(columns, f"{name}Type", schema.SparseIndexVector.Int32Vector)
    sparsity.traversalOrder, sparsity.blockMap, sparsity.dimMetadata = [0, 1], [], [rows, columns]
    file.graph.tensors[weight].sparsity = sparsity
    dense = file.tensor((2, 3))
    file.op("DENSIFY", [weight], [dense])
    file.op("FULLY_CONNECTED", [x, dense, -1], [y], "FullyConnectedOptions")
    data, inputs = file.ends([x], [y]).data, [np.float32([[1, 2, 3], [4, 5, 6]])]
    np.testing.assert_allclose(interpreted(data, inputs)[0], inputs[0] @ np.float32([[0, 0, 5], [7, 0, 0]]).T)


def test_weights_of_four_bits_are_unpacked() -> None:
    file = File()
    x, y = file.tensor((2, 4)), file.tensor((2, 2))
    codes = np.array([[1, -2, 3, -8], [7, 0, -1, 5]])
    packed = ((codes.reshape(-1)[::2] & 15) | (codes.reshape(-1)[1::2] & 15) << 4).astype("uint8")
    weight = file.tensor((2, 4), "int4", scale=0.5, data=packed)
    wide = file.tensor((2, 4))
    file.op("DEQUANTIZE", [weight], [wide])
    file.op("FULLY_CONNECTED", [x, wide, -1], [y], "FullyConnectedOptions")
    data, inputs = file.ends([x], [y]).data, [np.float32([[1, 2, 3, 4], [-1, 0, 1, 2]])]
    np.testing.assert_allclose(interpreted(data, inputs)[0], inputs[0] @ (codes * np.float32(0.5)).T)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_a_file_that_is_cut_off_is_refused(share: float) -> None:
    data = MobileNet("int8", 32, 8, 1).file.data
    with pytest.raises(TfliteImportError, match="no valid TensorFlow Lite model"):
        relay.frontend.from_tflite(data[: int(share * len(data))])


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(TfliteImportError, match="found dict"):
        relay.frontend.from_tflite({})
    with pytest.raises(TfliteImportError, match="expected b'TFL3'"):
        relay.frontend.from_tflite(b"no model at all")


def test_an_input_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(TfliteImportError, match="no input 'y'; its inputs are 't0'"):
        relay.frontend.from_tflite(_relu(), {"y": (1, 3)})


def test_options_that_do_not_fit_name_the_operator() -> None:
    data, _ = one_operator("RESHAPE", [np.ones((2, 3), "float32")], [np.int32([4, 2])], [((4, 2), "float32")])
    with pytest.raises(TfliteImportError, match=r"RESHAPE giving 't2'.*\(2, 3\) do not have the shape \(4, 2\)"):
        relay.frontend.from_tflite(data)


def test_a_constant_that_no_model_needs_is_refused() -> None:
    bounds = [np.int32(0), np.int32(2**31 - 1), np.int32(1)]
    data, _ = one_operator("RANGE", [], bounds, [((2**31 - 1,), "int32")])
    with pytest.raises(TfliteImportError, match="GiB; refusing"):
        relay.frontend.from_tflite(data)


def test_damaged_options_of_a_custom_operator_are_refused() -> None:
    for data in (b"", b"\x01", b"\x00\x24\x01", b"\xff\x27\x08"):
        with pytest.raises(TfliteImportError, match="no flexbuffer map"):
            read_map(data)


class AsInTvm(relay.frontend.tflite.OperatorConverter):
    """A converter that reads its operator's tensors as converters for TVM 0.8 do."""

    def __init__(self, model: Any, subgraph: Any, exp_tab: Any) -> None:
        super().__init__(model, subgraph, exp_tab)
        self.allow_custom_ops = True
        self.convert_map.update({"SUB": self.convert_sub, "Twice": self.convert_twice})

    def convert_sub(self, op: Any) -> Any:
        left, right = self.get_input_tensors(op)
        assert not self.is_quantized(op) and self.has_expr(left.tensor_idx) and not self.has_expr(right.tensor_idx)
        assert self.get_tensor_value(right).tolist() == right.buffer.tolist() == [1, 2, 3]
        assert left.qnn_params is None and left.buffer is None
        return relay.add(self.get_expr(left.tensor_idx), relay.negative(self.get_tensor_expr(right)))

    def convert_twice(self, op: Any) -> Any:
        (x,), (y,) = self.get_input_tensors(op), self.get_output_tensors(op)
        assert self.is_quantized(op) and not self.has_same_qnn_params(x, y)
        real = self.dequantize(self.get_tensor_expr(x), x)
        return self.quantize(relay.add(real, real), y)


def test_a_converter_written_for_tvm_reads_its_tensors() -> None:
    file = File()
    x, y, one = file.tensor((2, 3)), file.tensor((2, 3)), file.constant(np.float32([1, 2, 3]))
    q, r = file.tensor((4,), "int8", scale=0.5), file.tensor((4,), "int8", scale=0.25, zero=1)
    file.op("SUB", [x, one], [y], "SubOptions")
    file.op("Twice", [q], [r])
    module, params = relay.frontend.from_tflite(file.ends([x, q], [y, r]).data, op_converter=AsInTvm)
    given = np.float32([[1, 2, 3], [4, 5, 6]])
    evaluate = relay.create_executor("debug", module, target="llvm").evaluate()
    found = evaluate(given, np.int8([0, 1, -2, 100]), **params)
    assert found[0].numpy().tolist() == [[0, 0, 0], [3, 3, 3]]
    assert found[1].numpy().tolist() == [1, 5, -7, 127]
