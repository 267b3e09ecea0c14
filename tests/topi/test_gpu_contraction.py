"""Contractions on GPUs: how they are cut into blocks, threads and tiles in shared memory."""

import pytest

import tilewright as tvm
from tilewright import te, topi
from tilewright.target.gpu import limits_of
from tilewright.target.target import Target
from tilewright.tir.stmt import Allocate, AttrStmt
from tilewright.tir.visitor import post_order_visit
from tilewright.topi.gpu import conv, dense
from tilewright.topi.gpu.tiles import Product, occupancy, ranked


def _lowered(target, compute, schedule, *shapes):
    with Target(target):
        inputs = [te.placeholder(shape, name=f"in{k}") for k, shape in enumerate(shapes)]
        out = topi.nn.relu(compute(*inputs))
        return tvm.lower(schedule([out]), [*inputs, out])["main"].body


def _memory(body):
    """Elements of each allocation by its scope, and the extents of threads and blocks."""
    found = {}

    def visit(node):
        if isinstance(node, Allocate):
            scope = node.buffer_var.type_annotation.storage_scope
            found.setdefault(scope, []).append(int(node.extents[0]))
        elif isinstance(node, AttrStmt) and node.attr_key == "thread_extent":
            found[node.node.thread_tag] = int(node.value)

    post_order_visit(body, visit)
    return found


def test_a_tile_of_either_factor_is_in_shared_memory_and_results_in_registers():
    body = _lowered("opencl", dense.dense_large_batch, dense.schedule_dense_large_batch, (512, 512), (512, 512))
    tile = ranked(Product(1, 512, 512, 512, "float32"), limits_of(Target("opencl")))[0]
    found = _memory(body)
    assert found["local"] == [tile.thread_rows * tile.thread_columns]
    # Both factors lie with the depth next to one another in memory, so that their rows are 4 elements apart from 8 * n.
    assert sorted(found["shared"]) == sorted(tile.depth * (n + 4) for n in (tile.rows, tile.columns))
    assert (found["threadIdx.y"], found["threadIdx.x"]) == tile.threads
    assert (found["blockIdx.y"], found["blockIdx.x"]) == (-(-512 // tile.rows), -(-512 // tile.columns))


def test_the_windows_of_an_image_are_gathered_to_a_tile_of_positions_of_all_images():
    def compute(data, kernel):
        return conv.conv2d_nchw(data, kernel, 1, 1, 1, "float32")

    body = _lowered("opencl", compute, conv.schedule_conv2d_nchw, (8, 64, 14, 14), (64, 64, 3, 3))
    product = Product(1, 64, 8 * 14 * 14, 64 * 9, "float32")
    tile = ranked(product, limits_of(Target("opencl")))[0]
    found = _memory(body)
    assert found["local"] == [tile.thread_rows * tile.thread_columns]
    assert sorted(found["shared"]) == sorted([tile.depth * (tile.rows + 4), tile.depth * tile.columns])
    assert found["blockIdx.x"] == -(-product.columns // tile.columns)


@pytest.mark.parametrize("target", ["opencl", "cuda -arch=sm_75", "cuda -arch=sm_90"])
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (1, 1, 1000, 2048), (12, 128, 128, 64), (1, 4096, 4096, 4096)])
def test_tiles_fit_the_processor(target, sizes):
    limits = limits_of(Target(target))
    tiles = ranked(Product(*sizes, "float32"), limits)
    assert tiles
    for tile in tiles[:20]:
        threads = tile.threads[0] * tile.threads[1]
        assert threads <= limits.threads_per_block
        assert tile.shared_bytes(4) <= limits.shared_per_block
        assert occupancy(tile, 4, limits) >= 1


def test_options_of_the_target_stand_before_the_record():
    limits = limits_of(Target("cuda -arch=sm_86 -max_num_threads=128"))
    assert (limits.name, limits.threads_per_block) == ("sm_86", 128)
    assert limits_of(Target("opencl")).threads_per_block == 256


@pytest.mark.parametrize("shapes", [((70000, 2, 8), (70000, 3, 8)), ((1, 1 << 21, 8), (1, 8, 8))])
def test_blocks_are_all_along_x_where_a_grid_has_too_few_along_y_and_z(shapes):
    body = _lowered("cuda", dense.batch_matmul, dense.schedule_batch_matmul, *shapes)
    found = _memory(body)
    assert all(found.get(f"blockIdx.{axis}", 1) <= 65535 for axis in "yz")
    assert found["blockIdx.x"] > 65535


@pytest.mark.parametrize("sizes", [(1, 1000, 32), (1, 10, 8), (1000, 1, 32), (3, 5, 7)])
def test_a_block_of_a_thin_product_has_a_warp_or_a_thread_for_each_result(sizes):
    rows, columns, depth = sizes
    for target in ("cuda", "opencl"):
        body = _lowered(
            target, dense.dense_large_batch, dense.schedule_dense_large_batch, (rows, depth), (columns, depth)
        )
        found = _memory(body)
        assert found["threadIdx.x"] * found["threadIdx.y"] >= min(32, rows * columns)
