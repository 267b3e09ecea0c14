"""The tasks of networks: which templates their operators come to, with which arguments."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tilewright.autotvm.history import ApplyHistoryBest
from tilewright.autotvm.task.dispatcher import FallbackContext
from tilewright.autotvm.task.task import Task, create
from tilewright.autotvm.task.topi_integration import TaskExtractEnv
from tilewright.ir.errors import TilewrightError
from tilewright.ir.instrument import PassInstrument
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.transform import PassContext, PassInfo
from tilewright.relay.backend.conv2d_task import is_plain
from tilewright.relay.backend.dense_task import is_open, workload_of
from tilewright.relay.backend.kernel_task import TEMPLATE, kernel_text
from tilewright.relay.backend.te_compiler import build_schedule
from tilewright.relay.build_module import build, to_kernels
from tilewright.relay.expr import Call, Function
from tilewright.relay.function_attributes import COMPILER, PRIMITIVE, VIEW
from tilewright.relay.op.definition import OpPattern
from tilewright.relay.op.strategy.wrappers import conv2d_task
from tilewright.relay.transform.fusion.label_ops import hash_of
from tilewright.relay.transform.infer_type import InferType
from tilewright.relay.visitor import post_order
from tilewright.target.target import Target

logger = logging.getLogger("autotvm")

# What AlterOpLayout makes of an operator; a task is asked for by the operator's own name.
_ALTERED = {
    "nn.contrib_conv2d_NCHWc": "nn.conv2d",
    "nn.contrib_depthwise_conv2d_NCHWc": "nn.conv2d",
    "nn.contrib_conv2d_winograd_NCHWc_without_weight_transform": "nn.conv2d",
    "nn.contrib_dense_pack": "nn.dense",
    "nn.contrib_dense_strassen_without_weight_transform": "nn.dense",
}


def extract_from_program(
    mod: IRModule | Function,
    params: Mapping[str, Any] | None = None,
    target: Any = None,
    target_host: Any = None,
    ops: Sequence[Any] | None = None,
) -> list[Task]:
    """The tasks of a network, each once, in the order of its operators.

    Parameters
    ----------
    mod : a module, or its main function
    params : arrays of parameters by name
    target : what it is tuned for
    ops : operators whose tasks are wanted; all by default
    """
    return extract_from_multiple_program([mod], [params], target, target_host, ops)


def extract_from_multiple_program(
    mods: Sequence[IRModule | Function],
    params: Sequence[Mapping[str, Any] | None],
    target: Any,
    target_host: Any = None,
    ops: Sequence[Any] | None = None,
) -> list[Task]:
    """The tasks of several networks, each once."""
    return [task for task, _ in tasks_with_uses(mods, params, target, target_host, ops)]


def tasks_with_uses(
    mods: Sequence[IRModule | Function],
    params: Sequence[Mapping[str, Any] | None],
    target: Any,
    target_host: Any = None,
    ops: Sequence[Any] | None = None,
) -> list[tuple[Task, int]]:
    """The tasks of networks, and how often each is used."""
    target, target_host = Target.check_and_update_host_consist(Target(target), target_host)
    wanted = None if ops is None else {op if isinstance(op, str) else op.name for op in ops}
    uses: dict[tuple[str, tuple[Any, ...]], int] = {}
    for mod, values in zip(mods, params, strict=True):
        for key in _calls(mod, values, target, wanted):
            uses[key] = uses.get(key, 0) + 1
    tasks = []
    for (name, args), count in uses.items():
        try:
            tasks.append((create(name, args, target, target_host), count))
        except (TilewrightError, RuntimeError) as error:
            logger.warning("%s of %s is no task: %s", name, args, error)
    return tasks


def kernel_tasks(
    mod: IRModule | Function, params: Mapping[str, Any] | None, target: Any, target_host: Any = None
) -> list[tuple[Task, int]]:
    """The kernels of a network as tasks, with all that is fused into each, and how often each is used.

    Every operator that has a schedule has choices this way (``relay.backend.kernel_task``); kernels without any are
    left out.
    """
    target, target_host = Target.check_and_update_host_consist(Target(target), target_host)
    return _kernel_tasks(_made(mod, params, target, to_kernels).kernels, target, target_host)


def network_tasks(
    mod: IRModule | Function, params: Mapping[str, Any] | None, target: Any, target_host: Any = None
) -> list[tuple[Task, int]]:
    """Return the tasks of a network and their counts: convolutions and dense layers with open layouts, and kernels."""
    target, target_host = Target.check_and_update_host_consist(Target(target), target_host)
    return _network_tasks(_made(mod, params, target, to_kernels), target, target_host)


class UntunedNetwork:
    """A network, built without records: what it is tuned from, and compared with.

    library : what the build made
    tasks : as ``network_tasks`` gives them, read from what the build made
    main : as AlterOpLayout found it; None where layouts are not altered
    """

    def __init__(self, mod: IRModule | Function, params: Mapping[str, Any] | None, target: Any) -> None:
        self.mod, self.params = mod, params
        self.target, host = Target.check_and_update_host_consist(Target(target), None)
        made = _made(mod, params, self.target, build)
        self.library, self.main = made.result, made.main
        self.tasks = _network_tasks(made, self.target, host)

    def build(self, records: Sequence[Any]) -> Any:
        """Build it with some records, under the options of the current PassContext."""
        return _built(self.mod, self.params, self.target, build, records)


def _network_tasks(made: _Made, target: Target, target_host: Any) -> list[tuple[Task, int]]:
    plain = made.plain
    found = []
    for (name, args), count in Counter([*plain.convolutions, *plain.dense_layers]).items():
        try:
            found.append((create(name, args, target, target_host), count))
        except (TilewrightError, RuntimeError) as error:
            logger.warning("%s of %s is no task: %s", name, args, error)
    others = [func for func in made.kernels if not plain.has_convolution(func) and plain.dense_layer(func) is None]
    return [*found, *_kernel_tasks(others, target, target_host)]


def _kernel_tasks(kernels: Iterable[Function], target: Target, target_host: Any) -> list[tuple[Task, int]]:
    uses = Counter(kernel_text(func) for func in kernels)
    tasks = []
    for text, count in uses.items():
        try:
            task = create(TEMPLATE, (text,), target, target_host)
        except (TilewrightError, RuntimeError) as error:
            logger.warning("a kernel is no task: %s\n%s", error, text)
            continue
        if task.config_space is not None and len(task.config_space) > 1:
            tasks.append((task, count))
    return tasks


_Key = tuple[str, tuple[Any, ...]]  # template, arguments


class _Plain:
    """Tasks of a network whose layouts are open, each as often as it is used, in the order of its operators."""

    def __init__(self, traced: Sequence[_Key]) -> None:
        self.convolutions = [(name, args) for name, args in traced if is_plain((name, *args))]
        self.dense_layers = [(name, args) for name, args in traced if is_open((name, *args))]

    def has_convolution(self, func: Function) -> bool:
        """Return whether a kernel has a convolution of these."""
        return bool(self.convolutions) and _has_plain_task(func)

    def dense_layer(self, func: Function) -> _Key | None:
        """The dense layer that a kernel has, of these."""
        found = [workload_of(e) for e in post_order(func.body) if isinstance(e, Call)]
        keys = [(w[0], w[1:]) for w in found if w is not None]
        return next((key for key in keys if key in self.dense_layers), None)

    def take(self, func: Function) -> _Key | None:
        """Return the task of a kernel, once; None if the kernel has none."""
        if self.has_convolution(func):
            return self.convolutions.pop(0)
        key = self.dense_layer(func)
        if key is not None:
            self.dense_layers.remove(key)
        return key


class _Made(PassInstrument):
    """Notes what a build makes, as an instrument of its passes: main before layouts are altered, kernels, open tasks.

    It stands in the PassContext and, for the tasks, is a ``with`` statement.
    """

    def __init__(self) -> None:
        self.main: Function | None = None
        self.kernels: list[Function] = []
        self.plain = _Plain([])
        self.result: Any = None
        self._noted = TaskExtractEnv.get(allow_duplicate=True)

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Look at what AlterOpLayout and LowerTE are given."""
        if info.name == "AlterOpLayout":
            self.main = InferType()(mod)["main"]
        elif info.name == "LowerTE":
            self.finish(mod)

    def finish(self, kernels: IRModule) -> None:
        """Take the module whose primitive functions become kernels."""
        self.kernels, self.plain = _kernels(kernels), _Plain(self._noted.get_tasks())


