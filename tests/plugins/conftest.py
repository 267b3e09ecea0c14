"""The example device, compiled once and plugged into the tests' process."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tilewright import runtime

# In front of a program that is to find no package that plugs in.
NOTHING_INSTALLED = "import importlib.metadata as m; m.entry_points = lambda **_: m.EntryPoints()\n"
PLUGINS = Path(__file__).parents[2] / "examples" / "plugins"


def compile_plugin(source: Path, target: Path) -> Path:
    """Compile a C file to a plug-in, as docs/devices.md says."""
    prefix = runtime.native_dir()
    warnings = ["-Wall", "-Wextra", "-Wshadow", "-Wstrict-prototypes", "-Werror"]
    command = ["gcc", "-std=c11", "-O1", "-fPIC", "-shared", *warnings, f"-I{prefix / 'include'}", str(source)]
    subprocess.run([*command, "-o", str(target), f"-L{prefix}", "-ltilewright_runtime"], check=True)
    return target


@pytest.fixture(scope="session")
def guarded_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = PLUGINS / "guarded_device" / "src" / "tilewright_guarded" / "device.c"
    return compile_plugin(source, tmp_path_factory.mktemp("guarded") / "guarded.so")


@pytest.fixture(scope="session")
def guarded(guarded_library: Path) -> runtime.Device:
    """A device whose memory the host cannot touch."""
    runtime.load_device_plugin(guarded_library)
    return runtime.device("guarded", 0)
