"""Targets of tests, with pytest decorators and fixtures, as TVM 0.8's ``tvm.testing`` names them.

The plug-in :mod:`tilewright.testing.plugin` runs each test with ``target`` for every enabled one, and ``dev`` is its
device. pytest is needed for the decorators, not for this module.
"""

from __future__ import annotations

import copy
import importlib.util
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.ir.errors import TilewrightError
from tilewright.runtime import device, enabled
from tilewright.runtime.device import Device
from tilewright.runtime.environment import TEST_TARGETS

DEFAULT_TEST_TARGETS = ("llvm", "llvm -device=arm_cpu", "cuda", "opencl", "vulkan", "metal", "rocm")


def is_runnable(target: str) -> bool:
    """Return whether kernels for ``target`` can be compiled and its device is here."""
    kind = target.split()[0]
    if not enabled(kind):
        return False
    try:
        return bool(device(kind).exist)
    except ValueError:
        return False


def enabled_targets() -> list[tuple[str, Device]]:
    """The targets of ``TILEWRIGHT_TEST_TARGETS`` (or of TVM's usual list) that run here, each with its device.

    Raises:
        TilewrightError: the variable names targets, and none of them runs here.
    """
    wanted = TEST_TARGETS.read()
    runnable = [(target, device(target)) for target in wanted or DEFAULT_TEST_TARGETS if is_runnable(target)]
    if not runnable:
        raise TilewrightError(f"none of the targets of {TEST_TARGETS.name} runs here: {', '.join(wanted or ())}")
    return runnable


def device_enabled(target: str) -> bool:
    """Return whether the kind of ``target`` ("llvm -mcpu=..." is of the kind "llvm") is among the enabled ones."""
    if not isinstance(target, str):
        raise TypeError(f"device_enabled takes a target's text, not {type(target).__name__}")
    return any(target.split()[0] == name.split()[0] for name, _ in enabled_targets())


# ----------------------------------------------------------------------------------------------- what a test needs


def _skip_unless(there: Callable[[], bool], what: str, *args: Callable[..., Any]) -> Any:
    """Return pytest's marks for a test that needs ``what``, or apply them if a test is passed."""
    import pytest

    mark = pytest.mark.skipif(not there(), reason=f"{what} is not here")
    return mark(args[0]) if args else [mark]


def _needs(kind: str, *args: Callable[..., Any]) -> Any:
    return _skip_unless(lambda: is_runnable(kind) and device_enabled(kind), kind, *args)


def requires_llvm(*args: Callable[..., Any]) -> Any:
    """Run the decorated test if the target ``llvm`` is enabled. Without an argument, return the marks."""
    return _needs("llvm", *args)


def requires_micro(*args: Callable[..., Any]) -> Any:
    """Mark tests that need C for boards, which is always here, as :func:`requires_llvm` does."""
    return _skip_unless(lambda: True, "micro", *args)


def requires_cuda(*args: Callable[..., Any]) -> Any:
    """Mark tests that need NVIDIA GPUs, as :func:`requires_llvm` does."""
    return _needs("cuda", *args)


def requires_opencl(*args: Callable[..., Any]) -> Any:
    """Mark tests that need OpenCL, as :func:`requires_llvm` does."""
    return _needs("opencl", *args)


def requires_vulkan(*args: Callable[..., Any]) -> Any:
    """Mark tests that need Vulkan, as :func:`requires_llvm` does."""
    return _needs("vulkan", *args)


def requires_metal(*args: Callable[..., Any]) -> Any:
    """Mark tests that need Apple's GPUs, as :func:`requires_llvm` does."""
    return _needs("metal", *args)


def requires_rocm(*args: Callable[..., Any]) -> Any:
    """Mark tests that need AMD's GPUs, as :func:`requires_llvm` does."""
    return _needs("rocm", *args)


def requires_gpu(*args: Callable[..., Any]) -> Any:
    """Run the decorated test if there is a GPU."""
    kinds = ("cuda", "opencl", "metal", "rocm", "vulkan")
    return _skip_unless(lambda: any(map(is_runnable, kinds)), "a GPU", *args)


