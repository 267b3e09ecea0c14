"""Pass infrastructure: what runs under which context, and what instruments see."""

from __future__ import annotations

import io
import threading

import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.ir.errors import TilewrightError
from tilewright.ir.instrument import (
    PassInstrument,
    PassTimingInstrument,
    PrintAfterAll,
    PrintBeforeAll,
    VerifyInstrument,
)
from tilewright.ir.module import IRModule
from tilewright.ir.transform import PassContext, Sequential, function_pass, module_pass


def small_module() -> tvm.IRModule:
    x = relay.var("x", shape=(2,))
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], relay.exp(x))))


def recorder(name: str, opt_level: int, log: list[str]) -> tvm.transform.Pass:
    @module_pass(opt_level=opt_level, name=name)
    def run(mod: tvm.IRModule, ctx: PassContext) -> tvm.IRModule:
        log.append(name)
        return mod

    return run


@pytest.mark.parametrize(("level", "expected"), [(0, ["a"]), (1, ["a", "b"]), (3, ["a", "b", "c"])])
def test_sequential_runs_what_the_opt_level_enables(level: int, expected: list[str]) -> None:
    log: list[str] = []
    steps = Sequential([recorder("a", 0, log), recorder("b", 1, log), recorder("c", 3, log)])
    with PassContext(opt_level=level):
        steps(small_module())
    assert log == expected


def test_required_and_disabled_passes_override_the_opt_level() -> None:
    log: list[str] = []
    steps = Sequential([recorder("a", 0, log), recorder("c", 3, log)])
    with PassContext(opt_level=0, required_pass=["c"], disabled_pass=["a"]):
        steps(small_module())
    assert log == ["c"]


def test_the_innermost_context_counts_and_the_outer_one_returns() -> None:
    with PassContext(opt_level=1):
        with PassContext(opt_level=3):
            assert PassContext.current().opt_level == 3
        assert PassContext.current().opt_level == 1
    assert PassContext.current().opt_level == 2


def test_contexts_of_threads_are_apart() -> None:
    found: list[int] = []
    with PassContext(opt_level=0):
        thread = threading.Thread(target=lambda: found.append(PassContext.current().opt_level))
        thread.start()
        thread.join()
    assert found == [2]


def test_an_unknown_option_lists_the_known_ones() -> None:
    with pytest.raises(TilewrightError, match=r"no config option 'no.such'.*relay.FuseOps.max_depth"):
        relay.transform.FuseOps()
        PassContext(config={"no.such": 1})


def test_an_option_of_the_wrong_type_is_refused() -> None:
    relay.transform.FuseOps()
    with pytest.raises(TilewrightError, match="takes int, got str"):
        PassContext(config={"relay.FuseOps.max_depth": "many"})


def test_a_pass_takes_a_module_only() -> None:
    with pytest.raises(TilewrightError, match="takes an IRModule, got Var"):
        relay.transform.FoldConstant()(relay.var("x"))


def test_function_pass_maps_every_function() -> None:
    @function_pass(opt_level=1, name="negate")
    class Negate:
        def __init__(self, times: int) -> None:
            self.times = times

        def transform_function(self, func: relay.Function, mod: tvm.IRModule, ctx: PassContext) -> relay.Function:
            body = func.body
            for _ in range(self.times):
                body = relay.negative(body)
            return relay.Function(func.params, body)

    twice = Negate(2)
    assert str(twice(small_module())).count("negative") == 2
    assert twice.times == 2 and isinstance(twice, tvm.transform.FunctionPass)
    with pytest.raises(AttributeError, match="no attribute 'size'"):
        print(twice.size)


def test_a_pass_leaves_its_input_module_as_it_was() -> None:
    mod = small_module()
    before = str(mod)
    with PassContext(opt_level=3):
        relay.transform.FuseOps()(mod)
    assert str(mod) == before


