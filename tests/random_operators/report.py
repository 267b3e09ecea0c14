"""What a failure tells: how to draw it again, the smallest case, and files that run alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from tests.random_operators.case import Case
from tests.random_operators.check import Result

_HEAD = '''"""Runs the case beside this file: {what}"""

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor

HERE = Path(__file__).parent


def inputs_of(name):
    stored = np.load(HERE / name)
    return {{name: stored[name].view(ml_dtypes.bfloat16) if name in {halves!r} else stored[name] for name in stored}}


'''
_GRAPH = """module, params = relay.frontend.from_onnx(onnx.load(HERE / "model.onnx"))
with tvm.transform.PassContext(opt_level={level}):
    factory = relay.build(module, {target!r}, params=params)
executor = graph_executor.GraphModule(factory["default"](tvm.cpu(0)))
for name, value in inputs_of("inputs.npz").items():
    executor.set_input(name, value)
executor.run()
for i in range(executor.get_num_outputs()):
    print(executor.get_output(i))
"""
_MACHINE = """module, params = relay.frontend.from_onnx(onnx.load(HERE / "model.onnx"), dims={dims!r})
with tvm.transform.PassContext(opt_level={level}):
    executable = relay.vm.compile(module, {target!r}, params=params)
machine = tvm.runtime.vm.VirtualMachine(executable, tvm.cpu())
for name in {files!r}:
    print(name, machine.run(**inputs_of(name)))
"""


def report(seed: int, number: int, case: Case, result: Result, folder: Path | None = None) -> str:
    """The failure as text; with a folder, the model, its inputs and a script are written there."""
    lines = [
        f"== {case.operator}: {result.kind} (seed {seed}, case {number}; choices {case.choices})",
        result.details.rstrip(),
        case.describe(),
    ]
    for i, inputs in enumerate(case.rounds or [case.inputs]):
        lines += [f"round {i}"] if case.rounds else []
        lines += [f"{name} = {array!r}" for name, array in inputs.items() if array.size <= 64]
    if folder is not None:
        lines.append(f"saved in {save(folder / f'{case.operator}_{seed}_{number}', case, result)}")
    return "\n".join(lines)


def save(folder: Path, case: Case, result: Result) -> Path:
    """Write the model, its inputs and a script that runs them."""
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(case.model, folder / "model.onnx")
    halves = [name for name, array in case.inputs.items() if array.dtype.name == "bfloat16"]
    files = [f"inputs_{i}.npz" for i in range(len(case.rounds))] or ["inputs.npz"]
    for name, inputs in zip(files, case.rounds or [case.inputs], strict=True):
        np.savez(folder / name, **{n: a.view("uint16") if n in halves else a for n, a in inputs.items()})
    what = result.details.strip().splitlines()[-1] if result.details.strip() else result.kind
    level = next((n for n in case.opt_levels if f"opt level {n}" in result.details), case.opt_levels[0])
    script = (_HEAD + (_MACHINE if case.rounds else _GRAPH)).format(
        what=what, level=level, target=case.target, halves=halves, dims=case.dims, files=files
    )
    (folder / "run.py").write_text(script)
    return folder
