"""Declarations of back ends, and checks."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tilewright.ir.module import IRModule
    from tilewright.runtime.device import Device
    from tilewright.runtime.executor.graph import GraphModule

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Fault:
    """A fault that can be injected.

    Attributes:
        name: of it, for reports.
        arm: makes the next run of a network go wrong.
        clear: removes the fault, whether it struck or not.
        message: a regular expression that the error's text matches.
    """

    name: str
    arm: Callable[[], Any]
    clear: Callable[[], Any]
    message: str


@dataclass(frozen=True)
class Backend:
    """A back end: a device, a compiler of parts of networks, or both. Fields left out are not checked.

    Attributes:
        name: for reports.
        device: the name of its device, as ``tvm.device`` takes it.
        scopes: the device's memories: bytes that each has, or None where it is not known when one is full.
        target: the target of networks, as for ``relay.build``.
        devices: names of the devices that an executor is made on.
        prepare: maps a network and its parameters to the module to compile: partitions it, or places it on devices.
            None: the network is compiled unchanged.
        compiler: the name of the external compiler, which the functions that it takes have as their ``Compiler``.
        unsupported: operators of one argument, of its shape, that the compiler does not take.
        families: the random operators to check; by default all of `operators.FAMILIES`.
        tolerance: how far floating-point results may be off, in parts of the largest.
        faults: faults that can be injected.
        held: a comparable measure of the driver's resources, equal before and after code that frees all.
    """

    name: str
    device: str | None = None
    scopes: Mapping[str, int | None] = field(default_factory=lambda: {"global": None})
    target: Any = "llvm"
    devices: tuple[str, ...] = ("cpu",)
    prepare: Callable[[IRModule, dict[str, Any]], IRModule] | None = None
    compiler: str | None = None
    unsupported: tuple[str, ...] = ("atan",)
    families: tuple[str, ...] = ()
    tolerance: float = 1e-4
    faults: tuple[Fault, ...] = ()
    held: Callable[[], Any] | None = None

    def handle(self, index: int = 0) -> Device:
        """The back end's device."""
        from tilewright import runtime

        assert self.device is not None
        return runtime.device(self.device, index)

    def prepared(self, mod: IRModule, params: dict[str, Any] | None = None) -> IRModule:
        """A network as it is compiled."""
        return mod if self.prepare is None else self.prepare(mod, dict(params or {}))

    def compile(self, mod: IRModule, params: dict[str, Any] | None = None) -> Any:
        """The library of a network."""
        from tilewright import relay

        prepared = self.prepared(mod, params)
        names = {param.name_hint for param in prepared["main"].params}  # others were bound on the way
        return relay.build(prepared, self.target, params={k: v for k, v in (params or {}).items() if k in names})

    def execute(self, library: Any) -> GraphModule:
        """An executor of a library on the back end's devices."""
        from tilewright import runtime
        from tilewright.runtime.executor.graph import GraphModule

        return GraphModule(library["default"](*map(runtime.device, self.devices)))

    @contextmanager
    def gives_all_back(self) -> Iterator[None]:
        """Compare the driver's resources before and after."""
        gc.collect()
        before = None if self.held is None else self.held()
        yield
        gc.collect()
        after = None if self.held is None else self.held()
        assert before == after, f"the driver held {before} before, and {after} after"


@dataclass(frozen=True)
class Check:
    """A check of a back end: calling it raises AssertionError with the fault."""

    group: str
    name: str
    function: Callable[..., None]
    backend: Backend
    arguments: tuple[Any, ...] = ()

    def __call__(self) -> None:
        """Run it."""
        self.function(self.backend, *self.arguments)

    def __str__(self) -> str:
        return f"{self.group}.{self.name}"

    @property
    def meaning(self) -> str:
        """The first line of the check's docstring."""
        return (self.function.__doc__ or "").split("\n")[0]


def outputs(executor: GraphModule, inputs: Arrays) -> list[np.ndarray]:
    """All outputs of a run."""
    executor.run(**inputs)
    return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]


def assert_near(found: list[np.ndarray], expected: list[np.ndarray], tolerance: float, what: str) -> None:
    """Shapes and types are equal, integers are at most 1 off, other numbers the tolerance in parts of the largest."""
    assert len(found) == len(expected), f"{what}: {len(found)} outputs, expected {len(expected)}"
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        kinds = f"{what}: output {i} is {a.dtype}{a.shape}, expected {b.dtype}{b.shape}"
        assert a.shape == b.shape and a.dtype == b.dtype, kinds
        if a.size == 0:
            continue
        off = np.abs(a.astype("float64") - b.astype("float64")).max()
        limit = 1.0 if np.issubdtype(b.dtype, np.integer) else tolerance * max(float(np.abs(b).max()), 1e-3)
        assert off <= limit, f"{what}: output {i} is {off:g} off, at most {limit:g} is allowed"
