"""Try the wheels of ``make wheels`` as users would get them: ``make test-wheels``.

    python packaging/try_wheels.py               # what is in dist/
    python packaging/try_wheels.py --rebuild     # and build the sdist's wheel, and the first wheel again

A wheel for this machine is installed in an environment of its own, with no other program on the PATH and none of the
caller's variables: a network compiles and runs there. Root sees it run once more in a root folder that has nothing but
Python, the environment and the C library. Of every platform the C runtime and the headers are tried: a
program of theirs (native/tools/run.c) runs the network, compiled for that processor, under qemu-user where it is
another one, with the C library of the platform. Its numbers are those of this machine.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import platform
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
from wheels import PLATFORMS, ROOT

MODEL = ROOT / "examples" / "digits" / "digits.onnx"
TARGETS = {"x86_64": "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64", "aarch64": "llvm -mtriple=aarch64-linux-gnu"}
DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
MOST_SECONDS, MOST_BYTES = 60, 300_000_000


def run(*command: str | Path, **options: object) -> str:
    """Run a command; return what it printed, or leave with it where it fails."""
    words = list(map(str, command))
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    if done.returncode:
        sys.exit(f"{' '.join(words)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def file_bytes(folder: Path) -> int:
    """Return the bytes of what packages install, without pip and what Python compiles of them."""
    own = ("pip", "setuptools", "pkg_resources", "_distutils_hack")
    files = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return sum(p.stat().st_size for p in files if not p.relative_to(folder).parts[0].startswith(own))


def try_here(wheel: Path, work: Path) -> None:
    """Install a wheel alone, and compile and run a network without a compiler; say how long it took and how large."""
    folder = work / "environment"
    shutil.rmtree(folder, ignore_errors=True)
    run(sys.executable, "-m", "venv", folder)
    kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    environment = {**kept, "PATH": str(folder / "bin"), "HOME": str(work)}
    start, before = time.perf_counter(), os.times()
    run(folder / "bin" / "pip", "install", "--quiet", "--no-compile", wheel, env=environment)
    run(folder / "bin" / "tilewright", "compile", MODEL, "-o", work / "here.so", "--quiet", env=environment)
    run(folder / "bin" / "tilewright", "run", work / "here.so", "--fill", "random", env=environment)
    after = os.times()
    busy = after.children_user + after.children_system - before.children_user - before.children_system
    nbytes = file_bytes(next(folder.glob("lib/python*/site-packages")))
    print(
        f"{wheel.name}: installed, compiled and ran a network in {time.perf_counter() - start:.0f} s ({busy:.0f} s of "
        f"processor time), {nbytes / 1e6:.0f} MB of files",
        flush=True,
    )
    if busy > MOST_SECONDS or nbytes > MOST_BYTES:
        sys.exit(f"the most is {MOST_SECONDS} s and {MOST_BYTES / 1e6:.0f} MB")
    if os.geteuid() == 0:
        try_in_root(folder, work)
        print(f"{wheel.name}: compiled and ran a network in an empty root", flush=True)


def system_libraries(*folders: Path) -> set[Path]:
    """Return the shared libraries of this machine that those in folders are linked with, the loader among them."""
    objects = [path for folder in folders for path in folder.rglob("*") if path.is_file() and ".so" in path.name]
    programs = [path.resolve() for folder in folders for path in folder.glob("bin/python3")]
    shown = subprocess.run(
        ["ldd", *map(str, [*programs, *objects])], capture_output=True, text=True, check=False
    ).stdout
    names = (word for line in shown.splitlines() for word in line.split() if word.startswith("/"))
    found = {Path(name) for name in names if not name.endswith(":")}
    return {path for path in found if path.exists() and not any(path.is_relative_to(folder) for folder in folders)}


def try_in_root(environment: Path, work: Path) -> None:
    """Compile and run a network in a root folder with an environment, its Python and their libraries alone."""
    root = work / "root"
    shutil.rmtree(root, ignore_errors=True)
    python = Path(sys.base_prefix)
    for folder, left_out in ((python, ("site-packages", "test", "share")), (environment, ())):
        ignored = shutil.ignore_patterns("__pycache__", *left_out)
        shutil.copytree(folder, root / folder.relative_to("/"), symlinks=True, copy_function=os.link, ignore=ignored)
    for library in system_libraries(root / python.relative_to("/"), root / environment.relative_to("/")):
        target = root / library.relative_to("/")
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, target)
    (root / "tmp").mkdir()
    shutil.copy(MODEL, root / "tmp" / MODEL.name)
    variables = {"PATH": str(environment / "bin"), "HOME": "/tmp"}
    command = (
        shutil.which("chroot", path="/usr/sbin:/usr/bin"),
        root,
        environment / "bin" / "python",
        "-m",
        "tilewright",
    )
    run(*command, "compile", f"/tmp/{MODEL.name}", "-o", "/tmp/net.so", "--quiet", env=variables)
    run(*command, "run", "/tmp/net.so", "--fill", "random", env=variables)


def musl_root(machine: str, work: Path) -> Path | None:
    """Return a folder whose ``lib`` has musl for a machine: this one, or Debian's package of another, unpacked."""
    loader = f"lib/ld-musl-{machine}.so.1"
    root = work / f"musl-{machine}"
    for found in (Path("/"), root):
        if (found / loader).exists():
            return found
    if shutil.which("apt-get") is None:
        return None
    # lists of packages of its own: this machine's know nothing of other architectures
    lists, cache = work / "apt" / "lists", work / "apt" / "cache"
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    (cache / "archives" / "partial").mkdir(parents=True, exist_ok=True)
    settings = {"APT::Architecture": DEBIAN[machine], "APT::Architectures::": DEBIAN[machine]}
    settings |= {"Dir::State::lists": str(lists), "Dir::Cache": str(cache)}
    options = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
    subprocess.run(["apt-get", "-qq", *options, "update"], capture_output=True, check=False)
    subprocess.run(["apt-get", "-qq", *options, "download", "musl"], cwd=cache, capture_output=True, check=False)
    for package in cache.glob("musl_*.deb"):
        run("dpkg-deb", "-x", package, root)
    return root if (root / loader).exists() else None


