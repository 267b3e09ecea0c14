"""The command line: what it prints, what it writes, and one clear message for everything that goes wrong."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.driver.command import DIGITS, fails, model, tilewright

import tilewright as tw
from tilewright import runtime


def test_run_writes_what_the_library_computes(library: Path, tmp_path: Path) -> None:
    held = np.load(DIGITS.parent / "heldout.npz")
    np.savez(tmp_path / "x.npz", pixels=held["pictures"][:1, None].astype("float32") / 16)
    result = tilewright("run", library, "--inputs", tmp_path / "x.npz", "-o", tmp_path / "y.npz")
    assert result.returncode == 0, result.stderr
    assert np.load(tmp_path / "y.npz")["probabilities"].argmax() == held["labels"][0]


def test_run_makes_up_inputs_when_asked(library: Path) -> None:
    result = tilewright("run", library, "--fill", "random")
    assert result.returncode == 0
    assert "probabilities: float32 (1, 10)" in result.stdout


def test_bench_prints_the_latency(library: Path) -> None:
    result = tilewright("bench", library, "--threads", "2", "--repeat", "2", "--seconds", "0.01")
    assert result.returncode == 0
    assert "median (ms)" in result.stdout


def test_show_prints_relay_text_that_parses() -> None:
    import tilewright as tvm

    result = tilewright("show", DIGITS)
    assert result.returncode == 0
    assert result.stdout.startswith('#[version = "0.0.5"]\ndef @main(%pixels: Tensor[(1, 1, 8, 8), float32]')
    assert "main" in tvm.parser.fromtext(result.stdout)


def test_show_partition_tells_where_each_operator_goes_and_why() -> None:
    result = tilewright("show", DIGITS, "--partition", "dnnl")
    assert result.returncode == 0, result.stderr
    headings, *rows, summary = result.stdout.splitlines()
    assert headings.split("\t") == ["operator", "result", "goes to", "why"]
    fates = [row.split("\t") for row in rows]
    taken = [[f[0], f[3]] for f in fates if f[2].startswith("dnnl_main")]
    assert ["nn.max_pool2d", "the rule target.dnnl takes it"] in taken
    assert ["nn.conv2d", "part of dnnl.conv2d_bias_relu"] in taken  # after what partition_for_dnnl does first
    host = [f for f in fates if f[2] == "host"]
    assert summary.startswith(f"dnnl takes {len(fates) - len(host)} of {len(fates)} operators, in ")


@pytest.mark.parametrize("compiler", ["dnnl", "ccompiler"])
def test_compile_gives_an_external_compiler_its_part(compiler: str, tmp_path: Path) -> None:
    path, ir = tmp_path / "d.so", tmp_path / "ir"
    done = tilewright("compile", DIGITS, "-o", path, "--partition", compiler, "--dump-ir", ir, "-q")
    assert done.returncode == 0, done.stderr
    assert any(f'Compiler="{compiler}"' in file.read_text() for file in ir.iterdir())
    x = np.random.default_rng(0).random((1, 1, 8, 8), "float32")
    (expected,) = onnxruntime.InferenceSession(DIGITS).run(None, {"pixels": x})
    np.testing.assert_allclose(tw.load(path)(x), expected, rtol=1e-4, atol=1e-6)


def test_compile_for_an_unknown_compiler_names_those_that_are_known(tmp_path: Path) -> None:
    result = tilewright("compile", DIGITS, "-o", tmp_path / "d.so", "--partition", "nobody")
    fails(result, "target.nobody", "dnnl")
    assert not (tmp_path / "d.so").exists()


def test_show_partition_of_an_unknown_compiler_names_those_that_are_known() -> None:
    result = tilewright("show", DIGITS, "--partition", "nobody")
    assert result.returncode == 1
    assert "target.nobody" in result.stderr and "dnnl" in result.stderr


def test_dump_ir_writes_a_file_for_each_pass(tmp_path: Path) -> None:
    result = tilewright("compile", DIGITS, "-o", tmp_path / "d.so", "--dump-ir", tmp_path / "ir", "-q")
    assert result.returncode == 0, result.stderr
    assert result.stdout == ""
    names = [p.name for p in (tmp_path / "ir").iterdir()]
    assert any("import" in n for n in names)
    assert any("FuseOps" in n for n in names)
    assert any(n.endswith(".ll") for n in names)


@pytest.mark.parametrize("target", ["c", "llvm -mcpu=x86-64"])
def test_compile_for_another_target(target: str, tmp_path: Path) -> None:
    result = tilewright("compile", DIGITS, "-o", tmp_path / "d.so", "--target", target, "--opt-level", "1")
    assert result.returncode == 0, result.stderr
    assert tilewright("run", tmp_path / "d.so", "--fill", "ones").returncode == 0


def test_the_summary_tells_the_algorithms_of_convolutions_and_an_option_bounds_their_error(tmp_path: Path) -> None:
    weight = numpy_helper.from_array(np.ones((64, 64, 3, 3), np.float32), "w")
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    path = model(tmp_path / "m.onnx", node, shape=[1, 64, 56, 56])
    onnx_model = onnx.load(path)
    onnx_model.graph.initializer.append(weight)
    onnx.save(onnx_model, path)
    for options, algorithm in ([], "Winograd F(4x4)"), (["--pass-config", "relay.conv2d.winograd=off"], "direct"):
        result = tilewright("compile", path, "-o", tmp_path / "x.so", *options)
        assert result.returncode == 0, result.stderr
        assert f"\nconvolutions\t1 {algorithm}\n" in result.stdout


def test_the_summary_tells_the_algorithms_of_dense_layers(tmp_path: Path) -> None:
    path = model(tmp_path / "m.onnx", helper.make_node("MatMul", ["x", "w"], ["y"]), shape=[1024, 768])
    onnx_model = onnx.load(path)
    onnx_model.graph.initializer.append(numpy_helper.from_array(np.ones((768, 768), np.float32), "w"))
    onnx.save(onnx_model, path)
    target = ["--target", "llvm -mcpu=core-avx2 -num-cores=1"]
    for options, algorithm in ([], "Strassen"), (["--pass-config", "relay.dense.strassen=false"], "direct"):
        result = tilewright("compile", path, "-o", tmp_path / "x.so", *target, *options)
        assert result.returncode == 0, result.stderr
        assert f"\ndense layers\t1 {algorithm}\n" in result.stdout


@pytest.mark.parametrize("value", ["relay.conv2d.winograd", "=2", "no.such.option=1", "relay.FuseOps.max_depth=many"])
def test_a_wrong_pass_option_is_refused(value: str, tmp_path: Path) -> None:
    fails(tilewright("compile", DIGITS, "-o", tmp_path / "x.so", "--pass-config", value), value.partition("=")[0])


TVM_EXECUTOR_ATTRS = {"dltype", "storage_id", "shape", "device_index"}
TVM_NODE_ATTRS = {"func_name", "num_inputs", "num_outputs", "flatten_data", "hash"} | {
    f"{name}_layout" for name in ("data", "kernel", "out", "src", "dst")
}
TVM_BACKEND = {"TVMBackendAllocWorkspace", "TVMBackendFreeWorkspace", "TVMBackendParallelLaunch", "TVMAPISetLastError"}


def join_of_convolutions(path: Path) -> Path:
    """A network that here is computed with weights made ready by the first run, and with tensors inside of others."""
    weight = numpy_helper.from_array(np.ones((64, 64, 3, 3), "float32"), "w")
    nodes = [helper.make_node("Conv", ["x", "w"], [name], pads=[1, 1, 1, 1], name=name) for name in ("a", "b")]
    nodes.append(helper.make_node("Concat", ["a", "b"], ["y"], axis=1))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64, 32, 32])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 128, 32, 32])
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", [x], [y], [weight])), path)
    return path


def test_a_library_for_tvm_has_nothing_that_its_executor_does_not_know(tmp_path: Path) -> None:
    model_path, found = join_of_convolutions(tmp_path / "m.onnx"), []
    for options in [], ["--for", "tvm-0.8"]:
        result = tilewright("compile", model_path, "-o", tmp_path / "x.so", *options)
        assert result.returncode == 0, result.stderr
        graph = json.loads(runtime.load_module(tmp_path / "x.so")["get_graph_json"]())
        found.append({*graph["attrs"], *(key for node in graph["nodes"] for key in node.get("attrs", {}))})
    assert {"storage_offset", "run_once"} <= found[0]
    assert found[1] <= TVM_EXECUTOR_ATTRS | TVM_NODE_ATTRS
    symbols = subprocess.run(["nm", "-D", tmp_path / "x.so"], capture_output=True, text=True, check=True).stdout
    filled = {line.split("__", 1)[1] for line in symbols.splitlines() if " __TVM" in line}
    assert filled <= TVM_BACKEND
    fails(tilewright("compile", model_path, "-o", tmp_path / "y.so", "--for", "tvm-0.1"), "tvm-0.8")


def test_a_missing_model_is_named(tmp_path: Path) -> None:
    fails(tilewright("compile", tmp_path / "none.onnx", "-o", tmp_path / "x.so"), "none.onnx", "no such file")


@pytest.mark.parametrize("content", [b"", b"hello, this is not a model", b"\x00" * 1000])
def test_a_file_that_is_no_model_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(content)
    fails(tilewright("compile", tmp_path / "bad.onnx", "-o", tmp_path / "x.so"), "bad.onnx", "not an ONNX model")
    assert not (tmp_path / "x.so").exists()


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_model_cut_short_is_refused(share: float, tmp_path: Path) -> None:
    whole = DIGITS.read_bytes()
    (tmp_path / "cut.onnx").write_bytes(whole[: int(len(whole) * share)])
    fails(tilewright("compile", tmp_path / "cut.onnx", "-o", tmp_path / "x.so"), "cut.onnx")
    assert not (tmp_path / "x.so").exists()


def test_all_unsupported_operators_are_named_with_their_nodes(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("StringNormalizer", ["x"], ["a"], name="first"),
        helper.make_node("NoSuchOperator", ["a"], ["b"], name="second", domain="com.example"),
        helper.make_node("NoSuchOperator", ["b"], ["y"], name="third", domain="com.example"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=opsets), tmp_path / "m.onnx")
    result = tilewright("compile", tmp_path / "m.onnx", "-o", tmp_path / "x.so")
    fails(result, "StringNormalizer", "first", "com.example.NoSuchOperator", "second", "third")


def test_a_named_dimension_keeps_its_name_unless_it_is_given_a_number(tmp_path: Path) -> None:
    path = model(tmp_path / "m.onnx", helper.make_node("Relu", ["x"], ["y"]), shape=["batch", 3])
    kept = tilewright("compile", path, "-o", tmp_path / "x.so")
    assert kept.returncode == 0, kept.stderr
    assert "batch 1:" in kept.stdout
    given = tilewright("compile", path, "-o", tmp_path / "x.so", "--input-shape", "x:2,3")
    assert given.returncode == 0, given.stderr


@pytest.mark.parametrize("shape", ["x", "x:a!,b", "x:-1,3", ":1,3"])
def test_a_malformed_input_shape_is_refused(shape: str, tmp_path: Path) -> None:
    fails(tilewright("compile", DIGITS, "-o", tmp_path / "x.so", "--input-shape", shape), shape)


def test_a_shape_for_an_input_that_is_not_there_names_the_inputs(tmp_path: Path) -> None:
    fails(tilewright("compile", DIGITS, "-o", tmp_path / "x.so", "--input-shape", "q:1"), "'q'", "'pixels'")


def test_external_data_outside_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret.bin").write_bytes(bytes(16))
    (tmp_path / "models").mkdir()
    weight = numpy_helper.from_array(np.zeros(4, "float32"), "w")
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="../secret.bin")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [x], [y], [weight])
    (tmp_path / "models" / "m.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    fails(tilewright("compile", tmp_path / "models" / "m.onnx", "-o", tmp_path / "x.so"), "w", "../secret.bin")


def test_an_unwritable_output_is_noticed_before_compiling(tmp_path: Path) -> None:
    fails(tilewright("compile", DIGITS, "-o", tmp_path / "none" / "x.so"), "x.so", "does not exist")
    fails(tilewright("compile", DIGITS, "-o", tmp_path), "directory")


def test_a_missing_compiler_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    fails(tilewright("compile", DIGITS, "-o", tmp_path / "x.so", "--cc", "no-such-cc"), "C compiler", "install")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_reported_and_nothing_is_left(tmp_path: Path) -> None:
    def limit_file_size() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    env = {**os.environ, "TILEWRIGHT_CACHE": "0", "TMPDIR": str(tmp_path)}
    fails(tilewright("compile", DIGITS, "-o", tmp_path / "x.so", env=env, limit=limit_file_size), "x.so")
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_target_lists_the_known_ones(tmp_path: Path) -> None:
    fails(tilewright("compile", DIGITS, "-o", tmp_path / "x.so", "--target", "quantum"), "quantum", "llvm")


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.9])
def test_a_truncated_library_is_refused(library: Path, share: float, tmp_path: Path) -> None:
    whole = library.read_bytes()
    (tmp_path / "cut.so").write_bytes(whole[: int(len(whole) * share)])
    fails(tilewright("run", tmp_path / "cut.so", "--fill", "ones"), "cut.so")


def test_a_missing_library_is_named(tmp_path: Path) -> None:
    fails(tilewright("run", tmp_path / "none.so", "--fill", "ones"), "none.so", "no such file")


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({}, ["'pixels'", "--fill"]),
        ({"q": np.zeros(1, "float32")}, ["'q'", "pixels"]),
        ({"pixels": np.zeros((1, 1, 8, 9), "float32")}, ["(1, 1, 8, 8)", "(1, 1, 8, 9)"]),
        ({"pixels": np.zeros((1, 1, 8, 8), "float64")}, ["float32", "float64"]),
    ],
)
def test_wrong_inputs_name_what_is_expected_and_found(
    library: Path, arrays: dict[str, np.ndarray], words: list[str], tmp_path: Path
) -> None:
    np.savez(tmp_path / "x.npz", **arrays)
    fails(tilewright("run", library, "--inputs", tmp_path / "x.npz"), *words)


def test_an_input_file_that_is_no_npz_is_refused(library: Path, tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(b"PK\x03\x04 not really")
    fails(tilewright("run", library, "--inputs", tmp_path / "x.npz"), "x.npz")


def test_no_code_runs_from_a_pickled_input(library: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", pixels=np.array([{"a": 1}], dtype=object))
    fails(tilewright("run", library, "--inputs", tmp_path / "x.npz"), "x.npz")


def test_the_summary_says_what_is_computed_on_integers(tmp_path: Path) -> None:
    scale = [numpy_helper.from_array(np.float32(0.5), "s"), numpy_helper.from_array(np.int8(0), "z")]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Relu", ["d"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "s", "z"], ["p"]),
        helper.make_node("DequantizeLinear", ["p", "s", "z"], ["y"]),
    ]
    onnx_model = onnx.load(model(tmp_path / "m.onnx", *nodes))
    onnx_model.graph.initializer.extend(scale)
    onnx.save(onnx_model, tmp_path / "m.onnx")
    result = tilewright("compile", tmp_path / "m.onnx", "-o", tmp_path / "x.so")
    assert "\nquantized\t1 of 1 others on integers" in result.stdout
    result = tilewright("compile", tmp_path / "m.onnx", "-o", tmp_path / "x.so", "--json")
    report = json.loads(result.stdout)
    assert (report["quantized_operators"], report["quantized_operators_in_float32"]) == (1, [])
    assert "quantized" not in tilewright("compile", DIGITS, "-o", tmp_path / "x.so").stdout


@pytest.mark.parametrize("words", [["info"], ["run"]])
def test_a_device_is_not_read_as_a_file(words: list[str]) -> None:
    done = tilewright(*words, "/dev/zero")
    assert done.returncode == 1 and "/dev/zero: is a device, not a file" in done.stderr


def test_a_closed_standard_output_is_no_error() -> None:
    command = f"{sys.executable} -m tilewright --version >&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
