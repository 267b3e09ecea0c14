"""Parts of Relay's library are taken over by TVM's names of their files."""

from __future__ import annotations

import pytest

import tilewright as tvm


def test_a_module_takes_over_a_part_of_the_library() -> None:
    mod = tvm.parser.fromtext('#[version = "0.0.5"]\ndef @main(%x: int32) { %x }')
    mod.import_from_std("core.rly")
    mod.import_from_std("prelude.rly")
    assert {"Storage", "List", "Option"} <= {v.name_hint for v in mod.type_definitions}
    assert mod.contains_global_var("main") and mod.contains_global_var("map")
    with pytest.raises(ValueError, match=r"no 'nowhere.rly'; it has prelude.rly, core.rly"):
        mod.import_from_std("nowhere.rly")


def test_programs_use_types_that_are_defined_elsewhere() -> None:
    core = tvm.IRModule()
    core.import_from_std("core.rly")
    mod = tvm.parser.parse('#[version = "0.0.5"]\ndef @main(%s: Storage[]) { %s }', "from_string", core)
    assert "%s: Storage[]" in str(mod)
