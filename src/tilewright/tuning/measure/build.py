"""Building one configuration in a builder's process, and reporting the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright import te
from tilewright.autotvm.task.space import (
    ConfigEntity,
    ConfigSpace,
    FallbackConfigEntity,
    InstantiationError,
    extent_of,
)
from tilewright.autotvm.task.task import Task
from tilewright.ir.errors import TilewrightError
from tilewright.ir.transform import PassContext
from tilewright.target.build import build
from tilewright.te.lower import lower

Export = Callable[..., Any]


def build_candidate(task: Task, config: ConfigSpace, path: str, options: Mapping[str, Any], export: Any) -> Any:
    """Write the library of a configuration to ``path``. ``options`` are options of ``PassContext``, also those of TVM's
    ``build_option``.

    Returns
    -------
    {"arguments": (shape, dtype) of each, "outputs": which of them are results, "flop": operations}

    Raises
    ------
    InstantiationError : the template refuses the configuration
    """
    schedule, arguments = instantiate(task, config)
    assert task.target is not None
    config_options = {k: v for k, v in options.items() if k != "build_option"} | options.get("build_option", {})
    with task.target, PassContext(config=config_options):
        module = build(schedule, arguments, target_host=task.target_host)
    write = getattr(export, "write_module", None)  # of functions that make another file than a library
    if write is not None:
        write(module, path)
    else:
        module.export_library(path, export)
    return {
        "arguments": [[[extent_of(d) for d in t.shape], t.dtype] for t in arguments],
        "outputs": [i for i, t in enumerate(arguments) if not isinstance(t.op, te.PlaceholderOp)],
        "flop": task.flop,
    }


def instantiate(task: Task, config: ConfigSpace) -> tuple[te.Schedule, list[te.Tensor]]:
    """Return schedule and arguments; raises InstantiationError if the template cannot take the configuration."""
    assert task.target is not None
    try:
        with task.target:
            made = task.instantiate(config)
    except TilewrightError as error:
        raise InstantiationError(str(error)) from error
    if not config.valid():
        raise InstantiationError("; ".join(config.errors))
    return made


def lowered_text(task: Task, config: ConfigSpace) -> str:
    """The program of a configuration as text, as far as it can be made."""
    try:
        schedule, arguments = instantiate(task, config)
        assert task.target is not None
        with task.target:
            return str(lower(schedule, arguments, simple_mode=True))
    except Exception as error:
        return f"(it cannot be lowered: {error})"


def config_from_json(task: Task, data: Mapping[str, Any] | None) -> ConfigSpace:
    """Return the configuration of ``to_json_dict``; None is the untuned choice."""
    if data is None:
        return FallbackConfigEntity()
    space, index = task.config_space, data["index"]
    if space is not None and index is not None and 0 <= index < len(space):
        known = space.get(index)
        if known.to_json_dict()["entity"] == data["entity"]:
            return known
    return ConfigEntity.from_json_dict(dict(data))
