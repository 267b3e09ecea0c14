"""Compilation of IR text to object code, the program of worker processes; imports llvmlite only.

Run as a program it is such a worker: it reads requests from standard input and answers on standard output, each a
8-byte little-endian length and that many bytes. A request is a line of JSON (triple, cpu, features, level, form),
a line feed, and the IR; an answer is one byte (0 success, 1 failure) and the result or the message.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import struct
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

import llvmlite.binding as llvm
from llvmlite.binding.newpassmanagers import NewPassManager

_machines: dict[tuple[str, str, str, int], Any] = {}
_initialized: set[str] = set()

# No thread is inside LLVM while a process forks: the child could not go on where that thread was. llvmlite has one lock
# for all calls, and no public name for it.
_lock = llvm.ffi.lib._lock._lock
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def _initialize(triple: str) -> None:
    if "targets" not in _initialized:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        _initialized.add("targets")  # at the end: another thread would go on before


def target_machine(triple: str, cpu: str, features: str, level: int = 3) -> Any:
    """LLVM's target machine for position-independent code; one is kept for each set of arguments."""
    key = (triple, cpu, features, level)
    machine = _machines.get(key)
    if machine is None:
        _initialize(triple)
        target = llvm.Target.from_triple(_with_vendor(triple))
        machine = target.create_target_machine(
            cpu=cpu,
            features=features,
            opt=level,
            reloc="pic",
            codemodel="default",
            abiname=riscv_abi(triple, features),
        )
        _machines[key] = machine
    return machine


def _with_vendor(triple: str) -> str:
    """Return the triple with all its parts: LLVM misses the environment, and its ABI, in armv7l-linux-gnueabihf."""
    parts = triple.split("-")
    return "-".join([parts[0], "unknown", *parts[1:]]) if len(parts) == 3 and parts[1] == "linux" else triple


def riscv_abi(triple: str, features: str) -> str:
    """Return RISC-V's ABI for floats: in registers if the processor has them; "" on other architectures."""
    if not triple.startswith("riscv"):
        return ""
    enabled = features.split(",")
    floats = "d" if "+d" in enabled else "f" if "+f" in enabled else ""
    return ("lp64" if triple.startswith("riscv64") else "ilp32") + floats


@contextlib.contextmanager
def parsed(*texts: str) -> Iterator[list[Any]]:
    """Modules of LLVM's text in a context of their own, and gone before it.

    What an error's traceback holds, Python ends in any order; a module that outlives its context reads freed memory.
    """
    with contextlib.ExitStack() as stack:
        context = stack.enter_context(llvm.create_context())
        yield [stack.enter_context(llvm.parse_assembly(text, context)) for text in texts]


@functools.cache
def _pass_builder(triple: str, cpu: str, features: str, level: int) -> Any:
    """Return the pass builder of a machine and level; cached, because LLVM leaks 1 KiB for each."""
    # Kernels come vectorised and unrolled by their schedules; what is left scalar LLVM may still vectorise.
    tuning = llvm.create_pipeline_tuning_options(speed_level=level)
    tuning.loop_vectorization = True
    tuning.slp_vectorization = True
    return llvm.create_pass_builder(target_machine(triple, cpu, features, level), tuning)


def _optimize(module: Any, builder: Any) -> None:
    passes = builder.getModulePassManager()  # for one run: LLVM's inliner moves its parts out of it
    try:
        passes.run(module, builder)
    finally:
        _dispose(passes)


def _dispose(passes: Any) -> None:
    """Free a pass manager: closing it frees nothing, for its class has the empty ``_dispose`` of its first base."""
    NewPassManager._dispose(passes)
    passes.detach()


def compile_ir(text: str, triple: str, cpu: str, features: str, level: int = 3, form: str = "obj") -> bytes:
    """Optimise IR and return it as ``obj`` (an object file), ``asm``, ``ll`` (optimised IR) or ``bc``."""
    machine = target_machine(triple, cpu, features, level)
    with parsed(text) as (module,):
        module.triple = machine.triple
        module.data_layout = str(machine.target_data)
        module.verify()
        if level > 0:
            _optimize(module, _pass_builder(triple, cpu, features, level))
        if form == "obj":
            return bytes(machine.emit_object(module))
        if form == "asm":
            return str(machine.emit_assembly(module)).encode()
        if form == "ll":
            return str(module).encode()
        return bytes(module.as_bitcode())


def link_ir(texts: list[str], triple: str, cpu: str, features: str, level: int, form: str) -> bytes:
    """Link several IR texts into one module and compile that."""
    return compile_ir(link_texts(texts)[0], triple, cpu, features, level, form)


def link_texts(texts: list[str], private: bool = False) -> tuple[str, list[str]]:
    """Link several IR texts; return the text of the whole, and the functions that it only declares.

    ``private`` hides what all but the first define, so that several units may bring the same; two of those texts may
    bring the same function too.
    """
    with parsed(*texts) as modules:
        defined: dict[str, Any] = {}
        for module in modules[1:] if private else ():
            for f in module.functions:
                first = None if f.is_declaration else defined.setdefault(f.name, f)
                if first is not None and first is not f and _body(first) == _body(f):
                    f.linkage = first.linkage = "linkonce_odr"
        for module in modules[1:]:
            modules[0].link_in(module)
        for name in defined:
            modules[0].get_function(name).linkage = "internal"
        return str(modules[0]), [f.name for f in modules[0].functions if f.is_declaration]


def _body(function: llvm.ValueRef) -> str:
    """Return the text of a function without the numbers of its attributes and metadata, which depend on the module."""
    return re.sub(r"[#!]\d+|^;.*$", "", str(function), flags=re.MULTILINE)


def read_message(stream: BinaryIO) -> bytes | None:
    """Read one length-prefixed message; return None at the end of the stream."""
    head = stream.read(8)
    if len(head) < 8:
        return None
    (size,) = struct.unpack("<Q", head)
    data = stream.read(size)
    return data if len(data) == size else None


def write_message(stream: BinaryIO, data: bytes) -> None:
    """Write one length-prefixed message."""
    stream.write(struct.pack("<Q", len(data)) + data)
    stream.flush()


def _serve() -> None:
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    while (request := read_message(requests)) is not None:
        header, _, text = request.partition(b"\n")
        try:
            answer = b"\0" + compile_ir(text.decode(), **json.loads(header))
        except Exception as error:  # the parent raises it, with the kernel's name
            answer = b"\1" + f"{type(error).__name__}: {error}".encode()
        write_message(answers, answer)


if __name__ == "__main__":
    _serve()
