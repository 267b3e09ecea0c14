"""What reads files that somebody else has written: each gives a value, or the errors that it promises."""

from __future__ import annotations

import contextlib
import functools
import json
import struct
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tests.relay.frontend.tflite_networks import MobileNet
from tests.runtime.kernels import HandWrittenCode, chain_json, compile_kernels

import tilewright as tvm
from tilewright import autotvm, relay, runtime
from tilewright.ir.prim_expr import DimVar
from tilewright.runtime.bytecode import Code, Instruction, Opcode, VMFunction
from tilewright.runtime.params import array_from_bytes, array_to_bytes
from tilewright.runtime.vm import Executable, make_executable

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
CORPUS = Path(__file__).resolve().parent / "corpus"
"""A folder for each loader: inputs that once were not answered as they should be."""


@dataclass(frozen=True)
class Loader:
    """A loader: valid inputs, whether they are text, what reads one, and the errors that it may raise."""

    name: str
    seeds: Callable[[], list[bytes]]
    text: bool
    read: Callable[[bytes], Any]
    errors: tuple[type[Exception], ...] = (tvm.TVMError,)

    def corpus(self) -> list[bytes]:
        """Valid inputs, and those of the corpus."""
        return [*self.seeds(), *(path.read_bytes() for path in self.findings())]

    def findings(self) -> list[Path]:
        """Files of the corpus."""
        return sorted((CORPUS / self.name).glob("*"))

    def try_to_read(self, data: bytes) -> None:
        """Read ``data``; an error that is not promised, or has no message, goes on."""
        try:
            self.read(data)
        except self.errors as error:
            assert str(error), "an error without a message"


def _with_file(suffix: str) -> Callable[[Callable[[Path], Any]], Callable[[bytes], Any]]:
    def decorate(read: Callable[[Path], Any]) -> Callable[[bytes], Any]:
        def read_bytes(data: bytes) -> Any:
            with tempfile.TemporaryDirectory(prefix="tilewright-fuzz-") as folder:
                path = Path(folder) / f"input{suffix}"
                path.write_bytes(data)
                return read(path)

        return read_bytes

    return decorate


# ---- parameters ----


def _params() -> list[bytes]:
    arrays = {"w": np.arange(6, dtype="float32").reshape(2, 3), "half": np.ones(3, "float16"), "n": np.array(3)}
    return [runtime.save_param_dict(arrays), (GOLDEN / "params" / "two_arrays.bin").read_bytes()]


def _arrays() -> list[bytes]:
    return [array_to_bytes(np.arange(6).reshape(2, 3).astype(dtype)) for dtype in ("float32", "int8", "bool")]


# ---- libraries ----


@functools.cache
def _library() -> bytes:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shared = compile_kernels(folder / "k.so", "-shared")
        code = HandWrittenCode(compile_kernels(folder / "k.o", "-c"), shared)
        module = runtime.from_compiled(code, "c")
        params = {"w": np.zeros((3, 5), "float32")}
        factory = runtime.GraphExecutorFactoryModule(None, None, "graph", chain_json(2), module, "default", params)
        return Path(factory.export_library(folder / "network.so", options=["-s"])).read_bytes()


@_with_file(".so")
def _library_info(path: Path) -> Any:
    return runtime.library_info(path)


# ---- tuning records ----

_RECORD = (
    b'{"input": ["llvm -keys=cpu", "dense_nopack.x86", [["TENSOR", [1, 128], "float32"], ["TENSOR", [64, 128], '
    b'"float32"], null, "float32"], {}], "config": {"index": 3, "code_hash": null, "entity": [["tile_y", "sp", '
    b'[-1, 1]], ["tile_x", "ot", 2], ["fuse", "an", "unroll"], ["order", "re", [0, 1]]]}, "result": [[0.001, 0.002], '
    b'0, 0.5, 1600000000.0], "version": 0.2, "tvm_version": "0.8.0"}\n'
)


@_with_file(".log")
def _records(path: Path) -> Any:
    return autotvm.apply_history_best(path)


# ---- programs ----


_DATA_TYPES = b"""#[version = "0.0.5"]
type Tree[A] {
  Leaf,
  Node(A, Tree[A], Tree[A]),
}
def @depth[A](%t: Tree[A]) -> int32 {
  match (%t) {
    Leaf => 0,
    Node(_, %l, %r) => add(1, maximum(@depth(%l), @depth(%r))),
  }
}
def @main(%f: fn (int32) -> int32, %x: (Tensor[(?, 4), float32], ref(int64))) {
  let %g = fn (%y: int32, device="cpu") { %f(%y) };
  ref_write(%x.1, 3i64);
  %g(2)
}
"""
_TEXTS = ("constant_with_metadata", "conv_bias_relu", "dcgan", "let_if_tuple", "mlp", "ref")


def _texts() -> list[bytes]:
    return [*((GOLDEN / "relay" / f"{name}.txt").read_bytes() for name in _TEXTS), _DATA_TYPES]


def _parse(data: bytes) -> Any:
    return tvm.parser.fromtext(data.decode(errors="replace"))


def _json_texts() -> list[bytes]:
    x = relay.var("x", shape=(2, 3))
    y = relay.nn.relu(relay.add(x, relay.const(np.ones((2, 3), "float32"))))
    f = relay.Function([x], relay.TupleGetItem(relay.Tuple([y, relay.If(relay.const(True), x, y)]), 0))
    n = tvm.te.var("n")
    nodes = [tvm.IRModule.from_expr(f), tvm.te.max(n * 3 + 1, 4), [1, "two", 3.5], relay.nn.conv2d(x, x).attrs]
    return [tvm.ir.save_json(node).encode() for node in nodes]


def _load_json(data: bytes) -> Any:
    return tvm.ir.load_json(data.decode(errors="replace"))


