"""Templates by name, and tasks: a template with its arguments.

A workload names a template's computation: ``("dense_pack.x86", ("TENSOR", (1, 512), "float32"), ..., "float32")``.
Tensors in it stand by shape and dtype, so it is what records are looked up by.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te
from tilewright.autotvm.task.choices import ALGORITHM
from tilewright.autotvm.task.dispatcher import ApplyConfig, DispatchContext, Workload
from tilewright.autotvm.task.flop import compute_flop
from tilewright.autotvm.task.space import ConfigEntity, ConfigSpace, FallbackConfigEntity
from tilewright.ir.errors import TilewrightError
from tilewright.ir.prim_expr import FloatImm, IntImm, PrimExpr, StringImm
from tilewright.target.generic_func import load_all_implementations
from tilewright.target.target import Target


def serialize_args(args: Sequence[Any]) -> tuple[Any, ...]:
    """Arguments as plain values: a tensor becomes ``("TENSOR", shape, dtype)``, literals become numbers."""
    return tuple(_plain(a) for a in args)


def _plain(value: Any) -> Any:
    if isinstance(value, te.Tensor):
        return ("TENSOR", tuple(_plain(d) for d in value.shape), value.dtype)
    if isinstance(value, (tuple, list)):
        return tuple(_plain(v) for v in value)
    if isinstance(value, (IntImm, FloatImm, StringImm)):
        return value.value
    if isinstance(value, PrimExpr):
        return -1
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise TilewrightError(
        f"a template takes tensors, numbers, strings and tuples of these; found {type(value).__name__}"
    )


def deserialize_args(args: Sequence[Any]) -> list[Any]:
    """Arguments from plain values: ``("TENSOR", shape, dtype)`` becomes a placeholder."""
    return [
        te.placeholder(shape=a[1], dtype=a[2]) if isinstance(a, tuple) and a and a[0] == "TENSOR" else a for a in args
    ]


def args_to_workload(args: Sequence[Any], task_name: str | None = None) -> Workload:
    """The workload of a call of the template ``task_name``."""
    plain = serialize_args(args)
    return (task_name, *plain) if task_name is not None else plain


def shapes_in_words(args: Sequence[Any]) -> str:
    """Return the shapes of the first two tensors among a task's arguments, or all arguments if there are none."""
    shapes = [a[1] for a in args if isinstance(a, tuple) and a and a[0] == "TENSOR"]
    return " ".join("x".join(map(str, shape)) for shape in shapes[:2]) if shapes else ", ".join(map(repr, args))


class TaskTemplate:
    """A template: its compute and schedule, and how its tasks are described."""

    def __init__(self) -> None:
        self.fcompute: Callable[..., Any] | None = None
        self.fschedule: Callable[..., Any] | None = None
        self.fcustomized: Callable[..., Any] | None = None
        self.words: Callable[[Sequence[Any]], str] = shapes_in_words
        self.version: str | None = None  # raised when equal choices come to mean something else

    def __call__(self, *args: Any) -> tuple[te.Schedule, list[te.Tensor]]:
        arguments = deserialize_args(args)
        if self.fcustomized is not None:
            return self.fcustomized(*arguments)
        return self.from_parts(arguments)

    def from_parts(self, arguments: Sequence[Any]) -> tuple[te.Schedule, list[te.Tensor]]:
        """Apply the registered compute and schedule to the arguments."""
        if self.fcompute is None or self.fschedule is None:
            raise TilewrightError("the template has no compute or no schedule registered")
        out = self.fcompute(*arguments)
        outs = list(out) if isinstance(out, (list, tuple)) else [out]
        schedule = self.fschedule(outs)
        return schedule, [a for a in arguments if isinstance(a, te.Tensor)] + outs


TASK_TABLE: dict[str, TaskTemplate] = {}


def template_called(name: str) -> TaskTemplate:
    """Return the template of a name, creating it when there is none."""
    return TASK_TABLE.setdefault(name, TaskTemplate())


def find_template(name: str) -> TaskTemplate | None:
    """Return the template of a name, None when there is none; implementations that load on use are searched too."""
    if name not in TASK_TABLE:
        load_all_implementations()
    return TASK_TABLE.get(name)


def template_version(name: str) -> str | None:
    """Return the version of a template, which its records carry; None if it has none."""
    template = find_template(name)
    return template.version if template is not None else None


