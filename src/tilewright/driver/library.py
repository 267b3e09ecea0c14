"""Loading what ``run`` and ``bench`` are given: a compiled library, or with ``--compile`` a model."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tilewright.driver.board import Board, Here, place_of
from tilewright.driver.options import check_is_file
from tilewright.runtime.error import TVMError
from tilewright.runtime.executor.graph import GraphModule
from tilewright.runtime.library_info import TensorInfo

_ELF_MAGIC = b"\x7fELF"


@dataclass(frozen=True)
class Library:
    """The executor of a library and where it is, its inputs (parameters are none), and the names of its outputs."""

    path: Path
    place: Here
    executor: GraphModule
    inputs: dict[str, TensorInfo]
    outputs: tuple[str, ...]

    def describe_inputs(self) -> str:
        """The inputs in a line."""
        return ", ".join(f"{name} ({i.dtype} {i.shape})" for name, i in self.inputs.items()) or "none"


@contextlib.contextmanager
def open_library(
    file: Path, compile_first: bool, input_shape: list[str] | None, board: Board | None = None
) -> Iterator[Library]:
    """The library in ``file``, or with ``compile_first`` the model there, compiled for as long as it is in use."""
    check_is_file(file)
    if not compile_first:
        if input_shape:
            raise TVMError("--input-shape is for --compile: a library's shapes are fixed")
        _refuse_model(file)
        yield load_library(file, board)
        return
    if _is_elf(file):
        raise TVMError(f"{file}: this is a compiled library already; run it without --compile")
    from tilewright.driver.compile import CompileOptions, build_library

    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        output = Path(folder) / f"{file.stem}.so"
        build_library(CompileOptions(file, output, input_shape=input_shape))
        yield load_library(output, board)


def _is_elf(file: Path) -> bool:
    with file.open("rb") as stream:
        return stream.read(len(_ELF_MAGIC)) == _ELF_MAGIC


def _refuse_model(file: Path) -> None:
    if file.suffix == ".onnx" and not _is_elf(file):
        raise TVMError(
            f"{file}: this is a model, not a library; compile it first (tilewright compile {file} -o "
            f"{file.stem}.so) or give --compile"
        )


def load_library(path: Path, board: Board | None = None) -> Library:
    """Load a library that ``tilewright compile`` wrote, here or on a board.

    Raises:
        TVMError: the file is no library, not for this processor, or holds code but no network.
    """
    place = place_of(board)
    module = place.load(path)
    try:
        make = module["default"]
    except AttributeError:
        raise TVMError(f"{path}: the library has no network named 'default', as `tilewright compile` makes") from None
    executor = GraphModule(make(place.device), strict=True)
    shapes, dtypes = executor.get_input_info()
    inputs = {name: TensorInfo(shape, dtypes[name]) for name, shape in shapes.items()}
    return Library(path, place, executor, inputs, tuple(executor.get_output_names()))
