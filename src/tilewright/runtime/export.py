"""Writing modules to files: one shared library (or object, archive, tar) with code, graph and parameters.

The library holds the objects of all modules whose code is machine code, and, when there is more than that,
the module table ``__tvm_dev_mblob``: an 8-byte size, then what each other module saves, and who imports
whom. TVM 0.8 reads it the same way. A small table is linked; a large one is written behind the linked library, as a
segment of its own (``elf_segments.py``): the linker never sees weights. Weights may also be in a file beside
the library, which others share (``weights_file.py``).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import platform
import re
import shutil
import struct
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._ffi import LIB, check_call, find_library, include_dir
from .checksum import add_checksum
from .compilers import CPLUSPLUS_LIBRARIES, find_archiver, find_compiler, for_language, run_compiler
from .elf_library import link_library
from .elf_objects import as_object, data_object, join_objects
from .elf_segments import SYMBOL, append_segment, place_object
from .error import ExportError, TVMError
from .mapped_files import check_mapped_files
from .partial_files import partial_name, remove_abandoned, whole_file
from .saving import Saver
from .weights_file import WeightsFile, adding_weights, check_place, check_weights_file
from .windows_library import is_windows, link_dll, table_object

if TYPE_CHECKING:
    from .module import Module

_SUFFIXES = (".so", ".o", ".a", ".tar", ".dll", ".dylib")


@dataclass
class _Parts:
    """An import tree's modules: those that become code; the table's entries (None: the library), and their imports."""

    code: list[Module] = field(default_factory=list)
    entries: list[Module | None] = field(default_factory=list)
    children: list[list[int]] = field(default_factory=list)


def _collect(root: Module) -> _Parts:
    """Number the modules as TVM 0.8 does, so that the table has its bytes.

    All machine code is one entry, the library. It comes after what imports it and before what it imports; else those
    that are imported last come first.

    Raises:
        ExportError: other modules import the library and are imported by it.
    """
    parts = _Parts(code=[module for module in _in_order(root) if module.is_dso_exportable])
    edge, seen = _number(parts, [root], {root}, stop_at_code=True)
    if edge:
        parts.entries.append(None)
        _number(parts, edge, seen, stop_at_code=False)
    library = parts.entries.index(None) if parts.code else -1
    numbers = {module: index for index, module in enumerate(parts.entries) if module is not None}
    for index, entry in enumerate(parts.entries):
        imported = [m for module in (parts.code if entry is None else [entry]) for m in module.imported_modules]
        found = {library if m.is_dso_exportable else numbers[m] for m in imported} - {index}
        parts.children.append(sorted(found))
        if found and min(found) < index:
            kind = "machine code" if entry is None else entry.type_key
            raise ExportError(
                f"cannot put the modules into one library: all machine code becomes one, and there {kind} would import "
                "a module that imports it"
            )
    return parts


def _in_order(root: Module) -> list[Module]:
    """Return a module and all that it imports, each before its imports."""
    order: dict[Module, None] = {}
    stack = [root]
    while stack:
        module = stack.pop()
        if module not in order:
            order[module] = None
            stack.extend(reversed(module.imported_modules))
    return list(order)


def _number(
    parts: _Parts, stack: list[Module], seen: set[Module], stop_at_code: bool
) -> tuple[list[Module], set[Module]]:
    """Add modules without code to the table; return the code at which it stopped, and the modules seen."""
    edge = []
    while stack:
        module = stack.pop()
        if module.is_dso_exportable and stop_at_code:
            edge.append(module)
            continue
        if not module.is_dso_exportable:
            parts.entries.append(module)
        new = [m for m in module.imported_modules if m not in seen]
        seen.update(new)
        stack.extend(dict.fromkeys(new))
    return edge, seen


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _vector(numbers: Sequence[int]) -> bytes:
    return struct.pack(f"<Q{len(numbers)}Q", len(numbers), *numbers)


def write_blob(root: Module, path: Path, weights: WeightsFile | None = None) -> None:
    """Append the module table of an import tree, with its 8-byte size in front, to a file.

    Large arrays go to ``weights``, where it is given.

    Raises:
        TVMError: a module in it cannot be saved.
    """
    parts = _collect(root)
    saver = Saver(saved_bytes(root))
    with path.open("ab") as file:
        start = file.tell()
        file.write(struct.pack("<QQ", 0, len(parts.entries) + (1 if weights is None else 2)))
        if weights is not None:
            file.write(_string("_weights") + _string(weights.name))
    for entry in parts.entries:
        with path.open("ab") as file:
            file.write(_string("_lib" if entry is None else entry.type_key))
        if entry is not None and weights is not None:
            saver.save(entry, path, weights.old, weights.added)
        elif entry is not None:
            saver.save(entry, path)
    rows = [0]
    for children in parts.children:
        rows.append(rows[-1] + len(children))
    with path.open("ab") as file:
        file.write(_string("_import_tree") + _vector(rows) + _vector([i for c in parts.children for i in c]))
        size = file.tell() - start - 8
    with path.open("r+b") as file:
        file.seek(start)
        file.write(struct.pack("<Q", size))


# Large tables are data, not constants: parameters are used where they lie, and whoever writes to one gets its page for
# himself. In a small one nothing is worth a page: it lies among constants, as TVM's, and its parameters are copied.
# Code reaches its variables within 2 GiB, on x86-64: a larger table lies behind them all, where the linker puts
# large data. Nothing refers to it but the table of symbols, whose addresses have 64 bits.
_NEAR_SECTION, _FAR_SECTION = (".data.tvm_dev_mblob", "aw"), (".ldata.tvm_dev_mblob", "awl")
_FAR_FROM = 1 << 30
_CONSTANT_SECTION, _CONSTANT_BELOW = (".rodata.tvm_dev_mblob", "a"), 1 << 14

# Tables of that size become a segment of their own in a library of 64 bits, at a place that lets the system map it by
# huge pages, which native/src/module/library.c asks for.
_SEGMENT_FROM = 4 << 20


def _has_cplusplus(root: Module) -> bool:
    return any(getattr(module.compiled_code, "source_suffix", "") == "cc" for module in _collect(root).code)


def _other_machine(root: Module) -> str | None:
    """The triple of the machine that the code under ``root`` is for; None for this one's."""
    found = (getattr(module.compiled_code, "other_machine", None) for module in _collect(root).code)
    return next(filter(None, found), None)


