"""The device "npu": arrays in both memories, copies, streams, attributes, and what goes wrong."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

import tilewright as tvm
from tilewright import runtime
from tilewright_npu import chip


@pytest.fixture(autouse=True)
def nothing_leaks() -> object:
    gc.collect()
    before = bytes(chip.held())
    yield
    gc.collect()  # errors keep frames, and these arrays
    assert bytes(chip.held()) == before


@pytest.fixture
def npu() -> runtime.Device:
    return tvm.device("npu", 0)


def test_two_devices_are_found_by_name(npu: runtime.Device) -> None:
    assert str(npu) == "npu(0)" and npu == runtime.device(90)
    assert npu.exist and tvm.device("npu", 1).exist and not tvm.device("npu", 2).exist
    assert not npu.is_host


def test_attributes(npu: runtime.Device) -> None:
    assert npu.device_name == "emulated NPU 0"
    assert npu.compute_version == "1.0"
    assert npu.max_shared_memory_per_block == 1 << 20
    assert npu.max_clock_rate == 1_000_000
    assert npu.driver_version == chip.DRIVER_VERSION
    assert npu.warp_size is None


@pytest.mark.parametrize("scope", [None, "global", "global.sram"])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (7, 3), (129, 257)])
def test_arrays_round_trip(npu: runtime.Device, shape: tuple[int, ...], scope: str | None) -> None:
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype("float32")
    array = tvm.nd.array(values, npu, scope)
    np.testing.assert_array_equal(array.numpy(), values)
    there = array.copyto(tvm.device("npu", 1), scope)
    np.testing.assert_array_equal(there.copyto(tvm.cpu()).numpy(), values)
    np.testing.assert_array_equal(there.copyto(npu).numpy(), values)


def test_scopes_are_memories_of_their_own(npu: runtime.Device) -> None:
    before = chip.held()
    ddr, sram = tvm.nd.empty((1000,), "int8", npu), tvm.nd.empty((500,), "int8", npu, "global.sram")
    after = chip.held()
    assert (after.ddr_bytes - before.ddr_bytes, after.sram_bytes - before.sram_bytes) == (1000, 500)
    assert ddr._tensor.data != sram._tensor.data
    with pytest.raises(tvm.TVMError, match=r'npu\(0\): it has no memory "global.vtcm": its memories are "global"'):
        tvm.nd.empty((3,), "float32", npu, "global.vtcm")


def test_memories_end(npu: runtime.Device) -> None:
    half = tvm.nd.empty((600_000,), "int8", npu, "global.sram")
    with pytest.raises(tvm.TVMError, match=r"npu\(0\): out of SRAM: NPU 0 has no room for 500000 bytes; of 1048576"):
        tvm.nd.empty((500_000,), "int8", npu, "global.sram")
    with pytest.raises(tvm.TVMError, match=r"npu\(0\): out of DDR: NPU 0 has no room for 268435457 bytes"):
        tvm.nd.empty(((1 << 28) + 1,), "int8", npu)
    del half
    tvm.nd.empty((1 << 20,), "int8", npu, "global.sram")


def test_a_device_that_is_gone_says_so_until_it_is_reset(npu: runtime.Device) -> None:
    array = tvm.nd.array(np.ones(5, "float32"), npu)
    lose(0)
    try:
        with pytest.raises(tvm.TVMError, match=r"npu\(0\): NPU 0 is gone, until it is reset"):
            array.numpy()
        with pytest.raises(tvm.TVMError, match=r"npu\(0\): NPU 0 is gone"):
            tvm.nd.empty((3,), "int8", npu)
    finally:
        chip.reset(0)
    array.copyfrom(np.zeros(5, "float32"))
    assert not array.numpy().any()


def lose(device: int) -> None:
    from tilewright_npu import isa

    program = isa.Program("lost", [], [isa.Nop(header=isa.Header(engine=isa.Engine.VECTOR))])
    chip.inject(device, chip.Fault.GONE, 0)
    gone = pytest.raises(chip.NpuError, match="the device is gone: it was lost at command 0 of a launch")
    with chip.Context(device) as context, context.load(program) as model, gone:
        model.launch()


def test_streams(npu: runtime.Device) -> None:
    first, second = npu.create_raw_stream(), npu.create_raw_stream()
    npu.set_raw_stream(first)
    assert runtime.get_global_func("npu.current_stream")().value == first.value
    npu.sync(first)
    npu.set_raw_stream(second)
    npu.sync()
    for stream in (first, second):
        npu.free_raw_stream(stream)


def test_threads_use_both_devices_at_once() -> None:
    problems: list[BaseException] = []

    def work(number: int) -> None:
        try:
            device = tvm.device("npu", number % 2)
            rng = np.random.default_rng(number)
            for size in rng.integers(1, 20_000, 40):
                values = rng.integers(0, 255, size).astype("uint8")
                np.testing.assert_array_equal(tvm.nd.array(values, device).copyto(device).numpy(), values)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
