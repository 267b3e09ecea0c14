"""AMX's tiles in all processes: refused with the reason, in threads, after fork, several libraries at once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.processors.x86 import runs_here

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor

AMX = "llvm -mcpu=sapphirerapids"
RNG = np.random.default_rng(45)
SMALL_STACK = """
import ctypes, sys

class Stack(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]

memory = ctypes.create_string_buffer(4096)
stack = Stack(ctypes.addressof(memory), 0, 4096)
assert ctypes.CDLL(None).sigaltstack(ctypes.byref(stack), None) == 0
import tilewright
try:
    tilewright.runtime.load_module(sys.argv[1])
except tilewright.TVMError as error:
    print(error)
"""


class Product:
    """A dense layer in tiles: its library, data, and the sums."""

    def __init__(self, rows: int, depth: int) -> None:
        weight = RNG.integers(-128, 128, (32, depth)).astype("int8")
        x = relay.var("x", shape=(rows, depth), dtype="uint8")
        func = relay.Function([x], relay.nn.dense(x, relay.const(weight), out_dtype="int32"))
        with tvm.transform.PassContext(opt_level=3):
            self.lib = relay.build(tvm.IRModule.from_expr(func), AMX)
        self.data = RNG.integers(0, 256, (rows, depth)).astype("uint8")
        self.sums = self.data.astype("int32") @ weight.astype("int32").T
        self.executor: Any = graph_executor.GraphModule(self.lib["default"](tvm.cpu()))

    def is_right(self) -> bool:
        self.executor.run(x=self.data)
        return bool((self.executor.get_output(0).numpy() == self.sums).all())


@pytest.fixture(scope="module")
def products() -> Iterator[list[Product]]:
    if not runs_here(AMX):
        pytest.skip("no AMX on this processor")
    yield [Product(32, 64), Product(17, 128)]


def test_several_configurations_take_turns_in_a_thread(products: list[Product]) -> None:
    assert all(product.is_right() for _ in range(3) for product in products)


def test_threads_made_before_the_library_was_loaded_use_tiles(products: list[Product]) -> None:
    ready, found = threading.Event(), list[bool]()

    def work() -> None:
        ready.wait()
        found.append(Product(48, 64).is_right())

    thread = threading.Thread(target=work)
    thread.start()
    ready.set()
    thread.join()
    assert found == [True]


def test_children_of_fork_use_tiles(products: list[Product]) -> None:
    assert products[0].is_right()
    child = os.fork()
    if child == 0:
        os._exit(0 if all(product.is_right() for product in products) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert products[0].is_right()


def test_a_library_says_that_it_needs_tiles(products: list[Product], tmp_path: Path) -> None:
    path = tmp_path / "tiles.so"
    products[0].lib.export_library(str(path))
    shown = subprocess.run(
        [sys.executable, "-m", "tilewright", "info", str(path)], capture_output=True, text=True, check=True
    ).stdout
    assert "amx-int8" in shown
    assert "amx-tile" in shown


def test_tiles_are_refused_with_the_reason_where_signal_stacks_are_small(
    products: list[Product], tmp_path: Path
) -> None:
    path = tmp_path / "tiles.so"
    products[0].lib.export_library(str(path))
    shown = subprocess.run(
        [sys.executable, "-c", SMALL_STACK, str(path)], capture_output=True, text=True, check=True
    ).stdout
    assert "lacks: amx-" in shown
    assert "sigaltstack, is too small" in shown