def saved_bytes(root: Module) -> int:
    """Return about how many bytes the module table of an import tree takes.

    Raises:
        TVMError: a module in it cannot be saved.
    """
    total, found = 0, ctypes.c_uint64()
    for entry in _collect(root).entries:
        if entry is not None:
            check_call(LIB.TilewrightModSavedBytes(entry.handle, ctypes.byref(found)))
            total += found.value
    return total


def _write_objects(
    root: Module, folder: Path, compiler: list[str], options: list[str], apart: bool, weights: WeightsFile | None
) -> list[str]:
    """Write everything of the library as object files into a folder; returns their paths.

    With ``apart``, the module table is only a place for it, which ``append_segment`` fills.
    """
    parts = _collect(root)
    files: list[str] = []
    for number, module in enumerate(parts.code):
        code: Any = module.compiled_code
        sources = code.c_sources() if hasattr(code, "c_sources") else []
        for index, text in enumerate(sources):
            suffix = getattr(code, "source_suffix", "c")
            source = folder / f"lib{number}_{index}.{suffix}"
            source.write_text(text)
            target = folder / f"lib{number}_{index}.o"
            flags = for_language(suffix, ["-std=gnu11", "-O2", "-fPIC", f"-I{include_dir()}", *options])
            run_compiler([*compiler, "-c", *flags, str(source), "-o", str(target)])
            files.append(str(target))
        for index, data in enumerate([] if sources else code.objects()):
            target = folder / f"lib{number}_{index}.o"
            target.write_bytes(data)
            files.append(str(target))
    if apart:
        target = folder / "devc.o"
        target.write_bytes(place_object(_like(files)))
        files.append(str(target))
    elif any(module is not None for module in parts.entries):
        blob, target = folder / "devc.bin", folder / "devc.o"
        write_blob(root, blob, weights)
        if is_windows(_other_machine(root)):
            return [*files, str(table_object(blob, SYMBOL, compiler, run_compiler))]
        place = _blob_section(blob.stat().st_size, _other_machine(root))
        target.write_bytes(data_object(_like(files), SYMBOL, blob.read_bytes(), *place))
        blob.unlink()
        files.append(str(target))
    if not files:
        raise ExportError(f"a module of type {root.type_key} has no code that could be exported")
    return files


