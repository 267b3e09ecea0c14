"""C programs elsewhere: that of docs/runtime.md, built with CMake, with pkg-config and after a plain installation."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from tests.runtime.kernels import ROOT

from tilewright import relay, runtime

DIGITS = ROOT / "examples" / "digits" / "digits.onnx"
PROGRAM, *_ = re.findall(r"```c\n(.*?)```", (ROOT / "docs" / "runtime.md").read_text(), re.DOTALL)
PROJECT, *_ = re.findall(r"```cmake\n(.*?)```", (ROOT / "docs" / "runtime.md").read_text(), re.DOTALL)


def needs(program: str) -> None:
    if shutil.which(program) is None:
        if os.environ.get("CI"):
            pytest.fail(f"{program} is not installed")
        pytest.skip(f"{program} is not installed")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    mod, params = relay.frontend.from_onnx(onnx.load(DIGITS))
    path = tmp_path_factory.mktemp("digits") / "digits.so"
    relay.build(mod, "llvm", params=params).export_library(str(path))
    return path


def command(*arguments: object, **environment: str) -> str:
    done = subprocess.run(
        list(map(str, arguments)), capture_output=True, text=True, env=os.environ | environment, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check_program(program: Path, library: Path) -> None:
    """It prints what ONNX Runtime computes for a black picture, to its four digits."""
    name, numbers = command(program, library).strip().split(": ")
    session = onnxruntime.InferenceSession(DIGITS)
    (expected,) = session.run(None, {"pixels": np.zeros((1, 1, 8, 8), "float32")})
    assert name == session.get_outputs()[0].name == "probabilities"
    np.testing.assert_allclose([float(n) for n in numbers.split()], expected[0], atol=1e-4)


def write_project(folder: Path, project: str = PROJECT) -> None:
    (folder / "digits.c").write_text(PROGRAM)
    (folder / "CMakeLists.txt").write_text(project)


@pytest.mark.parametrize("target", ["Tilewright::runtime_static", "Tilewright::runtime"])
def test_cmake_finds_the_installed_package(target: str, library: Path, tmp_path: Path) -> None:
    needs("cmake")
    write_project(tmp_path, PROJECT.replace("Tilewright::runtime_static", target))
    build = tmp_path / "build"
    command("cmake", "-S", tmp_path, "-B", build, f"-DCMAKE_PREFIX_PATH={runtime.native_dir()}")
    command("cmake", "--build", build)
    check_program(build / "digits", library)


@pytest.mark.parametrize("static", [False, True])
def test_pkg_config_finds_the_installed_package(static: bool, library: Path, tmp_path: Path) -> None:
    needs("pkg-config")
    write_project(tmp_path)
    prefix = runtime.native_dir()
    options = ["--static"] if static else []
    flags = command(
        "pkg-config", "--cflags", "--libs", *options, "tilewright", PKG_CONFIG_PATH=str(prefix / "lib" / "pkgconfig")
    ).split()
    if static:
        flags = [str(prefix / "libtilewright_runtime.a") if f == "-ltilewright_runtime" else f for f in flags]
    warnings = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    command("gcc", *warnings, tmp_path / "digits.c", *flags, f"-Wl,-rpath,{prefix}", "-o", tmp_path / "digits")
    check_program(tmp_path / "digits", library)


@pytest.mark.full  # compiles the whole runtime once more
def test_the_runtime_installs_without_python(library: Path, tmp_path: Path) -> None:
    needs("cmake")
    needs("pkg-config")
    prefix = tmp_path / "prefix"
    command("cmake", "-S", ROOT, "-B", tmp_path / "runtime", "-DCMAKE_BUILD_TYPE=Debug")  # compiles in half the time
    command("cmake", "--build", tmp_path / "runtime")
    command("cmake", "--install", tmp_path / "runtime", "--prefix", prefix)
    project = tmp_path / "project"
    project.mkdir()
    write_project(project)
    command("cmake", "-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    command("cmake", "--build", project / "build")
    check_program(project / "build" / "digits", library)
    found = command("pkg-config", "--variable=libdir", "tilewright", PKG_CONFIG_PATH=str(prefix / "lib" / "pkgconfig"))
    assert (Path(found.strip()) / "libtilewright_runtime.so").exists()


def test_the_program_explains_what_is_wrong(tmp_path: Path) -> None:
    write_project(tmp_path)
    include, archive = runtime.native_dir() / "include", runtime.native_dir() / "libtilewright_runtime.a"
    link = [tmp_path / "digits.c", archive, "-lpthread", "-ldl"]
    command("gcc", f"-I{include}", *link, "-o", tmp_path / "digits")
    done = subprocess.run([tmp_path / "digits", "missing.so"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "missing.so" in done.stderr
