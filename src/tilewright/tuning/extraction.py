"""The tasks of networks: which templates their operators come to, with which arguments."""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tilewright.autotvm.task.dispatcher import FallbackContext
from tilewright.autotvm.task.task import Task, create
from tilewright.autotvm.task.topi_integration import TaskExtractEnv
from tilewright.ir.errors import TilewrightError
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.transform import PassContext, Sequential
from tilewright.relay.backend.conv2d_task import is_plain
from tilewright.relay.backend.dense_task import is_open, workload_of
from tilewright.relay.backend.executors import DEFAULT_EXECUTOR, codegen_for
from tilewright.relay.backend.kernel_task import TEMPLATE, kernel_text
from tilewright.relay.backend.te_compiler import build_schedule
from tilewright.relay.build_module import optimization_passes, optimize
from tilewright.relay.expr import Call, Function
from tilewright.relay.function_attributes import COMPILER, PRIMITIVE, VIEW
from tilewright.relay.op.definition import OpPattern
from tilewright.relay.op.strategy.wrappers import conv2d_task
from tilewright.relay.transform.bind_params import with_params
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
    prepared, _ = _prepared(mod, params, target)
    return _kernel_tasks(_kernels(prepared), target, target_host)


def network_tasks(
    mod: IRModule | Function, params: Mapping[str, Any] | None, target: Any, target_host: Any = None
) -> list[tuple[Task, int]]:
    """Return the tasks of a network and their counts: convolutions and dense layers with open layouts, and kernels."""
    target, target_host = Target.check_and_update_host_consist(Target(target), target_host)
    prepared, plain = _prepared(mod, params, target)
    found = []
    for (name, args), count in Counter([*plain.convolutions, *plain.dense_layers]).items():
        try:
            found.append((create(name, args, target, target_host), count))
        except (TilewrightError, RuntimeError) as error:
            logger.warning("%s of %s is no task: %s", name, args, error)
    others = [
        func for func in _kernels(prepared) if not plain.has_convolution(func) and plain.dense_layer(func) is None
    ]
    return [*found, *_kernel_tasks(others, target, target_host)]


def before_layouts(mod: IRModule | Function, params: Mapping[str, Any] | None, target: Any) -> Function:
    """Prepare a network up to AlterOpLayout."""
    module = (IRModule.from_expr(mod) if isinstance(mod, Function) else mod).copy()
    main: Any = module["main"]
    module["main"] = with_params(main, params or {})
    passes = [*itertools.takewhile(lambda p: p.info.name != "AlterOpLayout", optimization_passes()), InferType()]
    with Target(target), PassContext(opt_level=3, config={**PassContext.current().config}):
        found: Any = Sequential(passes)(module)["main"]
    return found


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


def _prepared(mod: IRModule | Function, params: Mapping[str, Any] | None, target: Target) -> tuple[IRModule, _Plain]:
    """Prepare a network up to kernels, untuned; also return the tasks whose layouts were chosen."""
    module = IRModule.from_expr(mod) if isinstance(mod, Function) else mod
    config = {**PassContext.current().config}
    env = TaskExtractEnv.get(allow_duplicate=True)
    with FallbackContext(), PassContext(opt_level=3, config=config):
        with env:
            optimized, _ = optimize(module, target, params)
        plain = _Plain(env.get_tasks())
        with target:  # what a build for graphs does to kernels before it lowers them
            prepared: IRModule = Sequential(codegen_for(DEFAULT_EXECUTOR).prepare_passes())(optimized)
    return prepared, plain


def _calls(
    mod: IRModule | Function, params: Mapping[str, Any] | None, target: Target, wanted: set[str] | None
) -> Iterable[tuple[str, tuple[Any, ...]]]:
    """Yield (template, arguments) of every kernel of a network, as it is built untuned."""
    prepared, plain = _prepared(mod, params, target)
    with FallbackContext(), PassContext(opt_level=3, config={**PassContext.current().config}):
        env = TaskExtractEnv.get(allow_duplicate=True)
        for func in _kernels(prepared):
            key = plain.take(func)
            if wanted is not None and not wanted & _operators(func):
                continue
            if key is not None:
                yield key
                continue
            with env, target:
                build_schedule(func, target)
            found = dict.fromkeys(env.get_tasks())
            yield from found or ([(TEMPLATE, (kernel_text(func),))] if _is_heavy(func) else [])
    if wanted is None or "nn.conv2d" in wanted:
        yield from plain.convolutions  # several that became one kernel


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