def _like(files: Sequence[str]) -> bytes:
    """An object of the machine that the code is for; without code, the begin of one of this machine."""
    if files:
        return Path(files[0]).read_bytes()
    with find_library().open("rb") as library:
        return as_object(library.read(64))


def _in_segment(root: Module) -> bool:
    """Return whether the module table becomes a segment of its own: it is large, and the code has 64 bits."""
    if saved_bytes(root) < _SEGMENT_FROM:
        return False
    triple = _other_machine(root)
    return sys.maxsize > 1 << 32 if triple is None else triple.split("-")[0] in ("x86_64", "aarch64", "riscv64")


def _needs_no_linker(root: Module, suffix: str) -> bool:
    """Whether Tilewright links the library itself: its code is LLVM's, for a machine whose libraries it can link."""
    code = _collect(root).code
    triple = _other_machine(root)
    machine = platform.machine() if triple is None else triple.split("-")[0]
    linked = suffix == ".so" and machine in ("x86_64", "AMD64", "aarch64")
    return linked and not any(hasattr(module.compiled_code, "c_sources") for module in code)


def _compiler_or_none(root: Module, suffix: str, named: str | None, options: Sequence[str]) -> list[str]:
    """The C compiler; [] where none is asked for, or there is none, and the file can do without."""
    asked = bool(named or options or os.environ.get("CC", "").strip())
    if not asked and _needs_no_linker(root, suffix):
        return []
    try:
        return find_compiler(named, _other_machine(root))
    except ExportError:
        code = _collect(root).code
        sources = not code or any(hasattr(module.compiled_code, "c_sources") for module in code)
        if suffix not in (".o", ".tar") or asked or sources:
            raise
        return []


def _blob_section(nbytes: int, triple: str | None) -> tuple[str, str]:
    """The section of a table of that size, and its flags; ``triple`` is another machine's."""
    if nbytes < _CONSTANT_BELOW:
        return _CONSTANT_SECTION
    machine = triple.split("-")[0] if triple is not None else platform.machine()
    return _FAR_SECTION if nbytes >= _FAR_FROM and machine in ("x86_64", "AMD64") else _NEAR_SECTION


def _runtime_archive(triple: str | None) -> list[str]:
    """Linker arguments that put the whole runtime into the library."""
    if triple is not None:
        raise ExportError(
            f"a standalone library would carry this machine's runtime, and the code is for {triple}; export an object "
            "file (model.o) and link it with the runtime's sources, see docs/deployment.md"
        )
    archive = find_library().with_suffix(".a")
    if not archive.exists():
        raise ExportError(f"cannot export a standalone library: {archive} is missing; install Tilewright again")
    return ["-Wl,--whole-archive", str(archive), "-Wl,--no-whole-archive", "-lpthread", "-ldl"]


_SHARED = ["-shared", "-fPIC", "-Wl,-z,noexecstack"]


def _link(files: list[str], out: Path, triple: str | None) -> None:
    """Link a library, and where that has something unusual, let a C compiler do it."""
    try:
        out.write_bytes(link_library([Path(file).read_bytes() for file in files]))
        mode = out.stat().st_mode
        out.chmod(mode | (mode & 0o444) >> 2)  # as linkers do: who may read it may map it as code
    except ExportError as error:
        try:
            compiler = find_compiler(None, triple)
        except ExportError as missing:
            raise ExportError(f"{error}; {missing}") from None
        run_compiler([*compiler, *_SHARED, *files, "-lm", "-o", str(out)])


def _combine(
    files: list[str], out: Path, suffix: str, compiler: list[str], options: list[str], triple: str | None
) -> None:
    """Make the output file of object files; ``triple`` is another machine's."""
    if suffix == ".tar":
        with tarfile.open(out, "w") as tar:
            for file in files:
                tar.add(file, arcname=os.path.basename(file))
    elif suffix == ".a":
        run_compiler([*find_archiver(), "rcsD", str(out), *files])
    elif suffix == ".o" and not compiler:
        out.write_bytes(join_objects([Path(file).read_bytes() for file in files]))
    elif suffix == ".o":
        run_compiler([*compiler, "-r", "-nostdlib", *options, *files, "-o", str(out)])
    elif not compiler:
        _link(files, out, triple)
    else:
        run_compiler([*compiler, *_SHARED, *files, *options, "-lm", "-o", str(out)])


