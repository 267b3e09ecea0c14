"""Operators that the caller of ``from_pytorch`` converts: each call of one is an operator of a library of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tilewright.relay.frontend.torch.dtypes import dtype_name
from tilewright.relay.frontend.torch.registry import converter, forget

CustomConverter = Callable[[list[Any], list[str]], Any]
_NAMESPACE = "tilewright_custom"
_numbers = itertools.count()


class CustomOperators:
    """Within ``with``, ``calls`` has what is called in place of each operator, by its name."""

    def __init__(self, converters: Mapping[str, CustomConverter]) -> None:
        self._library: Any = torch.library.Library(_NAMESPACE, "FRAGMENT")
        self._names: list[str] = []
        self.calls = {kind: self._caller(convert) for kind, convert in converters.items()}

    def __enter__(self) -> CustomOperators:
        return self

    def __exit__(self, *_: object) -> None:
        forget(*self._names)
        self._library._destroy()

    def _caller(self, convert: CustomConverter) -> Callable[[Any, Sequence[Any]], Any]:
        def call(operator: Any, arguments: Sequence[Any]) -> Any:
            leaves, spec = pytree.tree_flatten(list(arguments))
            places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

            def rebuilt(tensors: Sequence[Any]) -> list[Any]:
                changed = list(leaves)
                for place, tensor in zip(places, tensors, strict=True):
                    changed[place] = tensor
                return list(pytree.tree_unflatten(changed, spec))

            made = self._define(operator, rebuilt, convert)([leaves[i] for i in places])
            if operator._schema.is_mutable:
                arguments[0].copy_(made)
                return arguments[0]
            return made

        return call

    def _define(self, operator: Any, rebuilt: Callable[[Sequence[Any]], list[Any]], convert: CustomConverter) -> Any:
        """Return a new operator of torch, of a list of tensors, that stands for one call."""
        name = f"call_{next(_numbers)}"
        single = len(operator._schema.returns) == 1
        self._library.define(f"{name}(Tensor[] tensors) -> {'Tensor' if single else 'Tensor[]'}")

        def run(tensors: list[Any]) -> Any:
            declared = operator._schema.arguments
            given = rebuilt([t.clone() for t in tensors] if operator._schema.is_mutable else tensors)
            plain = [v for a, v in zip(declared, given, strict=True) if not a.kwarg_only]
            named = {a.name: v for a, v in zip(declared, given, strict=True) if a.kwarg_only}
            result = operator(*plain, **named)
            return result if single else list(result)

        self._library.impl(name, run, "CompositeExplicitAutograd")
        torch.library.register_fake(f"{_NAMESPACE}::{name}", run, lib=self._library)

        def converted(ctx: Any, tensors: list[Any]) -> Any:
            inputs = rebuilt(tensors)
            return convert(inputs, [_type_name(ctx, value) for value in inputs])

        full = f"{_NAMESPACE}::{name}"
        converter(full)(converted)
        self._names.append(full)
        return getattr(getattr(torch.ops, _NAMESPACE), name).default


def _type_name(ctx: Any, value: Any) -> str:
    if isinstance(value, torch.dtype):
        return dtype_name(value)
    try:
        return str(ctx.dtype(value))
    except (AttributeError, TypeError):
        return type(value).__name__