def test_instruments_see_every_pass_in_order() -> None:
    seen: list[str] = []

    class Spy(PassInstrument):
        def enter_pass_ctx(self) -> None:
            seen.append("enter")

        def exit_pass_ctx(self) -> None:
            seen.append("exit")

        def run_before_pass(self, mod: tvm.IRModule, info: tvm.transform.PassInfo) -> None:
            seen.append(f"before {info.name}")

        def run_after_pass(self, mod: tvm.IRModule, info: tvm.transform.PassInfo) -> None:
            seen.append(f"after {info.name}")

    log: list[str] = []
    with PassContext(opt_level=3, instruments=[Spy()]):
        recorder("a", 0, log)(small_module())
    assert seen[0] == "enter"
    assert seen[-1] == "exit"
    assert seen[-3:-1] == ["before a", "after a"]


def test_an_instrument_can_keep_a_pass_from_running() -> None:
    class No(PassInstrument):
        def should_run(self, mod: tvm.IRModule, info: tvm.transform.PassInfo) -> bool:
            return info.name != "a"

    log: list[str] = []
    with PassContext(instruments=[No()]):
        recorder("a", 0, log)(small_module())
        recorder("b", 0, log)(small_module())
    assert log == ["b"]


def test_timing_names_each_pass_and_indents_nested_ones() -> None:
    timing = PassTimingInstrument()
    with PassContext(opt_level=3, instruments=[timing]):
        Sequential([recorder("inner", 0, [])], name="outer")(small_module())
        lines = timing.render().splitlines()
    assert lines[-2].startswith("outer: ")
    assert lines[-1].startswith("  inner: ")


def test_printing_shows_the_module_before_and_after() -> None:
    out = io.StringIO()
    with PassContext(instruments=[PrintBeforeAll(out), PrintAfterAll(out)]):
        recorder("a", 0, [])(small_module())
    assert "# before a" in out.getvalue()
    assert out.getvalue().count("exp(%x)") >= 2


def test_the_verifier_names_the_pass_that_broke_the_module() -> None:
    def reject(mod: tvm.IRModule) -> None:
        raise ValueError("a variable is bound twice")

    expected = pytest.raises(ValueError, match="pass breaker gave a module that is not well formed: a variable")
    with PassContext(instruments=[VerifyInstrument(reject)]), expected:
        recorder("breaker", 0, [])(tvm.IRModule())


class Reporter(PassInstrument):
    """Notes what it is told, and fails at ``broken``."""

    def __init__(self, name: str, log: list[str], broken: str = "") -> None:
        self.name, self.log, self.broken = name, log, broken

    def note(self, event: str) -> None:
        self.log.append(f"{self.name} {event}")
        if event == self.broken:
            raise RuntimeError("it broke")

    def enter_pass_ctx(self) -> None:
        self.note("enter")

    def exit_pass_ctx(self) -> None:
        self.note("exit")

    def run_before_pass(self, mod: tvm.IRModule, info: tvm.transform.PassInfo) -> None:
        self.note("before")

    def run_after_pass(self, mod: tvm.IRModule, info: tvm.transform.PassInfo) -> None:
        self.note("after")


@pytest.mark.parametrize(
    ("broken", "events"),
    [
        ("enter", ["a enter", "b enter", "a exit"]),
        ("exit", ["a enter", "b enter", "c enter", "a before", "b before", "c before", "p", "a after", "b after",
                  "c after", "a exit", "b exit"]),
        ("before", ["a enter", "b enter", "c enter", "a before", "b before", "a exit", "b exit", "c exit"]),
        ("after", ["a enter", "b enter", "c enter", "a before", "b before", "c before", "p", "a after", "b after",
                   "a exit", "b exit", "c exit"]),
    ],
)  # fmt: skip
def test_what_instruments_see_when_one_of_them_fails(broken: str, events: list[str]) -> None:
    """Whoever entered is left, nothing runs after the failure, and the context before is in force again."""
    log: list[str] = []
    instruments = [Reporter("a", log), Reporter("b", log, broken), Reporter("c", log)]
    outer = PassContext.current()
    with pytest.raises(tvm.TVMError, match="it broke"), PassContext(instruments=instruments):
        recorder("p", 0, log)(tvm.IRModule())
    assert log == events
    assert PassContext.current() is outer


