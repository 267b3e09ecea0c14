"""Operators on block-quantized weights, against numpy; the weights' meaning is written out here, number by number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.relay.op.harness import Case, case, check_kernels, check_meaning, check_type, integers, random

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.ir.errors import TypeInferenceError
from tilewright.relay.type_infer import infer_expr
from tilewright.topi.cpu.nbits import byte_rows, float_rows
from tilewright.topi.nn import nbits

Array = np.ndarray[Any, Any]


def matrix(codes: Array, scales: Array, zeros: Array | None, bits: int, block: int, size: int) -> Array:
    """The matrix (n, size) in float64."""
    found = np.zeros((len(codes), size))
    for row in range(len(codes)):
        for column in range(size):
            b, at = divmod(column, block)
            whole = int.from_bytes(codes[row, b].tobytes(), "little")
            code = (whole >> (bits * at)) & ((1 << bits) - 1)
            zero = 1 << (bits - 1) if zeros is None else float(zeros[row, b])
            found[row, column] = (code - zero) * float(scales[row, b])
    return found


def weights(rows: int, size: int, bits: int, block: int, zeros: str, scale: str = "float32") -> list[Array]:
    """Codes, scales, and zero points where there are some."""
    blocks = -(-size // block)
    codes = integers(0, 256, rows, blocks, -(-block * bits // 8), dtype="uint8", seed=bits)
    scales = (0.1 + np.abs(random(rows, blocks, seed=1))).astype(scale)
    points = {
        "none": [],
        "bytes": [integers(0, 1 << bits, rows, blocks, dtype="uint8", seed=2)],
        "floats": [(random(rows, blocks, seed=3) + (1 << (bits - 1))).astype("float32")],
    }
    return [codes, scales, *points[zeros]]


def product(bits: int, block: int, level: int = 0) -> Any:
    return lambda x, *w: relay.nn.matmul_nbits(x, *w, bits=bits, block_size=block, accuracy_level=level)


def of_product(name: str, shape: tuple[int, ...], rows: int, bits: int, block: int, zeros: str = "none") -> Case:
    data, made = random(*shape), weights(rows, shape[-1], bits, block, zeros)
    zero = made[2] if len(made) > 2 else None
    expected = (data @ matrix(*made[:2], zero, bits, block, shape[-1]).T).astype("float32")
    return case(name, product(bits, block), [data, *made], expected, atol=1e-5 * float(np.abs(expected).max()))


WORDS = weights(19, 37, 4, 16, "bytes")
PACKED = [nbits.packed_codes(WORDS[0], 4, 16, 8), *(nbits.packed_by_block(w, 8) for w in WORDS[1:])]
DATA = random(3, 37)
MATRIX = matrix(*WORDS, 4, 16, 37)

CASES = [
    of_product("four bits", (3, 64), 5, 4, 32),
    of_product("zero points", (2, 3, 37), 5, 4, 16, "bytes"),
    of_product("zero points in between", (1, 37), 5, 8, 16, "floats"),
    of_product("two bits, one block", (3, 37), 5, 2, 64, "bytes"),
    of_product("a vector", (32,), 5, 4, 16),
    case(
        "dequantized",
        lambda *w: relay.nn.dequantize_nbits(*w, bits=4, block_size=16, size=37),
        WORDS,
        MATRIX.astype("float32"),
    ),
    case(
        "packed",
        lambda x, *w: relay.nn.contrib_matmul_nbits_pack(x, *w, bits=4, block_size=16, units=19),
        [DATA, *PACKED],
        (DATA @ MATRIX.T).astype("float32"),
        atol=1e-5 * float(np.abs(DATA @ MATRIX.T).max()),
    ),
]


@pytest.mark.parametrize("item", CASES, ids=str)
def test_meaning(item: Case) -> None:
    check_type(item)
    check_meaning(item)


def test_kernels() -> None:
    check_kernels(CASES)


def built(expr: Any, x: Any, target: str = "llvm", opt_level: int = 3) -> Any:
    with tvm.transform.PassContext(opt_level=opt_level):
        return relay.build(tvm.IRModule.from_expr(relay.Function([x], expr)), target)


def run(expr: Any, x: Any, data: Array, target: str = "llvm", opt_level: int = 3) -> Array:
    library = built(expr, x, target, opt_level)
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(**{x.name_hint: data})
    return module.get_output(0).numpy()


def rounded(data: Array, block: int) -> Array:
    """Rows as level 4 rounds them: by block, the absolute maximum is 127 steps."""
    size = data.shape[1]
    wide = np.pad(data, ((0, 0), (0, -size % block))).reshape(len(data), -(-size // block), block)
    scale = np.abs(wide).max(-1, keepdims=True) * np.float32(1 / 127)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale > 0)
    return (np.rint(wide * inverse).astype("float64") * scale).reshape(len(data), wide.shape[1] * block)[:, :size]


SHAPES = [(1, 37, 101), (3, 16, 64), (9, 5, 67), (8, 33, 128)]  # rows, columns, the sum's length


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", ["none", "bytes", "floats"])
@pytest.mark.parametrize("level", [0, 4])
def test_the_kernel_for_constant_weights(bits: int, zeros: str, level: int) -> None:
    for (rows, columns, size), block in zip(SHAPES, (16, 32, 128, 64), strict=True):
        made = weights(columns, size, bits, block, zeros)
        x, data = relay.var("x", shape=(rows, size)), random(rows, size, seed=9)
        found = run(product(bits, block, level)(x, *map(relay.const, made)), x, data)
        zero = made[2] if len(made) > 2 else None
        taken = rounded(data, min(block, size)) if level == 4 else data
        expected = taken @ matrix(*made[:2], zero, bits, block, size).T
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6 * np.abs(expected).max() * size**0.5)


@pytest.mark.parametrize("level", [0, 4])
@pytest.mark.parametrize(
    ("bits", "block", "size", "zeros"),
    [(2, 128, 300, "none"), (4, 32, 150, "bytes"), (4, 128, 160, "none"), (8, 32, 128, "floats"), (8, 16, 37, "none")],
)
def test_many_rows_share_what_is_unpacked(
    bits: int, block: int, size: int, zeros: str, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in (byte_rows, float_rows):
        monkeypatch.setattr(part, "CHUNK_BYTES", 10 * size)  # a few rows at a time
    monkeypatch.setattr(float_rows, "_BUFFER_SHARE", 1 << 12)  # a sum in parts
    made = weights(37, size, bits, block, zeros)
    x, data = relay.var("x", shape=(27, size)), random(27, size, seed=9)
    found = run(product(bits, block, level)(x, *map(relay.const, made)), x, data, "llvm -mcpu=haswell")
    zero = made[2] if len(made) > 2 else None
    taken = rounded(data, block) if level == 4 else data
    expected = taken @ matrix(*made[:2], zero, bits, block, size).T
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6 * np.abs(expected).max() * size**0.5)


def test_sums_in_int16_hold_the_largest_products() -> None:
    signs = np.tile(np.float32([1, -1, -1, 1]), (3, 32))
    data = np.concatenate([signs, np.abs(signs), -np.abs(signs)])
    codes = np.repeat(np.uint8([0x00, 0xFF, 0x0F]), 8)[:, None, None] * np.ones((1, 2, 32), "uint8")  # blocks of 64
    x, scales = relay.var("x", shape=data.shape), np.ones((24, 2), "float32")
    found = run(product(4, 64, 4)(x, relay.const(codes), relay.const(scales)), x, data, "llvm -mcpu=haswell")
    np.testing.assert_allclose(found, data @ matrix(codes, scales, None, 4, 64, 128).T, rtol=0, atol=1e-3)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(
    ("target", "level"),
    [
        ("llvm -mcpu=haswell", 4),  # pmaddubsw of 4 bits, pmaddwd of 8
        ("llvm -mcpu=haswell", 0),
        ("llvm -mcpu=x86-64", 4),
        ("c", 4),
    ],
)
def test_every_target_computes_the_product(target: str, level: int, bits: int) -> None:
    made = weights(37, 67, bits, 16, "bytes")
    x, data = relay.var("x", shape=(5, 67)), random(5, 67)
    found = run(product(bits, 16, level)(x, *map(relay.const, made)), x, data, target)
    exact = data @ matrix(*made, bits, 16, 67).T
    np.testing.assert_allclose(found, exact, rtol=0, atol=(0.02 if level == 4 else 1e-5) * np.abs(exact).max())


def test_a_processor_with_dot_products_has_a_kernel_of_bytes() -> None:
    made = weights(37, 67, 4, 16, "bytes")
    x = relay.var("x", shape=(5, 67))
    target = tvm.target.Target("llvm -mtriple=aarch64-linux-gnu -mattr=+neon,+dotprod")
    with target, tvm.transform.PassContext(opt_level=3):
        mod = tvm.IRModule.from_expr(relay.Function([x], product(4, 16, 4)(x, *map(relay.const, made))))
        library = relay.build(mod, target)
    assert "sdot" in library.get_lib().get_source("asm")


@pytest.mark.parametrize("opt_level", [0, 1, 2])
def test_other_levels_of_optimization(opt_level: int) -> None:
    made = weights(6, 40, 4, 16, "bytes")
    x, data = relay.var("x", shape=(2, 3, 40)), random(2, 3, 40)
    found = run(product(4, 16, 0)(x, *map(relay.const, made)), x, data, opt_level=opt_level)
    exact = data @ matrix(*made, 4, 16, 40).T
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-5 * np.abs(exact).max())


@pytest.mark.parametrize("level", [0, 4])
def test_any_number_of_rows(level: int) -> None:
    made = weights(21, 48, 4, 16, "none")
    x = relay.var("x", shape=(relay.Any(), 48))
    mod = tvm.IRModule.from_expr(relay.Function([x], product(4, 16, level)(x, *map(relay.const, made))))
    with tvm.transform.PassContext(opt_level=3):
        machine = relay.create_executor("vm", mod, tvm.cpu(), "llvm").evaluate()
    for rows in (0, 1, 7, 19):
        data = random(rows, 48)
        found = machine(data).numpy()
        expected = (rounded(data, 16) if level == 4 else data) @ matrix(*made[:2], None, 4, 16, 48).T
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max(initial=1))


def test_of_a_prompt_only_the_rows_that_are_read_are_multiplied() -> None:
    made = weights(21, 48, 4, 16, "bytes")
    x, data = relay.var("x", shape=(1, 7, 48)), random(1, 7, 48)
    whole = product(4, 16)(x, *map(relay.const, made))
    last = relay.strided_slice(whole, begin=[-1], end=[1 << 31], axes=[1])
    with tvm.transform.PassContext(opt_level=3):
        mod, _ = relay.optimize(tvm.IRModule.from_expr(relay.Function([x], last)), "llvm", fuse=False)
    assert "Tensor[(1, 21), float32]" in str(mod) and "Tensor[(7, 21), float32]" not in str(mod)
    expected = data[:, -1:] @ matrix(*made, 4, 16, 48).T
    np.testing.assert_allclose(run(last, x, data), expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(("zeros", "bits", "level"), [("none", 4, 4), ("bytes", 4, 0), ("floats", 8, 4)])
def test_products_of_one_input_are_combined(zeros: str, bits: int, level: int) -> None:
    """Those of whole panels (of at most 16 columns) with weights of one form: the first two and the fourth."""
    widths, blocks = (16, 48, 13, 32, 16), (32, 32, 32, 32, 16)
    made = [weights(n, 101, bits, b, zeros) for n, b in zip(widths, blocks, strict=True)]
    x, data = relay.var("x", shape=(3, 101)), random(3, 101)
    parts = [product(bits, b, level)(x, *map(relay.const, w)) for w, b in zip(made, blocks, strict=True)]
    whole = relay.concatenate(parts, axis=1)
    with tvm.transform.PassContext(opt_level=3):
        mod, _ = relay.optimize(tvm.IRModule.from_expr(relay.Function([x], whole)), "llvm", fuse=False)
    assert str(mod).count("matmul_nbits_pack(") == 3 and "units=96" in str(mod)
    found, at = run(whole, x, data), 0
    for n, w, b in zip(widths, made, blocks, strict=True):
        weight = matrix(*w[:2], w[2] if len(w) > 2 else None, bits, b, 101)
        exact, part = data @ weight.T, found[:, at : at + n]
        expected = rounded(data, b) @ weight.T if level == 4 else exact
        closest = min(
            np.abs(part - y).max() for y in (expected, exact)
        )  # without a kernel of bytes, nothing is rounded
        assert closest < 1e-5 * np.abs(exact).max()
        at += n


def test_weights_that_the_program_computes() -> None:
    made = weights(6, 40, 4, 16, "bytes")
    variables = [
        relay.var("x", shape=(3, 40)),
        *(relay.var(f"w{i}", shape=w.shape, dtype=str(w.dtype)) for i, w in enumerate(made)),
    ]
    mod = tvm.IRModule.from_expr(relay.Function(variables, product(4, 16, 4)(*variables)))
    data = random(3, 40)
    with tvm.transform.PassContext(opt_level=3):
        found = relay.create_executor("graph", mod, tvm.cpu(), "llvm").evaluate()(data, *made).numpy()
    exact = data @ matrix(*made, 4, 16, 40).T
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-5 * np.abs(exact).max())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_data_in_half_precision_is_rounded_once(dtype: str) -> None:
    made = weights(6, 40, 4, 16, "none", "float16")
    x, data = relay.var("x", shape=(3, 40)), random(3, 40)
    narrow = relay.cast(x, dtype)
    expr = product(4, 16)(narrow, *map(relay.const, made))
    found = run(relay.cast(expr, "float32"), x, data)
    exact = data @ matrix(*made, None, 4, 16, 40).T
    np.testing.assert_allclose(found, exact, rtol=0, atol=0.02 * np.abs(exact).max())


def test_scales_that_float16_has_stay_narrow_in_the_library() -> None:
    sizes = []
    for scales in (np.full((32, 4), 0.125, "float32"), np.full((32, 4), 0.1, "float32")):
        codes = integers(0, 256, 32, 4, 16, dtype="uint8")
        x = relay.var("x", shape=(1, 128))
        expr = product(4, 32)(x, relay.const(codes), relay.const(scales))
        with tvm.target.Target("llvm -mcpu=haswell"), tvm.transform.PassContext(opt_level=3):
            mod, _ = relay.optimize(tvm.IRModule.from_expr(relay.Function([x], expr)), "llvm -mcpu=haswell")
        sizes.append("float16" in str(mod))
    assert sizes == [True, False]


@pytest.mark.parametrize("level", [0, 4])
def test_numbers_that_are_none_go_through(level: int) -> None:
    made = weights(5, 64, 4, 32, "none")
    data = random(3, 64)
    data[1, 40] = np.nan
    x = relay.var("x", shape=(3, 64))
    found = run(product(4, 32, level)(x, *map(relay.const, made)), x, data)
    assert np.isnan(found[1]).all()
    assert np.isfinite(found[[0, 2]]).all()


X = relay.var("x", shape=(2, 64))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bits": 3}, "weights have 2, 4 or 8 bits, not 3"),
        ({"block_size": 0}, "blocks have at least one number, not 0"),
        ({"accuracy_level": 5}, "the accuracy level is 0 to 4, not 5"),
        ({"codes": (5, 2, 15)}, r"codes of 4 bits of 64 columns in blocks of 32 are \(5, 2, 16\), not \(5, 2, 15\)"),
        ({"codes": (5, 3, 16)}, r"are \(5, 2, 16\), not \(5, 3, 16\)"),
        ({"scales": (5, 1)}, r"scales, one for each block of each row, are \(5, 2\), not \(5, 1\)"),
        ({"zeros": (4, 2)}, r"zero points, one for each block of each row, are \(5, 2\), not \(4, 2\)"),
    ],
)
def test_operands_that_do_not_belong_together_are_refused(change: dict[str, Any], message: str) -> None:
    shapes = {"codes": (5, 2, 16), "scales": (5, 2), "zeros": (5, 2), **change}
    form = {"bits": 4, "block_size": 32, **{k: v for k, v in change.items() if k not in ("codes", "scales", "zeros")}}
    dtypes = {"codes": "uint8", "scales": "float32", "zeros": "uint8"}
    operands = [relay.var(name, shape=shapes[name], dtype=dtype) for name, dtype in dtypes.items()]
    with pytest.raises(TypeInferenceError, match=message):
        infer_expr(relay.nn.matmul_nbits(X, *operands, **form))


@pytest.mark.parametrize("rows", [16, 40, 43])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_packed_codes_are_the_codes(rows: int, bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nbits, "_PART", 100)  # many parts
    codes = np.random.default_rng(0).integers(0, 256, (rows, 3, 32 * bits // 8), "uint8")
    words = nbits.packed_codes(codes, bits, 32, 8)
    assert words.shape[0] == -(-rows // 8)
    assert (nbits.codes_of_words(words, bits, 32, rows) == nbits.unpacked_codes(codes, bits, 32)).all()
