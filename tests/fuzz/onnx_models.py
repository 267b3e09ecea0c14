"""Models of ONNX's own tests, and the digit classifier, with changes (onnx_changes.py): what comes of each is right.

Right is one clear error (a ``TVMError``, but no ``InternalError``), or the numbers of ONNX's reference evaluator or of
ONNX Runtime. What neither of them runs is compiled and run, and its numbers are not judged. A number stands for a
model and its changes: ``python -m tests.fuzz.onnx_models NUMBER`` tries it again. Processes of their own try many, so
that a crash is a finding too.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from tests.fuzz.onnx_changes import changed, graphs

import tilewright as tvm
from tilewright.error import InternalError
from tilewright.runtime.interface import TensorInfo
from tilewright.runtime.ndarray import numpy_dtype

Array = np.ndarray[Any, Any]
DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.onnx"
_LIMITS = {"relay.budget.seconds": 20, "relay.budget.memory": 2 << 30, "relay.budget.nodes": 20_000}
_MOST_ELEMENTS = 1 << 20  # of an input that is given: others are not run
_RANDOM = {
    "Bernoulli",
    "Dropout",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
}
_MEMORY = 6 << 30  # of a process that tries
_SILENCE = 180  # seconds without a new number, after which a process hangs
_TOLERANCE = {"float16": 2e-2, "bfloat16": 5e-2}


class Finding(AssertionError):
    """A model that is not answered as it should be; the message has its number."""


@functools.cache
def seeds() -> list[Path]:
    """The models that changes are made of."""
    found = Path(onnx.__file__).parent / "backend" / "test" / "data" / "node"
    small = [p for p in sorted(found.glob("*/model.onnx")) if p.stat().st_size < 20_000]
    return [DIGITS] * max(1, len(small) // 20) + small


def model_of(number: int) -> tuple[str, onnx.ModelProto]:
    """Return the model of a number, and a line about it."""
    rng = random.Random(number)
    path = rng.choice(seeds())
    model, done = changed(onnx.load(path), rng)
    return f"{number}: {path.parent.name}, {', '.join(done)}", model


def _value(info: TensorInfo, rng: np.random.Generator, sizes: Mapping[str, int]) -> Array | None:
    shape = [sizes[d] if isinstance(d, str) else d for d in info.shape]
    if np.prod(shape, dtype=float) > _MOST_ELEMENTS:
        return None
    dtype = numpy_dtype(info.dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        return rng.integers(0, 4, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def _oracle_answers(path: Path, feeds: Mapping[str, Array]) -> Iterator[list[Any]]:
    """Give the answers of those engines that run a model."""
    for run in (_reference, _onnxruntime):
        with contextlib.suppress(Exception), warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            yield run(path, feeds)


def _reference(path: Path, feeds: Mapping[str, Array]) -> list[Any]:
    from onnx.reference import ReferenceEvaluator

    return list(ReferenceEvaluator(str(path)).run(None, dict(feeds)))


def _onnxruntime(path: Path, feeds: Mapping[str, Array]) -> list[Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    return list(onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"]).run(None, dict(feeds)))


def _agrees(found: Array, expected: Any) -> bool:
    if not isinstance(expected, np.ndarray | np.generic) or np.asarray(expected).dtype.kind not in "biufV":
        return True  # sequences, and texts, have tests of their own
    expected = np.asarray(expected)
    if found.shape != expected.shape:
        return False
    wide = (lambda x: x.astype("float64")) if expected.dtype.kind in "fV" else (lambda x: x)
    a, b = wide(found), wide(expected)
    if a.dtype.kind == "f":
        both = np.isfinite(a) & np.isfinite(b)  # what is not finite depends on the order of sums
        tolerance = _TOLERANCE.get(expected.dtype.name, 1e-3)
        scale = float(np.abs(b[both]).max(initial=1.0))
        return bool((np.abs(a - b)[both] <= tolerance * scale).all())
    return bool(np.array_equal(a, b))


def _run(compiled: tvm.Model, number: int) -> tuple[dict[str, Array], list[Any]] | None:
    """Return inputs and outputs of a run; None where the inputs would be large."""
    rng = np.random.default_rng(number)
    sizes = {name: max(least, multiple) for name, (least, _, multiple) in compiled.dimensions.items()}
    feeds = {name: _value(info, rng, sizes) for name, info in compiled.inputs.items()}
    given = {name: value for name, value in feeds.items() if value is not None}
    if len(given) < len(feeds):
        return None
    return given, list(compiled.run(given).values())


def try_one(number: int) -> str:
    """Try the model of a number; return what came of it: "refused", "unjudged" or "equal".

    Raises:
        Finding: it gives wrong numbers, or an error that is none of a user's.
    """
    about, model = model_of(number)
    with tempfile.TemporaryDirectory(prefix="tilewright-onnx-") as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(model.SerializeToString())
        try:
            ran = _run(tvm.compile(path, config=_LIMITS, max_steps=10_000), number)
        except InternalError as error:
            raise Finding(f"{about}: an internal error: {error}") from error
        except tvm.TVMError as error:
            if not str(error).strip():
                raise Finding(f"{about}: an error without a message") from error
            return "refused"
        except Exception as error:
            raise Finding(f"{about}: {type(error).__name__}: {error}") from error
        if ran is None or any(node.op_type in _RANDOM for graph in graphs(model.graph) for node in graph.node):
            return "unjudged"
        return _judged(about, path, *ran)


def _judged(about: str, path: Path, feeds: Mapping[str, Array], outputs: list[Any]) -> str:
    answers = list(_oracle_answers(path, feeds))
    if not answers:
        return "unjudged"
    if any(all(map(_agrees, outputs, answer)) for answer in answers):
        return "equal"
    shown = ", ".join(f"{np.asarray(x).shape} {np.asarray(x).ravel()[:6]}" for x in (*outputs, *answers[0]))
    raise Finding(f"{about}: other numbers than {len(answers)} engines': {shown}")


# ---- many, in processes of their own ----


def search(seconds: float, first: int = 1_000_000, found: Callable[[str], None] | None = None) -> int:
    """Try models for ``seconds``, each process many; return how many. A finding goes to ``found``, or is raised."""
    end, number = time.monotonic() + seconds, first
    while time.monotonic() < end:
        number, ended = _try_many(number, end - time.monotonic())
        if ended and found is None:
            raise Finding(ended)
        if ended:
            found(ended)
    return number - first


def _try_many(first: int, seconds: float) -> tuple[int, str]:
    """Let a process try from a number on; return the number after its last, and what it found."""
    command = [sys.executable, "-m", "tests.fuzz.onnx_models", str(first), str(seconds)]
    environment = {**os.environ, "TVM_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, env=environment, text=True)
        size, since = 0, time.monotonic()
        while process.poll() is None and time.monotonic() - since < _SILENCE:
            time.sleep(0.1)
            if (now := os.fstat(said.fileno()).st_size) != size:
                size, since = now, time.monotonic()
        hangs = process.poll() is None
        process.kill()
        process.wait()
        said.seek(0)
        text = said.read()
    tried = [int(line) for line in re.findall(r"^try (\d+)$", text, re.MULTILINE)]
    last = tried[-1] if tried else first
    if hangs:
        return last + 1, f"{model_of(last)[0]}: no answer in {_SILENCE} s"
    if process.returncode == 0:
        return last + 1, ""
    return last + 1, f"{model_of(last)[0]}: the process ends with {process.returncode}: {text[-3000:]}"


def main() -> None:
    """Try the model of a number, or from it on for some seconds."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    warnings.simplefilter("ignore")
    number, seconds = int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
    end = time.monotonic() + seconds
    while True:
        print(f"try {number}", flush=True)
        print(try_one(number), flush=True)
        number += 1
        if time.monotonic() >= end:
            return


if __name__ == "__main__":
    main()
