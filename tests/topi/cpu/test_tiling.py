"""The choice of register tiles and packed layouts, by what must hold of them on any processor."""

import pytest

from tilewright import topi
from tilewright.target import Target, features
from tilewright.topi.cpu.model.conv2d import channel_block
from tilewright.topi.cpu.model.tiling import (
    RegisterTile,
    choose_tile,
    divisors_up_to,
    fits,
    row_tile,
    rows_in_cache,
    tile_cost,
)

TARGETS = ["llvm -mcpu=skylake-avx512", "llvm -mcpu=core-avx2", "llvm -mcpu=x86-64", "llvm -mtriple=aarch64-linux-gnu"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("extent", [1, 2, 5, 7, 13, 14, 27, 28, 35, 56, 149, 197, 1000])
def test_tiles_fit_the_registers_and_are_no_larger_than_the_loop(extent: int, target: str) -> None:
    cpu = features(Target(target))
    tile = choose_tile(cpu, extent, [1, 2, 4])
    assert fits(cpu, tile)
    assert 1 <= tile.spatial <= extent


@pytest.mark.parametrize(
    ("target", "largest"),
    [
        ("llvm -mcpu=skylake-avx512", RegisterTile(14, 2)),
        ("llvm -mcpu=core-avx2", RegisterTile(6, 2)),
        ("llvm -mcpu=sandybridge", RegisterTile(6, 2)),
        ("llvm -mcpu=x86-64", RegisterTile(5, 2)),
        ("llvm -mtriple=aarch64-linux-gnu", RegisterTile(13, 2)),
    ],
)
def test_a_step_has_room_for_broadcast_values_and_products(target: str, largest: RegisterTile) -> None:
    cpu = features(Target(target))
    assert fits(cpu, largest)
    assert not fits(cpu, RegisterTile(largest.spatial + 1, largest.vectors))


def test_of_equal_tiles_the_one_without_a_remainder_costs_less() -> None:
    cpu = features(Target("llvm -mcpu=skylake-avx512"))
    assert tile_cost(cpu, 28, RegisterTile(14, 2)) < tile_cost(cpu, 27, RegisterTile(14, 2))


def test_a_single_position_takes_many_channels() -> None:
    cpu = features(Target(TARGETS[0]))
    assert choose_tile(cpu, 1, [1, 2, 4]) == RegisterTile(1, 4)


@pytest.mark.parametrize(("floats", "held"), [(1024, 8), (3072, 8), (1536, 16), (768, 32), (1000, 1024), (1, 8192)])
def test_rows_whole_pages_apart_share_the_lines_of_one_set(floats: int, held: int) -> None:
    cpu = features("llvm -mcpu=skylake-avx512")  # 32 KiB: 8 lines to a set
    assert rows_in_cache(cpu, floats * 4) == held
    tile = row_tile(cpu, 67, 2, floats * 4)
    assert tile <= held
    assert tile == row_tile(cpu, 67, 2, 4) or held < 14


def test_divisors() -> None:
    assert divisors_up_to(12, 4) == [1, 2, 3, 4]
    assert divisors_up_to(7, 4) == [1]


@pytest.mark.parametrize(
    ("channels", "groups", "expected"),
    [
        ((64, 256), 1, ("NCHW16c", "OIHW16i16o")),
        ((3, 64), 1, ("NCHW3c", "OIHW3i16o")),
        ((512, 1000), 1, ("NCHW16c", "OIHW16i40o")),
        ((48, 96), 2, ("NCHW24c", "OIHW24i16o")),
        ((24, 24), 24, ("NCHW24c", "OIHW1i24o")),
        ((8, 184), 1, ("NCHW8c", "OIHW8i8o")),
    ],
)
def test_packed_layouts(channels: tuple[int, int], groups: int, expected: tuple[str, str]) -> None:
    found = topi.cpu.conv2d_layouts(*channels, groups, "float32", Target(TARGETS[0]))
    assert found is not None
    assert (found.data_layout, found.kernel_layout) == expected


@pytest.mark.parametrize(
    ("target", "channels", "side"),
    [
        (TARGETS[0], (144, 24), 2),  # a register and a half
        (TARGETS[0], (128, 16), 2),  # one register
        (TARGETS[0], (512, 1000), 2),  # blocks of 40: two registers and a half
        (TARGETS[0], (480, 112), 2),  # seven blocks of one
        (TARGETS[0], (64, 64), 1),  # two blocks to a tile
        (TARGETS[0], (16, 16), 1),  # adding up takes what better tiles save
        (TARGETS[0], (3, 24), 1),  # no pairs of inputs
        (TARGETS[0], (64, 8), 4),  # two registers
        (TARGETS[0], (18, 18), 2),
        (TARGETS[0], (32, 1), 16),
        ("llvm -mcpu=haswell", (144, 40), 2),
        ("llvm -mcpu=haswell", (144, 16), 1),
        ("llvm -mcpu=haswell", (256, 20), 2),
        ("llvm -mcpu=nehalem", (144, 40), 1),  # without multiply-adds
        ("llvm -mtriple=aarch64-linux-gnu", (144, 20), 1),  # lanes of a register are factors there
        ("c", (144, 24), 1),
    ],
)
def test_inputs_side_by_side(target: str, channels: tuple[int, int], side: int) -> None:
    found = topi.cpu.conv2d_layouts(*channels, target=Target(target))
    assert found is not None
    assert found.side == side
    if side > 1:
        assert found.direct_kernel_layout == f"OIHW{found.in_block // side}i{found.out_block}o{side}i"


@pytest.mark.parametrize(
    ("channels", "block"), [(18, 18), (54, 18), (17, 17), (6, 6), (67, 1), (1, 1), (1000, 40), (20, 20), (0, 1)]
)
def test_blocks_of_channels(channels: int, block: int) -> None:
    assert channel_block(channels, 16) == block


@pytest.mark.parametrize(("channels", "groups"), [((64, 10), 1), ((16, 32), 16), ((7, 7), 7)])
def test_layouts_that_would_not_fill_vectors_are_left_alone(channels: tuple[int, int], groups: int) -> None:
    found = topi.cpu.conv2d_layouts(*channels, groups, "float32", Target(TARGETS[0]))
    assert found is None or found.out_block > 4


def test_blocks_of_dense_weights() -> None:
    target = Target(TARGETS[0])
    assert topi.cpu.dense_block(128, 768, 768, "float32", target) == 48
    assert topi.cpu.dense_block(128, 1024, 768, "float32", target) == 32
    assert topi.cpu.dense_block(128, 96, 768, "float32", target) == 32
    assert topi.cpu.dense_block(128, 768, 768, "float32", Target("llvm -mcpu=haswell")) == 16
    assert topi.cpu.dense_block(1, 4096, 768, "float32", target) == 64
    assert topi.cpu.dense_block(128, 1000, 768, "float32", target) == 48  # padded to 1008
    assert topi.cpu.dense_block(4, 20, 768, "float32", target) == 32
    avx2 = Target("llvm -mcpu=haswell")  # 125 blocks of one register wait for their loads
    assert [topi.cpu.dense_block(rows, 1000, 768, "float32", avx2) for rows in (2, 8, 128)] == [24, 24, 16]
    assert topi.cpu.dense_block(3, 1024, 768, "float32", target) == 32  # padding would be read from memory
    assert topi.cpu.dense_block(4, 10, 12, "float32", target) == 16
    assert topi.cpu.dense_block(4, 10, 768, "float32", target) is None  # dot products
    assert topi.cpu.dense_block(1, 1000, 768, "float32", target) is None
    assert topi.cpu.dense_block(1, 96, 768, "float32", target) == 96
    assert topi.cpu.dense_block(1, 1000, 768, "float32", Target("llvm -mcpu=haswell")) == 40
    assert topi.cpu.dense_block(1, 48, 768, "float32", Target("llvm -mcpu=haswell")) == 48
    assert topi.cpu.dense_block(1, 16, 768, "float32", Target("llvm -mcpu=haswell")) is None
