"""A network as a folder of C99: ``tilewright compile model.onnx -f c -o folder``.

=====================  ============================================================================================
``model.h``            structures of inputs and outputs by name, sizes, the workspace's size, ``model_run``
``model.c``            kernels and the function that calls them; it includes nothing but ``<stdint.h>``,
                       ``<string.h>``, and ``<math.h>`` where it calls one of its functions
``model_weights.c``    the weights as one array; large ones as ``model_weights.bin``, which ``model_weights.S`` includes
``model_test.c``       a program that runs recorded inputs and compares the outputs
``Makefile``, ``CMakeLists.txt``   a static library and the test program
=====================  ============================================================================================

For a board that QEMU emulates (``-model=mps2_an386``) there are also ``board.c``, ``board.h`` and ``board.ld``, which
start a program there, and the Makefile runs the test in QEMU. ``model`` is the network's name. The code allocates
nothing, opens nothing and keeps nothing between runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.micro import templates
from tilewright.micro.boards.makefile import makefile
from tilewright.micro.boards.memory import check_fits
from tilewright.micro.boards.records import BOARDS
from tilewright.micro.boards.support import support_files
from tilewright.micro.names import c_element, c_names, check_identifier
from tilewright.micro.pools import pool_texts
from tilewright.runtime.error import TVMError
from tilewright.runtime.executor.aot import AOTExecutorFactoryModule, AotLayout, AotTensor
from tilewright.runtime.export import ExportError
from tilewright.runtime.partial_files import whole_files
from tilewright.version import __version__

Array = np.ndarray[Any, Any]

BINARY_FROM = 4 << 20
"""Bytes of weights from which they are a binary file: C compilers take long for large arrays."""


@dataclass(frozen=True)
class BundleExample:
    """Inputs by name, and the outputs in order, for the test program of a bundle."""

    inputs: Mapping[str, Array]
    outputs: Sequence[Array]


def export_bundle(
    factory: AOTExecutorFactoryModule,
    folder: str | Path,
    name: str = "model",
    example: BundleExample | None = None,
    weights: str = "auto",
) -> list[Path]:
    """Write a compiled network as C.

    Parameters
    ----------
    factory : the result of ``relay.build(mod, "c -runtime=c", executor="aot", mod_name=name)``
    folder : where the files go; other files there stay
    name : the network's name, with which all symbols and files begin; that of the build
    example : recorded inputs and outputs; without them there is no test program
    weights : ``"array"`` (C), ``"binary"`` (a file that the assembler includes), or ``"auto"``: by their size

    Returns
    -------
    The files.

    Raises
    ------
    TVMError : the network was not compiled for this, it does not fit into the board that the target names, or a
        tensor's type has no C type
    ExportError : the folder cannot be written
    """
    check_identifier(name)
    if not isinstance(factory, AOTExecutorFactoryModule) or not factory.is_standalone:
        raise TVMError('a bundle is made of relay.build(mod, "c -runtime=c", executor="aot")')
    if weights not in ("auto", "array", "binary"):
        raise TVMError(f"weights={weights!r}: there are auto, array and binary")
    bundle = Bundle(factory, name, example, weights)
    if bundle.board is not None:
        check_fits(factory, bundle.board, name)
    return write_folder(Path(folder), bundle.files())


def write_folder(folder: Path, texts: Mapping[str, str | bytes]) -> list[Path]:
    """Write files beside the folder first, so that a full disk leaves no half of them."""
    target = folder.absolute()
    if target.exists() and not target.is_dir():
        raise ExportError(f"cannot write {folder}: there is a file of that name, and a bundle is a folder")
    try:
        with whole_files(target) as partial:
            for name, text in texts.items():
                (partial / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    except OSError as error:
        raise ExportError(f"cannot write {folder}: {error.strerror}") from error
    return [target / name for name in texts]


class Bundle:
    """Writes the texts of one network.

    ``inputs`` and ``outputs`` are names of C for the tensors, and ``run`` is the function's, where others are wanted.
    """

    def __init__(
        self,
        factory: AOTExecutorFactoryModule,
        name: str,
        example: BundleExample | None = None,
        weights: str = "array",
        inputs: Sequence[str] | None = None,
        outputs: Sequence[str] | None = None,
        run: str = "",
    ) -> None:
        self.factory, self.name, self.example = factory, name, example
        self.layout: AotLayout = factory.layout
        self.board = BOARDS.get(str(factory.target.attrs.get("model", "")))
        self.inputs = inputs or c_names([t.name for t in self.layout.inputs])
        self.outputs = outputs or c_names([t.name for t in self.layout.outputs])
        large = self.layout.constant_bytes >= BINARY_FROM
        self.binary = bool(self.layout.constant_bytes) and (weights == "binary" or (weights == "auto" and large))
        self.values = {
            "name": name, "NAME": name.upper(), "version": __version__, "target": factory.target,
            "alignment": self.layout.alignment,
            "weight_bytes": self.layout.constant_bytes, "symbol": self.layout.symbol,
            "run": run or f"{name}_run", **pool_texts(self.layout, name),
        }  # fmt: skip

    def files(self) -> dict[str, str | bytes]:
        """Return the files by name."""
        name, values = self.name, self.values
        sources = [f"{name}.c"]
        files: dict[str, str | bytes] = {f"{name}.h": self.header(), f"{name}.c": self.source()}
        if self.binary:
            files[f"{name}_weights.bin"] = self.layout.constant_block()
            files[f"{name}_weights.S"] = templates.INCBIN.format(**values)
            sources.append(f"{name}_weights.S")
        elif self.layout.constant_bytes:
            files[f"{name}_weights.c"] = self.weights()
            sources.append(f"{name}_weights.c")
        if self.example is not None:
            files[f"{name}_test.c"] = self._test(self.example)
        test = self.example is not None
        files |= self._made_by([f"{Path(s).stem}.o" for s in sources], test)
        files["CMakeLists.txt"] = templates.CMAKE.format(
            sources=" ".join(sources), languages="C ASM" if self.binary else "C", **values
        ) + (templates.CMAKE_TEST.format(**values) if test and not self._emulated else "")
        return files

    @property
    def _emulated(self) -> bool:
        return self.board is not None and self.board.emulation is not None

    def _made_by(self, objects: list[str], test: bool) -> dict[str, str | bytes]:
        """Return the Makefile, and what it needs of an emulated board."""
        if self.board is not None and self._emulated:
            return {**support_files(self.board), "Makefile": makefile(self.board, self.name, objects, test)}
        text = templates.MAKEFILE.format(objects=" ".join(objects), **self.values)
        return {"Makefile": text + (templates.MAKEFILE_TEST.format(**self.values) if test else "")}

    def header(self) -> str:
        """Return the header."""
        groups = []
        for tensors, names, const in (
            (self.layout.inputs, self.inputs, "const "), (self.layout.outputs, self.outputs, ""),
        ):  # fmt: skip
            fields = [
                f"  {const}{c_element(t.dtype)}* {n};  /* {_shape(t)} */" for t, n in zip(tensors, names, strict=True)
            ]
            groups.append("\n".join(fields or ["  char none;"]))
        sizes = [
            f"#define {self.values['NAME']}_{kind}_{n.upper()}_ELEMENTS {elements_of(t)}"
            for kind, tensors, names in (
                ("INPUT", self.layout.inputs, self.inputs),
                ("OUTPUT", self.layout.outputs, self.outputs),
            )
            for t, n in zip(tensors, names, strict=True)
        ]
        return templates.HEADER.format(inputs=groups[0], outputs=groups[1], sizes="\n".join(sizes), **self.values)

    def source(self) -> str:
        """Return the kernels and the function that is called."""
        pointers = [f"inputs->{n}" for n in self.inputs] + [f"outputs->{n}" for n in self.outputs]
        nulls = " || ".join(f"{p} == NULL" for p in pointers)
        weights = f"{self.name}_weights" if self.layout.constant_bytes else None
        declaration = f"extern const uint32_t {weights}[];" if weights else ""
        arguments = [f"(void*){p}" for p in pointers]
        arguments += [f"(void*){weights}" if weights else "NULL", *(pool.name for pool in self.layout.pools)]
        return "\n".join(
            [
                templates.SOURCE_HEAD.format(**self.values),
                self.factory.get_source(),
                templates.RUN.format(
                    nulls=f" || {nulls}" if nulls else "", declaration=declaration, arguments=", ".join(arguments),
                    unused="" if self.inputs else "  (void)inputs;\n", **self.values,
                ),
            ]
        )  # fmt: skip

    def weights(self) -> str:
        """Return the weights as an array; "" where there are none."""
        if not self.layout.constant_bytes:
            return ""
        block = self.layout.constant_block()
        words = np.frombuffer(block, "<u4")
        rows = [", ".join(f"0x{word:08x}" for word in words[i : i + 8]) for i in range(0, len(words), 8)]
        return templates.WEIGHTS.format(count=len(words), rows="  " + ",\n  ".join(rows), **self.values)

    def _test(self, example: BundleExample) -> str:
        missing = [t.name for t in self.layout.inputs if t.name not in example.inputs]
        if missing or len(example.outputs) != len(self.layout.outputs):
            raise TVMError(f"the example lacks the inputs {missing}, or has another number of outputs than the network")
        arrays, setters, checks = [], [], []
        for tensor, name in zip(self.layout.inputs, self.inputs, strict=True):
            arrays.append(_c_array(f"input_{name}", tensor, example.inputs[tensor.name]))
            setters.append(f"  inputs.{name} = (const {c_element(tensor.dtype)}*)input_{name};")
        for tensor, name, value in zip(self.layout.outputs, self.outputs, example.outputs, strict=True):
            element, count = c_element(tensor.dtype), elements_of(tensor)
            arrays.append(_c_array(f"expected_{name}", tensor, value))
            arrays.append(f"static {element} output_{name}[{max(count, 1)}];")
            setters.append(f"  outputs.{name} = output_{name};")
            kind = _kind(tensor.dtype)
            size = f", sizeof *expected_{name}" if kind == "bytes" else ""
            checks.append(f'  failed |= differs_{kind}("{name}", output_{name}, expected_{name}, {count}{size});')
        kinds = sorted({_kind(t.dtype) for t in self.layout.outputs})
        compared = [] if kinds == ["bytes"] else [templates.SAY_NUMBER]
        compared += [templates.COMPARE[kind] for kind in kinds]
        return templates.TEST.format(
            arrays="\n\n".join(arrays), setters="\n".join(setters), checks="\n".join(checks),
            compared="\n".join(compared), **self.values,
        )  # fmt: skip


def _shape(tensor: AotTensor) -> str:
    return " x ".join(map(str, tensor.shape)) or "scalar"


def elements_of(tensor: AotTensor) -> int:
    """Return the number of a tensor's elements."""
    return int(np.prod(tensor.shape, dtype=np.int64))


