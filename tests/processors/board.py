"""An emulated AArch64 machine that has the C runtime and no Python, as a board would."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tests.native_objects import NATIVE, WARNINGS, runtime_objects

from tilewright.contrib import cc

COMPILER = "aarch64-linux-gnu-gcc"
# a processor of the first AArch64, which stops at any later instruction
EMULATOR = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "-cpu", "cortex-a53"]
TARGET = "llvm -mtriple=aarch64-linux-gnu"
_OUTPUT = re.compile(r"^[^\n:]+: (\w+) \(([\d, ]*)\)", re.MULTILINE)


def compile_program(target: Path, *sources: Path) -> Path:
    """Cross-compile the native runtime with ``sources`` to a program."""
    command = [COMPILER, "-std=c11", "-Os", *WARNINGS, f"-I{NATIVE / 'include'}", *map(str, sources)]
    objects = runtime_objects(COMPILER, "-Os")
    subprocess.run([*command, *objects, "-lpthread", "-ldl", "-o", str(target)], check=True)
    return target


def emulate(program: Path, *arguments: str, threads: int = 1, processor: str = EMULATOR[-1]) -> str:
    """What the program prints on QEMU's ``processor``; its error messages where it fails."""
    command = [*EMULATOR[:-1], processor, "-E", f"TVM_NUM_THREADS={threads}", str(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"exit status {done.returncode}: {done.stderr[-2000:]}"
    return done.stdout


@dataclass(frozen=True)
class Board:
    """Runs exported models with ``tilewright-run``."""

    program: Path
    folder: Path

    def run(
        self, factory: Any, inputs: Mapping[str, np.ndarray], threads: int = 1, processor: str = EMULATOR[-1]
    ) -> list[np.ndarray]:
        """All outputs of one run of the model that ``relay.build`` made for ``TARGET``, or for QEMU's ``processor``."""
        factory.export_library(str(self.library), cc.cross_compiler(COMPILER))
        return self.run_library(inputs, threads, processor)

    @property
    def library(self) -> Path:
        """The model's library."""
        return self.folder / "model.so"

    def run_library(
        self, inputs: Mapping[str, np.ndarray], threads: int = 1, processor: str = EMULATOR[-1]
    ) -> list[np.ndarray]:
        """All outputs of one run of the library."""
        settings: Sequence[str] = [f"{name}={self.folder / name}.bin" for name in inputs]
        for name, value in inputs.items():
            value.tofile(self.folder / f"{name}.bin")
        arguments = str(self.library), "-o", str(self.folder / "out"), *settings
        text = emulate(self.program, *arguments, threads=threads, processor=processor)
        found = []
        for index, (dtype, dims) in enumerate(_OUTPUT.findall(text)):
            shape = [int(d) for d in dims.split(",") if d.strip()]
            found.append(np.fromfile(self.folder / f"out{index}", dtype).reshape(shape))
        return found
