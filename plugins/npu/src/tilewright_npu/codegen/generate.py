"""A partitioned function as a program."""

from __future__ import annotations

from tilewright.relay.expr import Function
from tilewright_npu.codegen.layers import network_of
from tilewright_npu.codegen.memory import RESIDENT_BYTES, OutOfMemoryError, Scratch, plan
from tilewright_npu.codegen.others import VectorLayer
from tilewright_npu.codegen.products import Product
from tilewright_npu.codegen.tiles import Emitter
from tilewright_npu.isa import DDR_BYTES, SRAM_BYTES, Program, Region, RegionKind


def generate(func: Function, name: str, sram: int = SRAM_BYTES, ddr: int = DDR_BYTES) -> Program:
    """The program of a typed function whose operators are composites of ``patterns``.

    Parameters
    ----------
    name : of the program.
    sram, ddr : bytes that it may use.

    Raises
    ------
    OutOfMemoryError : a layer, or the weights, do not fit.
    """
    network = network_of(func, name)
    resident = RESIDENT_BYTES * sram // SRAM_BYTES // 64 * 64
    emitter = Emitter(network, plan(network, ddr, resident), Scratch(resident, sram))
    for layer in network.layers:
        emitter.prepare(layer)
        if layer.kind == "product":
            Product(emitter, layer).emit()
        else:
            VectorLayer(emitter, layer).emit()
    constants = bytes(emitter.constants.data) or bytes(64)
    constants += bytes(-len(constants) % 64)
    if len(constants) + emitter.places.workspace > ddr:
        raise OutOfMemoryError(
            f"{name}: weights of {len(constants)} bytes and a workspace of {emitter.places.workspace} exceed {ddr} "
            "bytes of DDR; partition less of the network, or use a chip with more (-ddr=)"
        )
    regions = [
        Region("constants", RegionKind.CONSTANT, len(constants)),
        Region("workspace", RegionKind.WORKSPACE, max(emitter.places.workspace, 64)),
    ]
    for tensor, kind in (
        *((t, RegionKind.INPUT) for t in network.inputs),
        *((t, RegionKind.OUTPUT) for t in network.outputs),
    ):
        size = tensor.channels * tensor.height * tensor.width * tensor.dtype.bytes
        regions.append(Region(tensor.name, kind, size))
    stream = emitter.stream
    return Program(name, regions, stream.commands, stream.layers, constants, sram)
