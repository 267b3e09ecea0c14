"""``python -m tests.fuzz [--seconds N] [--seed N] [NAME ...]``: fuzz the loaders, in C and in Python (`make fuzz`).

Beside them ``indices``: compiled models, with indices, sizes and coordinates of any kind; ``onnx_models``: models
with changed inputs, attributes, types and shapes; and ``frameworks``: changed models of TensorFlow, PyTorch
(exported programs and TorchScript), Keras and TensorFlow Lite. Reports name the seed; findings of the latter two do
not end the search.
A finding of a loader is written to a file that the tests read from then on, and ends the search with a report: in
Python to ``tests/fuzz/corpus``, in C to ``native/fuzz/findings``.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import sys
import tempfile
import warnings
from pathlib import Path

from tests.fuzz import frameworks, indices, native, onnx_models
from tests.fuzz.loaders import CORPUS, LOADERS, Loader
from tests.fuzz.search import search


def _save(loader: Loader, data: bytes) -> None:
    path = CORPUS / loader.name / hashlib.sha256(data).hexdigest()[:16]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    print(f"{loader.name}: found {path}", file=sys.stderr)


def main() -> None:
    """Fuzz each loader for a time."""
    loaders = {loader.name: loader for loader in LOADERS}
    names = [*native.TARGETS, *loaders, "indices", "onnx_models", "frameworks"]
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--seconds", type=int, default=60, help="for each loader")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("name", nargs="*", help=f"loaders: {', '.join(names)}; all by default")
    options = parser.parse_args()
    wanted = options.name or names
    if unknown := set(wanted) - {*names}:
        parser.error(f"there is no loader {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="tilewright-fuzz-") as folder:
        targets = [name for name in native.TARGETS if name in wanted]
        programs = native.build(Path(folder)) if targets else {}
        for name in targets:
            report = native.run(programs[name], options.seconds, Path(folder, "inputs", name), seed=options.seed)
            print(f"{name}: {report}", flush=True)
    for name in wanted:
        if name in loaders:
            count = search(loaders[name], options.seconds, options.seed, functools.partial(_save, loaders[name]))
            print(f"{name}: {count} inputs", flush=True)
    if "indices" in wanted:
        print(f"indices: {indices.search(options.seconds, options.seed)} models", flush=True)
    failed = False
    for name, module in (("onnx_models", onnx_models), ("frameworks", frameworks)):
        if name in wanted:
            found: list[str] = []
            count = module.search(options.seconds, options.seed * 1_000_000, found.append)
            print(f"{name}: {count} models, {len(found)} findings", *found, sep="\n", flush=True)
            failed = failed or bool(found)
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
