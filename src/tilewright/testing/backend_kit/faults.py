"""Injected faults: an error, no leaks, and correct runs afterwards."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tilewright.ir.errors import TVMError
from tilewright.testing.backend_kit.backend import Backend, Check, Fault, assert_near, outputs
from tilewright.testing.backend_kit.partitioning import answer, image, network


def checks(backend: Backend) -> Iterator[Check]:
    """Yield a check for each fault of the back end."""
    for fault in backend.faults:
        yield Check("faults", fault.name, is_reported_and_survived, backend, (fault,))


def is_reported_and_survived(backend: Backend, fault: Fault) -> None:
    """The run fails with the fault's message; the next executor returns the right answer; nothing leaks."""
    mod, params = network()
    with backend.gives_all_back():
        library = backend.compile(mod, params)
        executor = backend.execute(library)
        assert_near(outputs(executor, {"x": image()}), answer(mod, params, image()), backend.tolerance, "before it")
        fault.arm()
        try:
            _fails(backend, fault, executor)
        finally:
            fault.clear()
        executor = backend.execute(library)
        assert_near(outputs(executor, {"x": image(2)}), answer(mod, params, image(2)), backend.tolerance, "after it")
        del executor, library


def _fails(backend: Backend, fault: Fault, executor: object) -> None:
    try:
        outputs(executor, {"x": image()})  # type: ignore[arg-type]
    except TVMError as error:
        assert re.search(fault.message, str(error)), f"the error is {error}; it should have {fault.message!r}"
    else:
        raise AssertionError(f"{backend.name} ran as if there were no {fault.name}")
