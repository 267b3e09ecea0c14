"""``tilewright-rpc-server``: the C program for boards without Python, here and as AArch64 under an emulator."""

from __future__ import annotations

import gc
import re
import subprocess
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from tests.native_objects import NATIVE, WARNINGS, runtime_objects
from tests.processors.board import COMPILER, EMULATOR, TARGET
from tests.processors.tools import need
from tests.tiers import full

import tilewright as tvm
from tilewright import nd, relay, rpc
from tilewright.contrib import cc
from tilewright.rpc.tracker import Tracker
from tilewright.runtime import GraphModule, native_dir
from tilewright.runtime.error import RPCError, RPCSessionTimeoutError

HOST = "127.0.0.1"


def build(compiler: str, target: Path, runtime: Sequence[str]) -> Path:
    command = [compiler, "-std=c11", "-Os", "-s", "-rdynamic", *WARNINGS, f"-I{NATIVE / 'include'}"]
    sources = [str(NATIVE / "tools" / "rpc_server.c"), *runtime]
    subprocess.run([*command, *sources, "-lpthread", "-ldl", "-o", str(target)], check=True)
    return target


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    archive = str(native_dir() / "libtilewright_runtime.a")
    installed = ["-Wl,--whole-archive", archive, "-Wl,--no-whole-archive", "-lm"]
    return build("gcc", tmp_path_factory.mktemp("board") / "tilewright-rpc-server", installed)


@contextmanager
def serving(command: Sequence[str | Path], *options: str) -> Iterator[int]:
    """The program, until the block ends; gives its port."""
    words = [*map(str, command), "--port", "0", *options]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        found = re.search(r":(\d+)", line)
        assert found, line
        yield int(found.group(1))
    finally:
        process.terminate()
        assert process.wait(60) == 0


def run_network(port: int, target: str, folder: Path, options: dict[str, object]) -> None:
    """A network compiled for the board gives there what it gives here."""
    x = relay.var("x", shape=(1, 3, 10, 9))
    w = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype("float32")
    y = relay.nn.softmax(relay.nn.batch_flatten(relay.nn.conv2d(x, relay.const(w), padding=(1, 1))))
    mod = tvm.IRModule.from_expr(relay.Function([x], y))
    relay.build(mod, target).export_library(folder / "net.so", options.get("cc"))
    here = GraphModule(relay.build(mod, "llvm")["default"](tvm.cpu()))
    value = np.random.default_rng(1).standard_normal((1, 3, 10, 9)).astype("float32")
    here.run(x=value)

    session = rpc.connect(HOST, port, "board", session_timeout=120)
    session.upload(folder / "net.so")
    there = GraphModule(session.load_module("net.so")["default"](session.cpu()))
    there.run(x=value)
    np.testing.assert_allclose(there.get_output(0).numpy(), here.get_output(0).numpy(), rtol=1e-5, atol=1e-6)
    assert there.benchmark(session.cpu(), number=2, repeat=2).mean > 0


# a library of the board's with functions that call functions
CALLING = """
#include <string.h>
#include <tvm/runtime/c_runtime_api.h>

int apply(TVMValue* args, int* codes, int n, TVMValue* ret, int* ret_code, void* resource) {
  return TVMFuncCall(args[0].v_handle, args + 1, codes + 1, n - 1, ret, ret_code);
}

int total(TVMValue* args, int* codes, int n, TVMValue* ret, int* ret_code, void* resource) {
  ret->v_int64 = 0;
  *ret_code = kTVMArgInt;
  for (TVMValue i = {.v_int64 = 0}, value; i.v_int64 < args[1].v_int64; ++i.v_int64) {
    int code = kTVMArgInt, value_code;
    if (TVMFuncCall(args[0].v_handle, &i, &code, 1, &value, &value_code) != 0) return -1;
    ret->v_int64 += value.v_int64;
  }
  return 0;
}

int caught(TVMValue* args, int* codes, int n, TVMValue* ret, int* ret_code, void* resource) {
  TVMValue value;
  int code, failed = TVMFuncCall(args[0].v_handle, NULL, NULL, 0, &value, &code) != 0;
  ret->v_int64 = failed && strstr(TVMGetLastError(), "the reason") != NULL;
  *ret_code = kTVMArgInt;
  return 0;
}
"""


class Doubling:
    """A function that is not kept by a test's frame."""

    def __call__(self, x: object) -> object:
        return x * 2  # type: ignore[operator]


def call_back(port: int, compiler: str, folder: Path) -> None:
    """Functions of this process, called by a library on the board."""
    (folder / "calling.c").write_text(CALLING)
    command = [compiler, "-std=c11", "-shared", "-fPIC", f"-I{NATIVE / 'include'}", str(folder / "calling.c")]
    subprocess.run([*command, "-o", str(folder / "calling.so")], check=True)
    session = rpc.connect(HOST, port, "board", session_timeout=120)
    session.upload(folder / "calling.so")
    library = session.load_module("calling.so")
    apply = library["apply"]
    for value in (3, -1.5, 1 << 40, "text", b"bytes\0", None, b"x" * 200_000):
        assert apply(lambda x: x, value) == value
    assert library["total"](lambda i: i * i, 40) == sum(i * i for i in range(40))

    def fail() -> None:
        raise ValueError("the reason")

    assert library["caught"](fail) == 1
    with pytest.raises(RPCError, match="the reason"):
        apply(fail)
    array = nd.array(np.arange(5, dtype="float32"), session.cpu())
    seen: list[np.ndarray] = []
    apply(lambda x: seen.append(x.numpy()), array)
    np.testing.assert_array_equal(seen[0], np.arange(5))

    def down(level: int) -> int:
        return level if level == 0 else apply(lambda: down(level - 1) + 1)

    assert down(10) == 10
    function = Doubling()
    gone = weakref.ref(function)
    assert apply(function, 21) == 42
    del function
    apply(lambda: None)  # its answer comes after what the server needs no more
    gc.collect()
    assert gone() is None