def uses_gpu(*args: Callable[..., Any]) -> Any:
    """Mark a test that uses a GPU if there is one; it runs anyway."""
    import pytest

    return pytest.mark.gpu(args[0]) if args else [pytest.mark.gpu]


def requires_rpc(*args: Callable[..., Any]) -> Any:
    """Run the decorated test if RPC servers can be started, which is everywhere."""
    return _skip_unless(lambda: True, "rpc", *args)


def requires_package(*packages: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Skip the decorated test if one of ``packages`` is missing."""
    import pytest

    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


# ----------------------------------------------------------------------------------------- which targets it runs on


def parametrize_targets(*args: Any) -> Any:
    """Run a test with ``target`` for each of ``targets``; by default for the enabled ones."""
    import pytest

    if len(args) == 1 and callable(args[0]):
        return args[0]  # the plug-in does it for every test that takes a target
    return pytest.mark.parametrize("target", list(args), scope="session")


def exclude_targets(*args: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Leave out targets of these kinds for the decorated test."""
    return _remember("tvm_excluded_targets", args)


def known_failing_targets(*args: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The decorated test is expected to fail on targets of these kinds."""
    return _remember("tvm_known_failing_targets", args)


def _remember(name: str, kinds: tuple[str, ...]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        setattr(function, name, kinds)
        return function

    return decorate


# ---------------------------------------------------------------------------------------------- values and fixtures


def parameter(*values: Any, ids: Sequence[str] | None = None, by_dict: Mapping[str, Any] | None = None) -> Any:
    """Create a fixture of ``values``: after ``size = parameter(1, 10)`` a test with ``size`` runs twice.

    Tests that take several run for all combinations. ``by_dict`` maps names to values.
    """
    import pytest

    if by_dict is not None:
        if values or ids:
            raise RuntimeError("by_dict gives values and ids; neither can be given beside it")
        ids, values = list(by_dict), tuple(by_dict.values())

    @pytest.fixture(params=values, ids=ids)
    def value(*_cls: Any, request: Any) -> Any:
        return request.param

    return value


_groups = itertools.count()


def parameters(*value_sets: tuple[Any, ...], ids: Sequence[str] | None = None) -> list[Any]:
    """Create fixtures that change together: ``size, dtype = parameters((16, "float32"), (512, "float16"))``.

    The plug-in runs a test with one set after the other, not with all combinations.
    """
    import pytest

    group, fixtures = next(_groups), []
    for values in zip(*value_sets, strict=True):

        def value(*_cls: Any, request: Any) -> Any:
            return request.param

        made = pytest.fixture(value)
        _GROUPS[_function_of(made)] = (group, values, ids)
        fixtures.append(made)
    return fixtures


_GROUPS: dict[Any, tuple[int, tuple[Any, ...], Sequence[str] | None]] = {}


def _function_of(made: Any) -> Any:
    """Return the function behind the result of ``pytest.fixture``, which differs between pytest's versions."""
    for name in ("_get_wrapped_function", "__pytest_wrapped__"):
        found = getattr(made, name, None)
        if found is not None:
            return found() if callable(found) else found.obj
    return made


def group_of(function: Any) -> tuple[int, tuple[Any, ...], Sequence[str] | None] | None:
    """Return the group, the values and their names of a fixture of :func:`parameters`."""
    return _GROUPS.get(function)


def fixture(func: Callable[..., Any] | None = None, *, cache_return_value: bool = False) -> Any:
    """A pytest fixture; with ``cache_return_value`` computed once for the same arguments, each test getting a copy."""
    import functools

    import pytest

    def decorate(function: Callable[..., Any]) -> Any:
        if not cache_return_value:
            return pytest.fixture(function)
        results: dict[str, Any] = {}

        @functools.wraps(function)
        def once(*args: Any, **kwargs: Any) -> Any:
            key = repr((args, sorted(kwargs.items())))
            if key not in results:
                results[key] = function(*args, **kwargs)
            return copy.deepcopy(results[key])

        return pytest.fixture(once)

    return decorate if func is None else decorate(func)
