"""What the tests of the command line share."""

from __future__ import annotations

import contextlib
import io
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import onnx
from onnx import TensorProto, helper

from tilewright.driver import main

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"


def tilewright(
    *args: object,
    env: dict[str, str] | None = None,
    limit: Callable[[], None] | None = None,
    given: bytes | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run the command, with ``given`` on its standard input.

    It runs in a process of its own where the environment or limits matter, else in this one: starting an interpreter
    and importing the compiler takes longer than most commands.
    """
    command = [sys.executable, "-c", "from tilewright.driver import main; main()", *map(str, args)]
    if env is None and limit is None:
        return _in_this_process(command, ["tilewright", *map(str, args)], given)
    result = subprocess.run(command, input=given, capture_output=True, timeout=240, env=env, preexec_fn=limit)
    return subprocess.CompletedProcess(command, result.returncode, result.stdout.decode(), result.stderr.decode())


def _in_this_process(command: list[str], argv: list[str], given: bytes | None) -> subprocess.CompletedProcess[str]:
    outputs = [io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2)]
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    before, sys.argv, sys.stdin = (sys.argv, sys.stdin), argv, io.TextIOWrapper(io.BytesIO(given or b""), "utf-8")
    status: object = 0
    try:
        with contextlib.redirect_stdout(outputs[0]), contextlib.redirect_stderr(outputs[1]):
            main()
    except SystemExit as end:
        status = end.code or 0
    finally:
        sys.argv, sys.stdin = before
        for number, handler in handlers.items():
            signal.signal(number, handler)
    texts = [stream.buffer.getvalue().decode() for stream in outputs]  # type: ignore[attr-defined]
    assert isinstance(status, int)
    return subprocess.CompletedProcess(command, status, *texts)


def fails(result: subprocess.CompletedProcess[str], *words: str) -> None:
    """Exit status not 0, one message that has the words, no traceback."""
    text = result.stdout + result.stderr
    assert result.returncode not in (0, None), text
    assert "Traceback" not in text, text
    assert "defect" not in text, text
    for word in words:
        assert word in text, f"{word!r} is not in:\n{text}"


def model(
    path: Path, *nodes: onnx.NodeProto, shape: list[object] | None = None, dtype: int = TensorProto.FLOAT
) -> Path:
    """A model x -> y of the given nodes, unchecked."""
    x = helper.make_tensor_value_info("x", dtype, [1, 3, 8, 8] if shape is None else shape)
    y = helper.make_tensor_value_info("y", dtype, [None] * len(shape or [1, 3, 8, 8]))
    graph = helper.make_graph(list(nodes), "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path
