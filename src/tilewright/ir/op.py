"""The operator registry: one ``Op`` object for each operator name, with a dictionary of attributes.

Relay operators (``nn.conv2d``) and TIR intrinsics (``tir.exp``) share it. Relay operators are declared by
``relay.op.definition.OpDef`` classes, which fill the attributes; ``register_op_attr`` adds or overrides one
from outside, as in TVM.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from tilewright.ir.attrs import DictAttrs
from tilewright.ir.errors import TilewrightError, TypeInferenceError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.json_schema import attribute_class
from tilewright.ir.op_table import OPERATORS, find_op


class CallEffectKind:
    """Side effects of a call: values of an intrinsic's ``TCallEffectKind``."""

    ExprAnnotation = Pure = "pure"
    ReadState = "read"
    UpdateState = SpecialCallArg = "update"
    EmbedInfo = ControlJump = Opaque = "opaque"


class Op(RelayExpr):
    """A primitive operator. There is exactly one object for each name; get it with ``Op.get``."""

    name: str
    attrs: dict[str, tuple[Any, int]]

    registry: ClassVar[dict[str, Op]] = OPERATORS
    # Type relations by the names that TVM gives them, for ``add_type_rel``: (types, attrs, solver) -> type or None.
    type_relations: ClassVar[dict[str, Callable[..., Any]]] = {}
    # Modules that set an attribute of operators: each is imported when its attribute is first looked for.
    providers: ClassVar[dict[str, str]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Op.get, (self.name,)

    @staticmethod
    def get(op_name: str) -> Op:
        """Return the operator ``op_name``; raises TilewrightError when there is none."""
        op: Op = find_op(op_name)
        return op

    @staticmethod
    def get_or_register(name: str) -> Op:
        """The operator ``name``, registered now if it is new."""
        op = Op.registry.get(name)
        if op is None:
            op = Op.registry[name] = Op(name, {})
        return op

    @staticmethod
    def list_op_names() -> list[str]:
        """Names of all operators, sorted."""
        return sorted(Op.registry)

    def has_attr(self, attr_name: str) -> bool:
        """Return whether the attribute is set."""
        return self._entry(attr_name) is not None

    def get_attr(self, attr_name: str, default: Any = None) -> Any:
        """Value of the attribute, or ``default``."""
        entry = self._entry(attr_name)
        return default if entry is None else entry[0]

    def _entry(self, attr_name: str) -> tuple[Any, int] | None:
        entry = self.attrs.get(attr_name)
        if entry is None and attr_name in Op.providers:
            importlib.import_module(Op.providers[attr_name])
            entry = self.attrs.get(attr_name)
        return entry

    def set_attr(self, attr_name: str, value: Any, plevel: int = 10) -> None:
        """Set the attribute, unless it was set at a higher ``plevel``."""
        entry = self._entry(attr_name)
        if entry is None or plevel >= entry[1]:
            self.attrs[attr_name] = (value, plevel)

    def reset_attr(self, attr_name: str) -> None:
        """Remove the attribute."""
        self.attrs.pop(attr_name, None)

    @property
    def argument_names(self) -> tuple[str, ...]:
        """Names of the arguments, as declared or added; empty if their number is open."""
        names: tuple[str, ...] = getattr(self.get_attr("OpDef"), "inputs", None) or self.get_attr("TArguments", ())
        return names

    @property
    def num_inputs(self) -> int:
        """Return how many arguments the operator takes; -1 where that is open."""
        inputs = getattr(self.get_attr("OpDef"), "inputs", None)
        count: int = self.get_attr("TNumInputs", -1 if inputs is None else len(inputs))
        return count

    def set_num_inputs(self, n: int) -> None:
        """Set the number of arguments."""
        self.set_attr("TNumInputs", n)

    @property
    def support_level(self) -> int:
        """Support level of the operator: from 1 (most central) on, as registered; 10 by default."""
        level: int = self.get_attr("TSupportLevel", 10)
        return level

    def set_support_level(self, level: int) -> None:
        """Set the support level."""
        self.set_attr("TSupportLevel", level)

    def set_attrs_type_key(self, key: str) -> None:
        """Set the class of the operator's attributes, by TVM's name; raises ValueError if there is none."""
        self.set_attr("TAttrsType", DictAttrs if key == "DictAttrs" else attribute_class(key))

    def add_argument(self, name: str, type: str, description: str) -> None:
        """Name the next argument, for messages; ``type`` and ``description`` are for who reads the program."""
        self.set_attr("TArguments", (*self.get_attr("TArguments", ()), name))

    def add_type_rel(self, rel_name: str, type_rel_func: Callable[[Sequence[Any], Any], Any] | None = None) -> None:
        """Set the type relation of the result: a named one, or ``type_rel_func(arg_types, attrs)``.

        The names are ``Identity``, ``Broadcast`` and ``BroadcastComp``; TilewrightError for another without a function.
        """
        if type_rel_func is not None:

            def infer(types: Sequence[Any], attrs: Any, solver: Any) -> Any:
                self._check_attrs(attrs)
                try:
                    return type_rel_func(types, attrs)
                except AssertionError as error:  # how relations of TVM's users refuse arguments
                    raise TypeInferenceError(str(error) or f"the type relation {rel_name} does not hold") from error

            self.set_attr("FInferType", infer)
        elif rel_name in Op.type_relations:
            self.set_attr("FInferType", Op.type_relations[rel_name])
        else:
            known = ", ".join(sorted(Op.type_relations))
            raise TilewrightError(
                f"there is no type relation {rel_name!r} for {self.name}; there are {known}; or give type_rel_func"
            )

    def _check_attrs(self, attrs: Any) -> None:
        """Raise an error if a call has attributes of another class than ``set_attrs_type_key`` named."""
        wanted = self.get_attr("TAttrsType")
        if wanted is not None and attrs is not None and not isinstance(attrs, wanted):
            raise TilewrightError(
                f"{self.name} takes attributes of the class {wanted.__name__}, a call has {type(attrs).__name__}"
            )

    def __call__(self, *args: Any) -> Any:
        """Call the operator without attributes: a Relay ``Call`` node."""
        return RelayExpr.make_call(self, args)

    def __str__(self) -> str:
        return self.name


def register_op_attr(op_name: str, attr_key: str, value: Any = None, level: int = 10) -> Callable[[Any], Any] | Any:
    """Set attribute ``attr_key`` of an operator; without ``value``, a decorator that sets the function."""

    def register(v: Any) -> Any:
        Op.get_or_register(op_name).set_attr(attr_key, v, level)
        return v

    return register if value is None else register(value)


def register_intrin_lowering(
    op_name: str, target: str, *, f: Callable[[Any], Any] | None = None, level: int = 10
) -> Callable[..., Any]:
    """Register the computation of an intrinsic for a kind of target; without ``f``, return a decorator.

    Args:
        op_name: the intrinsic, such as ``tir.exp``; it is declared if it is new.
        target: a target's kind, such as ``llvm``, or ``default`` for those that have no rule of their own.
        f: from the call to an expression, or to None to leave that call as it is. The result is lowered again, unless
            it is a call of the same intrinsic.
        level: a rule of a higher level is not replaced by one of a lower.
    """

    def register(rule: Callable[[Any], Any]) -> Callable[[Any], Any]:
        register_op_attr(op_name, f"{target}.FLowerIntrinsic", rule, level)
        return rule

    return register if f is None else register(f)


def register_intrin(name: str, effect: str = "pure") -> Op:
    """Declare the TIR intrinsic ``name``; ``effect`` is pure, read, update or opaque."""
    op = Op.get_or_register(name)
    op.set_attr("TCallEffectKind", effect)
    return op
