"""Topi functions as templates: their arguments are the workload, by which records are found."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te
from tilewright.autotvm.task.dispatcher import DispatchContext, Workload, workload_of
from tilewright.autotvm.task.task import args_to_workload, serialize_args, template_called
from tilewright.ir.errors import TilewrightError
from tilewright.target.target import Target


class TaskExtractEnv:
    """Collects the workloads that templates of topi are called with, while ``with`` it.

    ``allow_duplicate`` collects equal ones each time, ``wanted_relay_ops`` is for who walks the network.
    """

    current: TaskExtractEnv | None = None

    def __init__(self, allow_duplicate: bool = False) -> None:
        self.allow_duplicate = allow_duplicate
        self.task_collection: list[tuple[str, tuple[Any, ...]]] = []
        self.wanted_relay_ops: Sequence[Any] | None = None
        self.tracing = False

    def __enter__(self) -> TaskExtractEnv:
        self.task_collection = []
        self.tracing = True
        return self

    def __exit__(self, *exc: object) -> None:
        self.tracing = False

    def reset(self, wanted_relay_ops: Sequence[Any] | None = None) -> None:
        """Forget the collected tasks."""
        self.task_collection = []
        self.wanted_relay_ops = wanted_relay_ops

    def add_task(self, task_name: str, args: Sequence[Any]) -> None:
        """Note a call of a template."""
        key = task_name, serialize_args(args)
        if self.allow_duplicate or key not in self.task_collection:
            self.task_collection.append(key)

    def get_tasks(self) -> list[tuple[str, tuple[Any, ...]]]:
        """Return (name, arguments) of the calls, in order."""
        return self.task_collection

    @staticmethod
    def get(allow_duplicate: bool = False) -> TaskExtractEnv:
        """The one of this process."""
        if TaskExtractEnv.current is None:
            TaskExtractEnv.current = TaskExtractEnv(allow_duplicate)
        TaskExtractEnv.current.allow_duplicate = allow_duplicate
        return TaskExtractEnv.current


def register_topi_compute(task_name: str, func: Callable[..., Any] | None = None, version: str | None = None) -> Any:
    """Decorate ``f(cfg, *args)`` as the compute of a template; the result takes ``*args`` and finds ``cfg`` itself.

    ``version`` is what records of the template carry; those of another are not used by default.

    The output remembers its workload, by which ``register_topi_schedule`` finds the same configuration.
    """

    def register(f: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(f)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if kwargs:
                raise TilewrightError(f"the template {task_name} takes positional arguments only, got {sorted(kwargs)}")
            tracing = TaskExtractEnv.current
            if tracing is not None and tracing.tracing:
                tracing.add_task(task_name, args)
            workload = args_to_workload(args, task_name)
            cfg = DispatchContext.current.query(Target.current(), workload)
            return _attach(f(cfg, *args), workload)

        wrapped.__signature__ = _without_config(f)  # type: ignore[attr-defined]
        template_called(task_name).fcompute = wrapped
        template_called(task_name).version = version
        return wrapped

    return register if func is None else register(func)


def _without_config(f: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a template without its first parameter, the configuration."""
    signature = inspect.signature(f)
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def _attach(node: Any, workload: Workload) -> Any:
    """The same tensors, from operations that carry the workload as an attribute."""
    if isinstance(node, (list, tuple)):
        return [_attach(n, workload) for n in node]
    op = node.op
    attrs = {**op.attrs.data, "workload": workload}
    if isinstance(op, te.ComputeOp):
        made = te.ComputeOp(op.name, op.tag, attrs, op.axis, op.body, parts=op.parts)
    else:
        made = op.replace(attrs=type(op.attrs)(attrs))
    return made.output(node.value_index)


def register_topi_schedule(task_name: str, func: Callable[..., Any] | None = None) -> Any:
    """Decorate ``f(cfg, outs, ...)`` as the schedule of a template; the result takes ``outs, ...``."""

    def register(f: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(f)
        def wrapped(outs: Any, *args: Any, **kwargs: Any) -> Any:
            tensors = outs if isinstance(outs, (list, tuple)) else [outs]
            workload = workload_of(tensors)
            if workload is None:
                raise TilewrightError(f"the schedule {task_name} got tensors that its template's compute did not make")
            cfg = DispatchContext.current.query(Target.current(), workload)
            return f(cfg, outs, *args, **kwargs)

        wrapped.__signature__ = _without_config(f)  # type: ignore[attr-defined]
        template_called(task_name).fschedule = wrapped
        return wrapped

    return register if func is None else register(func)