# ---- models ----


def _model(nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray], shape: tuple[int, ...]) -> bytes:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    initializers = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], initializers)
    return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())


def _models() -> list[bytes]:
    node = helper.make_node
    w = np.ones((2, 3, 3, 3), "float32")
    conv = [
        node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        node("Relu", ["a"], ["b"]),
        node("Reshape", ["b", "s"], ["y"]),
    ]
    shapes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "i"], ["g"], axis=0),
        node("Concat", ["g", "g"], ["c"], axis=0),
        node("Expand", ["v", "c"], ["y"]),
    ]
    pool = [
        node("MaxPool", ["x"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Resize", ["p", "", "scales"], ["r"], mode="linear"),
        node("Slice", ["r", "i", "e"], ["y"]),
    ]
    one = np.array([1], "int64")
    return [
        _model(conv, {"w": w, "s": np.array([1, -1], "int64")}, (1, 3, 4, 4)),
        _model(shapes, {"i": one, "v": np.ones(1, "float32")}, (2, 3)),
        _model(pool, {"scales": np.array([1, 1, 2, 2], "float32"), "i": one, "e": 2 * one}, (2, 3, 4, 4)),
    ]


@_with_file(".onnx")
def _import_onnx(path: Path) -> Any:
    return relay.frontend.from_onnx(path)


def _tflite_models() -> list[bytes]:
    return [MobileNet(dtype, 16, 8, 2).file.data for dtype in ("float32", "int8")]


# ---- programs of the virtual machine ----


_MACHINE_TEXT = """#[version = "0.0.5"]
def @count(%i: int32, %sum: int32) -> int32 {
  if (equal(%i, 0)) { %sum } else { @count(subtract(%i, 1), add(%sum, %i)) }
}
def @main(%x: Tensor[(?, 4), float32], %n: int32) -> (Tensor[(?, 4), float32], int32) {
  let %f = fn (%y: Tensor[(?, 4), float32]) { add(%y, %x) };
  let %total = @count(%n, 0);
  (%f(nn.relu(%x)), %total)
}"""


@functools.cache
def _executables() -> list[Executable]:
    """A program with control flow and closures, one whose inputs an interface checks, one that makes them grow."""
    x = relay.var("x", relay.TensorType((DimVar("rows", 1, 8), 4), "float32"))
    named = relay.Function([x, relay.var("n", shape=(), dtype="int32")], relay.reshape(relay.nn.relu(x), (-1,)))
    past = relay.var("past", relay.TensorType((DimVar("rows"), DimVar("columns")), "float32"))
    whole = relay.concatenate((past, relay.nn.relu(past)), axis=1)
    grown = relay.Function([past, relay.var("n", shape=(), dtype="int32")], relay.Tuple([whole, relay.exp(whole)]))
    programs = (tvm.parser.fromtext(_MACHINE_TEXT), *map(tvm.IRModule.from_expr, (named, grown)))
    return [relay.vm.compile(program, "llvm") for program in programs]


def _bytecodes() -> list[bytes]:
    return [bytes(_executables()[0].save()[0])]


def _instructions() -> list[bytes]:
    """Programs as numbers: of bytes alone nearly all damage is found by the hash of an instruction."""
    return [
        json.dumps(
            [
                index,
                *(
                    [f.register_file_size, [[int(i.opcode), *i.fields] for i in f.instructions]]
                    for f in exe.code.functions
                ),
            ]
        ).encode()
        for index, exe in enumerate(_executables())
    ]


def _run_machine(exe: Executable) -> None:
    machine = runtime.vm.VirtualMachine(exe, tvm.cpu())
    machine.set_limits(registers=10_000, calls=1000)
    for rows in (1, 5, 9):
        with contextlib.suppress(tvm.TVMError):
            found = machine.run(np.ones((rows, 4), "float32"), 3)
            if isinstance(found, runtime.container.ADT) and len(found):
                machine.run(found[0], 3)  # which may lie in memory with room


def _run_bytecode(data: bytes) -> None:
    _run_machine(Executable.load_exec(data, _executables()[0].lib))


def _run_instructions(data: bytes) -> None:
    """Numbers in the place of a program's own; what is no program of numbers is not what is looked for."""
    try:
        index, *functions = json.loads(data)
        exe = _executables()[index % len(_executables())]
        made = [
            VMFunction(old.name, old.params, old.param_devices, int(registers), [_instruction(i) for i in code])
            for old, (registers, code) in zip(exe.code.functions, functions, strict=True)
        ]
        count = exe.mod["get_num_constants"]()
        constants = [exe.mod["get_constant"](i) for i in range(count)]
        changed = make_executable(Code(made, exe.code.packed), constants, [1] * count, exe.lib)
    except (ValueError, TypeError, LookupError, struct.error, OverflowError, RecursionError, AttributeError):
        return
    _run_machine(changed)


def _instruction(numbers: list[int]) -> Instruction:
    return Instruction(Opcode(int(numbers[0])), [int(n) for n in numbers[1:]])


LOADERS = [
    Loader("params", _params, False, runtime.load_param_dict, (ValueError,)),
    Loader("array", _arrays, False, array_from_bytes, (ValueError,)),
    Loader("library_info", lambda: [_library()], False, _library_info),
    Loader("records", lambda: [_RECORD, 2 * _RECORD], True, _records),
    Loader("relay_text", _texts, True, _parse),
    Loader("relay_json", _json_texts, True, _load_json),
    Loader("onnx", _models, False, _import_onnx),
    Loader("tflite", _tflite_models, False, relay.frontend.from_tflite),
    Loader("bytecode", _bytecodes, False, _run_bytecode),
    Loader("instructions", _instructions, True, _run_instructions),
]
