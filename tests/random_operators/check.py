"""Draws cases, compiles and runs them, and compares with both oracles."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import helper
from tests.processors.x86 import TARGETS, runs_here
from tests.random_operators import oracles
from tests.random_operators.case import GENERATORS, Case, Graph, Tolerance, versions
from tests.random_operators.compare import complaint
from tests.random_operators.draw import Array, Discard, Draw, shrink
from tests.random_operators.families import ALL, chains, graphs, live, microsoft, quantized
from tests.random_operators.known import right_oracle
from tests.random_operators.onnx_runtime import OracleDiedError
from tests.random_operators.spelling import respelled

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.ir.errors import UnsupportedError
from tilewright.relay.frontend.onnx.context import OnnxImportError

assert ALL
CHAIN, GRAPH, LIVE, MICROSOFT, QUANTIZED = "Chain", "Graph", "Live", "Microsoft", "Quantized"
_DRAWN = {CHAIN: chains.chain, GRAPH: graphs.graph, LIVE: live.live, MICROSOFT: microsoft.microsoft}
_DRAWN[QUANTIZED] = quantized.quantized
# A tenth of the cases are chains, and as many whole graphs.
OPERATORS = [*sorted(GENERATORS), *[CHAIN] * 14, *[GRAPH] * 14, *[MICROSOFT] * 5, *[QUANTIZED] * 8]
# Of whole graphs every fourth is over named dimensions.
GRAPHS = [GRAPH] * 3 + [LIVE]
# Two kinds of x86 processors where this machine is one, and C.
MACHINES = ("llvm", *(t for name, t in TARGETS.items() if name in ("SSE2", "AVX2") and runs_here(t)))


# ONNX Runtime approximates functions, and adds up in the data's own type.
LOOSE = {"ulp": Tolerance("rough", 2e-5), "linear": Tolerance("linear", 256), "close": Tolerance("close", 512)}
_SINGLE = Tolerance("rough", 2e-5)


@dataclass(frozen=True)
class Result:
    """What came of a case: one of ``PASSED``, or a failure with its details."""

    kind: str
    details: str = ""

    @property
    def failed(self) -> bool:
        """Whether something is wrong."""
        return self.kind not in PASSED


# As both oracles have it, or where they differ as the right one has it; as the only one has it that has an answer; so,
# since ONNX Runtime's process died; no answer to compare with, but none that was refused by an exception either.
PASSED = ("ok", "ok by one oracle", "ok, an oracle died", "no oracle")


def draw_case(draw: Draw, operator: str) -> Case:
    """A case of an operator, of ``CHAIN``, ``GRAPH`` or ``LIVE``. Raises ``Discard`` where the choices make none."""
    graph = Graph(draw, operator, chains.OPSET if operator in _DRAWN else draw.of(*versions(operator)))
    target = draw.of(*(t for t in MACHINES for _ in range(4)), "c")
    opt_levels = draw.of((3,), (0,), (3,))
    case = graph.case((_DRAWN.get(operator) or GENERATORS[operator])(graph))
    case.spelled = case.spelled or respelled(draw, case.model)
    case.target, case.opt_levels, case.choices = target, opt_levels, draw.choices
    return case


def nth_case(seed: int, number: int, operators: Sequence[str]) -> Case:
    """Case ``number`` of a run: operators in turns, choices by the seed and the number."""
    operator = operators[number % len(operators)]
    for attempt in range(100):
        try:
            return draw_case(Draw((seed, number, attempt)), operator)
        except Discard:
            continue
    raise AssertionError(f"no case of {operator} in 100 attempts")


def run(case: Case) -> Result:
    """Compile the case, run it, and compare."""
    if case.rounds:
        return _run_rounds(case)
    answers = Answers(case)
    if not answers.known:
        return _without_oracle(case, answers.trouble)
    for level in case.opt_levels:
        try:
            found = compiled(case, level)
        except (UnsupportedError, OnnxImportError) as error:
            return Result("refused without need", str(error))
        except Exception:
            return Result("crash", traceback.format_exc())
        result = _judge(case, found, answers)
        if result.failed:
            return Result(result.kind, f"opt level {level}: {result.details}")
    return result


def _run_rounds(case: Case) -> Result:
    """Compile the case once, run it for each round, and compare."""
    cases = [replace(case, inputs=inputs, rounds=[]) for inputs in case.rounds]
    answers = [Answers(c) for c in cases]
    results = []
    for level in case.opt_levels:
        try:
            machine = machine_of(case, level)
        except (UnsupportedError, OnnxImportError) as error:
            return Result("refused without need", str(error))
        except Exception:
            return Result("crash", traceback.format_exc())
        for i, (turn, known) in enumerate(zip(cases, answers, strict=True)):
            result = _run_round(turn, machine, known)
            if result.failed:
                return Result(result.kind, f"opt level {level}, round {i}: {result.details}")
            results.append(result)
    return max(results, key=lambda r: PASSED.index(r.kind))


def _run_round(case: Case, machine: Any, answers: Answers) -> Result:
    try:
        found = _once(case, outputs_of(machine, case.inputs))
    except tvm.TVMError as error:
        if not answers.known:
            return Result("no oracle", answers.trouble)
        return Result("refused without need", str(error))
    return _judge(case, found, answers) if answers.known else Result("no oracle", answers.trouble)


def machine_of(case: Case, opt_level: int) -> Any:
    """The virtual machine that runs the case's one program."""
    module, params = relay.frontend.from_onnx(case.spelled or case.model, dims=case.dims)
    with tvm.transform.PassContext(opt_level=opt_level):
        executable = relay.vm.compile(module, case.target, params=params)
    return tvm.runtime.vm.VirtualMachine(executable, tvm.cpu())


