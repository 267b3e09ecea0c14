"""The generator of DCGAN (Radford et al., "Unsupervised Representation Learning with Deep ... GANs", 2015)."""

from __future__ import annotations

from tilewright import relay
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Function
from tilewright.relay.testing import layers
from tilewright.relay.testing.init import create_workload
from tilewright.runtime.ndarray import NDArray


def deconv2d(
    data: RelayExpr,
    ishape: tuple[int, int, int],
    oshape: tuple[int, int, int],
    kshape: tuple[int, int],
    layout: str,
    name: str,
    stride: tuple[int, int] = (2, 2),
) -> RelayExpr:
    """A transposed convolution from ``ishape`` to ``oshape``, both (channels, height, width)."""
    padding = tuple((k - 1) // 2 for k in kshape)
    output_padding = tuple(
        (out + 2 * p - k) % s for out, p, k, s in zip(oshape[1:], padding, kshape, stride, strict=True)
    )
    return layers.conv2d_transpose(
        data, kernel_size=kshape, strides=stride, channels=oshape[0], padding=padding, output_padding=output_padding,
        data_layout=layout, kernel_layout="IOHW" if layout == "NCHW" else "HWOI", name=name,
    )  # fmt: skip


def deconv2d_bn_relu(
    data: RelayExpr,
    ishape: tuple[int, int, int],
    oshape: tuple[int, int, int],
    kshape: tuple[int, int],
    prefix: str,
    layout: str,
) -> RelayExpr:
    """Transposed convolution, batch normalization, ReLU."""
    net = deconv2d(data, ishape, oshape, kshape, layout, f"{prefix}_deconv")
    net = layers.batch_norm_infer(net, scale=False, axis=layout.index("C"), name=f"{prefix}_batch_norm")
    result: RelayExpr = relay.nn.relu(net)
    return result


def get_net(
    batch_size: int,
    random_len: int = 100,
    oshape: tuple[int, int, int] = (3, 64, 64),
    ngf: int = 128,
    code: RelayExpr | None = None,
    layout: str = "NCHW",
    dtype: str = "float32",
) -> Function:
    """Return the generator.

    Args:
        batch_size: images at once.
        random_len: length of the random code.
        oshape: one image, (channels, 64, 64).
        ngf: channels before the last layer.
        code: the input; a variable ``data`` by default.
        layout: NCHW or NHWC.
        dtype: element type.
    """
    if oshape[1:] != (64, 64):
        raise ValueError(f"the generator makes images of 64x64, not {oshape[1]}x{oshape[2]}")
    if code is None:
        code = relay.var("data", shape=(batch_size, random_len), dtype=dtype)
    net: RelayExpr = relay.nn.relu(relay.nn.dense(code, relay.var("dense_weight"), units=4 * 4 * ngf * 8))
    net = relay.reshape(net, newshape=(-1, ngf * 8, 4, 4) if layout == "NCHW" else (-1, 4, 4, ngf * 8))
    for prefix, scale, size in (("g2", 8, 4), ("g3", 4, 8), ("g4", 2, 16)):
        before, after = (ngf * scale, size, size), (ngf * scale // 2, size * 2, size * 2)
        net = deconv2d_bn_relu(net, before, after, (4, 4), prefix, layout)
    net = relay.tanh(deconv2d(net, (ngf, 32, 32), oshape, (4, 4), layout, "g5_deconv"))
    return Function(relay.analysis.free_vars(net), net)


def get_workload(
    batch_size: int,
    oshape: tuple[int, int, int] = (3, 64, 64),
    ngf: int = 128,
    random_len: int = 100,
    layout: str = "NCHW",
    dtype: str = "float32",
) -> tuple[IRModule, dict[str, NDArray]]:
    """The network as a typed module, and its parameters; arguments as ``get_net``."""
    return create_workload(get_net(batch_size, random_len, oshape, ngf, layout=layout, dtype=dtype))
