"""Code for AArch64, under an emulator: the C runtime, whole networks, and single kernels."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from tests.models.compiled import assert_close
from tests.native_objects import ROOT
from tests.processors.board import COMPILER, EMULATOR, TARGET, Board, compile_program, emulate
from tests.processors.tools import need
from tests.target.ulp import REFERENCES, exact_values, sampled_floats, worst_error
from tests.tiers import full

import tilewright as tvm
from tilewright import relay
from tilewright.relay.transform.precision.halve_weights import precision_config
from tilewright.testing import zoo

NETWORKS = {
    "squeezenet1_1": {},
    "distilbert": {"tokens": 16, "layers": 2, "hidden": 192, "heads": 3, "vocabulary": 1009},
}


def run_network(board: Board, path: Path, threads: int) -> list[np.ndarray]:
    inputs, _ = zoo.reference(path)
    mod, params = relay.frontend.from_onnx(onnx.load(str(path)), {name: v.shape for name, v in inputs.items()})
    with tvm.transform.PassContext(opt_level=3):
        factory = relay.build(mod, target=TARGET, params=params)
    return board.run(factory, inputs, threads)


def onnx_runtime(path: Path) -> Sequence[np.ndarray]:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    found: Sequence[np.ndarray] = session.run(None, zoo.reference(path)[0])
    return found


@pytest.mark.full
@pytest.mark.parametrize("name", NETWORKS)
def test_network_gives_what_onnx_runtime_gives(name: str, board: Board) -> None:
    path = zoo.export(name, **NETWORKS[name])
    assert_close(run_network(board, path, threads=2), onnx_runtime(path))


FEW = ("gpt2_decode",)


@pytest.mark.parametrize("name", [*FEW, *full(*(name for name in zoo.names() if name not in FEW))])
def test_small_network_gives_what_onnx_runtime_gives(name: str, board: Board) -> None:
    path = zoo.export(name, **zoo.small_options(name))
    assert_close(run_network(board, path, threads=1), onnx_runtime(path))


def test_weights_in_a_segment_of_the_library_are_read(board: Board) -> None:
    """More than 4 MiB of weights, which the cross linker does not see."""
    extent = 1100
    rng = np.random.default_rng(0)
    data, weight = rng.random((1, extent), "float32"), rng.random((extent, extent), "float32")
    x, w = relay.var("x", shape=data.shape), relay.var("w", shape=weight.shape)
    mod = tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.dense(x, w)))
    with tvm.transform.PassContext(opt_level=3):
        factory = relay.build(mod, target=TARGET, params={"w": weight})
    factory.export_library(board.library, cc=COMPILER)
    (found,) = board.run_library({"x": data}, threads=2)
    np.testing.assert_allclose(found, data @ weight.T, rtol=1e-5)
    sections = subprocess.run(["readelf", "-SW", board.library], check=True, capture_output=True, text=True)
    assert " .tilewright " in sections.stdout


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_weights_in_half_precision_are_those_of_rounded_weights(precision: str, board: Board) -> None:
    rng = np.random.default_rng(38)
    image, kernel = rng.standard_normal((1, 16, 8, 8), "float32"), rng.standard_normal((32, 16, 3, 3), "float32")
    matrix = rng.standard_normal((256, 32), "float32")
    x = relay.var("x", shape=image.shape)
    maps = relay.nn.conv2d(x, relay.const(kernel), padding=1, channels=32, kernel_size=(3, 3))
    body = relay.nn.dense(relay.mean(maps, axis=[2, 3]), relay.const(matrix))
    built = {}
    for chosen in (precision, "float32"):
        with tvm.transform.PassContext(opt_level=3, config=precision_config(chosen)):
            built[chosen] = relay.build(tvm.IRModule.from_expr(relay.Function([x], body)), TARGET)
    found, exact = (board.run(built[p], {"x": image}, 1)[0] for p in (precision, "float32"))
    assert np.abs(found - exact).max() <= {"fp16": 1e-3, "bf16": 8e-3}[precision] * np.abs(exact).max()
    assert built[precision].build_report.parameter_bytes == (kernel.nbytes + matrix.nbytes) // 2


BYTE_PROCESSORS = {  # instruction: LLVM's processor that has it, and QEMU's
    "sdot": ("neoverse-n1", "neoverse-n1"),
    "usdot": ("neoverse-v1", "max"),
    "mla": ("cortex-a53", "cortex-a53"),
}


@pytest.mark.parametrize("dtypes", [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")])
@pytest.mark.parametrize("instruction", BYTE_PROCESSORS)
def test_products_of_bytes_are_exact(instruction: str, dtypes: tuple[str, str], board: Board) -> None:
    rng = np.random.default_rng(37)
    ends = [np.iinfo(t) for t in dtypes]
    shapes = [(9, 67), (21, 67)]
    a, b = (rng.choice([e.min, e.min + 1, e.max], s).astype(e.dtype) for e, s in zip(ends, shapes, strict=True))
    x = relay.var("x", shape=a.shape, dtype=dtypes[0])
    processor, machine = BYTE_PROCESSORS[instruction]
    with tvm.transform.PassContext(opt_level=3):
        body = relay.nn.dense(x, relay.const(b), out_dtype="int32")
        factory = relay.build(tvm.IRModule.from_expr(relay.Function([x], body)), f"{TARGET} -mcpu={processor}")
    if instruction != "mla":
        taken = instruction if dtypes[0] == "uint8" else "sdot"
        assert f"\t{taken}\t" in factory.get_lib().get_source("asm")
    (found,) = board.run(factory, {"x": a}, processor=machine)
    np.testing.assert_array_equal(found, a.astype("int64") @ b.astype("int64").T)


@pytest.mark.parametrize("name", sorted(REFERENCES.keys() - {"exp2"}))  # which Relay has no operator for
def test_polynomials_are_within_2_ulp(name: str, board: Board) -> None:
    values = np.concatenate(list(sampled_floats(16_411 if name == "erf" else 4093)))
    x = relay.var("x", shape=values.shape)
    factory = relay.build(tvm.IRModule.from_expr(relay.Function([x], getattr(relay, name)(x))), TARGET)
    assert ".4s" in factory.get_lib().get_source("asm")
    (found,) = board.run(factory, {"x": values})
    assert worst_error(found, exact_values(name, values)) <= 2.0


def test_gelu_is_within_3e_7(board: Board) -> None:
    values = np.linspace(-12, 12, 40_007, dtype=np.float32)
    x = relay.var("x", shape=values.shape)
    factory = relay.build(tvm.IRModule.from_expr(relay.Function([x], relay.nn.gelu(x))), TARGET)
    (found,) = board.run(factory, {"x": values})
    exact = [0.5 * v * math.erfc(-v * math.sqrt(0.5)) for v in values.astype("float64")]
    np.testing.assert_allclose(found, exact, rtol=1e-7, atol=3e-7)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ["resnet18", "resnet50", "mobilenet_v2", "densenet121", "inception_v3", "unet"])
def test_full_size_network_gives_what_onnx_runtime_gives(name: str, board: Board) -> None:
    path = zoo.export(name)
    assert_close(run_network(board, path, threads=4), onnx_runtime(path))


def test_code_for_a_larger_processor_is_refused_by_a_small_one(board: Board) -> None:
    x = relay.var("x", shape=(3,))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.exp(x)))
    with pytest.raises(AssertionError, match=r"needs CPU features that this machine lacks: bf16, .*sve"):
        board.run(relay.build(mod, f"{TARGET} -mcpu=neoverse-v1"), {})


@pytest.mark.full
def test_c_tests_of_the_runtime_pass(tmp_path: Path) -> None:
    need("qemu-aarch64", "aarch64-linux-gnu-gcc")
    sources = [s for s in sorted((ROOT / "native" / "tests").glob("*.c")) if s.name != "kernels.c"]
    program = compile_program(tmp_path / "tests", *sources)
    library = tmp_path / "kernels.so"
    kernels = ROOT / "native" / "tests" / "kernels.c"
    flags = ["-O1", "-fPIC", "-shared", f"-I{ROOT / 'native' / 'include'}"]
    subprocess.run([COMPILER, *flags, str(kernels), "-o", str(library)], check=True)
    # all but "fork": a child that qemu forked while several threads ran may wait for qemu's own locks for ever
    areas = ["arrays", "functions", "modules", "threads", "graph", "serving", "rpc"]
    assert emulate(program, str(ROOT / "tests" / "golden"), str(library), *areas, threads=4).endswith("ok\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "usage: tilewright-run MODEL.so"),
        (["/nonexistent.so"], "cannot load /nonexistent.so"),
        (["{library}", "x"], "x is not of the form INPUT=FILE"),
        (["{library}", "y=/dev/null"], "the model has no input y; it has x"),
        (["{library}"], "nobody has set the inputs: x"),
        (["{library}", "x=/nonexistent"], "cannot read /nonexistent"),
        (["{library}", "x=/dev/null"], "input x takes 12 bytes, and /dev/null has fewer"),
        (["{library}", "x=/dev/zero"], "input x takes 12 bytes, and /dev/zero has more"),
        (["{library}", "-n", "none"], "none is no number of runs"),
        (["{library}", "-o"], "-o takes a value"),
        (["{library}", "-z", "-o", "/nonexistent/out"], "cannot write /nonexistent/out0"),
    ],
)
def test_wrong_use_of_the_runner_is_explained(arguments: list[str], message: str, board: Board) -> None:
    x = relay.var("x", shape=(3,))
    model = relay.build(tvm.IRModule.from_expr(relay.Function([x], relay.exp(x))), TARGET)
    board.run(model, {"x": np.zeros(3, "float32")})
    filled = [a.replace("{library}", str(board.folder / "model.so")) for a in arguments]
    done = subprocess.run([*EMULATOR, str(board.program), *filled], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert message in done.stderr
