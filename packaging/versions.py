"""Try Tilewright with the oldest, or the newest, releases of the packages that it declares.

    python packaging/versions.py oldest            # on the oldest Python: demo, examples and a tenth of the tests
    python packaging/versions.py newest --python 3.13
    python packaging/versions.py oldest --smoke    # a network is compiled and run: seconds

The environment is build/versions/NAME, made by uv. What is declared is resolved to its lowest (or highest) releases;
what those bring along themselves, and what only tests need, to the newest that fit. A second call installs nothing.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESOLUTIONS = {"oldest": "lowest-direct", "newest": "highest"}
# Only in these environments where pip's own folders have them ($PIP_FIND_LINKS): they take gigabytes, or minutes. Tests
# that need them are skipped otherwise (tests/tenth.py).
HEAVY = ("torch", "openvino", "distributed", "nvidia", "ai-edge", "tflite", "skl2onnx", "scikit")

SMALL_TESTS = ["tests/relay/frontend/test_onnx_elements.py"]


def run(*command: str | Path, **environment: str) -> None:
    """Run a command in the repository; leave with its status where it fails."""
    status = subprocess.run(
        list(map(str, command)), cwd=ROOT, env={**os.environ, **environment}, check=False
    ).returncode
    if status:
        sys.exit(status)


def resolve(name: str, python: str, folder: Path) -> Path:
    """Return a file with the releases of what Tilewright needs."""
    wanted = folder / "requirements.txt"
    run(
        *("uv", "pip", "compile", "--quiet", "--resolution", RESOLUTIONS[name], "--python-version", python),
        *("--no-header", "--no-annotate", "--output-file", wanted, "--upgrade", "pyproject.toml"),
    )
    return wanted


def at_hand(package: str, python: str) -> bool:
    """Return whether one of pip's folders has a wheel of a package."""
    name = f"{package.split('=')[0]}-*-cp{python.replace('.', '')}-*.whl"
    return any(any(Path(folder).glob(name)) for folder in os.environ.get("PIP_FIND_LINKS", "").split())


def tests_packages(python: str) -> list[str]:
    """Return the packages of the extra "test" that are not heavy, or at hand."""
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["test"]
    return [package for package in extra if not package.startswith(HEAVY) or at_hand(package, python)]


def interpreter_of(python: str) -> str:
    """Return pyenv's interpreter of a version, which uv does not look for; else the version."""
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    found = sorted(versions.glob(f"{python}.*/bin/python"), key=lambda path: int(path.parts[-3].split(".")[2]))
    return str(found[-1]) if found else python


def prepare(name: str, python: str, smoke: bool) -> Path:
    """Return the Python of an environment with the packages."""
    folder = ROOT / "build" / "versions" / name
    folder.mkdir(parents=True, exist_ok=True)
    wanted, interpreter = resolve(name, python, folder), folder / "bin" / "python"
    if not interpreter.exists():
        run("uv", "venv", "--quiet", "--allow-existing", "--python", interpreter_of(python), folder)
    print(f"==> {name} releases on Python {python}: {', '.join(wanted.read_text().split())}", flush=True)
    folders = [f"--find-links={folder}" for folder in os.environ.get("PIP_FIND_LINKS", "").split()]
    install = ("uv", "pip", "install", "--quiet", *folders, "--python", interpreter)
    run(*install, "--requirements", wanted)
    if not smoke:
        run(*install, "--no-deps", "--reinstall-package", "tilewright", ".")
    run(*install, "--constraints", wanted, *(("pytest", "pytest-timeout") if smoke else tests_packages(python)))
    return interpreter


def try_network(python: Path, folder: Path) -> None:
    """Compile and run a network with this checkout's sources and the native library of $TILEWRIGHT_RUNTIME_LIBRARY."""
    library = folder / "digits.so"
    environment = {"PYTHONPATH": "src"}
    tilewright = (python, "-m", "tilewright")
    run(*tilewright, "--version", **environment)
    run(*tilewright, "compile", "examples/digits/digits.onnx", "-o", library, **environment)
    run(*tilewright, "run", library, "--fill", "random", **environment)
    run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--noconftest", *SMALL_TESTS, **environment)


def main() -> None:
    """Make the environment, and try what was asked for in it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=RESOLUTIONS)
    parser.add_argument("--python", default="3.11")
    parser.add_argument("--smoke", action="store_true", help="compile and run one network only")
    arguments = parser.parse_args()
    python = prepare(arguments.name, arguments.python, arguments.smoke)
    if arguments.smoke:
        return try_network(python, python.parent.parent)
    run(python, "examples/digits/demo.py")
    run(python, "-m", "pytest", "-q", "-p", "tests.tenth", "tests")


if __name__ == "__main__":
    main()
