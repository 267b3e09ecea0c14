"""The registry of executors, which run compiled networks.

``relay.build`` compiles for the executor that the target (``-executor=NAME``) or the argument ``executor`` names;
``relay.create_executor(NAME)`` evaluates Relay with it. Registered are ``graph`` (``graph_executor.py``) and ``debug``,
which interprets (``executor.py``). Another one takes one registration, here or in a package that names a function for
it under the entry-point group ``tilewright.executors``::

    class MyCodegen(ExecutorCodegen):
        def generate(self, program):
            lowered = program.lowered            # @main, kernels, views, external functions; see lowered.py
            code = ...                           # walk lowered["main"]
            program.builder.add(my_prim_func)    # further functions of the library, if there are any
            return lambda library: MyFactory(code, library)     # the result of relay.build

    register_executor("mine", codegen=MyCodegen, evaluator=MyEvaluator)

The steps of ``relay.build``::

    codegen.optimization_passes(...)     on the user's module
    IsolateViews, FuseOps
    codegen.prepare_passes()             on fused functions, which are labelled here
    LowerTE                              passes each kernel to the builder as soon as it is lowered
    codegen.generate(program)            while worker processes compile the kernels
    builder.finish()                     -> library, with the modules of external code generators (external.py)
    the result of generate (library)     -> the result of relay.build
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

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
from tilewright.tir.function import PrimFunc

GROUP = "tilewright.executors"
DEFAULT_EXECUTOR = "graph"


@dataclass(frozen=True)
class LoweredProgram:
    """The input of an executor's code generator.

    Attributes
    ----------
    source : the user's module
    fused : the module of primitive functions that was lowered
    lowered : the lowered module (``relay.backend.lowered``)
    targets : the targets, by device, with the options of the code generator
    asked : the targets as the user gave them
    builder : makes the library; it has the kernels already and takes further functions
    name : the network's name, part of its functions' names
    report : the report, which the code generator completes
    """

    source: IRModule
    fused: IRModule
    lowered: IRModule
    targets: TargetMap
    asked: TargetMap
    builder: ModuleBuilder
    name: str
    report: BuildReport

    @property
    def target(self) -> Target:
        """Return the target of all parts that are not placed on another device."""
        return self.targets.default


class ExecutorCodegen:
    """Code generator of an executor for a lowered module; one object for each build."""

    kernel_prefix: str | None = None
    """What the kernels' names begin with; None for ``tvmgen_`` and the network's name."""

    control_flow = False
    """Whether it runs branches, loops and closures."""

    target_options: ClassVar[Mapping[str, Any]] = {}
    """Options that the targets of CPUs get: how its functions are called."""

    def pass_options(self, target: Target) -> Mapping[str, Any]:
        """Return the options of ``PassContext`` that a build for ``target`` has unless its user sets them."""
        return {}

    def required_passes(self, module: IRModule, target: Target, opt_level: int) -> Sequence[str]:
        """Return passes that a build runs besides those of the level, unless its user disables them."""
        return ()

    def kernel(self, func: PrimFunc) -> PrimFunc:
        """Return the function that is compiled for a lowered kernel."""
        return func

    def optimization_passes(self, passes: list[Pass]) -> list[Pass]:
        """Return the passes before fusion; ``passes`` are those of the graph executor."""
        return passes

    def prepare_passes(self) -> list[Pass]:
        """Return the passes between fusion and lowering; they must label kernels, by which duplicates are found."""
        return [LabelOps(), CountWeights()]

    def generate(self, program: LoweredProgram) -> Callable[[Module], Any]:
        """Return a function that makes the result of ``relay.build`` from the finished library."""
        raise NotImplementedError


class Evaluator(Protocol):
    """Evaluator of functions and expressions of a module, as ``relay.create_executor`` returns it."""

    def evaluate(self, expr: RelayExpr | None = None, binds: Mapping[Any, Any] | None = None) -> Any:
        """Return a Python function for a Relay function, a global variable or (None) ``main``; else the value of
        ``expr``.
        """


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
    name : its name for ``-executor=`` and ``relay.create_executor``
    codegen : makes the ``ExecutorCodegen`` of a build
    evaluator : called with a module, a device and a target; returns the result of ``relay.create_executor``
    override : whether to replace an executor of the name

    Raises
    ------
    TilewrightError : the executor has that part, and ``override`` is false
    """
    known = _kinds.get(name, ExecutorKind(name))
    if not override and ((codegen and known.codegen) or (evaluator and known.evaluator)):
        raise TilewrightError(f"an executor {name!r} is registered already; override=True replaces it")
    _kinds[name] = ExecutorKind(name, codegen or known.codegen, evaluator or known.evaluator)


def codegen_for(name: str) -> ExecutorCodegen:
    """Return a new code generator for the executor ``name``.

    Raises
    ------
    UnsupportedError : there is no such executor, or nothing is built for it
    """
    found = _find(name, "codegen", "to build for")
    assert found.codegen is not None
    return found.codegen()


def evaluator_of(name: str) -> MakeEvaluator:
    """Return the function that makes evaluators of the executor ``name``.

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
        f"under the entry-point group {GROUP} (see relay.backend.executors)"
    )