def _kind(dtype: str) -> str:
    return dtype if dtype in ("float32", "float64") else "bytes"


def _c_array(name: str, tensor: AotTensor, value: Array) -> str:
    """Return a constant array of C with a tensor's elements."""
    found = np.asarray(value)
    if found.shape != tensor.shape:
        raise TVMError(f"the example's {tensor.name} has the shape {found.shape}; expected {tensor.shape}")
    flat = found.reshape(-1)
    if tensor.dtype in ("float16", "bfloat16"):
        flat = flat.view(np.uint16)
    texts = [_literal(number, tensor.dtype) for number in flat.tolist()] or ["0"]
    rows = [", ".join(texts[i : i + 10]) for i in range(0, len(texts), 10)]
    return f"static const {c_element(tensor.dtype)} {name}[] = {{\n  " + ",\n  ".join(rows) + "\n};"


def _literal(number: Any, dtype: str) -> str:
    if dtype in ("float32", "float64"):
        suffix, digits = ("f", 9) if dtype == "float32" else ("", 17)
        if number != number:
            return f"(0.0{suffix} / 0.0{suffix})"
        if number in (float("inf"), float("-inf")):
            return f"({'-' if number < 0 else ''}1.0{suffix} / 0.0{suffix})"
        text = f"{number:.{digits}g}"
        return f"{text}{'' if '.' in text or 'e' in text else '.0'}{suffix}"
    if dtype == "int64":
        return "(-9223372036854775807LL - 1)" if number == -(1 << 63) else f"{number}LL"
    if dtype == "int32" and number == -(1 << 31):
        return "(-2147483647 - 1)"
    return f"{int(number)}{'ULL' if dtype == 'uint64' else 'u' if dtype == 'uint32' else ''}"