def test_a_network_runs(program: Path, tmp_path: Path) -> None:
    with serving([program], "--key", "board") as port:
        run_network(port, "llvm", tmp_path, {})
        call_back(port, "gcc", tmp_path)


# processors of boards: the compiler, the emulator, and Tilewright's target
BOARDS = {
    "aarch64": (COMPILER, EMULATOR, TARGET),
    "armv7": (
        "arm-linux-gnueabihf-gcc",
        ["qemu-arm", "-L", "/usr/arm-linux-gnueabihf", "-cpu", "cortex-a15"],
        "llvm -mtriple=armv7l-linux-gnueabihf -mattr=+neon",
    ),
    "riscv64": (
        "riscv64-linux-gnu-gcc",
        ["qemu-riscv64", "-L", "/usr/riscv64-linux-gnu"],
        "llvm -mtriple=riscv64-linux-gnu -mattr=+m,+a,+f,+d,+c",
    ),
}


@pytest.mark.parametrize("board", ["aarch64", *full(*(board for board in BOARDS if board != "aarch64"))])
def test_a_network_runs_on_an_emulated_board(board: str, tmp_path: Path) -> None:
    compiler, emulator, target = BOARDS[board]
    need(emulator[0], compiler)
    program = build(compiler, tmp_path / "server", runtime_objects(compiler, "-Os"))
    assert program.stat().st_size < 400 << 10
    with serving([*emulator, program], "--key", "board") as port:
        run_network(port, target, tmp_path, {"cc": cc.cross_compiler(compiler)})
        call_back(port, compiler, tmp_path)
        gc.collect()  # a function that calls itself through a session keeps it, and the board
        session = rpc.connect(HOST, port, "board")
        apply = session.get_function("rpc.LocalSession")  # a function that gives a module
        assert apply() is not None
        values = np.arange(100_003, dtype="int16")
        arrays = [nd.array(values, session.cpu()) for _ in range(50)]  # places of handles are used again
        del arrays[::2]
        arrays += [nd.array(values[:7], session.cpu()) for _ in range(30)]
        np.testing.assert_array_equal(arrays[0].numpy(), values)
        np.testing.assert_array_equal(arrays[-1].numpy(), values[:7])


def test_secrets(program: Path) -> None:
    long = "a secret of more than a block of SHA-256, which is hashed first: 0123456789 0123456789"
    for secret in ("s", long):
        with serving([program], "--key", "k", "--secret", secret) as port:
            session = rpc.connect(HOST, port, "k", secret=secret)
            np.testing.assert_array_equal(nd.array(np.arange(3), session.cpu()).numpy(), np.arange(3))
            del session
            with pytest.raises(RPCError, match="does not know the secret"):
                rpc.connect(HOST, port, "k", secret="another")
            with pytest.raises(RPCError, match="refuses: it wants the secret"):
                rpc.connect(HOST, port, "k")
    done = subprocess.run([program, "--host", "0.0.0.0"], capture_output=True, text=True, timeout=10)
    assert done.returncode == 1 and "--insecure" in done.stderr


def test_a_tracker_hands_it_out(program: Path) -> None:
    tracker = Tracker(port=0, port_end=1, silent=True)
    with serving([program], "--key", "kind", "--tracker", f"{HOST}:{tracker.port}"):
        client = rpc.connect_tracker(HOST, tracker.port)
        for _ in range(2):
            session = client.request("kind")
            session.upload(b"12", "x")
            assert session.download("x") == b"12"
            assert client.summary()["queue_info"]["kind"]["free"] == 0
            del session
    tracker.terminate()


def test_sessions_end(program: Path, tmp_path: Path) -> None:
    forever = tmp_path / "forever.c"
    forever.write_text(
        "int spin(void* a, int* b, int c, void* d, int* e, void* f) { for (volatile int i = 0;;) i = 0; }\n"
        "int crash(void* a, int* b, int c, void* d, int* e, void* f) { *(volatile int*)0 = 0; return 0; }\n"
    )
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", str(forever), "-o", str(tmp_path / "bad.so")], check=True)
    with serving([program], "--key", "k", "--memory", "512") as port:
        for function, error in (("spin", RPCSessionTimeoutError), ("crash", RPCError)):
            session = rpc.connect(HOST, port, "k", session_timeout=1)
            session.upload(tmp_path / "bad.so")
            bad = session.load_module("bad.so")[function]
            start = time.monotonic()
            with pytest.raises(error):
                bad()
            assert time.monotonic() - start < 30
            del session, bad
        session = rpc.connect(HOST, port, "k")
        with pytest.raises(tvm.TVMError, match="memory"):
            nd.empty((1 << 30,), device=session.cpu())
        assert nd.array(np.ones(3), session.cpu()).numpy().sum() == 3
