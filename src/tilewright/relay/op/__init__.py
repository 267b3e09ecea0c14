"""Relay's operators: one declaration each (see ``definition``), and the functions that build calls of them.

tensor/ reduce/ transform/   general tensors          nn/ image/ random/   neural networks, images, random numbers
annotation/ contrib/         marks for passes, patterns of external compilers
memory.py vm.py              memory and kernels' calls, as the virtual machine has them
dyn.py dyn_resize.py         operators whose result's shape depends on values
strategy/                    what runs on which target
definition.py builder.py     what a declaration says; the functions that build calls, made of it
relations.py layout_rules.py families.py attributes.py conv_attrs.py bilinear.py   what declarations share
gradients.py scaling.py slice_rules.py value_ranges.py views.py   hooks of declarations
evaluation.py                operators on numpy arrays
op.py op_attrs.py mixed_precision.py   TVM's registration functions, classes and lists
"""

import sys

from tilewright.relay.expr import const as const
from tilewright.relay.op import annotation, image, nn, random, vision
from tilewright.relay.op import contrib as contrib
from tilewright.relay.op import dyn as dyn
from tilewright.relay.op import dyn_resize as dyn_resize
from tilewright.relay.op import memory as memory
from tilewright.relay.op import op as op
from tilewright.relay.op import reduce as reduce
from tilewright.relay.op import strategy as strategy
from tilewright.relay.op import tensor as tensor
from tilewright.relay.op import transform as transform
from tilewright.relay.op import vm as vm
from tilewright.relay.op.annotation.debug import debug
from tilewright.relay.op.annotation.devices import device_copy
from tilewright.relay.op.builder import exports as _exports
from tilewright.relay.op.definition import OpDef, OpPattern
from tilewright.relay.op.op import get as get
from tilewright.relay.op.op import (
    register_alter_op_layout,
    register_broadcast_schedule,
    register_compute,
    register_convert_op_layout,
    register_external_compiler,
    register_fake_quantization_to_integer,
    register_gradient,
    register_injective_schedule,
    register_legalize,
    register_mixed_precision_conversion,
    register_pattern,
    register_reduce_schedule,
    register_schedule,
    register_strategy,
)  # fmt: skip
from tilewright.relay.op.strategy import OpImplementation, OpSpecialization, OpStrategy, SpecializedCondition
from tilewright.relay.op.transform import checks as checks
from tilewright.relay.op.transform import shape_checks as shape_checks
from tilewright.target.generic_func import implemented_in as _implemented_in

_implemented_in("cpu", f"{__name__}.strategy.cpu")
_implemented_in("gpu", f"{__name__}.strategy.gpu", f"{__name__}.strategy.gpu_contraction")

__all__ = [
    *_exports(globals()),
    "OpDef", "OpImplementation", "OpPattern", "OpSpecialization", "OpStrategy", "SpecializedCondition", "annotation",
    "debug", "device_copy", "image", "nn", "random", "register_alter_op_layout", "register_broadcast_schedule",
    "register_compute", "register_convert_op_layout", "register_external_compiler",
    "register_fake_quantization_to_integer", "register_gradient", "register_injective_schedule",
    "register_legalize", "register_mixed_precision_conversion", "register_pattern", "register_reduce_schedule",
    "register_schedule", "register_strategy", "vision",
]  # fmt: skip

_make = sys.modules[__name__]  # TVM's name for the constructors of operators


def _show_in_packages() -> None:
    """Make functions attributes of the packages that are modules in TVM: ``relay.op.transform.reshape``.

    ``from`` and ``import`` still find modules of these names, such as ``transform/reshape.py``.
    """
    for package in ("reduce", "tensor", "transform"):
        inside = f"{__name__}.{package}"
        for module in [m for name, m in sys.modules.items() if name.startswith(f"{inside}.")]:
            for name in __all__:
                if vars(module).get(name, module) is globals()[name]:
                    setattr(sys.modules[inside], name, globals()[name])


_show_in_packages()
