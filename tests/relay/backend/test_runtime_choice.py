"""Runtime and Executor: a checked value of a name and options."""

import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.ir.errors import TilewrightError
from tilewright.relay.backend import Executor, Runtime


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


def test_an_executor_has_checked_options() -> None:
    executor = Executor("aot", {"interface-api": "c"})
    assert str(executor) == "aot" and executor["interface-api"] == "c" and executor["link-params"]
    assert not Executor("graph")["link-params"]
    assert Executor.list_executors() == ["aot", "graph", "vm"]
    assert Executor.list_executor_options(executor)["interface-api"] == "runtime.String"
    with pytest.raises(TilewrightError, match='Executor "woof" is not defined; there are aot, graph, vm'):
        Executor("woof")
    with pytest.raises(TilewrightError, match=r'"interface-api" should have type "runtime.String" but instead found'):
        Executor("aot", {"interface-api": True})


def test_a_build_takes_both_with_their_options() -> None:
    x = relay.var("x", shape=(3, 4))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.nn.softmax(relay.nn.softmax(x))))
    options = {"interface-api": "c", "unpacked-api": True, "workspace-byte-alignment": 32, "workspace-pools": "a,b"}
    factory = relay.build(mod, "c", executor=Executor("aot", options), runtime=Runtime("c", {"system-lib": True}))
    assert factory.executor == "aot" and factory.is_standalone
    attrs = factory.target.attrs
    assert {key: attrs[key] for key in options} == options
    assert attrs["runtime"] == "c" and attrs["system-lib"]
    assert factory.layout.alignment == 32 and [pool.name for pool in factory.layout.pools] == ["a", "b"]
    cpp = relay.build(mod, "llvm -runtime=c", executor=Executor("graph"), runtime=Runtime("cpp"))
    assert cpp.target.attrs["runtime"] == "c++"
