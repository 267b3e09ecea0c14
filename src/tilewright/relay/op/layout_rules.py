"""How operators carry layouts: the rules behind AlterOpLayout and ConvertLayout.

An operator's ``infer_correct_layout(attrs, new_in_layouts, old_in_layouts, old_in_types)`` takes the layouts that its
inputs had and now have, and returns the layouts of its inputs and outputs, with the attributes for them. It is called
twice for each call: first with no new layouts (``[]``), to learn the layouts of the original program, then with those
of the rewritten inputs. A tuple argument counts as one layout for each field, but one type. Where an input has another
layout than the rule requires, the pass inserts a ``layout_transform``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir.attrs import Attrs
from tilewright.ir.type import TensorType, TupleType, Type
from tilewright.relay.op.attributes import call
from tilewright.relay.op.relations import known, normalize_axes
from tilewright.tir.layout import Layout, convertible, layout

UNDEFINED = layout("")


@dataclass(frozen=True)
class InferCorrectLayoutOutput:
    """Layouts of the inputs and outputs of a call, and its attributes for them."""

    input_layouts: list[Layout]
    output_layouts: list[Layout]
    new_attrs: Attrs | None


LayoutRule = Callable[[Any, Sequence[Layout], Sequence[Layout], Sequence[Type]], InferCorrectLayoutOutput]


def fixed(*inputs: str, output: str) -> Callable[[Any], InferCorrectLayoutOutput]:
    """Return the rule of an operator that requires exactly these layouts."""
    return lambda attrs: InferCorrectLayoutOutput([layout(i) for i in inputs], [layout(output)], attrs)


def elementwise(
    attrs: Any, new_in_layouts: Sequence[Layout], old_in_layouts: Sequence[Layout], old_in_types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    """Take any layout; all inputs and the output share it."""
    layouts = new_in_layouts or old_in_layouts
    chosen = next((item for item in layouts if item), UNDEFINED)
    return InferCorrectLayoutOutput([chosen] * len(layouts), [chosen], attrs)


def broadcast(
    attrs: Any, new_in_layouts: Sequence[Layout], old_in_layouts: Sequence[Layout], old_in_types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    """Take the layout of the input of most dimensions; a smaller one is aligned with its last dimensions."""
    layouts = list(new_in_layouts or old_in_layouts)
    ranks = [len(t.shape) if isinstance(t, TensorType) else 0 for t in old_in_types]
    laid_out = [i for i, item in enumerate(layouts) if item]
    large = max(laid_out, key=lambda i: _weight(layouts[i], old_in_types[i]), default=0)
    if not laid_out or (len(laid_out) < len(layouts) and ranks[large] < max(ranks)):
        return InferCorrectLayoutOutput([UNDEFINED] * len(layouts), [UNDEFINED], attrs)
    chosen = layouts[large]
    source = old_in_layouts[large] if old_in_layouts[large] else chosen.to_primal()
    for i, rank in enumerate(ranks):
        if i in laid_out:
            layouts[i] = chosen if i == large else _fit(chosen, old_in_layouts[i], old_in_types[i])
        elif rank:
            tail = (chosen if chosen.is_primal else source).sub_layout(ranks[large] - rank, rank)
            layouts[i] = tail if chosen.is_primal else _fit(chosen, tail, old_in_types[i])
    return InferCorrectLayoutOutput(layouts, [chosen], attrs)


def _weight(item: Layout, type_: Type) -> tuple[int, int]:
    """Order inputs by the number of primal axes, then by the number of dimensions other than 1."""
    primal = sum(1 for _, factor in item.axes if not factor)
    spread = sum(known(d) != 1 for d in type_.shape) if isinstance(type_, TensorType) else 0
    return primal, spread


def _fit(chosen: Layout, old_layout: Layout, type_: Type) -> Layout:
    """Adapt the layout ``chosen`` to a broadcast tensor: an axis of extent 1 is split by 1, not padded."""
    if not isinstance(type_, TensorType) or not old_layout or len(old_layout) != len(type_.shape):
        return chosen
    extents = {letter: known(d) for (letter, _), d in zip(old_layout.axes, type_.shape, strict=True)}
    parts = []
    for letter, factor in chosen.axes:
        if factor and extents.get(letter.upper(), 1) == 1:
            factor = 1
        parts.append(f"{factor}{letter}" if factor else letter)
    return layout("".join(parts))


def with_layout_attr(field: str = "layout", fixed_axes: str = "HW") -> LayoutRule:
    """Return the rule of operators with a layout attribute that take any layout which does not split ``fixed_axes``.

    Where the layout was chosen, by ConvertLayout or with ``out_layout``, it is kept.
    """

    def rule(
        attrs: Any, new_in_layouts: Sequence[Layout], old_in_layouts: Sequence[Layout], old_in_types: Sequence[Type]
    ) -> InferCorrectLayoutOutput:
        current = layout(attrs[field])
        rest = [UNDEFINED] * (len(old_in_layouts) - 1)
        chosen = current is not old_in_layouts[0] or bool(getattr(attrs, "out_layout", ""))
        if new_in_layouts and new_in_layouts[0] is not current and not chosen:
            new = new_in_layouts[0]
            if convertible(current, new) and all(new.factor_of(a) < 0 for a in fixed_axes):
                current, attrs = new, attrs.replace(**{field: new.name})
        return InferCorrectLayoutOutput([current, *rest], [current], attrs)

    return rule


def convert_layout_attr(name: str) -> Callable[..., Any]:
    """Return the ConvertLayout hook of the operator ``name``, whose attribute ``layout`` is that of its data."""

    def convert(attrs: Any, inputs: Sequence[Any], tinfos: Sequence[Any], desired_layouts: Sequence[str]) -> Any:
        wanted = desired_layouts[0]
        if wanted == "default":
            return None
        also_out = {"out_layout": wanted} if hasattr(attrs, "out_layout") else {}
        return call(name, inputs, attrs.replace(layout=wanted, **also_out))

    return convert


def axis_attr(default_output: Callable[[int], int] = lambda rank: 1) -> LayoutRule:
    """Return the rule of operators that process the axis in their attribute ``axis`` and keep the shape."""

    def rule(
        attrs: Any, new_in_layouts: Sequence[Layout], old_in_layouts: Sequence[Layout], old_in_types: Sequence[Type]
    ) -> InferCorrectLayoutOutput:
        data = old_in_types[0]
        rank = len(data.shape) if isinstance(data, TensorType) else 0
        chosen = old_in_layouts[0]
        if new_in_layouts and old_in_layouts[0] and new_in_layouts[0]:
            letter = old_in_layouts[0][int(attrs.axis) % rank]
            new = new_in_layouts[0]
            if new.factor_of(letter) < 0 and convertible(old_in_layouts[0], new):
                chosen, attrs = new, attrs.replace(axis=new.index_of(letter))
        outputs = [chosen, *[UNDEFINED] * (default_output(rank) - 1)]
        return InferCorrectLayoutOutput([chosen, *[UNDEFINED] * (len(old_in_layouts) - 1)], outputs, attrs)

    return rule


def reduction(
    attrs: Any, new_in_layouts: Sequence[Layout], old_in_layouts: Sequence[Layout], old_in_types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    """Reduce the same axes in the new layout, including their split parts."""
    old, data = old_in_layouts[0], old_in_types[0]
    extra = [UNDEFINED] * (len(old_in_layouts) - 1)
    if not old or not isinstance(data, TensorType):
        return InferCorrectLayoutOutput([UNDEFINED, *extra], [UNDEFINED], attrs)
    reduced = {old[a] for a in normalize_axes(attrs.axis, len(data.shape), attrs.exclude)}
    chosen = old
    new = new_in_layouts[0] if new_in_layouts else old
    if new and new is not old and convertible(old, new):
        chosen = new
        positions = [i for i, (letter, _) in enumerate(chosen.axes) if letter.upper() in reduced]
        attrs = attrs.replace(axis=tuple(positions), exclude=False)
    parts = []
    for letter, factor in chosen.axes:
        gone = letter.upper() in reduced
        if not gone or attrs.keepdims:
            parts.append(f"{1 if gone else factor}{letter}" if factor else letter)
    return InferCorrectLayoutOutput([chosen, *extra], [layout("".join(parts))], attrs)


def arg_reduction(
    attrs: Any, new_in_layouts: Sequence[Layout], old_in_layouts: Sequence[Layout], old_in_types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    """As ``reduction``, where the reduced axes stay whole and in order: the result is a position in them."""
    old, data = old_in_layouts[0], old_in_types[0]
    if new_in_layouts and old and isinstance(data, TensorType):
        reduced = [old[a] for a in normalize_axes(attrs.axis, len(data.shape), attrs.exclude)]
        new = new_in_layouts[0]
        moved = [letter for letter, _ in new.axes if letter in reduced]
        if not new.is_primal or moved != sorted(reduced, key=old.index_of):
            new_in_layouts = [old]
    return reduction(attrs, new_in_layouts, old_in_layouts, old_in_types)


def permutation(
    attrs: Any, new_in_layouts: Sequence[Layout], old_in_layouts: Sequence[Layout], old_in_types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    """Transpose from the new order of the axes to the same result, if none is split.

    The result is unchanged, so that its axes need no letters.
    """
    old = old_in_layouts[0]
    if not old or not old.is_primal:
        return InferCorrectLayoutOutput([old], [UNDEFINED], attrs)
    axes = list(range(old.ndim))[::-1] if attrs.axes is None else [int(a) % old.ndim for a in attrs.axes]
    new = new_in_layouts[0] if new_in_layouts else old
    if not new or new is old or not new.is_primal or not convertible(old, new):
        return InferCorrectLayoutOutput([old], [UNDEFINED], attrs)
    moved = attrs.replace(axes=tuple(new.index_of(old[a]) for a in axes))
    return InferCorrectLayoutOutput([new], [UNDEFINED], moved)


def cut_like(
    attrs: Any, new_in_layouts: Sequence[Layout], old_in_layouts: Sequence[Layout], old_in_types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    """Cut the same axes in the new layout, where both tensors have one layout that splits none."""
    old = old_in_layouts[0]
    layouts = new_in_layouts or old_in_layouts
    if not old or not old.is_primal or any(item is not old for item in old_in_layouts):
        return InferCorrectLayoutOutput(list(old_in_layouts), [old], attrs)
    new = layouts[0]
    if any(item is not new for item in layouts) or not new.is_primal or not convertible(old, new) or not attrs.axes:
        return InferCorrectLayoutOutput([old] * 2, [old], attrs)
    moved = attrs.replace(axes=tuple(new.index_of(old[int(a) % old.ndim]) for a in attrs.axes))
    return InferCorrectLayoutOutput([new] * 2, [new], moved)


def squeezing(
    attrs: Any, new_in_layouts: Sequence[Layout], old_in_layouts: Sequence[Layout], old_in_types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    """Drop the same axes in the new layout, if it splits none."""
    old, data = old_in_layouts[0], old_in_types[0]
    if not old or not isinstance(data, TensorType) or not old.is_primal:
        return InferCorrectLayoutOutput([old], [UNDEFINED], attrs)
    ones = [i for i, d in enumerate(data.shape) if known(d) == 1]
    gone = {old[a] for a in (ones if attrs.axis is None else normalize_axes(attrs.axis, len(data.shape)))}
    chosen = old
    new = new_in_layouts[0] if new_in_layouts else old
    if new and new is not old and new.is_primal and convertible(old, new):
        chosen = new
        attrs = attrs.replace(axis=tuple(i for i, (letter, _) in enumerate(new.axes) if letter in gone))
    rest = "".join(letter for letter, _ in chosen.axes if letter not in gone)
    return InferCorrectLayoutOutput([chosen], [layout(rest)], attrs)


def concatenation(
    attrs: Any, new_in_layouts: Sequence[Layout], old_in_layouts: Sequence[Layout], old_in_types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    """Take any layout whose split factors divide every input's extent along the joined axis; prefer a split one.

    Plain layouts mostly come from operators without layout rules, and their results go to operators that want split
    ones.
    """
    fields = old_in_types[0].fields if isinstance(old_in_types[0], TupleType) else old_in_types
    old = next((item for item in old_in_layouts if item), UNDEFINED)
    count = len(old_in_layouts)
    chosen = old
    if old and new_in_layouts and isinstance(fields[0], TensorType):
        axis = int(attrs.axis) % len(fields[0].shape)
        letter = old[axis]
        extents = [known(t.shape[axis]) for t in fields if isinstance(t, TensorType)]
        for new in sorted(new_in_layouts, key=lambda item: -item.factor_of(letter)):
            factor = new.factor_of(letter)
            if (
                new
                and convertible(old, new)
                and all(factor < 0 or (e is not None and e % factor == 0) for e in extents)
            ):
                chosen, attrs = new, attrs.replace(axis=new.index_of(letter))
                break
    return InferCorrectLayoutOutput([chosen] * count, [chosen], attrs)


def per_axis(field: str, neutral: Callable[[Any], bool]) -> LayoutRule:
    """Return the rule of operators with one attribute value for each axis (pad widths); split axes must have the
    neutral one.
    """

    def rule(
        attrs: Any, new_in_layouts: Sequence[Layout], old_in_layouts: Sequence[Layout], old_in_types: Sequence[Type]
    ) -> InferCorrectLayoutOutput:
        old = old_in_layouts[0]
        extra = [UNDEFINED] * (len(old_in_layouts) - 1)
        chosen = old
        new = new_in_layouts[0] if new_in_layouts else UNDEFINED
        if old and new and old.is_primal and convertible(old, new):
            values = {letter: value for (letter, _), value in zip(old.axes, attrs[field], strict=True)}
            if all(neutral(values[letter.upper()]) for letter, factor in new.axes if factor):
                none = next((v for v in attrs[field] if neutral(v)), None)
                moved = tuple(none if factor else values[letter] for letter, factor in new.axes)
                chosen, attrs = new, attrs.replace(**{field: moved})
        return InferCorrectLayoutOutput([chosen, *extra], [chosen], attrs)

    return rule
