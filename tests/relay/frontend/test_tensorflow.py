"""TensorFlow graphs against what TensorFlow answered (``tensorflow_graphs.py``), and what is wrong with others."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from tests.relay.frontend.tensorflow_graphs import FILE

import tilewright
from tilewright import relay
from tilewright.ir.errors import UnsupportedError
from tilewright.relay.frontend.keras import KerasImportError
from tilewright.relay.frontend.tensorflow import TensorflowImportError
from tilewright.relay.frontend.tensorflow.proto import parsed
from tilewright.relay.frontend.tensorflow.registry import supported_operators

RECORDED = dict(np.load(FILE))
CASES = sorted({key.split("|")[0] for key in RECORDED})


def _part(case: str, kind: str) -> dict[str, Any]:
    start = f"{case}|{kind}|"
    return {key.removeprefix(start): value for key, value in RECORDED.items() if key.startswith(start)}


def _graph(case: str) -> bytes:
    return RECORDED[f"{case}|graph"].tobytes()


def _message(case: str) -> Any:
    return parsed("Graph", _graph(case), case)


@pytest.mark.parametrize("case", CASES)
def test_a_graph_gives_tensorflow_s_answers(case: str) -> None:
    outputs = RECORDED[f"{case}|outputs"].tolist()
    module, params = relay.frontend.from_tensorflow(_graph(case), outputs=outputs)
    given = _part(case, "in")
    model = tilewright.compile(module, params=params)
    found = model(*(given[name] for name in (v.name_hint for v in module["main"].params) if name in given))
    answers = list(found) if isinstance(found, (list, tuple)) else [found]
    for answer, expected in zip(answers, _part(case, "out").values(), strict=True):
        np.testing.assert_allclose(np.asarray(answer), expected, rtol=2e-5, atol=2e-5)


def test_images_stay_as_kernels_read_them() -> None:
    module, _ = relay.frontend.from_tensorflow(_graph("block"), outputs=RECORDED["block|outputs"].tolist())
    assert str(module).count("transpose(") == 2  # the input and the output


def test_a_shape_and_dimensions_that_are_named_replace_the_graph_s() -> None:
    module, _ = relay.frontend.from_tensorflow(_graph("matrices"), shape={"rows": ("n", 5)})
    (rows, *_) = module["main"].params
    assert str(rows.type_annotation) == "Tensor[(n, 5), float32]"


def test_unknown_dimensions_are_named_after_their_input() -> None:
    message = _message("shapes")
    for node in message.node:
        for attr in node.attr:
            if node.op == "Placeholder" and attr.key == "shape":
                attr.value.shape.dim[0].size = -1
    module, params = relay.frontend.from_tensorflow(message.SerializeToString())
    x = np.arange(48, dtype="float32").reshape(4, 4, 3)
    found = tilewright.compile(module, params=params)(x)
    np.testing.assert_array_equal(np.asarray(found), x.reshape(8, 6))


def test_the_distinct_elements_of_a_constant_are_constants() -> None:
    message, numbers = parsed("Graph", b"", "unique"), [7, 3, 7, 9, 3, 1]
    constant = message.node.add(name="numbers", op="Const").attr.add(key="value").value.tensor
    constant.dtype, constant.int_val[:] = 3, numbers
    constant.shape.dim.add(size=len(numbers))
    unique = message.node.add(name="unique", op="UniqueWithCounts", input=["numbers"])
    unique.attr.add(key="out_idx").value.type = 9
    outputs = ["unique:0", "unique:1", "unique:2"]
    module, _ = relay.frontend.from_tensorflow(message.SerializeToString(), outputs=outputs)
    found = relay.create_executor("graph", module, target="llvm").evaluate()()
    assert [part.numpy().tolist() for part in found] == [[7, 3, 9, 1], [0, 1, 0, 2, 1, 3], [2, 2, 1, 1]]
    assert [str(part.dtype) for part in found] == ["int32", "int64", "int64"]


def test_a_file_compiles_by_its_suffix(tmp_path: Any) -> None:
    path = tmp_path / "net.pb"
    path.write_bytes(_graph("matrices"))
    module, params = relay.frontend.import_model(path)
    assert tuple(module.attrs["output_names"]) == ("Identity",)
    assert [v.name_hint for v in module["main"].params][:1] == ["rows"] and params


def test_all_operators_without_a_converter_are_named_with_their_nodes() -> None:
    message = _message("matrices")
    for node, op in zip(message.node, ("Placeholder", "Const", "First", "Second"), strict=False):
        node.op = op if op in ("First", "Second") else node.op
    with pytest.raises(UnsupportedError, match=r"First: .*\n.*Second: '"):
        relay.frontend.from_tensorflow(message.SerializeToString())


def test_a_graph_with_variables_is_not_frozen() -> None:
    message = _message("matrices")
    message.node.add(name="w", op="VarHandleOp")
    with pytest.raises(UnsupportedError, match="Graph is not frozen"):
        relay.frontend.from_tensorflow(message.SerializeToString())


def test_a_file_that_is_cut_off_is_an_error(tmp_path: Any) -> None:
    path = tmp_path / "net.pb"
    for end in (1, 40, len(_graph("block")) - 9):
        path.write_bytes(_graph("block")[:end])
        with pytest.raises(TensorflowImportError, match=r"net\.pb|node"):
            relay.frontend.import_model(path)


def test_a_folder_without_a_saved_model_is_an_error(tmp_path: Any) -> None:
    with pytest.raises(TensorflowImportError, match=r"saved_model\.pb, which is not there"):
        relay.frontend.from_tensorflow(str(tmp_path))


def test_a_node_that_reads_itself_is_an_error() -> None:
    message = _message("matrices")
    last = message.node[-1]
    last.input[0] = last.name
    with pytest.raises(TensorflowImportError, match="depends on its own result"):
        relay.frontend.from_tensorflow(message.SerializeToString())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shape": {"image": (1, 2)}}, "no input 'image'; its inputs are 'rows'"),
        ({"outputs": ["no_such"]}, "no node 'no_such'"),
        ({"outputs": ["MatMul:3"]}, "result 3 is read"),
        ({"convert_config": {"fast": True}}, "no option 'fast'"),
    ],
)
def test_wrong_options_are_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TensorflowImportError, match=message):
        relay.frontend.from_tensorflow(_graph("matrices"), **options)


def test_the_operators_of_tvm_are_known() -> None:
    named = "AddV2 Conv2D Conv3DBackpropInputV2 CombinedNonMaxSuppression SparseFillEmptyRows TensorArrayGatherV3"
    assert set(named.split()) <= set(supported_operators())


def test_a_saved_model_without_tensorflow_says_what_to_install(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = parsed("SavedModel", b"", "none")
    saved.meta_graphs.add().graph.CopyFrom(_message("matrices"))
    (tmp_path / "saved_model.pb").write_bytes(saved.SerializeToString())
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(TensorflowImportError, match="pip install tensorflow-cpu"):
        relay.frontend.import_model(tmp_path)


def test_a_keras_model_without_keras_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keras", None)
    with pytest.raises(KerasImportError, match="pip install keras"):
        relay.frontend.import_model("net.keras")