def _check_destination(target: Path, suffix: str) -> None:
    if suffix not in _SUFFIXES:
        raise ExportError(f"cannot export to {target}: the name must end in one of {', '.join(_SUFFIXES)}")
    check_place(target)


def _check_system(target: Path, triple: str | None) -> None:
    """Raise ExportError for code for Windows in another library than a ``.dll``, and for other code in one."""
    if is_windows(triple) != (target.suffix == ".dll") and target.suffix not in (".tar", ".o", ".a"):
        wanted = ".dll" if is_windows(triple) else ".so"
        raise ExportError(f"cannot export to {target}: the code is for {triple or 'this machine'}; name it {wanted}")


def check_space(target: Path, nbytes: int) -> None:
    """Raise ExportError where the disk of a file to be written has less space than its weights take.

    Args:
        target: the file, whose folder exists.
        nbytes: the size of its weights.
    """
    disk = shutil.disk_usage(target.absolute().parent)
    if disk.total and nbytes > disk.free:
        needed, free = (f"{size / 1e6:,.0f} MB" for size in (nbytes, disk.free))
        raise ExportError(f"cannot write {target}: its weights take {needed}, and {free} are free on its disk")


def check_symbol_prefix(prefix: str, target: Path) -> None:
    """Raise ExportError where symbols of a file cannot have a prefix."""
    if target.suffix not in (".o", ".a"):
        raise ExportError(
            f"a symbol prefix is for object files and archives (.o, .a), which a program links; not {target}"
        )
    if not re.fullmatch(r"[A-Za-z]\w*", prefix, re.ASCII):
        raise ExportError(f"the symbol prefix {prefix!r} is no name in C: letters, digits and _, a letter first")


def _with_prefix(files: list[str], prefix: str, folder: Path) -> str:
    joined = folder / f"{prefix}.joined.o"
    joined.write_bytes(join_objects([Path(file).read_bytes() for file in files], prefix))
    return str(joined)


def _storing(library: Path, weights: Path) -> contextlib.AbstractContextManager[WeightsFile]:
    remove_abandoned(weights.parent)
    return adding_weights(library, weights, partial_name(weights))


@dataclass(frozen=True, kw_only=True)
class _Export:
    """How ``export_library`` makes a file; ``combine(file, object_files)`` makes it instead of the C compiler."""

    root: Module
    target: Path
    compiler: list[str]
    options: list[str]
    addons: list[str]
    standalone: bool
    symbol_prefix: str
    combine: Callable[[str, list[str]], Any] | None

    def write(self, partial: Path, folder: Path, store: WeightsFile | None) -> None:
        """Write the file, under the name ``partial``; object files go to ``folder``, and large weights to ``store``."""
        suffix = self.target.suffix
        apart = self.combine is None and suffix == ".so" and store is None and _in_segment(self.root)
        files = [*_write_objects(self.root, folder, self.compiler, self.options, apart, store), *self.addons]
        if self.standalone:
            files += _runtime_archive(_other_machine(self.root))
        if self.symbol_prefix:
            files = [_with_prefix(files, self.symbol_prefix, folder)]
        self._combine(files, partial)
        if apart:
            append_segment(partial, lambda path: write_blob(self.root, path))
        if suffix in (".so", ".tar"):
            add_checksum(partial)

    def _combine(self, files: list[str], partial: Path) -> None:
        if self.combine is not None:
            self.combine(str(partial), files)
            return
        libraries = CPLUSPLUS_LIBRARIES if _has_cplusplus(self.root) else []
        options = [*self.options, *libraries]
        if self.target.suffix == ".dll":
            link_dll(files, partial, self.target.name, self.compiler, options, run_compiler)
        else:
            _combine(files, partial, self.target.suffix, self.compiler, options, _other_machine(self.root))


