"""Sums of products of bytes: the form that each processor has, exact sums, and the loops that come of it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from tests.processors.x86 import runs_here

import tilewright as tvm
from tilewright import te, topi
from tilewright.ir.errors import TilewrightError
from tilewright.target import Target
from tilewright.topi.cpu.byte_products import ByteProduct, are_small, byte_product, product_intrinsic

_ARM = "llvm -mtriple=aarch64-linux-gnu -mcpu="
FORMS = {  # (target, weights are small): form, type of the data, lanes, bytes of a word
    ("llvm -mcpu=sapphirerapids", False): ("avx512vnni", "uint8", 16, 4),
    ("llvm -mcpu=znver4", False): ("avx512vnni", "uint8", 16, 4),
    ("llvm -mcpu=alderlake", False): ("avxvnni", "uint8", 8, 4),
    ("llvm -mcpu=skylake-avx512", True): ("maddubs", "uint8", 16, 4),
    ("llvm -mcpu=skylake-avx512", False): ("madd", "int16", 16, 2),
    ("llvm -mcpu=haswell", True): ("maddubs", "uint8", 8, 4),
    ("llvm -mcpu=haswell", False): ("madd", "int16", 8, 2),
    ("llvm -mcpu=nehalem", True): ("maddubs", "uint8", 4, 4),
    ("llvm -mcpu=x86-64", True): ("madd", "int16", 4, 2),
    (_ARM + "neoverse-n1", False): ("dotprod", "int8", 4, 4),
    (_ARM + "neoverse-v1", False): ("i8mm", "uint8", 4, 4),
    (_ARM + "cortex-a53", False): ("plain", "uint8", 4, 1),
    ("c", False): ("plain", "uint8", 4, 1),
}
TILES = {"avx512vnni": 14, "avxvnni": 6, "dotprod": 12, "i8mm": 12}  # rows; the others have 4


@pytest.mark.parametrize(("target", "small"), FORMS)
def test_processor_has_its_form(target: str, small: bool) -> None:
    form = byte_product(small_weights=small, target=target)
    assert (form.name, form.data_dtype, form.lanes, form.group) == FORMS[target, small]


def product(form: ByteProduct, target: str, rows: int, columns: int, depth: int) -> Any:
    """Return the module of ``data @ weight.T`` in register tiles of two vectors, and the shape of packed weights."""
    block, group = 2 * form.lanes, form.group
    data = te.placeholder((rows, depth), form.data_dtype, "data")
    weight = te.placeholder((columns // block, depth // group, block, group), form.weight_dtype, "weight")
    k, byte = te.reduce_axis((0, depth // group), "k"), te.reduce_axis((0, group), "byte")
    total = te.compute(
        (rows, columns),
        lambda i, j: te.sum(
            data[i, k * group + byte].astype("int32") * weight[j // block, k, j % block, byte].astype("int32"),
            axis=[k, byte],
        ),
        "total",
    )
    s = te.create_schedule(total.op)
    sums = s.cache_write(total, "local")
    i, j = s[total].op.axis
    tile, row = s[total].split(i, factor=TILES.get(form.name, 4))
    columns_outer, column = s[total].split(j, factor=block)
    s[total].reorder(columns_outer, tile, row, column)
    s[total].pragma(tile, "loop_partition_hint", 1)
    s[total].unroll(row)
    s[total].vectorize(column)
    s[sums].compute_at(s[total], tile)
    row, column = s[sums].op.axis
    vector, lane = s[sums].split(column, factor=form.lanes)
    k, byte = s[sums].op.reduce_axis
    s[sums].reorder(k, row, vector, lane, byte)
    s[sums].unroll(row)
    s[sums].unroll(vector)
    s[sums].tensorize(lane, product_intrinsic(form))
    return tvm.build(s, [data, weight, total], target, name="product"), weight.shape


def packed(weight: np.ndarray, form: ByteProduct) -> np.ndarray:
    """Pack (columns, depth) as the tiles of ``product`` read it."""
    columns, depth = weight.shape
    block = 2 * form.lanes
    parts = weight.reshape(columns // block, block, depth // form.group, form.group)
    return np.ascontiguousarray(parts.transpose(0, 2, 1, 3))


X86 = [key for key in FORMS if "triple" not in key[0] and key[0] != "c"]


@pytest.mark.parametrize(("target", "small"), X86)
def test_sums_are_exact_at_the_ends_of_the_types(target: str, small: bool) -> None:
    if not runs_here(target):
        pytest.skip("this machine's processor lacks what the code needs")
    form = byte_product(small_weights=small, target=target)
    rows, columns, depth = 29, 2 * form.lanes, 96  # rows no multiple of a tile's
    rng = np.random.default_rng(0)
    data = rng.choice([0, 1, 254, 255], (rows, depth), p=[0.1, 0.1, 0.1, 0.7]).astype(form.data_dtype)
    ends = [-64, 63, 64] if small else [-128, -127, 126, 127]
    weight = rng.choice(ends, (columns, depth)).astype("int8")
    weight[0], data[0] = ends[-1], 255  # pmaddubsw's pairs are 64770 where weights are not small
    assert are_small(weight) == small
    lib, _ = product(form, target, rows, columns, depth)
    out = tvm.nd.empty((rows, columns), "int32")
    lib["product"](tvm.nd.array(data), tvm.nd.array(packed(weight, form)), out)
    np.testing.assert_array_equal(out.numpy(), data.astype("int64") @ weight.astype("int64").T)


def innermost(assembly: str, instruction: str) -> list[str]:
    """Return the instructions of the loop with the most of ``instruction``."""
    loops = re.findall(r"^\.LBB\w+:\n((?:\t.*\n)+?)\t(?:j\w+|b\.\w+)\t", assembly, re.MULTILINE)
    return str(max(loops, key=lambda loop: len(re.findall(instruction, loop)))).strip().splitlines()


@pytest.mark.parametrize(
    ("target", "small", "instruction"),
    [
        ("llvm -mcpu=sapphirerapids", False, "vpdpbusd"),
        ("llvm -mcpu=znver4", False, "vpdpbusd"),
        ("llvm -mcpu=alderlake", False, "vpdpbusd"),
        ("llvm -mcpu=skylake-avx512", False, "vpmaddwd"),
        ("llvm -mcpu=haswell", True, "vpmaddubsw"),
        ("llvm -mcpu=haswell", False, "vpmaddwd"),
        (_ARM + "neoverse-n1", False, "sdot"),
        (_ARM + "neoverse-v1", False, "usdot"),
    ],
)
def test_tile_is_its_instructions_and_loads(target: str, small: bool, instruction: str) -> None:
    """No stack, no shuffles, no copies: broadcasts, loads of weights, products, and what counts."""
    form = byte_product(small_weights=small, target=target)
    rows = TILES.get(form.name, 4)
    lib, _ = product(form, target, 2 * rows, 2 * form.lanes, 256)
    loop = innermost(lib.get_source("asm"), instruction)
    products = [line for line in loop if re.search(rf"\b{instruction}\b", line)]
    assert len(products) % (2 * rows) == 0
    assert not [
        line for line in loop if re.search(r"rsp|\[sp|vpshuf|vperm|vinsert|vextract|vmovdqa\w*\s+%\w+, %", line)
    ]
    steps = len(products) // (2 * rows)
    adds = {"vpdpbusd": 0, "sdot": 0, "usdot": 0, "vpmaddwd": 1, "vpmaddubsw": 2}[instruction]
    spent = 2 if target.startswith(_ARM) else 1  # AArch64 computes the address of each row
    assert len(loop) <= steps * (2 * rows * (1 + adds) + spent * rows + 2) + 5


@pytest.mark.parametrize(
    ("weight", "small"),
    [([[64, 64]], True), ([[64, 65]], False), ([[65, 64]], False), ([[0, 127, 127, 1]], True), ([[-128]], True),
     ([[-128, 1]], True), ([[-128, 127]], True), ([[-128, -1]], False), (np.zeros((0, 4)), True)],
)  # fmt: skip
def test_small_weights_are_those_whose_pairs_fit_16_bits(weight: Any, small: bool) -> None:
    assert are_small(np.array(weight, "int8")) == small


def test_form_without_instructions_has_no_intrinsic() -> None:
    with pytest.raises(TilewrightError, match="the form plain have no instructions"):
        product_intrinsic(byte_product(target="c"))


def test_tvm_names_give_the_form_of_the_target() -> None:
    with Target("llvm -mcpu=cascadelake"):
        assert topi.x86.tensor_intrin.dot_16x1x16_uint8_int8_int32().name == "byte_product_avx512vnni"
    with Target("llvm -mcpu=skylake-avx512"):
        assert topi.x86.tensor_intrin.dot_16x1x16_uint8_int8_int32().name == "byte_product_halves"
    assert topi.arm_cpu.tensor_intrin.dot_int8_int8_int32(4, "int").name == "byte_product_dotprod"
    with Target(_ARM + "neoverse-n1"), pytest.raises(TilewrightError, match="need an x86-64 target"):
        topi.x86.tensor_intrin.dot_16x1x16_uint8_int8_int32()


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_halves_are_exact_where_pairs_saturate(lanes: int) -> None:
    target = {4: "llvm -mcpu=x86-64", 8: "llvm -mcpu=haswell", 16: "llvm -mcpu=skylake-avx512"}[lanes]
    if not runs_here(target):
        pytest.skip("this machine's processor lacks what the code needs")
    form = ByteProduct("halves", "uint8", "int8", lanes, 4)
    rng = np.random.default_rng(1)
    data = rng.integers(0, 256, (5, 64)).astype("uint8")
    weight = rng.choice([-128, 127], (2 * lanes, 64)).astype("int8")
    data[0], weight[0] = 255, 127
    lib, _ = product(form, target, 5, 2 * lanes, 64)
    out = tvm.nd.empty((5, 2 * lanes), "int32")
    lib["product"](tvm.nd.array(data), tvm.nd.array(packed(weight, form)), out)
    np.testing.assert_array_equal(out.numpy(), data.astype("int64") @ weight.astype("int64").T)
