"""How many threads parallel loops use."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tilewright import runtime

PROGRAM = "from tilewright import runtime; print(runtime.num_threads())"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"TVM_NUM_THREADS": "3"}, 3),
        ({"OMP_NUM_THREADS": "5"}, 5),
        ({"TVM_NUM_THREADS": "2", "OMP_NUM_THREADS": "7"}, 2),
    ],
)
def test_environment_sets_the_number(variables: dict[str, str], expected: int) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")} | variables
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True, capture_output=True, text=True)
    assert int(done.stdout) == expected


def test_config_threadpool_sets_the_number() -> None:
    default = runtime.num_threads()
    runtime.get_global_func("runtime.config_threadpool")(1, 3)
    assert runtime.num_threads() == 3
    runtime.set_num_threads(0)
    assert runtime.num_threads() == default >= 1
    with pytest.raises(runtime.TVMError, match="number of threads"):
        runtime.set_num_threads(-1)