def _made(mod: IRModule | Function, params: Mapping[str, Any] | None, target: Target, make: Any) -> _Made:
    """Return what ``make`` makes of a network without records: ``build``, or its passes before lowering."""
    made = _Made()
    with TaskExtractEnv.get(allow_duplicate=True):
        made.result = _built(mod, params, target, make, [], [made])
    if isinstance(made.result, IRModule):
        made.finish(made.result)
    return made


def _built(
    mod: Any, params: Any, target: Target, make: Any, records: Sequence[Any], instruments: Sequence[PassInstrument] = ()
) -> Any:
    config = {**PassContext.current().config}
    with (
        ApplyHistoryBest(list(records), silent=True),
        PassContext(opt_level=3, config=config, instruments=list(instruments)),
    ):
        return make(mod, target, params=params)


def _calls(
    mod: IRModule | Function, params: Mapping[str, Any] | None, target: Target, wanted: set[str] | None
) -> Iterable[tuple[str, tuple[Any, ...]]]:
    """Yield (template, arguments) of every kernel of a network, as it is built untuned."""
    made = _made(mod, params, target, to_kernels)
    plain, known = made.plain, dict[str, list[_Key]]()
    for func in made.kernels:
        key = plain.take(func)
        if wanted is not None and not wanted & _operators(func):
            continue
        if key is not None:
            yield key
            continue
        label = hash_of(func)
        if label not in known:
            known[label] = _dispatched(func, target)
        yield from known[label]
    if wanted is None or "nn.conv2d" in wanted:
        yield from plain.convolutions  # several that became one kernel


