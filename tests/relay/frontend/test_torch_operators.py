"""ATen's operators compute what eager torch does, one network a family."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from tests.relay.frontend.torch_operators import CASES, Case
from torch.utils._pytree import tree_leaves

import tilewright
from tilewright.relay.frontend.torch.registry import find_converter, reason_of_refusal


class Family(torch.nn.Module):
    """All cases of a family side by side."""

    def __init__(self, cases: Sequence[Case]) -> None:
        super().__init__()
        self.cases = cases

    def forward(self, *tensors: torch.Tensor) -> list[Any]:
        given = iter(tensors)
        return [case.function(*[next(given) for _ in case.inputs]) for case in self.cases]


@pytest.mark.parametrize("family", CASES)
def test_family(family: str) -> None:
    cases = CASES[family]
    network, inputs = Family(cases).eval(), [tensor for case in cases for tensor in case.inputs]
    found = tilewright.compile(network, tuple(inputs))(*inputs)
    expected = [tree_leaves(made) for made in network(*inputs)]
    results = iter(found if isinstance(found, tuple) else [found])
    for case, wanted in zip(cases, expected, strict=True):
        for place, tensor in enumerate(wanted):
            message = lambda text, case=case, place=place: f"{family}, {case.name}, result {place}: {text}"  # noqa: E731
            torch.testing.assert_close(next(results), tensor, rtol=1e-4, atol=1e-5, equal_nan=True, msg=message)
    assert next(results, None) is None


def _core_operators() -> list[torch._ops.OpOverload]:
    names = [name.partition("::")[2] for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]
    found = []
    for name, _, overload in (full.partition(".") for full in names):
        operator = getattr(getattr(torch.ops.aten, name), overload or "default", None)
        if operator is not None and torch.Tag.core in operator.tags:
            found.append(operator)
    return found


def test_core_operators_have_a_converter_or_a_stated_reason() -> None:
    core = [(o._schema.name, o._overloadname) for o in _core_operators()]
    assert len(core) == 193
    missing = [name for name in core if not (find_converter(*name) or find_converter(*name, complex_numbers=True))]
    assert missing == [("aten::resize_", "default")]
    assert reason_of_refusal(*missing[0]) is not None
