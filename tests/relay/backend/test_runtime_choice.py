"""Runtime: a checked value of a name and options."""

import pytest

import tilewright as tvm
from tilewright.relay.backend import Runtime


def test_a_runtime_has_its_options():
    runtime = Runtime("c", {"system-lib": True})
    assert str(runtime) == "c" and runtime["system-lib"] and "other" not in runtime
    assert "system-lib" not in Runtime("c")


def test_what_there_is():
    assert Runtime.list_runtimes() == ["c", "cpp"]
    assert Runtime.list_runtime_options(Runtime("c")) == {"system-lib": "IntImm"}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("rust", {}, 'Runtime "rust" is not defined; there are c, cpp'),
        ("cpp", {"system-lib": True}, 'Attribute "system-lib" is not available on this Runtime'),
        ("c", {"system-lib": "yes"}, 'should have type "IntImm" but instead found "runtime.String"'),
    ],
)
def test_what_is_wrong_is_said(name, options, message):
    with pytest.raises(tvm.TVMError, match=message):
        Runtime(name, options)
