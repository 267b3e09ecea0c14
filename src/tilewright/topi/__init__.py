"""TOPI, the tensor operator inventory: what operators compute (in tensor expressions) and how (schedules).

broadcast.py math.py reduction.py transform.py indexing.py scatter.py sort.py unique.py argwhere.py scan.py sparse.py
           einsum.py   tensors                          checks.py   indices
nn/        computes of neural networks           image/     resizing of images
vision/    boxes and regions of interest         random/    random numbers
cpu/       schedules for CPUs, and the packed computes that they need           generic/   schedules that fit any target
gpu/       schedules for graphics processors           x86/ arm_cpu/ cuda/   TVM's names of cpu/ and gpu/
mali/ bifrost/ rocm/ intel_graphics/ hls/   TVM's names of gpu/ and generic/
utils.py   constant shapes, walks over operations           tag.py kinds.py   what computes are, for schedules
network.py   facts about the network for schedules
"""

from tilewright.topi import (
    arm_cpu,
    bifrost,
    cpu,
    cuda,
    generic,
    gpu,
    hls,
    image,
    intel_graphics,
    mali,
    nn,
    random,
    rocm,
    tag,
    utils,
    vision,
    x86,
)  # fmt: skip
from tilewright.topi.argwhere import *  # noqa: F403
from tilewright.topi.broadcast import *  # noqa: F403
from tilewright.topi.checks import *  # noqa: F403
from tilewright.topi.einsum import *  # noqa: F403
from tilewright.topi.indexing import *  # noqa: F403
from tilewright.topi.math import *  # noqa: F403
from tilewright.topi.reduction import *  # noqa: F403
from tilewright.topi.scan import *  # noqa: F403
from tilewright.topi.scatter import *  # noqa: F403
from tilewright.topi.shape_checks import *  # noqa: F403
from tilewright.topi.sort import *  # noqa: F403
from tilewright.topi.sparse import *  # noqa: F403
from tilewright.topi.transform import *  # noqa: F403
from tilewright.topi.unique import *  # noqa: F403
from tilewright.topi.utils import InvalidShapeError, get_const_int, get_const_tuple

__all__ = [
    "InvalidShapeError",
    "arm_cpu",
    "bifrost",
    "cpu",
    "cuda",
    "generic",
    "get_const_int",
    "get_const_tuple",
    "gpu",
    "hls",
    "image",
    "intel_graphics",
    "mali",
    "nn",
    "random",
    "rocm",
    "tag",
    "utils",
    "vision",
    "x86",
]
