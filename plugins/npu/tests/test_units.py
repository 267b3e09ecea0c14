"""Each command does what docs/isa.md says: against numpy, on random shapes and strides."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tilewright_npu import chip, isa
from tilewright_npu.isa import Dma, DType, Engine, Flag, Gemm, Header, Opcode, Region, RegionKind, Vector, Window


def strides(array: NDArray) -> tuple[int, ...]:
    """Strides of a contiguous array as four dimensions."""
    return (0,) * (4 - array.ndim) + tuple(array.strides)


def extents(array: NDArray) -> tuple[int, ...]:
    return (1,) * (4 - array.ndim) + array.shape


def transfer(engine: Engine, array: NDArray, near: int, region: int, **tokens: tuple[int, ...]) -> Dma:
    """A whole array between a region and the SRAM."""
    header = Header(engine=engine, opcode=Opcode.DMA, layer=isa.NO_LAYER, **tokens)
    n, s = extents(array), strides(array)
    return Dma(
        header=header, n=n, far_stride=s, near_stride=s, near_address=near, region=region, element=array.itemsize
    )


def run_unit(command: Gemm | Vector | Window, sram: dict[int, NDArray], out_at: int, out: NDArray) -> chip.Counters:
    """Load arrays to SRAM addresses, run a command, store ``out`` from an address."""
    arrays = list(sram.items())
    unit = command.header.engine
    regions = [Region(f"in{i}", RegionKind.INPUT, a.nbytes) for i, (_, a) in enumerate(arrays)]
    regions.append(Region("out", RegionKind.OUTPUT, out.nbytes))
    token = tuple(int(e == unit) for e in range(4))
    commands: list[isa.Command] = [transfer(Engine.LOAD, a, at, i, push=token) for i, (at, a) in enumerate(arrays)]
    command.header.wait = (len(arrays), 0, 0, 0)
    command.header.push = (0, 1, 0, 0)
    commands += [command, transfer(Engine.STORE, out, out_at, len(arrays), wait=token)]
    program = isa.Program("unit", regions, commands)
    return chip.run_program(program, *(a for _, a in arrays), outputs=[out])


def test_a_block_is_loaded_with_padding_and_stored() -> None:
    x = np.arange(2 * 5 * 6 * 16, dtype="int8").reshape(2, 5, 6, 16)
    out = np.zeros((2, 7, 9, 16), "int8")
    load = transfer(Engine.LOAD, x, 64, 0, push=(0, 1, 0, 0))
    load.before, load.after, load.pad = (0, 1, 2, 0), (0, 1, 1, 0), 0xF7
    load.near_stride = out.strides
    store = transfer(Engine.STORE, out, 64, 1, wait=(1, 0, 0, 0))
    regions = [Region("x", RegionKind.INPUT, x.nbytes), Region("out", RegionKind.OUTPUT, out.nbytes)]
    counters = chip.run_program(isa.Program("pad", regions, [load, store]), x, outputs=[out])
    np.testing.assert_array_equal(out, np.pad(x, [(0, 0), (1, 1), (2, 1), (0, 0)], constant_values=-9))
    assert (counters.bytes_loaded, counters.bytes_stored) == (x.nbytes, out.nbytes)


def pack_b(b: NDArray, runs: int, depth: int) -> NDArray:
    """[runs * depth, columns] in blocks of 16 x 16, [columns / 16][run][depth / 16][16][16], with zeros."""
    columns = b.shape[1]
    wide = np.zeros((runs, -(-depth // 16) * 16, -(-columns // 16) * 16), b.dtype)
    wide[:, :depth, :columns] = b.reshape(runs, depth, columns)
    blocks = wide.reshape(runs, wide.shape[1] // 16, 16, wide.shape[2] // 16, 16)
    return np.ascontiguousarray(blocks.transpose(3, 0, 1, 2, 4)).reshape(wide.shape[2] // 16, -1, 16, 16)


def test_a_convolution_is_a_product_over_windows() -> None:
    rng = np.random.default_rng(0)
    for kind, depth, columns, flags in [
        (DType.I8, 16, 32, 0),
        (DType.I8, 5, 17, Flag.A_UNSIGNED | Flag.BIAS),
        (DType.F32, 16, 16, Flag.BIAS),
        (DType.F32, 23, 1, Flag.ACCUMULATE),
    ]:
        height, width, step = 7, 9, 2
        if kind == DType.F32:
            x = rng.standard_normal((height, width, depth)).astype("float32")
            w = rng.standard_normal((9 * depth, columns)).astype("float32")
            first = rng.standard_normal(columns).astype("float32")
        else:
            low, high, dtype = (0, 256, "uint8") if flags & Flag.A_UNSIGNED else (-128, 128, "int8")
            x = rng.integers(low, high, (height, width, depth)).astype(dtype)
            w = rng.integers(-128, 128, (9 * depth, columns)).astype("int8")
            first = rng.integers(-1000, 1000, columns).astype("int32")
        rows, cols = (height - 3) // step + 1, (width - 3) // step + 1
        wide = np.zeros((rows, cols, -(-columns // 16) * 16), first.dtype)
        if flags & Flag.ACCUMULATE:
            wide[:, :, :columns] = first
        packed, e = pack_b(w, 9, depth), x.itemsize
        gemm = Gemm(
            header=Header(engine=Engine.MATRIX, opcode=Opcode.GEMM, flags=int(flags)),
            a=0, b=8192, c=65536, bias=131072,
            m=(rows, cols), k=(3, 3, 1), depth=depth, columns=columns,
            a_m=(step * width * depth * e, step * depth * e), a_k=(width * depth * e, depth * e, 0),
            b_n=packed.strides[0], c_m=wide.strides[:2], c_n=64, dtype=kind,
        )  # fmt: skip
        out = np.empty_like(wide)
        counters = run_unit(gemm, {0: x, 8192: packed, 65536: wide, 131072: first}, 65536, out)
        exact = "float64" if kind == DType.F32 else "int64"
        expected = np.zeros((rows, cols, columns), exact)
        if flags & (Flag.BIAS | Flag.ACCUMULATE):
            expected += first
        for u in range(3):
            for v in range(3):
                part = x[u : u + step * rows : step, v : v + step * cols : step].astype(exact)[:rows, :cols]
                expected += part @ w.reshape(3, 3, depth, columns)[u, v].astype(exact)
        if kind == DType.F32:
            np.testing.assert_allclose(out[..., :columns], expected, rtol=1e-5, atol=1e-5)
        else:
            np.testing.assert_array_equal(out[..., :columns], expected)
        assert counters.macs == rows * cols * 9 * depth * columns
        blocks = -(-rows * cols // 16) * 9 * -(-depth // 16) * -(-columns // 16)
        assert counters.block_cycles == blocks * (4 if kind == DType.F32 else 1)


def elementwise(opcode: Opcode, a: NDArray, b: NDArray, out: NDArray, flags: int = 0, **fields: float) -> Vector:
    kinds = {t.numpy: t for t in DType}
    broadcast = np.broadcast_to(b, a.shape)
    return Vector(
        header=Header(engine=Engine.VECTOR, opcode=opcode, flags=int(flags)),
        dst=0, a=262144, b=524288, n=extents(a),
        dst_stride=strides(out), a_stride=strides(a), b_stride=(0,) * (4 - a.ndim) + broadcast.strides,
        dst_type=kinds[str(out.dtype)], a_type=kinds[str(a.dtype)], b_type=kinds[str(b.dtype)], **fields,
    )  # fmt: skip


def test_operations_element_by_element_in_float32() -> None:
    rng = np.random.default_rng(1)
    a = rng.uniform(0.1, 4, (3, 1, 7, 113)).astype("float32")
    b = rng.uniform(0.1, 4, 113).astype("float32")
    from math import erf

    erfs = np.vectorize(erf)
    oracle = {
        Opcode.COPY: a, Opcode.ADD: a + b, Opcode.SUB: a - b, Opcode.MUL: a * b, Opcode.DIV: a / b,
        Opcode.MAX: np.maximum(a, b), Opcode.MIN: np.minimum(a, b), Opcode.EXP: np.exp(a), Opcode.LOG: np.log(a),
        Opcode.SQRT: np.sqrt(a), Opcode.RSQRT: 1 / np.sqrt(a), Opcode.RECIPROCAL: 1 / a, Opcode.TANH: np.tanh(a),
        Opcode.SIGMOID: 1 / (1 + np.exp(-a)), Opcode.ERF: erfs(a), Opcode.GELU: a / 2 * (1 + erfs(a / 2**0.5)),
    }  # fmt: skip
    for opcode, expected in oracle.items():
        out = np.empty_like(a)
        run_unit(elementwise(opcode, a, b, out), {262144: a, 524288: b}, 0, out)
        np.testing.assert_allclose(out, expected, rtol=2e-6, err_msg=opcode.name)


def test_requantization_is_that_of_onnx() -> None:
    rng = np.random.default_rng(2)
    sums = rng.integers(-(2**20), 2**20, (4, 5, 33)).astype("int32")
    scales = rng.uniform(1e-4, 3e-4, 33).astype("float32")
    out = np.empty(sums.shape, "int8")
    flags = Flag.QUANTIZE_MUL | Flag.CLAMP
    command = elementwise(Opcode.MUL, sums, scales, out, flags, scale_out=1.0, zero_out=-7, low=-7, high=100)
    run_unit(command, {262144: sums, 524288: scales}, 0, out)
    expected = np.clip(np.rint(sums.astype("float32") * scales).astype("int64") - 7, -7, 100)
    np.testing.assert_array_equal(out, expected)


def test_a_quantized_addition() -> None:
    rng = np.random.default_rng(3)
    a = rng.integers(-128, 128, (2, 6, 50)).astype("int8")
    b = rng.integers(0, 256, (2, 6, 50)).astype("uint8")
    out = np.empty(a.shape, "uint8")
    flags = Flag.DEQUANTIZE_A | Flag.DEQUANTIZE_B | Flag.QUANTIZE_DIV
    numbers = {"scale_a": 0.05, "zero_a": 3, "scale_b": 0.02, "zero_b": 128, "scale_out": 0.04, "zero_out": 100}
    run_unit(elementwise(Opcode.ADD, a, b, out, flags, **numbers), {262144: a, 524288: b}, 0, out)
    f = np.float32
    real = (a.astype(f) - f(3)) * f(0.05) + (b.astype(f) - f(128)) * f(0.02)
    np.testing.assert_array_equal(out, np.clip(np.rint(real / f(0.04)) + 100, 0, 255))


def test_integers_wrap_around_and_saturate_on_their_way_out() -> None:
    a = np.array([2**31 - 1, -(2**31), 100, -300], "int32")
    b = np.array([1, -1, 50, 7], "int32")
    wide = np.empty(4, "int32")
    run_unit(elementwise(Opcode.ADD, a, b, wide, Flag.INTEGER), {262144: a, 524288: b}, 0, wide)
    np.testing.assert_array_equal(wide, [-(2**31), 2**31 - 1, 150, -293])
    narrow = np.empty(4, "int8")
    run_unit(elementwise(Opcode.MAX, a, b, narrow, Flag.INTEGER), {262144: a, 524288: b}, 0, narrow)
    np.testing.assert_array_equal(narrow, [127, -1, 100, 7])


def test_rows_are_reduced() -> None:
    rng = np.random.default_rng(4)
    for columns in (1, 16, 17, 300):
        a = rng.standard_normal((2, 3, 5, columns)).astype("float32")
        for opcode, expected in [(Opcode.ROW_SUM, a.astype("float64").sum(-1)), (Opcode.ROW_MAX, a.max(-1))]:
            out = np.empty((2, 3, 5), "float32")
            command = elementwise(opcode, a, np.zeros(1, "float32"), out)
            command.dst_stride = (*out.strides, 0)
            run_unit(command, {262144: a}, 0, out)
            np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


def window(opcode: Opcode, x: NDArray, out: NDArray, size: int, step: int, flags: int, **fields: object) -> Window:
    """Over [blocks, height, width, 16]."""
    kinds = {t.numpy: t for t in DType}
    return Window(
        header=Header(engine=Engine.VECTOR, opcode=opcode, flags=int(flags)),
        dst=0, a=262144, b=524288, c=786432, n=out.shape, window=(size, size), dst_stride=out.strides[:3],
        a_stride=(x.strides[0], step * x.strides[1], step * x.strides[2]), window_stride=x.strides[1:3],
        dst_type=kinds[str(out.dtype)], a_type=kinds[str(x.dtype)], divisor=fields.pop("divisor", 1.0), **fields,
    )  # fmt: skip


def windows(x: NDArray, size: int, step: int) -> NDArray:
    view = np.lib.stride_tricks.sliding_window_view(x, (size, size), axis=(1, 2))
    return view[:, ::step, ::step]  # [blocks, rows, columns, 16, size, size]


def test_pools() -> None:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((3, 9, 7, 16)).astype("float32")
    out = np.empty((3, 4, 3, 16), "float32")
    run_unit(window(Opcode.POOL_MAX, x, out, 3, 2, 0), {262144: x}, 0, out)
    np.testing.assert_array_equal(out, windows(x, 3, 2).max((-1, -2)))
    run_unit(window(Opcode.POOL_SUM, x, out, 3, 2, 0, divisor=9.0), {262144: x}, 0, out)
    np.testing.assert_allclose(out, windows(x, 3, 2).mean((-1, -2)), rtol=1e-5, atol=1e-6)
    q = rng.integers(-128, 128, x.shape).astype("int8")
    small = np.empty(out.shape, "int8")
    flags = Flag.INTEGER | Flag.DEQUANTIZE_A | Flag.QUANTIZE_DIV
    run_unit(
        window(Opcode.POOL_SUM, q, small, 3, 2, flags, divisor=9.0, zero_a=5, scale_a=0.1, scale_out=0.2, zero_out=-3),
        {262144: q}, 0, small,
    )  # fmt: skip
    f = np.float32
    sums = (windows(q, 3, 2).astype("int32") - 5).sum((-1, -2))
    np.testing.assert_array_equal(small, np.clip(np.rint(sums.astype(f) * f(0.1) / f(9) / f(0.2)) - 3, -128, 127))


def test_depthwise_convolutions() -> None:
    rng = np.random.default_rng(6)
    q = rng.integers(-128, 128, (2, 9, 8, 16)).astype("int8")
    w = rng.integers(-128, 128, (2, 9, 16)).astype("int8")
    bias = rng.integers(-500, 500, (2, 16)).astype("int32")
    out = np.empty((2, 7, 6, 16), "int32")
    flags = Flag.INTEGER | Flag.BIAS | Flag.DEQUANTIZE_A
    command = window(Opcode.DEPTHWISE, q, out, 3, 1, flags, zero_a=9, b_type=DType.I8, b_stride=w.strides[:2])
    run_unit(command, {262144: q, 524288: w, 786432: bias}, 0, out)
    taps = w.reshape(2, 3, 3, 16).transpose(0, 3, 1, 2).astype("int64")
    expected = np.einsum("bijcuv,bcuv->bijc", windows(q, 3, 1).astype("int64") - 9, taps) + bias[:, None, None]
    np.testing.assert_array_equal(out, expected)
    x = rng.standard_normal(q.shape).astype("float32")
    weights = rng.standard_normal(w.shape).astype("float32")
    real = np.empty(out.shape, "float32")
    flags = Flag.CLAMP
    command = window(
        Opcode.DEPTHWISE, x, real, 3, 1, flags, low=0, high=6, b_type=DType.F32, b_stride=weights.strides[:2]
    )
    run_unit(command, {262144: x, 524288: weights}, 0, real)
    taps = weights.reshape(2, 3, 3, 16).transpose(0, 3, 1, 2)
    expected = np.einsum("bijcuv,bcuv->bijc", windows(x, 3, 1).astype("float64"), taps)
    np.testing.assert_allclose(real, np.clip(expected, 0, 6), rtol=1e-5, atol=1e-5)
