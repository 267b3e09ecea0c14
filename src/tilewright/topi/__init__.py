"""TOPI, the tensor operator inventory: what operators compute (in tensor expressions) and how (schedules).

broadcast.py math.py reduction.py transform.py indexing.py scatter.py sort.py unique.py argwhere.py scan.py trees.py
sparse_tensors/     einsum.py   tensors                          checks.py   indices
nn/        computes of neural networks           image/     resizing of images
vision/    boxes and regions of interest         random/    random numbers
cpu/       schedules for CPUs, and the packed computes that they need           generic/   schedules that fit any target
gpu/       schedules for graphics processors           x86/ arm_cpu/ cuda/   TVM's names of cpu/ and gpu/
mali/ bifrost/ rocm/ intel_graphics/ hls/   TVM's names of gpu/ and generic/           vendors.py   all these names
utils.py   constant shapes, walks over operations           tag.py kinds.py   what computes are, for schedules
loops.py   hand-written loops for any target                options.py   the options ``topi.*``
shape_checks.py   checks of sizes when a model runs
"""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

from tilewright.target.generic_func import implemented_in
from tilewright.topi import generic, image, nn, random, tag, utils, vision
from tilewright.topi import sparse_tensors as sparse
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
from tilewright.topi.sparse_tensors import *  # noqa: F403
from tilewright.topi.transform import *  # noqa: F403
from tilewright.topi.trees import *  # noqa: F403
from tilewright.topi.unique import *  # noqa: F403
from tilewright.topi.utils import InvalidShapeError, get_const_int, get_const_tuple

if TYPE_CHECKING:
    from tilewright.topi import arm_cpu, bifrost, cpu, cuda, gpu, hls, intel_graphics, mali, rocm, x86

__all__ = [
    "InvalidShapeError", "arm_cpu", "bifrost", "cpu", "cuda", "generic", "get_const_int", "get_const_tuple", "gpu",
    "hls", "image", "intel_graphics", "mali", "nn", "random", "rocm", "sparse", "tag", "utils", "vision", "x86",
]  # fmt: skip

implemented_in("cpu", "tilewright.topi.cpu")
implemented_in("gpu", "tilewright.topi.gpu")


def __getattr__(name: str) -> ModuleType:
    if name in __all__:  # the packages for kinds of targets, which load on use
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
