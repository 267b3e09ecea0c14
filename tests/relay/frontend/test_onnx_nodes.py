"""The onnx package's own cases of single operators, compiled and compared with the outputs stored with them."""

from __future__ import annotations

import pytest
from tests.relay.frontend import onnx_cases as cases

from tilewright.ir.errors import TilewrightError, UnsupportedError

CASES = cases.all_cases()
SUPPORTED = [name for name, case in CASES.items() if not cases.unsupported_operators(case)]
IN_SCOPE = [name for name in SUPPORTED if cases.reason_out_of_scope(CASES[name]) is None]
OUT_OF_SCOPE = [name for name in SUPPORTED if cases.reason_out_of_scope(CASES[name]) is not None]
# One case for each operator that is not supported, and an opset that is.
UNSUPPORTED = {
    operator: name
    for name, case in reversed(CASES.items())
    for operator in cases.unsupported_operators(case)
    if cases.opset(case) >= 7
}


@pytest.mark.parametrize("name", [name for name in IN_SCOPE if not name.endswith("_expanded")])
def test_case_gives_the_stored_outputs(name: str) -> None:
    cases.run_case(CASES[name])


@pytest.mark.soak
@pytest.mark.parametrize("name", [name for name in IN_SCOPE if name.endswith("_expanded")])
def test_case_written_out_gives_the_stored_outputs(name: str) -> None:
    cases.run_case(CASES[name])


@pytest.mark.parametrize("name", OUT_OF_SCOPE)
def test_case_out_of_scope_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(TilewrightError, match=cases.reason_out_of_scope(CASES[name])):
        cases.import_case(CASES[name])


@pytest.mark.parametrize("operator", sorted(UNSUPPORTED))
def test_unsupported_operator_is_named_with_its_node(operator: str) -> None:
    case = CASES[UNSUPPORTED[operator]]
    with pytest.raises(UnsupportedError) as caught:
        cases.import_case(case)
    message = str(caught.value)
    assert operator in message or "not a tensor" in message or "data type" in message


def test_nearly_all_cases_of_supported_operators_are_in_scope() -> None:
    assert len(IN_SCOPE) > 1350
    assert len([name for name in OUT_OF_SCOPE if not cases.has_unsupported_dtype(CASES[name])]) < 50
