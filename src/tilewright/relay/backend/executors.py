"""Executors: what a compiled network runs on, by name.

``relay.build`` compiles for the one that the target names (``-executor=NAME``) or its argument ``executor`` does;
``relay.create_executor(NAME)`` evaluates Relay with it. Registered are ``graph`` (``graph_executor.py``) and ``debug``,
which interprets (``executor.py``). One more takes one registration, here or in a package that names a function for it
under the entry-point group ``tilewright.executors``::

    class MyCodegen(ExecutorCodegen):
        def generate(self, program):
            lowered = program.lowered            # @main, kernels, views, external functions: lowered.py tells the form
            code = ...                           # walk lowered["main"]
            program.builder.add(my_prim_func)    # further functions of the library, if there are any
            return lambda library: MyFactory(code, library)     # what relay.build returns

    register_executor("mine", codegen=MyCodegen, evaluator=MyEvaluator)

The road of ``relay.build``::

    codegen.optimization_passes(...)     on the user's module
    IsolateViews, FuseOps
    codegen.prepare_passes()             on fused functions, which get their labels here
    LowerTE                              hands each kernel to the builder as soon as it is lowered
    codegen.generate(program)            while worker processes compile the kernels
    builder.finish()                     -> library, with the modules of external code generators (external.py)
    what generate returned (library)     -> what relay.build returns
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tilewright.ir.errors import TilewrightError, UnsupportedError, did_you_mean
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass
from tilewright.relay.backend.progress import BuildReport
from tilewright.relay.backend.target_map import TargetMap
from tilewright.relay.transform.fusion.count_weights import CountWeights
from tilewright.relay.transform.fusion.label_ops import LabelOps
from tilewright.runtime.device import Device
from tilewright.runtime.module import Module
from tilewright.runtime.plugins import load_plugins
from tilewright.target.build import ModuleBuilder
from tilewright.target.target import Target

GROUP = "tilewright.executors"
DEFAULT_EXECUTOR = "graph"


@dataclass(frozen=True)
class LoweredProgram:
    """What an executor's code generator works on.

    Attributes
    ----------
    source : the module that the user gave
    fused : the module of primitive functions that was lowered
    lowered : the lowered module (``relay.backend.lowered``)
    targets : what is compiled for, by device
    builder : makes the library; it has the kernels already and takes further functions
    name : the network's name, part of its functions' names
    report : to be filled with what the code generator knows
    """

    source: IRModule
    fused: IRModule
    lowered: IRModule
    targets: TargetMap
    builder: ModuleBuilder
    name: str
    report: BuildReport

    @property
    def target(self) -> Target:
        """What is compiled for, but for parts that are put on another device."""
        return self.targets.default


class ExecutorCodegen:
    """Makes a program for an executor of a lowered module; one object for each build."""

    kernel_prefix: str | None = None
    """What the kernels' names begin with; None for ``tvmgen_`` and the network's name."""

    control_flow = False
    """Whether it runs branches, loops and closures."""

    def optimization_passes(self, passes: list[Pass]) -> list[Pass]:
        """The passes before fusion, from those of the graph executor."""
        return passes

    def prepare_passes(self) -> list[Pass]:
        """The passes between fusion and lowering; kernels are told apart by their labels."""
        return [LabelOps(), CountWeights()]

    def generate(self, program: LoweredProgram) -> Callable[[Module], Any]:
        """What makes, of the finished library, the result of ``relay.build``."""
        raise NotImplementedError


class Evaluator(Protocol):
    """Evaluates functions and expressions of a module: what ``relay.create_executor`` returns."""

    def evaluate(self, expr: RelayExpr | None = None, binds: Mapping[Any, Any] | None = None) -> Any:
        """A Python function for a Relay function, a global variable or (None) ``main``; else the value of ``expr``."""


MakeEvaluator = Callable[[IRModule, Device, Any], Evaluator]


@dataclass(frozen=True)
class ExecutorKind:
    """A registered executor; ``codegen`` or ``evaluator`` is None where it does not build, or evaluate."""

    name: str
    codegen: Callable[[], ExecutorCodegen] | None = None
    evaluator: MakeEvaluator | None = None


_kinds: dict[str, ExecutorKind] = {}


def register_executor(
    name: str,
    codegen: Callable[[], ExecutorCodegen] | None = None,
    evaluator: MakeEvaluator | None = None,
    override: bool = False,
) -> None:
    """Register an executor, or the part of one that is not registered yet.

    Parameters
    ----------
    name : what ``-executor=`` and ``relay.create_executor`` call it
    codegen : makes the ``ExecutorCodegen`` of a build
    evaluator : called with a module, a device and a target, gives what ``relay.create_executor`` returns
    override : whether to replace what is registered under the name

    Raises
    ------
    TilewrightError : the executor has that part, and ``override`` is false
    """
    known = _kinds.get(name, ExecutorKind(name))
    if not override and ((codegen and known.codegen) or (evaluator and known.evaluator)):
        raise TilewrightError(f"an executor {name!r} is registered already; override=True replaces it")
    _kinds[name] = ExecutorKind(name, codegen or known.codegen, evaluator or known.evaluator)


def codegen_for(name: str) -> ExecutorCodegen:
    """A new code generator for the executor ``name``.

    Raises
    ------
    UnsupportedError : there is no such executor, or nothing is built for it
    """
    found = _find(name, "codegen", "to build for")
    assert found.codegen is not None
    return found.codegen()


def evaluator_of(name: str) -> MakeEvaluator:
    """What makes evaluators of the executor ``name``.

    Raises
    ------
    UnsupportedError : there is no such executor, or it evaluates nothing
    """
    found = _find(name, "evaluator", "to evaluate with")
    assert found.evaluator is not None
    return found.evaluator


def _find(name: str, part: str, purpose: str) -> ExecutorKind:
    if getattr(_kinds.get(name), part, None) is None:
        load_plugins(GROUP)
    kind = _kinds.get(name)
    if kind is not None and getattr(kind, part) is not None:
        return kind
    names = sorted(other for other, found in _kinds.items() if getattr(found, part) is not None)
    hint = did_you_mean(str(name), names)
    raise UnsupportedError(
        f"there is no executor {name!r} {purpose}{hint}; there is {', '.join(map(repr, names))}. Packages add others "
        f"under the entry-point group {GROUP} (relay.backend.executors tells how)"
    )
