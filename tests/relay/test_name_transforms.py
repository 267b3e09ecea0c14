"""Names of what is generated."""

from __future__ import annotations

import pytest
from tilewright.relay.backend.name_transforms import (
    mangle_module_name,
    prefix_generated_name,
    prefix_name,
    sanitize_name,
    to_c_constant_style,
    to_c_function_style,
    to_c_variable_style,
)

from tilewright.ir.errors import TilewrightError


def test_names_in_the_styles_of_c() -> None:
    generated = prefix_generated_name(["my", "Model", "run2"])
    assert generated == "TVMGen_my_Model_run2" and prefix_name("x") == "TVM_x"
    assert to_c_function_style(generated) == "TVMGenMyModelRun"
    assert to_c_variable_style(generated) == "tvmgen_my_model_run2"
    assert to_c_constant_style(generated) == "TVMGEN_MY_MODEL_RUN2"
    assert sanitize_name("a b-c:0é") == "a_b_c_0_"
    assert mangle_module_name("net") == "tvmgen_net" and mangle_module_name("") == "tvmgen"


@pytest.mark.parametrize("make", [to_c_function_style, to_c_variable_style, to_c_constant_style, sanitize_name])
def test_empty_names_are_refused(make: object) -> None:
    with pytest.raises(TilewrightError):
        make("")


def test_names_of_others_are_refused() -> None:
    for make in (to_c_function_style, to_c_variable_style, to_c_constant_style):
        with pytest.raises(TilewrightError, match="not TVM prefixed: 'cake'"):
            make("cake")
    for names in ("", [], ["a", ""]):
        with pytest.raises(TilewrightError):
            prefix_name(names)


@pytest.mark.parametrize("name", ["\u018e", "a\xf1b"])
def test_module_names_with_other_letters_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="ASCII"):
        mangle_module_name(name)
