"""Config spaces: the choices that a schedule template leaves open, and one point among them.

A template asks the configuration for what it needs, and applies the answer::

    cfg.define_split("tile_y", y, num_outputs=2)      # while the space is being collected: all factorings
    yo, yi = cfg["tile_y"].apply(s, C, y)             # while a point is being applied: that factoring

The JSON of a point is that of TVM 0.8's tuning records.
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tilewright.ir.errors import TilewrightError
from tilewright.ir.prim_expr import PrimExpr
from tilewright.tir.expr import IterVar


class InstantiationError(TilewrightError, ValueError):
    """A configuration that cannot be built, as the template reported by ``cfg.raise_error``."""


class TransformSpace:
    """All values of one choice, ``entities``; ``len`` of it and ``[i]`` count and pick them."""

    def __init__(self, entities: Sequence[Any]) -> None:
        self.entities = list(entities)

    def __len__(self) -> int:
        return len(self.entities)

    def __getitem__(self, index: int) -> Any:
        return self.entities[index]

    def include(self, entity: Any) -> None:
        """Have ``entity`` among the values."""
        if repr(entity) not in map(repr, self.entities):
            self.entities.append(entity)

    def __repr__(self) -> str:
        return f"{type(self).__name__} len={len(self)}"


def extent_of(axis: Any) -> int:
    """Return the constant extent of an axis: an int, an IterVar or a ``VirtualAxis``."""
    if isinstance(axis, VirtualAxis):
        return axis.length
    if isinstance(axis, IterVar):
        if axis.dom is None:
            raise TilewrightError(f"axis {axis.var.name} has no extent yet; define splits on root axes or numbers")
        axis = axis.dom.extent
    return int(axis)


class VirtualAxis:
    """A placeholder axis with a length, while a space is being collected."""

    def __init__(self, length: int, name: str = "axis") -> None:
        self.length = int(length)
        self.name = name

    def __repr__(self) -> str:
        return f"{self.name}({self.length})"


def get_factors(n: int) -> list[int]:
    """The divisors of ``n`` in rising order."""
    low = [k for k in range(1, math.isqrt(n) + 1) if n % k == 0]
    return sorted({*low, *(n // k for k in low)})


def get_pow2s(n: int) -> list[int]:
    """The powers of two up to ``n``."""
    return [2**k for k in range(max(n, 1).bit_length())]


class SplitSpace(TransformSpace):
    """Factorings of an axis into ``num_outputs`` parts."""

    def __init__(
        self,
        axis: Any,
        policy: str = "factors",
        num_outputs: int = 2,
        max_factor: int = 1 << 31,
        filter: Callable[[SplitEntity], bool] | None = None,
        no_tail: bool | None = None,
        candidate: Sequence[Sequence[int]] | None = None,
    ) -> None:
        self.product = extent_of(axis)
        self.policy, self.num_outputs = policy, num_outputs
        if policy == "candidate":
            sizes: Iterable[Sequence[int]] = candidate or ()
        else:
            sizes = self._factorings(policy, max_factor, policy == "factors" if no_tail is None else no_tail)
        entities = [SplitEntity(list(s)) for s in sizes]
        super().__init__([e for e in entities if filter is None or filter(e)])

    def _factorings(self, policy: str, max_factor: int, no_tail: bool) -> list[list[int]]:
        if policy in ("factors", "verbose"):
            factors = get_factors(self.product)
        elif policy == "power2":
            factors = get_pow2s(self.product)
        else:
            raise TilewrightError(f"split policy is factors, power2, verbose or candidate, found {policy!r}")
        if policy == "verbose":
            factors = sorted({*factors, *get_pow2s(self.product)})
        factors = [f for f in factors if f <= max_factor]
        found = []
        for inner in itertools.product(factors, repeat=self.num_outputs - 1):
            size = math.prod(inner)
            if size <= self.product and (not no_tail or self.product % size == 0):
                found.append([-1, *reversed(inner)])
        return found

    def __repr__(self) -> str:
        return f"Split(policy={self.policy}, product={self.product}, num_outputs={self.num_outputs}) len={len(self)}"


class SplitEntity:
    """One factoring: the extents of the parts, outermost first; -1 stands for the remaining factor."""

    def __init__(self, size: Sequence[int]) -> None:
        self.size = [int(v) for v in size]

    def apply(self, sch: Any, op: Any, axis: IterVar) -> list[IterVar]:
        """Split ``axis`` of stage ``sch[op]`` into the parts, and return them outermost first."""
        parts: list[IterVar] = []
        outer = axis
        for factor in reversed(self.size[1:]):
            outer, inner = sch[op].split(outer, factor)
            parts.append(inner)
        return [outer, *reversed(parts)]

    def __repr__(self) -> str:
        return str(self.size)


class ReorderSpace(TransformSpace):
    """Orders of axes: all of them, the identity only, or a list of candidates."""

    def __init__(
        self, axes: Sequence[Any], policy: str = "all", candidate: Sequence[Sequence[Any]] | None = None
    ) -> None:
        self.axes, self.policy = list(axes), policy
        n = len(self.axes)
        if policy == "all":
            orders: Iterable[Sequence[int]] = itertools.permutations(range(n))
        elif policy == "identity":
            orders = [range(n)]
        elif policy == "candidate":
            orders = [[self.axes.index(a) for a in order] for order in candidate or ()]
        else:
            raise TilewrightError(f"reorder policy is all, identity or candidate, found {policy!r}")
        super().__init__([ReorderEntity(list(o)) for o in orders])

    def __repr__(self) -> str:
        return f"Reorder(policy={self.policy}) len={len(self)}"


class ReorderEntity:
    """One order: ``perm[k]`` is the position of the axis that comes k-th."""

    def __init__(self, perm: Sequence[int]) -> None:
        self.perm = [int(v) for v in perm]

    def apply(self, sch: Any, op: Any, axes: Sequence[IterVar]) -> list[IterVar]:
        """Reorder ``axes`` of stage ``sch[op]``, and return them in their new order."""
        ordered = [axes[k] for k in self.perm]
        if len(ordered) > 1:
            sch[op].reorder(*ordered)
        return ordered

    def __repr__(self) -> str:
        return str(self.perm)


class AnnotateSpace(TransformSpace):
    """Annotations (unroll, vec, none) of axes."""

    def __init__(self, axes: Sequence[Any], policy: str, candidate: Sequence[Sequence[str]] | None = None) -> None:
        self.policy = policy
        n = len(axes)
        if policy == "try_vec":
            choices: list[Sequence[str]] = [["none"] * n, [*["none"] * (n - 1), "vec"]]
        elif policy == "try_unroll":
            choices = [["none"] * n, [*["none"] * (n - 1), "unroll"]]
        elif policy == "try_unroll_vec":
            choices = [["none"] * n, [*["none"] * (n - 1), "unroll"], [*["none"] * (n - 1), "vec"]]
        elif policy == "candidate":
            choices = list(candidate or ())
        else:
            raise TilewrightError(
                f"annotation policy is try_vec, try_unroll, try_unroll_vec or candidate, found {policy!r}"
            )
        super().__init__([AnnotateEntity(list(c)) for c in choices])

    def __repr__(self) -> str:
        return f"Annotate(policy={self.policy}) len={len(self)}"


class AnnotateEntity:
    """One annotation for each axis."""

    def __init__(self, anns: Sequence[str]) -> None:
        self.anns = list(anns)

    def apply(self, sch: Any, op: Any, axes: Sequence[IterVar], axis_lens: Any = None, max_unroll: int | None = None,
              vec_size: Sequence[int] | None = None, cfg: Any = None, source: Any = None) -> list[IterVar]:  # fmt: skip
        """Annotate ``axes`` of stage ``sch[op]``; ``vec`` splits an axis to the largest fitting of ``vec_size``."""
        axes = list(axes)
        for k, annotation in enumerate(self.anns):
            if annotation == "unroll":
                if max_unroll is None or axis_lens is None or axis_lens[k] <= max_unroll:
                    sch[op].unroll(axes[k])
            elif annotation == "vec":
                if vec_size and axis_lens:
                    lanes = next((v for v in sorted(vec_size, reverse=True) if axis_lens[k] % v == 0), 1)
                    _, axes[k] = sch[op].split(axes[k], lanes)
                sch[op].vectorize(axes[k])
            elif annotation != "none":
                raise TilewrightError(f"annotation is none, unroll or vec, found {annotation!r}")
        return axes

    def __repr__(self) -> str:
        return str(self.anns)


class OtherOptionSpace(TransformSpace):
    """Values of a knob."""

    def __init__(self, options: Sequence[Any]) -> None:
        super().__init__([OtherOptionEntity(v) for v in options])

    def __repr__(self) -> str:
        return f"OtherOption({self.entities}) len={len(self)}"


class OtherOptionEntity:
    """One value of a knob, ``val``."""

    def __init__(self, val: Any) -> None:
        self.val = val

    def __repr__(self) -> str:
        return str(self.val)


_KINDS: dict[str, tuple[type, Callable[[Any], Any]]] = {
    "sp": (SplitEntity, lambda e: e.size),
    "re": (ReorderEntity, lambda e: e.perm),
    "an": (AnnotateEntity, lambda e: e.anns),
    "ot": (OtherOptionEntity, lambda e: e.val),
}


class ConfigSpace:
    """The product of the choices that a template defines; collecting it runs the template once."""

    is_fallback = False

    def __init__(self) -> None:
        self.space_map: OrderedDict[str, TransformSpace] = OrderedDict()
        self._entity_map: OrderedDict[str, Any] = OrderedDict()
        self._collect = True
        self.flop: float | None = None
        self.cost: float | None = None
        self.code_hash: str | None = None
        self.errors: list[str] = []
        self.asked: dict[str, None] = {}  # the choices that templates asked for, in their order

    @staticmethod
    def axis(var: Any) -> VirtualAxis | IterVar:
        """An axis for ``define_split``, from a length or an IterVar."""
        return VirtualAxis(var) if isinstance(var, int) else var

    reduce_axis = axis

    def define_split(self, name: str, axis: Any, policy: str = "factors", **kwargs: Any) -> list[VirtualAxis]:
        """Open the choice of how to split ``axis`` (an int, IterVar or VirtualAxis).

        Parameters
        ----------
        policy : "factors" (divisors), "power2", "verbose", or "candidate" with ``candidate=[[-1, 4], ...]``
        num_outputs, max_factor, filter, no_tail : limits to the factorings

        Returns
        -------
        Stand-ins for the parts, to be used in further definitions.
        """
        self._define(name, lambda: SplitSpace(axis, policy, **kwargs))
        return [VirtualAxis(1, f"{name}.{k}") for k in range(kwargs.get("num_outputs", 2))]

    def define_reorder(self, name: str, axes: Sequence[Any], policy: str, **kwargs: Any) -> list[Any]:
        """Open the choice of the order of ``axes``: policy "all", "identity" or "candidate"."""
        self._define(name, lambda: ReorderSpace(axes, policy, **kwargs))
        return list(axes)

    def define_annotate(self, name: str, axes: Sequence[Any], policy: str, **kwargs: Any) -> list[Any]:
        """Open the choice of annotations of ``axes``: try_vec, try_unroll, try_unroll_vec or candidate."""
        self._define(name, lambda: AnnotateSpace(axes, policy, **kwargs))
        return list(axes)

    def define_knob(self, name: str, candidate: Sequence[Any]) -> None:
        """Open the choice of one of ``candidate``."""
        self._define(name, lambda: OtherOptionSpace(candidate))

    def _define(self, name: str, make: Callable[[], TransformSpace]) -> None:
        self.asked[name] = None
        if not self._collect or name in self.space_map:
            return
        space = self.space_map[name] = make()
        if not len(space):
            raise TilewrightError(f"the choice {name!r} has no value left; loosen its filter or candidates")
        self._entity_map.setdefault(name, space[0])

    @property
    def dims(self) -> list[int]:
        """Return how many values each choice has, in order; the first varies fastest with the index."""
        return [len(space) for space in self.space_map.values()]

    def add_flop(self, flop: Any) -> None:
        """Set the number of arithmetic operations of the computation."""
        self.flop = float(flop) if not isinstance(flop, PrimExpr) else float(int(flop))  # type: ignore[call-overload]

    def raise_error(self, msg: str) -> None:
        """State that this configuration cannot be built, and why."""
        self.errors.append(msg)

    def valid(self) -> bool:
        """Return whether no error was raised."""
        return not self.errors

    def __len__(self) -> int:
        return math.prod(len(space) for space in self.space_map.values())

    def get(self, index: int) -> ConfigEntity:
        """The point ``index``: the first choice varies fastest."""
        if not 0 <= index < len(self):
            raise IndexError(f"the config space has {len(self)} points, index {index} is out of range")
        entities: OrderedDict[str, Any] = OrderedDict()
        rest = index
        for name, space in self.space_map.items():
            rest, position = divmod(rest, len(space))
            entities[name] = space[position]
        return ConfigEntity(index, self.code_hash, entities)

    def __iter__(self) -> Any:
        return iter(self._entity_map)

    def __contains__(self, name: object) -> bool:
        return name in self._entity_map

    def __getitem__(self, name: str) -> Any:
        if name not in self._entity_map:
            raise KeyError(f"the configuration has no choice {name!r}; it has {', '.join(self._entity_map) or 'none'}")
        return self._entity_map[name]

    def __setitem__(self, name: str, entity: Any) -> None:
        """Fix a choice."""
        self._entity_map[name] = entity

    def settle(self, name: str, entity: Any, fits: Callable[[Any], bool] = lambda _: True) -> None:
        """Set the untuned value of a choice, unless this configuration has one that fits.

        A space has the untuned choice among its others.
        """
        if self._collect and name in self.space_map:
            self.space_map[name].include(entity)
        if self.is_fallback or name not in self or not fits(self[name]):
            self[name] = entity

    def summary(self) -> str:
        """Return the choices on one line: the parts of splits without the first, which follows, and other values."""
        parts = []
        for name, entity in self._entity_map.items():
            value = " x ".join(map(str, entity.size[1:])) if isinstance(entity, SplitEntity) else entity
            parts.append(f"{name} {value}")
        return ", ".join(parts)

    def __repr__(self) -> str:
        lines = [f"ConfigSpace (len={len(self)}, space_map="]
        lines += [f"  {k:2d} {name}: {space}" for k, (name, space) in enumerate(self.space_map.items())]
        return "\n".join(lines) + "\n)"


class ConfigEntity(ConfigSpace):
    """One point of a config space."""

    def __init__(
        self,
        index: int | None,
        code_hash: str | None,
        entity_map: Mapping[str, Any],
        constraints: Sequence[Callable[..., bool]] | None = None,
    ) -> None:
        super().__init__()
        self.constraints = list(constraints or ())
        self.index = index
        self.code_hash = code_hash
        self._collect = False
        self._entity_map = OrderedDict(entity_map)

    def get_other_option(self) -> dict[str, Any]:
        """The values of knobs."""
        return {name: e.val for name, e in self._entity_map.items() if isinstance(e, OtherOptionEntity)}

    def get_flatten_feature(self) -> list[float]:
        """The point as numbers, for cost models: the sizes of splits, the positions of orders, numeric knobs."""
        result: list[float] = []
        for entity in self._entity_map.values():
            if isinstance(entity, SplitEntity):
                result += [float(v) for v in entity.size]
            elif isinstance(entity, ReorderEntity):
                result += [float(v) for v in entity.perm]
            elif isinstance(entity, AnnotateEntity):
                result += [float(["none", "unroll", "vec"].index(a)) for a in entity.anns]
            elif isinstance(entity.val, (int, float, bool)):
                result.append(float(entity.val))
        return result

    def to_json_dict(self) -> dict[str, Any]:
        """The JSON object of this point."""
        entities = []
        for name, entity in self._entity_map.items():
            kind, (_, value_of) = next((k, v) for k, v in _KINDS.items() if isinstance(entity, v[0]))
            entities.append([name, kind, value_of(entity)])
        return {"index": self.index, "code_hash": self.code_hash, "entity": entities}

    @staticmethod
    def from_json_dict(json_dict: dict[str, Any]) -> ConfigEntity:
        """The point of a JSON object; raises TilewrightError on an unknown kind of choice."""
        entities: OrderedDict[str, Any] = OrderedDict()
        for name, kind, value in json_dict["entity"]:
            if kind not in _KINDS:
                raise TilewrightError(
                    f"the record has a choice {name!r} of unknown kind {kind!r}; known: {', '.join(_KINDS)}"
                )
            entities[name] = _KINDS[kind][0](value)
        return ConfigEntity(json_dict["index"], json_dict.get("code_hash"), entities)

    def __repr__(self) -> str:
        choices = ", ".join(f"({name!r}, {entity})" for name, entity in self._entity_map.items())
        return f"[{choices}],{self.code_hash},{self.index}"


class FallbackConfigEntity(ConfigSpace):
    """The untuned configuration; the template sets its choices by a rule (``cfg["tile"] = ...``)."""

    is_fallback = True

    def fallback_split(self, name: str, constraints: Sequence[int]) -> None:
        """Take the factoring whose parts, from the last, are the largest divisors within ``constraints`` (-1: no
        limit); the first part is what is left.

        Raises:
            RuntimeError: a limit is below every divisor.
        """
        space = self.space_map[name]
        assert isinstance(space, SplitSpace)
        rest, size = space.product, [1] * len(constraints)
        for k in reversed(range(len(constraints))):
            limit = rest if constraints[k] == -1 else constraints[k]
            fitting = [f for f in get_factors(rest) if f <= limit]
            if not fitting:
                raise RuntimeError(
                    f"{name}: no divisor of {rest} is at most {limit}; limits are at least 1, or -1: none"
                )
            size[k] = max(fitting) if k else rest
            rest //= size[k]
        self._entity_map[name] = SplitEntity(size)

    def fallback_with_reference_log(self, ref_log: Iterable[tuple[Any, Any]]) -> None:
        """Take the choices of the record with the same choice names, if there is one."""
        for inp, _ in ref_log:
            entities = inp.config._entity_map
            if set(entities) >= set(self._entity_map):
                self._entity_map.update({name: entities[name] for name in self._entity_map})
                return

    def __repr__(self) -> str:
        choices = ", ".join(f"({name!r}, {entity})" for name, entity in self._entity_map.items())
        return f"[{choices}],fallback"
