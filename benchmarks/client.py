"""The parent's end of a worker process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np


class EngineError(RuntimeError):
    """An engine failed, or its process ended, while obeying a command."""


class Client:
    """A worker process with one engine and one model; a context manager that ends it.

    Tilewright's kernel cache is `kernels`, else a folder in `folder`: empty at first, so that builds are not helped by
    older ones.
    """

    def __init__(
        self, engine: str, model: Path, inputs: Path, folder: Path, threads: int, kernels: Path | None = None
    ) -> None:
        self.engine = engine
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads), TVM_NUM_THREADS=str(threads))
        environment["TILEWRIGHT_CACHE_DIR"] = str(kernels or folder / "kernels")
        self._log = (folder / f"{engine}.log").open("w+")
        command = [sys.executable, "-m", "benchmarks.worker", engine, str(model), str(inputs), str(folder)]
        self._process = subprocess.Popen(
            [*command, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environment,
            cwd=Path(__file__).resolve().parent.parent,
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()
        self._log.close()

    def ask(self, what: str, **arguments: Any) -> dict[str, Any]:
        """Have the worker do `what`; returns its answer.

        Raises EngineError with the engine's message, or with the end of its log if the process died.
        """
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.write(json.dumps({"do": what, **arguments}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self._process.wait()
            self._log.seek(0)
            tail = self._log.read()[-2000:].strip()
            raise EngineError(f"{self.engine} ended with status {self._process.returncode}: {tail}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise EngineError(f"{self.engine}: {answer['error']}")
        return answer

    def outputs(self, path: Path) -> dict[str, np.ndarray]:
        """The results of the worker's last run, by name; `path` is scratch space."""
        names = self.ask("outputs", path=str(path))["names"]
        with np.load(path) as stored:
            return {name: stored[f"o{index}"] for index, name in enumerate(names)}
