"""How an operator is declared: one class, in one file, that says everything about it.

::

    class BiasAdd(OpDef[BiasAddAttrs]):
        '''Add a 1-D bias along ``axis``.'''
        name = "nn.bias_add"
        inputs = ("data", "bias")
        pattern = OpPattern.BROADCAST

        @staticmethod
        def infer_type(types, attrs, solver):       # -> Type, or None while an input is not known yet
        @staticmethod
        def compute(attrs, inputs, out_type):       # te.Tensors from te.Tensors
        @staticmethod
        def evaluate(attrs, inputs):                # numpy meaning: constant folding, and the tests' oracle

``OpDef[None]`` is the base of an operator without attributes. Subclassing registers the operator: each hook that is
defined becomes an attribute of the ``Op`` under TVM's name (``TOpPattern``, ``FTVMCompute``, ``FTVMStrategy``,
``FTVMAlterOpLayout``, ...), where passes look it up and where ``register_op_attr`` can override it. The hooks::

    infer_type(types, attrs, solver)                       -> Type | None
    compute(attrs, inputs, out_type)                       -> [te.Tensor]      tuple arguments are flattened
    schedule(attrs, outs, target)                          -> te.Schedule
    strategy(attrs, inputs, out_type, target)              -> OpStrategy       instead of compute and schedule
    evaluate(attrs, arrays)                                -> [numpy array]
    legalize(attrs, args, types)                           -> Expr | None      types end with the result's
    canonicalize(attrs, args, typed_call)                  -> Expr | None
    canonicalize_qnn, legalize_qnn                         -> Expr | None      as legalize, of ``relay.qnn``
    simplify_inference(attrs, args, typed_call)            -> Expr | None      (of the first field where the op
                                                                               attribute TSimplifiesFirstField is set)
    alter_op_layout(attrs, args, arg_types, out_type)      -> Expr | None      under the target
    convert_op_layout(attrs, args, arg_types, layouts)     -> Expr
    infer_correct_layout(attrs, new_in, old_in, old_types) -> InferCorrectLayoutOutput, see ``layout_rules``
    to_static(call)                                        -> Expr with known values as attributes | None
    check_indices(attrs, args)                             -> args, checked by CheckIndices
    pad_data(attrs, pad_width, value)                      -> attrs that pad the data, too | None
    trim_window(attrs, args, typed_call)                   -> Expr without products with padding alone | None
    scale_axes(attrs, types)                               -> ScaleAxes | None, see ``scaling``
    slice_operands(call, cut, shape, operands)             -> Part | None, see ``slice_rules``
    band_operands(call, cut, shape, operands)              -> Part | None, where parts of neighbouring cuts overlap
    side_by_side(calls)                                    -> attrs of one call for several on one first argument, their
                                                              other arguments concatenated along the first axis | None
    places(attrs)                                          -> [Place] of each argument and of the result
    value_range(attrs, ranges, types)                      -> [Range], see ``value_ranges``
    multiply_adds(call)                                    -> int, of the plain method, see ``nn.kernel_work``
    window(call)                                           -> (elements, channels of a group), likewise
    modelled_cost(call, cpu)                               -> float | None, see ``nn.kernel_cost``
    gradient(attrs, orig, grad)                            -> [Expr | None] of each argument, see ``gradients``

The traits, ``TRAITS``, are facts that passes read; a declaration states those that differ from ``OpDef``'s.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar, get_args

from tilewright.ir.attrs import Attrs
from tilewright.ir.op import Op
from tilewright.ir.type import Type

A = TypeVar("A")


class OpPattern(enum.IntEnum):
    """How an operator fuses with others (TVM's kElemWise ... kOpaque)."""

    ELEMWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    COMM_REDUCE = 3
    OUT_ELEMWISE_FUSABLE = 4
    TUPLE = 7
    OPAQUE = 8


class Homogeneous(enum.Enum):
    """For which factors ``s`` an operator computes ``f(s * x)`` as ``s * f(x)``."""

    NO = "none"
    POSITIVE = "positive ones"
    ANY = "all"


class TypeSolver(Protocol):
    """The questions that a type relation may ask of type inference."""

    def assign(self, unknown: Type, known: Type) -> None:
        """Set the type ``unknown`` (an input with holes) to ``known``; raise on contradiction."""

    def assert_equal(self, a: Any, b: Any, what: str) -> bool:
        """Require two dimensions to be equal.

        Return False while that is undecided; raise TypeInferenceError where they differ.
        """


Place = int | str
"""A device type, or ``HOST``, or a name for any one device: the same one wherever it stands in a call."""

HOST = "host"

HOOKS: dict[str, str] = {
    "compute": "FTVMCompute",
    "schedule": "FTVMSchedule",
    "strategy": "FTVMStrategy",
    "evaluate": "FEvaluate",
    "legalize": "FTVMLegalize",
    "canonicalize": "FTVMCanonicalize",
    "canonicalize_qnn": "FTVMQnnCanonicalize",
    "legalize_qnn": "FTVMQnnLegalize",
    "simplify_inference": "FSimplifyInference",
    "alter_op_layout": "FTVMAlterOpLayout",
    "convert_op_layout": "FTVMConvertOpLayout",
    "infer_correct_layout": "FInferCorrectLayout",
    "to_static": "FToStatic",
    "check_indices": "FCheckIndices",
    "value_range": "FValueRange",
    "places": "FPlaces",
    "pad_data": "FPadData",
    "trim_window": "FTrimWindow",
    "scale_axes": "FScaleAxes",
    "slice_operands": "FSliceOperands",
    "band_operands": "FBandOperands",
    "side_by_side": "FSideBySide",
    "multiply_adds": "FMultiplyAdds",
    "window": "FWindow",
    "modelled_cost": "FModelledCost",
    "gradient": "FPrimalGradient",
}

TRAITS: dict[str, str] = {
    "non_computational": "TNonComputational",
    "stateful": "TOpIsStateful",
    "grows": "TGrows",
    "in_float32": "TInFloat32",
    "takes_injective": "TTakesInjective",
    "reshapes": "TReshapeOp",
    "sequential": "TSequential",
    "machine": "TMachineOp",
    "moves": "TMovesData",
    "reads_shape": "TReadsShape",
    "fill": "TFill",
    "fixed_points": "TFixedPoints",
    "neutral": "TNeutral",
    "absorbing": "TAbsorbing",
    "finite": "TFinite",
    "homogeneous": "THomogeneous",
    "channelwise": "TChannelwise",
    "factors": "TFactors",
    "least_parallel": "TLeastParallel",
    "fast": "TFast",
    "kind": "TKernelKind",
    "reorders": "TReorders",
    "transcendental": "TTranscendental",
    "indirect": "TIndirect",
}


class OpDef(Generic[A]):
    """Base of operator declarations, generic in the class of the attributes. Subclasses with a ``name`` register."""

    name: ClassVar[str] = ""
    inputs: ClassVar[tuple[str, ...] | None] = None  # None: any number of arguments
    attrs_type: ClassVar[type[Attrs] | None] = None  # taken from ``OpDef[...]``
    pattern: ClassVar[OpPattern] = OpPattern.OPAQUE
    non_computational: ClassVar[bool] = False  # no kernel: vm.*, memory.*
    stateful: ClassVar[bool] = False  # not to be merged or removed
    grows: ClassVar[bool] = False  # prepares weights and enlarges them: see FoldConstant
    in_float32: ClassVar[Any] = False  # also for float16 and bfloat16: see ComputeInFloat32; or a function of attrs
    takes_tuple: ClassVar[bool] = False  # its only operand is a tuple
    takes_injective: ClassVar[bool] = False  # its kernel may transpose or slice operands as it reads them
    reshapes: ClassVar[bool] = False  # returns the elements of its first argument in order, in another shape
    sequential: ClassVar[bool] = False  # its steps depend on one another, which is slow on GPUs: see PlaceOperators
    machine: ClassVar[bool] = False  # an instruction of the virtual machine, which needs no kernel
    reads_shape: ClassVar[bool] = False  # of its argument, only the shape
    moves: ClassVar[bool] = False  # every element of the result is one of the first argument, unchanged
    fill: ClassVar[int | None] = None  # the value of every element of the result
    fixed_points: ClassVar[tuple[int, ...]] = ()  # values v: a first argument full of v yields a result full of v
    neutral: ClassVar[tuple[int | None, int | None]] = (None, None)  # a left, a right operand that changes nothing
    absorbing: ClassVar[int | None] = None  # an operand that makes the result equal to it
    finite: ClassVar[bool] = False  # maps finite numbers to finite numbers, however often it is applied
    homogeneous: ClassVar[Homogeneous] = (
        Homogeneous.NO
    )  # the factors of its data that pass through, along axes it keeps
    channelwise: ClassVar[bool] = False  # each channel of the result depends only on that channel of the data
    factors: ClassVar[int] = 0  # the number of leading arguments whose products it sums
    least_parallel: ClassVar[int | None] = None  # so few calls on one first argument, which they prepare, pay combined
    fast: ClassVar[str | None] = None  # the operator that approximates it
    kind: ClassVar[str | None] = None  # of its kernels in reports: conv, dense, attention, pool, ... or as the pattern
    reorders: ClassVar[bool] = False  # puts the elements of its argument in another order
    transcendental: ClassVar[bool] = False  # computes an exponential, a logarithm or the like of each element
    indirect: ClassVar[bool] = False  # what it reads or writes depends on the values of an argument
    support_level: ClassVar[int] = (
        10  # TVM's rank of importance, from 1 (operators of a multilayer perceptron) up; not inherited
    )
    op: ClassVar[Op]

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: A, solver: TypeSolver) -> Type | None:
        """Return the type of the result, or None while too little is known of the argument types.

        ``relations.tensor`` and its like wait by themselves: they raise StillUnknown, which type inference catches.
        """
        raise TypeError("an operator declaration defines infer_type")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for argument in [a for base in cls.__dict__.get("__orig_bases__", ()) for a in get_args(base)]:
            if isinstance(argument, type):
                cls.attrs_type = argument if issubclass(argument, Attrs) else None
        if "name" not in cls.__dict__ or not cls.name:
            return
        cls.moves = cls.moves or cls.reshapes
        cls.op = op = Op.get_or_register(cls.name)
        op.set_attr("OpDef", cls)
        op.set_attr("FInferType", cls.infer_type)
        op.set_attr("TOpPattern", cls.pattern)
        op.set_support_level(cls.__dict__.get("support_level", 10))
        for trait, key in TRAITS.items():
            if (value := getattr(cls, trait)) != getattr(OpDef, trait):
                op.set_attr(key, value)
        for method, key in HOOKS.items():
            if (hook := getattr(cls, method, None)) is not None:
                op.set_attr(key, _of_call(hook) if method == "gradient" else hook)


def _of_call(gradient: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A gradient with TVM's parameters, the call and the gradient of its result."""
    return lambda orig, grad: gradient(orig.attrs, orig, grad)


def declare(name: str, doc: str, base: type[OpDef[Any]] = OpDef, **members: Any) -> type[OpDef[Any]]:
    """Declare the operator ``name`` without a class body, for families of operators that differ in a few values.

    ``members`` are those of the class that ``doc`` describes; functions among them become its hooks.
    """
    methods = {key: staticmethod(members.pop(key)) for key in ("infer_type", *HOOKS) if key in members}
    title = name.rpartition(".")[2].title().replace("_", "")
    return type(title, (base,), {"__doc__": doc, "__module__": __name__, "name": name, **members, **methods})