def test_a_runtime_error_of_a_pass_is_a_tvm_error_that_names_the_pass() -> None:
    @module_pass(opt_level=0, name="Careless")
    def careless(mod: tvm.IRModule, ctx: PassContext) -> tvm.IRModule:
        raise RuntimeError("it broke")

    with pytest.raises(tvm.TVMError, match="pass Careless: it broke"):
        careless(tvm.IRModule())


@pytest.mark.parametrize("error", [ValueError, KeyError, TilewrightError])
def test_other_errors_of_a_pass_keep_their_type(error: type[Exception]) -> None:
    @module_pass(opt_level=0)
    def careless(mod: tvm.IRModule, ctx: PassContext) -> tvm.IRModule:
        raise error("it broke")

    with pytest.raises(error, match=r"^'?it broke'?$"):
        careless(tvm.IRModule())


def test_instruments_of_the_context_outside_of_all_stay_until_replaced() -> None:
    timing = PassTimingInstrument()
    PassContext.current().override_instruments([timing])
    try:
        relay.transform.InferType()(tvm.IRModule())
        assert "InferType" in timing.render()
    finally:
        PassContext.current().override_instruments(None)
    assert PassContext.current().instruments is None


def test_options_with_fields_have_their_defaults() -> None:
    ctx = PassContext(config={"tir.UnrollLoop": {"auto_max_step": 10}})
    assert ctx.config["tir.UnrollLoop"].auto_max_step == 10
    assert ctx.config["tir.UnrollLoop"].explicit_unroll is True
    assert ctx.option("tir.LoopPartition")["partition_const_loop"] is False


@pytest.mark.parametrize("config", [{"tir.UnrollLoop": {"steps": 1}}, {"tir.UnrollLoop": 1}, {"no.such": 1}])
def test_a_wrong_option_is_an_attribute_error_as_in_tvm(config: dict[str, object]) -> None:
    with pytest.raises(TilewrightError, match="option") as caught:
        PassContext(config=config)
    assert isinstance(caught.value, AttributeError)


def test_list_configs_names_every_option_with_its_type() -> None:
    configs = PassContext.list_configs()
    assert configs["relay.FuseOps.max_depth"] == {"type": "IntImm"}
    assert configs["relay.conv2d.winograd"] == {"type": "runtime.String"}
    assert configs["tir.add_lower_pass"] == {"type": "Array"}


def test_printed_modules_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    x = relay.var("x", shape=(2,))
    mod = IRModule.from_expr(relay.Function([x], relay.exp(x)))
    assert tvm.transform.PrintIR("here")(mod).same_as(mod)
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("PrintIR(here):\n") and "exp(%x)" in err


def test_passes_of_decorators_have_tvms_classes() -> None:
    assert isinstance(tvm.transform.module_pass(lambda mod, ctx: mod, name="a"), tvm.transform.ModulePass)
    assert isinstance(relay.transform.function_pass(lambda f, mod, ctx: f, name="b"), relay.transform.FunctionPass)


def test_functions_that_a_users_pass_made_have_types() -> None:
    x = relay.var("x", shape=(2,))

    @relay.transform.function_pass(opt_level=1)
    class Replace:
        def __init__(self, by: relay.Function) -> None:
            self.by = by

        def transform_function(
            self, func: relay.Function, mod: IRModule, ctx: tvm.transform.PassContext
        ) -> relay.Function:
            return self.by

    replaced = Replace(relay.Function([x], relay.exp(x)))(IRModule.from_expr(relay.Function([x], relay.log(x))))
    assert str(replaced["main"].ret_type) == "Tensor[(2), float32]"
