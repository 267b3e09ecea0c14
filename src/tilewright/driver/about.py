"""``tilewright about``: what is installed, for a report of a defect."""

from __future__ import annotations

import os
import platform
import re
import sys
from importlib import metadata

from tilewright.driver.report import print_json, print_rows
from tilewright.version import __version__


def show_installation(as_json: bool) -> None:
    """Print versions and places of Tilewright, of what it needs, and of the machine."""
    rows = _rows()
    if as_json:
        print_json(dict(rows))
    else:
        print_rows(rows)


def _rows() -> list[tuple[str, str]]:
    from tilewright.runtime import native_dir
    from tilewright.target import Target

    host = Target("llvm").attrs
    rows = [
        ("tilewright", f"{__version__}  ({os.path.dirname(os.path.dirname(__file__))})"),
        ("native runtime", str(native_dir())),
        ("python", f"{platform.python_version()}  ({sys.executable})"),
        ("system", f"{platform.system()} {platform.release()}, {' '.join(platform.libc_ver()).strip() or 'musl'}"),
        ("machine", f"{platform.machine()}, {os.cpu_count()} processors"),
        ("llvm's name of it", str(host.get("mcpu") or _host_cpu())),
        ("compiler and linker", _compiler()),
    ]
    return rows + [(name, _version(name)) for name in _requirements()] + _variables()


def _host_cpu() -> str:
    import llvmlite.binding as llvm

    return str(llvm.get_host_cpu_name())


def _compiler() -> str:
    from tilewright.runtime.compilers import find_compiler
    from tilewright.runtime.error import ExportError

    try:
        return " ".join(find_compiler())
    except ExportError:
        return "none; models for x86-64 and AArch64 need none"


def _requirements() -> list[str]:
    """Return the names of the packages that Tilewright declares, extras included."""
    try:
        declared = metadata.requires("tilewright") or []
    except metadata.PackageNotFoundError:
        declared = []
    names = (re.match(r"[\w.-]+", text) for text in declared if "test" not in text and "lint" not in text)
    return list(dict.fromkeys(found[0] for found in names if found))


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _variables() -> list[tuple[str, str]]:
    ours = ("TILEWRIGHT_", "TVM_")
    return [(name, value) for name, value in sorted(os.environ.items()) if name.startswith(ours) or name == "CC"]
