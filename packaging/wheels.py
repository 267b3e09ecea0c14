"""Build the wheels of a release, with an sdist, and check them: ``make wheels``.

For each platform the C runtime is compiled by ziglang, which has the headers of every C library; a wheel is
``py3-none-PLATFORM``, since no C of it knows Python. Two builds of one commit give the same bytes: files have the
commit's time ($SOURCE_DATE_EPOCH).
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from wheel_contents import faults

ROOT = Path(__file__).resolve().parent.parent
# By the platform's tag: zig's target.
PLATFORMS = {
    "manylinux_2_28_x86_64": "x86_64-linux-gnu.2.28",
    "manylinux_2_28_aarch64": "aarch64-linux-gnu.2.28",
    "musllinux_1_2_x86_64": "x86_64-linux-musl",
    "musllinux_1_2_aarch64": "aarch64-linux-musl",
}


TAG = re.compile(r"(manylinux_2|musllinux_1)_(\d+)_(x86_64|aarch64)")


def run(*command: str | Path, **environment: str) -> str:
    """Run a command in the repository; return what it printed, or leave with it where it fails."""
    words, variables = list(map(str, command)), {**os.environ, **environment}
    done = subprocess.run(words, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def tools(platform: str, folder: Path) -> tuple[Path, Path]:
    """Write a C compiler and an archiver for a platform; return their paths."""
    target = f"-target {PLATFORMS[platform]} -mcpu=baseline -g0 -fno-sanitize=undefined"
    commands = {"cc": f'cc {target} -ffile-prefix-map={ROOT}=. "$@"', "ar": 'ar "$@"'}
    folder.mkdir(parents=True, exist_ok=True)
    for name, command in commands.items():
        (folder / name).write_text(f"#!/bin/sh\nexec {sys.executable} -m ziglang {command}\n")
        (folder / name).chmod(0o755)
    return folder / "cc", folder / "ar"


def retag(wheel: Path, platform: str, out: Path) -> Path:
    """Write a wheel under the name of a platform; return its path."""
    shown = run(sys.executable, "-m", "wheel", "tags", "--python-tag=py3", "--abi-tag=none", "--remove",
                f"--platform-tag={platform}", wheel)  # fmt: skip
    made = wheel.with_name(shown.split()[-1])
    if platform.startswith("musllinux"):
        name_musl(made, PLATFORMS[platform].split("-")[0])
    shutil.copy(made, out / made.name)
    return out / made.name


def name_musl(wheel: Path, machine: str) -> None:
    """Name the C library as Alpine does: zig calls it ``libc.so``, which is a linker's file elsewhere."""
    folder = wheel.with_name("unpacked")
    run(sys.executable, "-m", "wheel", "unpack", "--dest", folder, wheel)
    for library in folder.rglob("*.so"):
        run("patchelf", "--replace-needed", "libc.so", f"libc.musl-{machine}.so.1", library)
    run(sys.executable, "-m", "wheel", "pack", "--dest-dir", wheel.parent, next(folder.iterdir()))


def build_wheel(platform: str, work: Path, out: Path) -> Path:
    """Build Tilewright's wheel for a platform."""
    folder = work / platform
    shutil.rmtree(folder, ignore_errors=True)
    cc, ar = tools(platform, folder / "tools")
    settings = {
        "wheel.py-api": "py3",
        "build-dir": folder / "cmake",
        "cmake.define.CMAKE_C_COMPILER": cc,
        "cmake.define.CMAKE_AR": ar,
        "cmake.define.CMAKE_SYSTEM_NAME": "Linux",
        "cmake.define.CMAKE_SYSTEM_PROCESSOR": PLATFORMS[platform].split("-")[0],
    }
    options = [f"--config-setting={key}={value}" for key, value in settings.items()]
    run("uv", "build", "--quiet", "--wheel", "--out-dir", folder / "dist", *options)
    return retag(next((folder / "dist").glob("*.whl")), platform, out)


def build_plugin(platform: str, tilewright: Path, work: Path, out: Path) -> Path:
    """Build the wheel of the reference accelerator, whose libraries are linked with those of a wheel of Tilewright."""
    folder = work / f"npu-{platform}"
    shutil.rmtree(folder, ignore_errors=True)
    cc, _ = tools(platform, folder / "tools")
    with zipfile.ZipFile(tilewright) as wheel:
        wheel.extractall(folder / "tilewright")
    source = folder / "source"
    shutil.copytree(ROOT / "plugins" / "npu", source, ignore=shutil.ignore_patterns("*.so", "build", "__pycache__"))
    native = folder / "tilewright" / "tilewright" / "_native"
    # -s: setuptools compiles with this Python's -g
    environment = {"CC": str(cc), "LDSHARED": f"{cc} -shared -s", "CFLAGS": "", "TILEWRIGHT_NATIVE_DIR": str(native)}
    build = ("-m", "build", "--no-isolation", "--skip-dependency-check", "--wheel", "--outdir", folder / "dist", source)
    run(sys.executable, *build, **environment)
    return retag(next((folder / "dist").glob("*.whl")), platform, out)


def build_adapter(work: Path, out: Path) -> Path:
    """Build the wheel of the adapter for Model Explorer, which is Python alone."""
    folder = work / "model-explorer"
    shutil.rmtree(folder, ignore_errors=True)
    ignored = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT / "plugins" / "model_explorer", folder / "source", ignore=ignored)
    run("uv", "build", "--quiet", "--wheel", "--out-dir", folder / "dist", folder / "source")
    made = next((folder / "dist").glob("*-py3-none-any.whl"))
    check_contents(made)
    return Path(shutil.copy(made, out / made.name))


def check_contents(wheel: Path) -> None:
    """Leave where a wheel is not in order."""
    if found := faults(wheel):
        sys.exit(f"{wheel.name}: {'; '.join(found)}")


def check(wheel: Path, platform: str) -> None:
    """Leave where a wheel has faults, or ``auditwheel`` finds that it does not run where its name says."""
    check_contents(wheel)
    # nothing of this machine's: its C library may be another, or for another processor
    shown = run(sys.executable, "-m", "auditwheel", "show", "--ldpaths", "/nonexistent", wheel)
    kind, *wanted = TAG.fullmatch(platform).groups()
    found = [(k, int(minor)) for k, minor, machine in TAG.findall(shown) if machine == wanted[1]]
    if not any(k == kind and minor <= int(wanted[0]) for k, minor in found):
        sys.exit(f"{wheel.name}: auditwheel says otherwise:\n{shown}")


def main() -> None:
    """Build what was asked for; print each file with its size and checksum."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--platform", choices=PLATFORMS, action="append", help="only this one; repeat for several")
    parser.add_argument("--no-sdist", action="store_true")
    arguments = parser.parse_args()
    out, work = arguments.out.absolute(), ROOT / "build" / "wheels"
    out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("SOURCE_DATE_EPOCH", run("git", "log", "-1", "--format=%ct").strip())
    made = []
    if not arguments.platform:
        made.append(build_adapter(work, out))
    for platform in arguments.platform or PLATFORMS:
        wheel = build_wheel(platform, work, out)
        made += [wheel, build_plugin(platform, wheel, work, out)]
        for each in made[-2:]:
            check(each, platform)
    if not arguments.no_sdist:
        run("uv", "build", "--quiet", "--sdist", "--out-dir", out)
        made.append(max(out.glob("tilewright-*.tar.gz")))
    for path in made:
        print(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.stat().st_size:>9,}  {path.name}")


if __name__ == "__main__":
    main()
