"""Device checks: lookup by name, copies, each memory, several threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from tilewright import runtime
from tilewright.ir.errors import TVMError
from tilewright.testing.backend_kit.backend import Backend, Check

MOST = 8
SHAPES = ((), (0,), (1,), (7, 3), (2, 0, 5), (129, 257), (1, 3, 224, 5))
DTYPES = ("float32", "float64", "float16", "int8", "uint8", "int32", "int64", "bool")
ATTRIBUTES = (
    "max_threads_per_block", "warp_size", "max_shared_memory_per_block", "compute_version", "device_name",
    "max_clock_rate", "multi_processor_count", "max_thread_dimensions", "api_version", "driver_version",
)  # fmt: skip


def checks(backend: Backend) -> Iterator[Check]:
    """Yield the checks that apply."""
    if backend.device is None:
        return
    plain = (
        is_found,
        answers_for_attributes,
        round_trips,
        copies_between_its_devices,
        copies_layouts,
        works_from_threads,
    )
    for function in plain:
        yield Check("devices", function.__name__, function, backend)
    yield Check("scopes", "refuses_unknown", refuses_unknown_scopes, backend)
    for scope, size in backend.scopes.items():
        yield Check("scopes", f"holds_arrays[{scope}]", scope_holds_arrays, backend, (scope,))
        if size is not None:
            yield Check("scopes", f"ends[{scope}]", scope_ends, backend, (scope, size))


def _values(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    values: np.ndarray = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    return values


def is_found(backend: Backend) -> None:
    """The device is there under its name and its number, and one too many is not."""
    device = backend.handle()
    assert device.exist, f"{device} does not exist"
    assert runtime.device(device.device_type) == device, "its number does not lead back to it"
    assert str(device) == f"{backend.device}(0)", f"it is called {device}"
    count = _count(backend)
    if count == MOST:
        return
    try:
        runtime.ndarray.empty((3,), "float32", backend.handle(count))
    except TVMError as error:
        assert str(backend.device) in str(error), f"the error does not name the device: {error}"
    else:
        raise AssertionError(f"there are {count} devices, and device {count} gives memory")


def _count(backend: Backend) -> int:
    """Return the number of devices; some kinds, such as CPUs, are unlimited."""
    count = 0
    while count < MOST and backend.handle(count).exist:
        count += 1
    return count


def answers_for_attributes(backend: Backend) -> None:
    """Every attribute is a value or None."""
    device = backend.handle()
    for name in ATTRIBUTES:
        getattr(device, name)
    device.sync()


def round_trips(backend: Backend) -> None:
    """Arrays come back as they went, of every type and shape, empty ones too."""
    with backend.gives_all_back():
        for dtype in DTYPES:
            for shape in SHAPES:
                values = _values(shape, dtype)
                array = runtime.ndarray.array(values, backend.handle())
                assert array.device == backend.handle() and array.shape == shape and array.dtype == dtype
                np.testing.assert_array_equal(array.numpy(), values)
                array.copyfrom(np.zeros(shape, dtype))
                assert not array.numpy().any(), f"{dtype}{shape} keeps old values"
                del array


def copies_between_its_devices(backend: Backend) -> None:
    """Copies between all of its devices, and with the host, are copies."""
    with backend.gives_all_back():
        values = _values((31, 17), "float32")
        for a in range(_count(backend)):
            for b in range(_count(backend)):
                first = runtime.ndarray.array(values, backend.handle(a))
                second = first.copyto(backend.handle(b))
                first.copyfrom(np.zeros_like(values))
                np.testing.assert_array_equal(second.copyto(runtime.cpu()).numpy(), values)
                del first, second


def copies_layouts(backend: Backend) -> None:
    """Strided host arrays are copied element by element."""
    values = _values((3, 5), "float32").T
    np.testing.assert_array_equal(runtime.ndarray.array(values, backend.handle()).numpy(), values)


def works_from_threads(backend: Backend) -> None:
    """Four threads allocate, copy and free at once, on all devices."""
    problems: list[BaseException] = []
    count = _count(backend)

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        try:
            for size in rng.integers(1, 5000, 25):
                values = rng.standard_normal(size)
                array = runtime.ndarray.array(values, backend.handle(seed % count))
                np.testing.assert_array_equal(array.copyto(array.device).numpy(), values)
        except BaseException as error:
            problems.append(error)

    with backend.gives_all_back():
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if problems:
        raise AssertionError(f"on a thread: {problems[0]!r}") from problems[0]


def scope_holds_arrays(backend: Backend, scope: str) -> None:
    """A memory holds arrays, and copies go between it and the others."""
    with backend.gives_all_back():
        values = _values((13, 11), "float32")
        array = runtime.ndarray.array(values, backend.handle(), scope)
        np.testing.assert_array_equal(array.numpy(), values)
        for other in backend.scopes:
            there = array.copyto(backend.handle(), other)
            np.testing.assert_array_equal(there.numpy(), values)
            del there
        del array


def refuses_unknown_scopes(backend: Backend) -> None:
    """A memory that the device has not is an error that names the device."""
    _refused(
        backend, "no such memory", lambda: runtime.ndarray.empty((3,), "float32", backend.handle(), "no.such.memory")
    )


def scope_ends(backend: Backend, scope: str, size: int) -> None:
    """A full memory raises an error, takes nothing, and serves again after memory was freed."""

    def half() -> Any:
        return runtime.ndarray.empty((size * 5 // 8,), "int8", backend.handle(), scope)

    with backend.gives_all_back():
        first = half()
        _refused(backend, f"more than {scope} has", half)
        del first
        again = half()
        del again
        too_much = (size + 1,)
        _refused(backend, "too much", lambda: runtime.ndarray.empty(too_much, "int8", backend.handle(), scope))


def _refused(backend: Backend, what: str, action: Any) -> None:
    try:
        action()
    except TVMError as error:
        text = str(error)
    else:
        raise AssertionError(f"it gave {what}")
    assert f"{backend.device}(0)" in text, f"the error does not name the device: {text}"
