"""The model that chooses how a convolution runs."""

import pytest

from tilewright.target import Target
from tilewright.target.features import features
from tilewright.topi.cpu.model import conv2d_cost
from tilewright.topi.nn.conv import share_inside
from tilewright.topi.nn.winograd_forms import winograd_form

pytestmark = pytest.mark.usefixtures("processor")

TARGETS = ["llvm", "llvm -mcpu=core-avx2", "llvm -mcpu=x86-64", "llvm -mcpu=core-avx2 -num-cores=64"]


def chosen(
    channels: int, extent: int, sizes: tuple = (2, 4), dtype: str = "float32", inside: float = 1.0
) -> int | None:
    target = Target("llvm -mcpu=core-avx2")
    return conv2d_cost.choose_winograd_tile((1, channels, channels), (extent, extent), inside, dtype, sizes, target)


def test_the_model_wants_large_images_and_whole_vectors_of_channels() -> None:
    assert chosen(64, 56) == 4
    assert chosen(64, 56, (2,)) == 2
    assert chosen(64, 56, ()) is None
    assert chosen(64, 2) is None
    assert chosen(60, 56) is None
    assert chosen(64, 56, dtype="float64") is None


@pytest.mark.parametrize("target", TARGETS)
def test_blocks_cover_the_image_and_register_tiles_fit_the_registers(target: str) -> None:
    cpu = features(Target(target))
    for tiles in [(1, 1), (2, 3), (7, 7), (13, 56), (57, 1)]:
        for channels, chunks in [(16, 1), (64, 6), (512, 32)]:
            for b in conv2d_cost.winograd_blockings(cpu, winograd_form((3, 3), 4), tiles, channels, chunks):
                assert b.rows * b.columns * b.vectors + b.vectors + 1 <= cpu.vector_registers
                assert b.block_h % b.rows == 0 and b.block_w % b.columns == 0 and chunks % (b.vectors * b.parts) == 0


def test_an_image_of_few_tiles_is_cut_along_its_channels_for_many_cores() -> None:
    few, many = (features(Target(f"llvm -mcpu=core-avx2 -num-cores={n}")) for n in (1, 16))
    form = winograd_form((3, 3), 4)
    assert conv2d_cost.winograd_blockings(few, form, (2, 2), 256, 32)[0].parts == 1
    assert conv2d_cost.winograd_blockings(many, form, (2, 2), 256, 32)[0].parts >= 16


def test_small_images_and_large_weights_count_what_memory_takes() -> None:
    cpu = features(Target("llvm -mcpu=core-avx2"))
    products, memory = 8 * 9 * 4 * 2 * 2, 8 * 9 * 4 * 8 * 4 / 4.0
    small = conv2d_cost.direct_cost(cpu, (1, 8, 32), (2, 2), 9)
    assert small > max(products, memory)


def test_products_with_padding_count_nothing() -> None:
    cpu = features(Target("llvm -mcpu=core-avx2"))
    assert share_inside(7, 7, 3, before=1) == pytest.approx(19 / 21)
    assert share_inside(8, 4, 3, stride=2, before=1) == pytest.approx(11 / 12)
    assert share_inside(9, 5, 3, dilation=2) == 1
    whole, part = (conv2d_cost.direct_cost(cpu, (1, 64, 64), (56, 56), 9, inside) for inside in (1.0, 0.5))
    assert part < 0.6 * whole
    assert chosen(64, 56) == 4 and chosen(64, 56, inside=0.2) is None