def _dispatched(func: Function, target: Target) -> list[_Key]:
    """Return the tasks that a kernel's schedule dispatches."""
    env, config = TaskExtractEnv.get(allow_duplicate=True), {**PassContext.current().config}
    with FallbackContext(), PassContext(opt_level=3, config=config), env, target:
        build_schedule(func, target)
    found = list(dict.fromkeys(env.get_tasks()))
    return found or ([(TEMPLATE, (kernel_text(func),))] if _is_heavy(func) else [])


def _kernels(module: IRModule) -> list[Function]:
    """The primitive functions of main, as often as they are called."""
    main: Any = module["main"]
    calls = [e for e in post_order(main) if isinstance(e, Call)]
    primitive = [c.op for c in calls if isinstance(c.op, Function) and PRIMITIVE.on(c.op)]
    return [f for f in primitive if not VIEW.on(f) and not COMPILER.on(f)]


def _has_plain_task(func: Function) -> bool:
    """Return whether a kernel has a convolution whose layouts are chosen, or one that was left in NCHW."""
    for call in post_order(func.body):
        name = call.op.name if isinstance(call, Call) and isinstance(call.op, Op) else ""
        if _ALTERED.get(name) == "nn.conv2d" or (name == "nn.conv2d" and _plain_task(call) is not None):
            return True
    return False


def _plain_task(call: Any) -> Any:
    return conv2d_task(call.attrs, *(arg.checked_type for arg in call.args))


def _is_heavy(func: Function) -> bool:
    """Return whether a kernel has a heavy operator (convolution, product), which is a task even without a template."""
    calls = [e for e in post_order(func.body) if isinstance(e, Call)]
    patterns = [c.op.get_attr("TOpPattern", OpPattern.OPAQUE) for c in calls if isinstance(c.op, Op)]
    return OpPattern.OUT_ELEMWISE_FUSABLE in patterns


def _operators(func: Function) -> set[str]:
    """Names of the operators of a kernel, as the network had them."""
    calls = [e for e in post_order(func.body) if isinstance(e, Call)]
    names = [c.op.name for c in calls if isinstance(c.op, Op)]
    return {_ALTERED.get(name, name) for name in names}
