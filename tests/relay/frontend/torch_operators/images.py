"""Operators of images: convolutions, pools, normalizations, resizing."""

from __future__ import annotations

import torch.nn.functional as F
from tests.relay.frontend.torch_operators.case import case, i, p, x

case(
    "convolutions",
    "1d",
    lambda a, w, c: F.conv1d(a, w, c, stride=2, padding=1, dilation=2),
    x(2, 3, 11),
    x(5, 3, 3),
    x(5),
)
case(
    "convolutions",
    "2d",
    lambda a, w, c: F.conv2d(a, w, c, stride=(2, 1), padding=(1, 0)),
    x(2, 3, 11, 7),
    x(5, 3, 3, 3),
    x(5),
)
case("convolutions", "3d", F.conv3d, x(1, 2, 5, 6, 7), x(3, 2, 3, 3, 3))
case("convolutions", "groups", lambda a, w: F.conv2d(a, w, groups=4, padding="same"), x(1, 4, 7, 5), x(8, 1, 4, 3))
case("convolutions", "no batch", lambda a, w: F.conv2d(a, w, padding="valid"), x(3, 7, 5), x(2, 3, 3, 3))
case(
    "convolutions",
    "transposed",
    lambda a, w, c: F.conv_transpose2d(a, w, c, stride=2, padding=1, output_padding=1),
    x(2, 3, 5, 4),
    x(3, 4, 3, 3),
    x(4),
)
case(
    "convolutions",
    "transposed 1d in groups",
    lambda a, w: F.conv_transpose1d(a, w, stride=3, groups=2, dilation=2),
    x(2, 4, 5),
    x(4, 3, 3),
)
case(
    "convolutions", "transposed 3d", lambda a, w: F.conv_transpose3d(a, w, stride=2), x(1, 2, 3, 3, 3), x(2, 3, 2, 2, 2)
)

case(
    "pools",
    "max",
    lambda a: (F.max_pool2d(a, 3, 2, 1), F.max_pool2d(a, 2, ceil_mode=True), F.max_pool2d(a, (3, 2), dilation=2)),
    x(2, 3, 11, 9),
)
case("pools", "max with indices", lambda a: F.max_pool2d(a, 3, 2, 1, return_indices=True), x(2, 3, 11, 9))
case("pools", "max 1d and 3d", lambda a, c: (F.max_pool1d(a, 3), F.max_pool3d(c, 2)), x(2, 3, 11), x(1, 2, 5, 6, 4))
case(
    "pools",
    "avg",
    lambda a: (
        F.avg_pool2d(a, 3, 2, 1),
        F.avg_pool2d(a, 2, ceil_mode=True),
        F.avg_pool2d(a, 3, padding=1, count_include_pad=False),
        F.avg_pool2d(a, 2, divisor_override=3),
    ),
    x(2, 3, 11, 9),
)
case("pools", "avg 1d and 3d", lambda a, c: (F.avg_pool1d(a, 3, 2), F.avg_pool3d(c, 2)), x(2, 3, 11), x(1, 2, 5, 6, 4))
case(
    "pools",
    "adaptive",
    lambda a: (
        F.adaptive_avg_pool2d(a, 1),
        F.adaptive_avg_pool2d(a, (3, 2)),
        F.adaptive_avg_pool2d(a, (None, 3)),
        F.adaptive_max_pool2d(a, 4),
    ),
    x(2, 3, 8, 6),
)
case(
    "pools",
    "adaptive 1d and 3d",
    lambda a, c: (F.adaptive_avg_pool1d(a, 3), F.adaptive_avg_pool3d(c, 2)),
    x(2, 3, 11),
    x(1, 2, 5, 6, 4),
)
case("pools", "no batch", lambda a: (F.max_pool2d(a, 2), F.avg_pool2d(a, 2)), x(3, 7, 5))
case("pools", "lp", lambda a: F.lp_pool2d(a, 2, 3), x(1, 2, 7, 7))
case("pools", "unpool", lambda a: F.max_unpool2d(*F.max_pool2d(a, 2, return_indices=True), 2), x(1, 2, 6, 4))

case(
    "normalizations",
    "layer",
    lambda a, w, c: (F.layer_norm(a, (5,), w, c), F.layer_norm(a, (4, 5)), F.layer_norm(a, (5,), w)),
    x(3, 4, 5),
    x(5),
    x(5),
)
case(
    "normalizations", "group", lambda a, w, c: (F.group_norm(a, 2, w, c), F.group_norm(a, 3)), x(2, 6, 5, 3), x(6), x(6)
)
case(
    "normalizations",
    "batch",
    lambda a, m, v, w, c: (F.batch_norm(a, m, v, w, c), F.batch_norm(a, m, v)),
    x(2, 3, 5),
    x(3),
    p(3),
    x(3),
    x(3),
)
case(
    "normalizations",
    "instance",
    lambda a, w, c: (F.instance_norm(a), F.instance_norm(a, weight=w, bias=c)),
    x(2, 3, 5, 4),
    x(3),
    x(3),
)
case("normalizations", "rms", lambda a, w: (F.rms_norm(a, (5,), w), F.rms_norm(a, (5,), eps=1e-3)), x(3, 5), x(5))
case("normalizations", "local response", lambda a: F.local_response_norm(a, 3), x(2, 5, 4, 4))
case("normalizations", "normalize", lambda a: (F.normalize(a), F.cosine_similarity(a, a + 1)), x(3, 5))
case(
    "normalizations",
    "losses",
    lambda a, t: (
        F.cross_entropy(a, t),
        F.mse_loss(a, a + 1),
        F.nll_loss(a.log_softmax(1), t),
        F.smooth_l1_loss(a, a * 2),
        F.binary_cross_entropy_with_logits(a, a.sigmoid()),
    ),
    x(4, 5),
    i(4),
)

for _mode in ("nearest", "bilinear", "bicubic", "nearest-exact", "area"):
    case(
        "resizing",
        _mode,
        lambda a, m=_mode: (
            F.interpolate(a, scale_factor=2, mode=m),
            F.interpolate(a, size=(7, 5), mode=m),
            F.interpolate(a, size=(3, 4), mode=m),
        ),
        x(1, 2, 5, 6),
    )
for _mode in ("bilinear", "bicubic"):
    case(
        "resizing",
        f"{_mode} by corners",
        lambda a, m=_mode: F.interpolate(a, size=(7, 5), mode=m, align_corners=True),
        x(1, 2, 5, 6),
    )
    case(
        "resizing",
        f"{_mode} antialiased",
        lambda a, m=_mode: F.interpolate(a, size=(3, 4), mode=m, antialias=True),
        x(1, 2, 7, 6),
    )
case(
    "resizing",
    "1d and 3d",
    lambda a, c: (
        F.interpolate(a, size=7, mode="linear"),
        F.interpolate(a, scale_factor=2.5),
        F.interpolate(c, scale_factor=2, mode="trilinear"),
    ),
    x(1, 2, 5),
    x(1, 1, 3, 2, 4),
)
for _mode in ("bilinear", "nearest", "bicubic"):
    case(
        "resizing",
        f"grid_sample {_mode}",
        lambda a, g, m=_mode: [
            F.grid_sample(a, g, m, q, k) for q in ("zeros", "border", "reflection") for k in (False, True)
        ],
        x(1, 2, 5, 6),
        x(1, 3, 4, 2),
    )
case("resizing", "affine_grid", lambda t: F.affine_grid(t, (2, 3, 4, 5), align_corners=False), x(2, 2, 3))
