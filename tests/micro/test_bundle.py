"""Networks as folders of C99, compiled by gcc and clang with every warning an error."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.driver.command import DIGITS, tilewright

import tilewright as tvm
from tilewright import relay
from tilewright.micro import BundleExample, export_bundle
from tilewright.micro.names import c_names
from tilewright.relay.interpreter import interpret
from tilewright.runtime.error import TVMError
from tilewright.runtime.export import ExportError

STRICT = "-O1 -std=c99 -Wall -Wextra -Werror -pedantic"
RNG = np.random.default_rng(0)
Arrays = dict[str, np.ndarray]


def network() -> tuple[tvm.IRModule, Arrays]:
    """Convolution, pooling, softmax; names that are no identifiers of C."""
    x, y = relay.var("in put", shape=(1, 3, 9, 9)), relay.var("float", shape=(1, 5))
    weight = relay.const(RNG.normal(size=(5, 3, 3, 3)).astype("float32"))
    z = relay.nn.global_avg_pool2d(relay.nn.relu(relay.nn.conv2d(x, weight, padding=(1, 1))))
    out = relay.Tuple([relay.nn.softmax(relay.reshape(z, (1, 5)) * y), y])
    values = {"in put": RNG.normal(size=(1, 3, 9, 9)), "float": RNG.normal(size=(1, 5))}
    return tvm.IRModule.from_expr(relay.Function([x, y], out)), {k: v.astype("float32") for k, v in values.items()}


def picked() -> tuple[tvm.IRModule, Arrays]:
    """Integers, booleans, and indices."""
    x, i = relay.var("x", shape=(4, 2), dtype="int16"), relay.var("i", shape=(3, 2), dtype="int64")
    taken = relay.gather(x, 0, i)
    out = relay.Tuple([taken, relay.greater(taken, relay.const(np.int16(3))), relay.cast(taken, "uint64")])
    values = {"x": np.arange(8, dtype="int16").reshape(4, 2), "i": np.int64([[0, 3], [1, 1], [2, 0]])}
    return tvm.IRModule.from_expr(relay.Function([x, i], out)), values


def made(folder: Path, mod: tvm.IRModule, values: Arrays, weights: str = "auto") -> Path:
    factory = relay.build(mod, "c -runtime=c", executor="aot", mod_name="net")
    outputs = [np.asarray(o) for o in interpret(mod, values)]
    export_bundle(factory, folder, "net", BundleExample(values, outputs), weights)
    return folder


def run(*command: str, folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_bundle_takes_each_part_of_its_workspace(tmp_path: Path) -> None:
    mod, values = network()
    target = "c -runtime=c -workspace-pools=fast:1000,slow"
    factory = relay.build(mod, target, executor="aot", mod_name="net")
    sizes = [pool.nbytes for pool in factory.layout.pools]
    assert 0 < sizes[0] <= 1000 < sizes[1]
    outputs = [np.asarray(o) for o in interpret(mod, values)]
    export_bundle(factory, tmp_path, "net", BundleExample(values, outputs))
    header = (tmp_path / "net.h").read_text()
    assert f"#define NET_FAST_BYTES {sizes[0]}\n#define NET_SLOW_BYTES {sizes[1]}\n" in header
    assert "void* fast, size_t fast_bytes, void* slow, size_t slow_bytes);" in header
    assert "as recorded" in run("make", "test", f"CFLAGS={STRICT}", folder=tmp_path)
    (tmp_path / "main.c").write_text(SMALL_PARTS)
    run(*["gcc", "-std=c99", "-Wall", "-o", "main", "main.c", "net.c", "net_weights.c", "-lm"], folder=tmp_path)
    assert run("./main", folder=tmp_path).split() == ["-3", "-3", "-2", "-4", "0"]


SMALL_PARTS = """
#include <stdio.h>
#include "net.h"
static float image[NET_INPUT_IN_PUT_ELEMENTS], five[5], first[5], second[5];
static struct { double align; uint8_t bytes[NET_FAST_BYTES + NET_SLOW_BYTES + 64]; } memory;
int main(void) {
  struct net_inputs in = {image, five};
  struct net_outputs out = {first, second};
  uint8_t* fast = memory.bytes + (-(uintptr_t)memory.bytes & (NET_ALIGNMENT - 1));
  uint8_t* slow = fast + (NET_FAST_BYTES + NET_ALIGNMENT - 1) / NET_ALIGNMENT * NET_ALIGNMENT;
  printf("%d ", net_run(&in, &out, fast, NET_FAST_BYTES - 1, slow, NET_SLOW_BYTES));
  printf("%d ", net_run(&in, &out, fast, NET_FAST_BYTES, slow, NET_SLOW_BYTES - 1));
  printf("%d ", net_run(&in, &out, fast, NET_FAST_BYTES, NULL, NET_SLOW_BYTES));
  printf("%d ", net_run(&in, &out, fast, NET_FAST_BYTES, slow + 1, NET_SLOW_BYTES));
  printf("%d ", net_run(&in, &out, fast, NET_FAST_BYTES, slow, NET_SLOW_BYTES));
  return 0;
}
"""


@pytest.mark.parametrize("weights", ["array", "binary"])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_a_bundle_builds_and_gives_the_recorded_answers(tmp_path: Path, compiler: str, weights: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    folder = made(tmp_path / "net", *network(), weights)
    assert "as recorded" in run("make", "-s", f"CC={compiler}", f"CFLAGS={STRICT}", "test", folder=folder)


def test_integers_and_booleans_are_equal_to_the_bit(tmp_path: Path) -> None:
    folder = made(tmp_path / "net", *picked())
    assert "as recorded" in run("make", "-s", f"CFLAGS={STRICT}", "test", folder=folder)


def test_sources_include_no_more_than_they_need(tmp_path: Path) -> None:
    text = (made(tmp_path / "net", *picked()) / "net.c").read_text()
    includes = {line.split()[1] for line in text.splitlines() if line.startswith("#include")}
    assert includes == {'"net.h"', "<stdint.h>", "<string.h>"}


WRONG_CALLS = """
#include <stdio.h>
#include "net.h"
#define CHECK(call, wanted) if ((got = (call)) != (wanted)) { printf("line %d: %d\\n", __LINE__, (int)got); return 1; }
static uint8_t memory[NET_WORKSPACE_BYTES + 2 * NET_ALIGNMENT];
int main(void) {
  int32_t got;
  int16_t x[8] = {0}, taken[6];
  uint8_t greater[6];
  uint64_t cast[6];
  int64_t i[6] = {0, 1, 2, 3, 0, 4};
  uint8_t* workspace = memory + (-(uintptr_t)memory & (NET_ALIGNMENT - 1));
  struct net_inputs in = {x, i};
  struct net_outputs out = {taken, greater, cast};
  CHECK(net_run(&in, &out, workspace, NET_WORKSPACE_BYTES), NET_BAD_INDEX)
  i[5] = 3;
  CHECK(net_run(&in, &out, workspace, NET_WORKSPACE_BYTES), NET_OK)
  CHECK(net_run(&in, &out, workspace, NET_WORKSPACE_BYTES - 1), NET_SMALL_WORKSPACE)
  CHECK(net_run(&in, &out, workspace + 4, NET_WORKSPACE_BYTES), NET_UNALIGNED)
  CHECK(net_run(NULL, &out, workspace, NET_WORKSPACE_BYTES), NET_NULL)
  in.i = NULL;
  CHECK(net_run(&in, &out, workspace, NET_WORKSPACE_BYTES), NET_NULL)
  return 0;
}
"""


def test_wrong_calls_are_refused(tmp_path: Path) -> None:
    folder = made(tmp_path / "net", *picked())
    (folder / "wrong.c").write_text(WRONG_CALLS)
    run(
        "gcc",
        "-std=c99",
        "-fsanitize=address,undefined",
        "wrong.c",
        "net.c",
        "net_weights.c",
        "-o",
        "wrong",
        folder=folder,
    )
    run("./wrong", folder=folder)


def test_other_files_of_the_folder_stay(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    made(tmp_path, *picked())
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    mod, _ = picked()
    factory = relay.build(mod, "c -runtime=c", executor="aot", mod_name="net")
    (tmp_path / "file").write_text("")
    with pytest.raises(ExportError, match="there is a file of that name"):
        export_bundle(factory, tmp_path / "file", "net")
    with pytest.raises(TVMError, match="'2nd' cannot begin symbols of C"):
        export_bundle(factory, tmp_path / "net", "2nd")
    with pytest.raises(TVMError, match="c -runtime=c"):
        export_bundle(relay.build(mod, "c", executor="aot"), tmp_path / "net")


def test_names_become_identifiers_each_another() -> None:
    assert c_names(["a b", "a_b", "", "1", "float", "x"]) == ["a_b", "a_b_1", "tensor", "_1", "float_", "x"]


def compile_digits(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    with contextlib.chdir(folder):
        return tilewright("compile", DIGITS, "-f", "c", *options, "-o", "digits")


def test_the_command_line_writes_a_bundle(tmp_path: Path) -> None:
    done = compile_digits(tmp_path, "--symbol-prefix", "digits")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "as recorded" in run("make", "-s", "CFLAGS=-O1 -Wall -Werror", "test", folder=tmp_path / "digits")


def test_the_command_line_refuses_other_targets(tmp_path: Path) -> None:
    done = compile_digits(tmp_path, "--target", "llvm -mcpu=haswell")
    assert done.returncode != 0 and "the format is made of C source" in done.stderr
    assert not (tmp_path / "digits").exists()