def outputs_of(machine: Any, inputs: Mapping[str, Array]) -> list[Array]:
    """What the program gives for some inputs."""
    found = machine.run(**inputs)
    return [v.numpy() for v in found] if isinstance(found, tvm.runtime.container.ADT) else [found.numpy()]


class Answers:
    """What the oracles say of a case: outputs by the oracle's name, and what was wrong with those that say nothing."""

    def __init__(self, case: Case) -> None:
        self.known: dict[str, list[Array]] = {}
        self.died = False
        trouble = []
        for name, oracle in (("reference", oracles.reference), ("onnxruntime", oracles.onnx_runtime)):
            try:
                self.known[name] = oracle(case)
            except Exception as error:
                self.died |= isinstance(error, OracleDiedError)
                trouble.append(f"{name}: {type(error).__name__}: {str(error)[:300]}")
        self.trouble = "\n".join(trouble)


def compiled(case: Case, opt_level: int) -> list[Array]:
    """The outputs of the case by the compiler, on the executor that it needs."""
    return _once(case, _compiled(case, opt_level))


def _once(case: Case, found: list[Array]) -> list[Array]:
    """The outputs of the model; one more, where its other spelling lists the first twice, has to be the same."""
    count = len(case.model.graph.output)
    if case.spelled is not None and len(case.spelled.graph.output) > count:
        np.testing.assert_array_equal(found[count], found[0])
        return found[:count]
    return found


def _compiled(case: Case, opt_level: int) -> list[Array]:
    module, params = relay.frontend.from_onnx(case.spelled or case.model)
    with tvm.transform.PassContext(opt_level=opt_level):
        factory = relay.build(module, case.target, params=params, executor="auto")
    if isinstance(factory, tvm.runtime.vm.Executable):
        return outputs_of(tvm.runtime.vm.VirtualMachine(factory, tvm.cpu()), case.inputs)
    executor = graph_executor.GraphModule(factory["default"](tvm.cpu(0)))
    for name, value in case.inputs.items():
        executor.set_input(name, value)
    executor.run()
    return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]


def _without_oracle(case: Case, broken: str) -> Result:
    """Where no oracle has an answer, the compiler must give some answer or say what is wrong."""
    try:
        compiled(case, case.opt_levels[0])
    except (UnsupportedError, OnnxImportError):
        pass
    except Exception:
        return Result("crash", traceback.format_exc())
    return Result("no oracle", broken)


def _loose(tolerance: Tolerance) -> Tolerance:
    """What is asked of ONNX Runtime: never more than of the reference."""
    loose = LOOSE.get(tolerance.kind, tolerance)
    return tolerance if loose.kind == tolerance.kind and loose.amount < tolerance.amount else loose


def _judge(case: Case, found: list[Array], answers: Answers) -> Result:
    tolerances = {"reference": case.tolerance, "onnxruntime": _loose(case.tolerance)}
    problems = {
        name: _compare(case, found, known, tolerances[name], name == "onnxruntime")
        for name, known in answers.known.items()
    }
    bad = {name: problem for name, problem in problems.items() if problem}
    if bad and (trusted := right_oracle(case)) is not None:
        if trusted not in problems:
            return Result("no oracle", f"{trusted} is right; {answers.trouble}")
        return Result("wrong", f"{trusted} (listed as right): {bad[trusted]}") if trusted in bad else Result("ok")
    if bad:
        kind = "wrong" if len(bad) == len(problems) else "disagreement"
        return Result(kind, "; ".join(f"{name}: {bad.get(name, 'alike')}" for name in problems))
    if answers.died:
        return Result("ok, an oracle died", answers.trouble)
    return Result("ok" if len(problems) == 2 else "ok by one oracle", answers.trouble)


def _compare(
    case: Case, found: list[Array], wanted: list[Array], tolerance: Tolerance, single: bool = False
) -> str | None:
    scales: list[Any] = [None] * len(found)
    if tolerance.kind == "linear":
        try:
            scales = oracles.magnitude(case)
        except Exception:
            scales = []
        if [np.shape(s) for s in scales] != [w.shape for w in wanted]:  # the reference evaluator lacks this form
            scales = [None] * len(found)
            tolerance = Tolerance("close", 8 * tolerance.amount)
    if len(found) != len(wanted):
        return f"{len(found)} outputs, expected {len(wanted)}"
    for i, value in enumerate(case.model.graph.output):
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        if single and tolerance.kind in ("rough", "close") and str(dtype) == "float64":
            tolerance = _SINGLE  # ONNX Runtime's constants are float32
        want = np.asarray(wanted[i])
        if i == 0 and case.undefined is not None:
            want = np.where(case.undefined, found[i], want).astype(want.dtype)
        if problem := complaint(found[i], want, str(dtype), tolerance, scales[i]):
            return f"output {i}: {problem}" if i else problem
    return None


def smallest(case: Case, kind: str) -> Case:
    """The simplest case found that fails in the same way."""

    def fails(choices: list[int]) -> bool:
        try:
            return run(draw_case(Draw(replay=choices), case.operator)).kind == kind
        except (Discard, AssertionError, ValueError):
            return False

    return draw_case(Draw(replay=shrink(case.choices, fails)), case.operator)


__all__ = [
    "GENERATORS", "GRAPHS", "OPERATORS", "Case", "Result", "compiled", "draw_case", "nth_case", "onnx", "run",
    "smallest",
]  # fmt: skip
