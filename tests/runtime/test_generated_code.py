"""Kernels that the compiler made, on four threads under the sanitizers: as C source, which gcc instruments too."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from benchmarks.instructions import KERNELS
from tests.native_objects import NATIVE, SANITIZED, runtime_objects
from tests.runtime.test_native import OPTIONS

import tilewright as tvm
from tilewright import relay


@pytest.fixture(scope="module")
def kernels() -> Any:
    """One module with the kernels whose instructions are counted: products, convolutions, norms, moves."""
    params: list[Any] = []
    fields: list[Any] = []
    for number, (make, _) in enumerate(KERNELS.values()):
        func = make()
        mine = [relay.var(f"x{number}_{k}", p.type_annotation) for k, p in enumerate(func.params)]
        fields.append(relay.bind(func.body, dict(zip(func.params, mine, strict=True))))
        params += mine
    with tvm.transform.PassContext(opt_level=3):
        return relay.build(tvm.IRModule.from_expr(relay.Function(params, relay.Tuple(fields))), "c")


@pytest.mark.full
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_generated_kernels_are_clean_under(sanitizer: str, kernels: Any, tmp_path: Path) -> None:
    assert kernels.get_lib().get_source().count("TVMBackendParallelLaunch(") > len(KERNELS) // 2
    flags = [flag.replace("address,undefined", sanitizer) for flag in SANITIZED]
    library, program = tmp_path / "kernels.so", tmp_path / "run"
    kernels.export_library(str(library), options=flags)
    sources = [str(NATIVE / "tools" / "run.c"), *runtime_objects("gcc", *flags)]
    command = ["gcc", "-std=c11", *flags, f"-I{NATIVE / 'include'}", *sources, "-lpthread", "-ldl"]
    subprocess.run([*command, "-o", str(program)], check=True)
    done = subprocess.run(
        [str(program), str(library), "-n", "3", "-z"],
        env=os.environ | OPTIONS | {"TVM_NUM_THREADS": "4"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert done.stdout.count("output_") == len(KERNELS)
    assert b"__tsan_" in library.read_bytes() or sanitizer != "thread"