def export_library(
    root: Module,
    file_name: str | Path,
    fcompile: Callable[..., Any] | None = None,
    addons: list[str] | None = None,
    workspace_dir: str | Path | None = None,
    *,
    cc: str | None = None,
    options: Sequence[str] | None = None,
    standalone: bool = False,
    symbol_prefix: str = "",
    weights: str | Path | None = None,
    **kwargs: Any,
) -> str:
    """Write a module and everything that it imports to one file, which appears whole or not at all.

    Args:
        root: the module.
        file_name: ``.so`` for a shared library that this runtime and TVM 0.8's load, ``.o`` or ``.a`` for
            linking into a program, ``.tar`` for the object files.
        fcompile: ``fcompile(output, object_files, options=..., **kwargs)`` makes the file instead of the C
            compiler.
        addons: further object files or libraries to link.
        workspace_dir: where intermediate files go, and stay; a temporary folder without it.
        cc: the C compiler, for instance a cross compiler; without it ``$CC``, cc, gcc, clang or ziglang, and
            for code of another machine that machine's gcc (``riscv64-linux-gnu-gcc``) or ziglang. A ``.so`` of
            LLVM's code for x86-64 or AArch64 without options and addons, a ``.o`` and a ``.tar`` need none.
        options: further options for it.
        standalone: whether to put the runtime itself into a ``.so``, so that a C program needs nothing else: it
            links with the library and calls ``TilewrightModLoadSelf`` (see native/include/tilewright.h).
        symbol_prefix: of a ``.o`` or ``.a``: every symbol that it defines begins with this and ``_``, so that several
            models link into one program, dynamic or static; ``PREFIX_model`` is what ``TilewrightModelOpenLinked``
            takes.
        weights: of a ``.so``: the file, in this folder or another, that weights of 4 KiB and more are in. Several
            libraries may share it: what it has already is used there, and the rest is added. The library finds it by
            its place relative to its own.
        kwargs: passed to fcompile.

    Returns:
        The path of the file.

    Raises:
        ExportError: no compiler, it failed, the destination cannot be written, the disk is full, or ``standalone``
            was asked for code of another machine.
    """
    target = Path(file_name).absolute()
    check_mapped_files()
    fcompile = fcompile or None  # TVM's programs give False
    if fcompile is None:
        _check_destination(target, target.suffix)
        _check_system(target, _other_machine(root))
    if symbol_prefix:
        check_symbol_prefix(symbol_prefix, target)
    if weights is not None:
        weights = Path(weights).resolve()
        check_weights_file(target, weights)
    extra = list(options or [])
    more = fcompile is not None or (target.suffix == ".so" and (standalone or addons))
    named = cc or getattr(fcompile, "compiler", None)
    job = _Export(
        root=root,
        target=target,
        compiler=_compiler_or_none(root, "" if more else target.suffix, named, extra),
        options=extra,
        addons=list(addons or []),
        standalone=standalone,
        symbol_prefix=symbol_prefix,
        combine=None if fcompile is None else functools.partial(fcompile, options=extra, **kwargs),
    )
    storing = contextlib.nullcontext() if weights is None else _storing(target, weights)
    try:
        with whole_file(target) as partial:
            # finds out what permission bits do not tell, before the work is done
            partial.touch()
            partial.unlink()
            if weights is None or not weights.exists():
                check_space(weights or target, saved_bytes(root))
            with tempfile.TemporaryDirectory(prefix="tilewright-") as temporary, storing as store:
                job.write(partial, Path(temporary if workspace_dir is None else workspace_dir), store)
            check_mapped_files()
    except OSError as error:
        why = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror
        raise ExportError(f"cannot write {target}: {why}") from error
    except TVMError as error:
        raise ExportError(f"cannot export {target}: {error}") from error
    return str(target)


def link_for_loading(path: Path, folder: Path) -> Path:
    """Link an exported ``.o``, ``.a`` or ``.tar`` to a shared library in ``folder``; returns the library."""
    if not path.exists():
        raise ExportError(f"cannot load {path}: no such file")
    compiler = find_compiler()
    files = [str(path.absolute())]
    if path.suffix == ".tar":
        try:
            with tarfile.open(path) as tar:
                tar.extractall(folder, filter="data")
        except tarfile.TarError as error:
            raise ExportError(f"cannot load {path}: {error}") from error
        files = sorted(map(str, folder.glob("*.o")))
    elif path.suffix == ".a":
        files = ["-Wl,--whole-archive", *files, "-Wl,--no-whole-archive"]
    library = folder / "linked.so"
    run_compiler([*compiler, *_SHARED, *files, "-lm", "-o", str(library)])
    return library