def runner(tag: str, machine: str, work: Path) -> list[str | Path] | None:
    """Return the command before a program of a platform; None where this machine lacks something."""
    root: Path | None = Path(f"/usr/{machine}-linux-gnu")
    if tag.startswith("musllinux"):
        root = musl_root(machine, work)
        if root is None:
            print(f"{tag}: not run, there is no musl for {machine} (on Debian: apt install musl)")
            return None
    if machine == platform.machine():
        return [root / f"lib/ld-musl-{machine}.so.1"] if tag.startswith("musllinux") else []
    emulator = shutil.which(f"qemu-{machine}")
    if emulator is None:
        print(f"{tag}: not run, there is no qemu-{machine} (on Debian: apt install qemu-user)")
        return None
    return [emulator, "-L", root]


def try_runtime(wheel: Path, tag: str, work: Path) -> None:
    """Run a network by the C runtime of a wheel; its numbers must be those of this machine."""
    machine = "x86_64" if tag.endswith("x86_64") else "aarch64"
    command = runner(tag, machine, work)
    if command is None:
        return
    folder = work / tag
    shutil.rmtree(folder, ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    native = folder / "tilewright" / "_native"
    program = folder / "tilewright-run"
    link = ["-dynamic"] if tag.startswith("musllinux") else []
    run(
        *(sys.executable, "-m", "ziglang", "cc", "-target", PLATFORMS[tag], "-mcpu=baseline", "-O2", *link),
        *(ROOT / "native" / "tools" / "run.c", f"-I{native / 'include'}", f"-L{native}", "-ltilewright_runtime"),
        *("-o", program),
    )
    pixels = np.random.default_rng(0).random((1, 1, 8, 8), dtype="float32")
    pixels.tofile(folder / "pixels")
    library = folder / "digits.so"
    run(sys.executable, "-m", "tilewright", "compile", MODEL, "-o", library, "--quiet", "--target", TARGETS[machine])
    environment = {**os.environ, "LD_LIBRARY_PATH": str(native)}
    if machine != platform.machine():
        environment = {**os.environ, "QEMU_SET_ENV": f"LD_LIBRARY_PATH={native}"}
    run(*command, program, library, "-o", folder / "out", f"pixels={folder / 'pixels'}", env=environment)
    found = np.fromfile(folder / "out0", "float32")
    np.testing.assert_allclose(found, expected(pixels), rtol=1e-5, atol=1e-6)
    print(f"{wheel.name}: its C runtime ran a network, with the numbers of this machine's", flush=True)


def expected(pixels: np.ndarray) -> np.ndarray:
    """Return the network's answer by ONNX's reference evaluator."""
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(str(MODEL)).run(None, {"pixels": pixels})[0].ravel()


def rebuild(dist: Path, work: Path) -> None:
    """Build a wheel of the sdist, and the wheel for this machine's glibc again, whose bytes must be the same."""
    shutil.rmtree(work / "sdist", ignore_errors=True)
    run(
        "uv",
        "build",
        "--quiet",
        "--wheel",
        "--out-dir",
        work / "sdist",
        max(dist.glob("tilewright-*.tar.gz")),
        cwd=ROOT,
    )
    print(f"{next((work / 'sdist').glob('*.whl')).name}: built of the sdist", flush=True)
    tag = f"manylinux_2_28_{platform.machine()}"
    run(sys.executable, ROOT / "packaging" / "wheels.py", "--platform", tag, "--no-sdist", "--out", work / "again")
    for wheel in (work / "again").glob("*.whl"):
        if not filecmp.cmp(wheel, dist / wheel.name, shallow=False):
            sys.exit(f"{wheel.name}: a second build has other bytes")
        print(f"{wheel.name}: a second build has the same bytes", flush=True)


def main() -> None:
    """Try what is there; leave where something fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dist", type=Path, default=ROOT / "dist")
    parser.add_argument("--rebuild", action="store_true")
    arguments = parser.parse_args()
    dist, work = arguments.dist.absolute(), ROOT / "build" / "try-wheels"
    work.mkdir(parents=True, exist_ok=True)
    for tag in PLATFORMS:
        for wheel in dist.glob(f"tilewright-*-py3-none-{tag}.whl"):
            if tag == f"manylinux_2_28_{platform.machine()}":
                try_here(wheel, work)
            try_runtime(wheel, tag, work)
    if arguments.rebuild:
        rebuild(dist, work)


if __name__ == "__main__":
    main()
