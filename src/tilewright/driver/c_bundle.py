"""``tilewright compile -f c``, ``-f wasm`` and ``-f mlf``: networks without an operating system."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tilewright.driver.fill import filled
from tilewright.driver.options import check_writable
from tilewright.ir.module import IRModule
from tilewright.micro import BundleExample, export_bundle
from tilewright.micro.boards.records import board_named
from tilewright.relay import build_module
from tilewright.runtime.device import cpu
from tilewright.runtime.error import TVMError
from tilewright.runtime.executor.aot import AOTExecutorFactoryModule
from tilewright.runtime.executor.graph import GraphModule
from tilewright.runtime.interface import TensorInfo
from tilewright.target.target import Target

LIBRARY, C, WASM, MLF = "library", "c", "wasm", "mlf"
FORMATS = (LIBRARY, C, WASM, MLF)
FOLDERS = (C, WASM)
"""Formats that are folders of files made of C that needs no runtime."""
_SEED = 0


def check_format(name: str) -> None:
    """Raise TVMError for a format that there is not."""
    if name not in FORMATS:
        raise TVMError(f"--format {name}: there are {', '.join(FORMATS)}")


def check_folder(path: Path) -> None:
    """Complain before minutes of compiling when no files can be written into a folder, which need not exist yet."""
    if path.exists() and not path.is_dir():
        raise OSError(f"cannot write {path}: there is a file of that name, and the format is a folder")
    check_writable(path / "model" if path.is_dir() else path)


def c_target(text: str, board: str | None = None, pools: str | None = None) -> Target:
    """Return the target of C that needs no runtime, for the command's options ``--target``, ``--board`` and
    ``--workspace-pools``.

    Raises
    ------
    TVMError : the option names another kind of target, or there is no such board
    """
    if board is not None:
        if text != "llvm":
            raise TVMError("--board and --target exclude each other: a board has a target")
        return _with_pools(board_named(board).target, pools)
    target = Target("c" if text == "llvm" else text)  # llvm is the option's default
    if not target.kind.capabilities.freestanding:
        raise TVMError(f"the format is made of C source: --target c, with options of C compilers, not {text}")
    return _with_pools(Target({**target.export(), "runtime": "c"}), pools)


def _with_pools(target: Target, pools: str | None) -> Target:
    return target if pools is None else Target({**target.export(), "workspace-pools": pools})


def write_bundle(
    factory: AOTExecutorFactoryModule, mod: IRModule, params: dict[str, Any], folder: Path, name: str
) -> list[Path]:
    """Write the folder, with a test program whose recorded outputs the graph executor on this machine computes."""
    rng = np.random.default_rng(_SEED)
    inputs = {t.name: filled(t.name, TensorInfo(t.shape, t.dtype), "random", rng) for t in factory.layout.inputs}
    executor = GraphModule(build_module.build(mod, "llvm", params=params)["default"](cpu()))
    for key, value in inputs.items():
        executor.set_input(key, value)
    executor.run()
    outputs = [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]
    return export_bundle(factory, folder, name, BundleExample(inputs, outputs))