def task_in_words(name: str, args: Sequence[Any]) -> str:
    """Describe a task in words."""
    template = find_template(name)
    return template.words(args) if template is not None else shapes_in_words(args)


class Task:
    """A template with its arguments, to be tuned or built.

    ``flop`` counts the arithmetic operations, once a configuration was instantiated.
    """

    def __init__(self, name: str, args: Sequence[Any]) -> None:
        self.name = name
        self.args = serialize_args(args)
        self.kwargs: dict[str, Any] = {}
        self.config_space: ConfigSpace | None = None
        self.flop: float | None = None
        self.target: Target | None = None
        self.target_host: Target | None = None

    @property
    def workload(self) -> Workload:
        """The key by which records of this task are looked up."""
        return (self.name, *self.args)

    @property
    def func(self) -> TaskTemplate:
        """The template; raises TilewrightError when there is none of this name."""
        template = find_template(self.name)
        if template is None:
            raise TilewrightError(
                f"no template is called {self.name!r}; known: {', '.join(sorted(TASK_TABLE))}. "
                "Import the module that registers it"
            )
        return template

    def instantiate(self, config: ConfigSpace) -> tuple[te.Schedule, list[te.Tensor]]:
        """The schedule and its argument tensors under ``config``, results last."""
        config.flop = None
        with ApplyConfig(config):
            schedule, arguments = self.func(*self.args)
        if not self.flop:
            self.flop = config.flop or compute_flop(schedule)
        return schedule, arguments

    def __repr__(self) -> str:
        return f"Task(func_name={self.name}, args={self.args}, kwargs={{}}, workload={self.workload})"


def create(task_name: str, args: Sequence[Any], target: Target | str, target_host: Target | str | None = None) -> Task:
    """The task of a template with its config space collected."""
    task = Task(task_name, args)
    task.target, task.target_host = Target.check_and_update_host_consist(Target(target), target_host)
    space = ConfigSpace()
    with task.target:
        task.instantiate(space)
    space.code_hash = template_version(task_name)
    task.config_space = space
    return task


def untuned_config(task: Task, **given: Any) -> ConfigEntity:
    """Return the untuned choices of a task's template as a configuration; its index is None if the space lacks it.

    ``given``: choices fixed beforehand, which others may depend on.
    """
    assert task.target is not None
    fallback = FallbackConfigEntity()
    for name, entity in given.items():
        fallback[name] = entity
    with task.target:
        task.instantiate(fallback)
    space = task.config_space
    chosen = OrderedDict((name, fallback[name]) for name in fallback)
    index, factor = 0, 1
    for name, values in space.space_map.items() if space is not None else ():
        chosen.setdefault(name, values[0])  # of another algorithm
        position = next((i for i, e in enumerate(values.entities) if repr(e) == repr(chosen[name])), None)
        if position is None:
            return ConfigEntity(None, template_version(task.name), chosen)
        index, factor = index + factor * position, factor * len(values)
    return ConfigEntity(index, template_version(task.name), chosen)


def first_configs(task: Task) -> list[ConfigEntity]:
    """Return configurations to measure first: each algorithm but the untuned one, with other choices untuned."""
    space = task.config_space
    if space is None or ALGORITHM not in space.space_map:
        return []
    _, *others = space.space_map[ALGORITHM].entities
    found = [untuned_config(task, **{ALGORITHM: entity}) for entity in others]
    return [config for config in found if config.index is not None]


def get_config() -> ConfigSpace:
    """The configuration that the template being run is to use."""
    active = _active()
    return DispatchContext.current.query(Target.current(), active[-1] if active else ())


_local = threading.local()


def _active() -> list[Workload]:
    """The workloads of this thread's templates that are being run, the innermost last."""
    if not hasattr(_local, "active"):
        _local.active = []
    active: list[Workload] = _local.active
    return active


def template(task_name: str, func: Callable[..., Any] | None = None) -> Any:
    """Decorator: make a function that returns (schedule, tensors) a template called ``task_name``."""

    def register(f: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(f)
        def wrapped(*args: Any) -> Any:
            _active().append(args_to_workload(args, task_name))
            try:
                return f(*args)
            finally:
                _active().pop()

        template_called(task_name).fcustomized = wrapped
        return wrapped

    return register if func is None else register(func)
