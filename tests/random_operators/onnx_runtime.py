"""ONNX Runtime in a process of its own: it dies by a signal on some models, which must not end the run.

``python -m tests.random_operators.onnx_runtime`` serves one request after the other: a pickled model and its inputs on
standard input, the outputs or what was raised on standard output.
"""

from __future__ import annotations

import atexit
import functools
import os
import pickle
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np
from onnx import TensorProto

Array = np.ndarray[Any, Any]
# A case takes milliseconds; one that takes this many seconds hangs.
PATIENCE = 60.0


class OracleDiedError(Exception):
    """The process ended, by which signal or status the message says, or hung."""


class Server:
    """The process, started with the first request and after each death. ``deaths`` counts these."""

    def __init__(self, command: Sequence[str] = (sys.executable, "-m", __name__)) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self.deaths = 0
        atexit.register(self.close)

    def run(self, model: bytes, inputs: dict[str, Array], outputs: Sequence[str]) -> list[Array]:
        """The outputs of a model. Raises ``RuntimeError`` with what ONNX Runtime says, or ``OracleDiedError``."""
        if self._process is None:
            root = Path(__file__).parents[2]
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=root
            )
        try:
            answer = self._exchange(self._process, pickle.dumps((model, inputs, list(outputs))))
        except (EOFError, BrokenPipeError, TimeoutError, pickle.UnpicklingError) as error:
            raise self._died(error) from error
        if isinstance(answer, str):
            raise RuntimeError(answer)
        return list(answer)

    @staticmethod
    def _exchange(process: subprocess.Popen[bytes], request: bytes) -> Any:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(len(request).to_bytes(8, "little") + request)
        process.stdin.flush()
        if not select.select([process.stdout], [], [], PATIENCE)[0]:
            raise TimeoutError(f"no answer in {PATIENCE:g} s")
        return pickle.load(process.stdout)

    def _died(self, error: Exception) -> OracleDiedError:
        assert self._process is not None
        if isinstance(error, TimeoutError):
            self._process.kill()
        status = self._process.wait()
        self._process = None
        self.deaths += 1
        return OracleDiedError(str(error) if isinstance(error, TimeoutError) else f"ended with status {status}")

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


@functools.cache
def server() -> Server:
    """The one process of this one."""
    return Server()


def _answer(runtime: Any, model: bytes, inputs: dict[str, Array], outputs: list[str]) -> list[Array]:
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.x64quantprecision", "1")  # or sums of products saturate on some
    session = runtime.InferenceSession(model, options, ["CPUExecutionProvider"])
    fed = {name: _ortvalue(runtime, array) for name, array in inputs.items()}
    return [_from_ortvalue(v) for v in session.run_with_ort_values(outputs, fed)]


def _ortvalue(runtime: Any, array: Array) -> Any:
    array = np.ascontiguousarray(array).reshape(array.shape)  # a scalar stays one
    if array.dtype == ml_dtypes.bfloat16:
        return runtime.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), TensorProto.BFLOAT16)
    return runtime.OrtValue.ortvalue_from_numpy(array)


def _from_ortvalue(value: Any) -> Array:
    if value.element_type() == TensorProto.BFLOAT16:
        raise NotImplementedError("ONNX Runtime gives bfloat16 to nobody")
    return np.asarray(value.numpy())


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until there are no more."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    while size := requests.read(8):
        model, inputs, outputs = pickle.loads(requests.read(int.from_bytes(size, "little")))
        try:
            answer: list[Array] | str = _answer(onnxruntime, model, inputs, outputs)
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    # What the library prints must not get between the answers.
    private = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, private)
