"""Programs of the virtual machine against the interpreter, which runs operators in numpy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright import relay, runtime
from tilewright.ir.module import IRModule
from tilewright.relay.loops import while_loop
from tilewright.relay.prelude import Prelude
from tilewright.runtime.container import ADT
from tilewright.runtime.vm import Executable, VirtualMachine


def values(result: Any) -> Any:
    """Tuples and values of data types as nested lists of numbers."""
    if hasattr(result, "fields"):
        return [values(item) for item in result.fields]
    if isinstance(result, (ADT, tuple, list)):
        return [values(item) for item in result]
    return result.numpy().tolist()


def agree(mod: IRModule | relay.Function, *args: Any) -> Any:
    """Run main on the machine, before and after saving it, and in the interpreter; all give the same."""
    module = mod if isinstance(mod, IRModule) else IRModule.from_expr(mod)
    expected = values(relay.create_executor("debug", module).evaluate()(*args))
    exe = relay.vm.compile(module, "llvm")
    found = values(VirtualMachine(exe, runtime.cpu()).run(*args))
    assert found == expected
    again = VirtualMachine(Executable.load_exec(*exe.save()), runtime.cpu())
    assert values(again.run(*args)) == expected
    return found


def fn(source: str) -> IRModule:
    """A module from text."""
    return relay.fromtext('#[version = "0.0.5"]\n' + source)


def floats(*shape: int) -> np.ndarray[Any, Any]:
    """Whole numbers, so that sums are exact."""
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype("float32") - 3


def test_data_flow() -> None:
    x, w = relay.var("x", shape=(3, 5)), relay.var("w", shape=(7, 5))
    agree(relay.Function([x, w], relay.nn.relu(relay.nn.dense(x, w)) + relay.const(1.0)), floats(3, 5), floats(7, 5))


@pytest.mark.parametrize("shape", [(1,), (0, 3), (13,)])
def test_shapes(shape: tuple[int, ...]) -> None:
    x = relay.var("x", shape=shape)
    agree(relay.Function([x], x + x), floats(*shape))


def test_tuples_in_and_out() -> None:
    both = relay.TupleType([relay.TensorType((2,)), relay.TupleType([relay.TensorType((3,))])])
    t = relay.var("t", both)
    inner = relay.TupleGetItem(relay.TupleGetItem(t, 1), 0)
    body = relay.Tuple([inner * inner, relay.Tuple([relay.TupleGetItem(t, 0)]), relay.split(inner, 3).astuple()])
    agree(relay.Function([t], body), (floats(2), (floats(3),)))


def test_a_kernel_that_takes_a_tuple() -> None:
    t = relay.var("t", relay.TupleType([relay.TensorType((2,)), relay.TensorType((3,))]))
    agree(relay.Function([t], relay.concatenate(t, axis=0)), (floats(2), floats(3)))


@pytest.mark.parametrize("cond", [True, False])
def test_branches(cond: bool) -> None:
    mod = fn("""
    def @main(%c: bool, %x: Tensor[(2), float32]) {
      let %y = add(%x, %x);
      let %z = if (%c) { if (%c) { (%x, %y) } else { (%y, %y) } } else { (multiply(%y, %x), %x) };
      add(%z.0, multiply(%z.1, %y))
    }""")
    agree(mod, np.array(cond), floats(2))


def test_a_loop_counts() -> None:
    i, s = relay.var("i", shape=(), dtype="int32"), relay.var("s", shape=(3,))
    one = relay.const(1)

    def cond(i: Any, s: Any) -> Any:
        return relay.less(i, relay.const(10))

    loop: Any = while_loop(cond, [i, s], lambda i, s: [i + one, s + relay.cast(i, "float32")])
    x = relay.var("x", shape=(3,))
    agree(relay.Function([x], loop(relay.const(0), x)), floats(3))


def counting(limit: int) -> VirtualMachine:
    """A machine whose main counts to ``limit`` by a call at its end."""
    mod = fn(f"""
    def @count(%i: int32, %s: int32) -> int32 {{
      if (equal(%i, {limit})) {{ %s }} else {{ @count(add(%i, 1), add(%s, %i)) }}
    }}
    def @main(%s: int32) -> int32 {{ @count(0, %s) }}""")
    return VirtualMachine(relay.vm.compile(mod, "llvm"), runtime.cpu())


def test_a_long_loop_needs_no_more_room() -> None:
    machine = counting(20_000)
    machine.set_limits(registers=200)
    assert machine.run(5).numpy() == sum(range(20_000)) + 5
    idle, used = machine.memory_usage()
    assert idle + used < 10_000


def test_a_loop_without_end_ends_with_an_error() -> None:
    machine = counting(-1)
    machine.set_limits(calls=1000)
    with pytest.raises(runtime.TVMError, match="more calls than it may"):
        machine.run(0)


def test_recursion_is_bounded() -> None:
    mod = fn("""
    def @sum(%i: int32) -> int32 { if (equal(%i, 0)) { 0 } else { add(%i, @sum(subtract(%i, 1))) } }
    def @main(%i: int32) -> int32 { @sum(%i) }""")
    machine = VirtualMachine(relay.vm.compile(mod, "llvm"), runtime.cpu())
    assert machine.run(5000).numpy() == 12502500
    machine.set_limits(registers=1000)
    with pytest.raises(runtime.TVMError, match="recursion is too deep"):
        machine.run(5000)
    assert machine.run(10).numpy() == 55  # it goes on after an error


def test_closures() -> None:
    mod = fn("""
    def @main(%x: Tensor[(2), float32], %y: Tensor[(2), float32]) {
      let %add = fn (%a: Tensor[(2), float32]) {
        fn (%b: Tensor[(2), float32]) { add(multiply(%a, %y), %b) }
      };
      let %f = %add(%x);
      let %twice = fn (%g: fn (Tensor[(2), float32]) -> Tensor[(2), float32]) { %g(%g(%x)) };
      (%twice(%f), %f(%y))
    }""")
    agree(mod, floats(2), floats(2) + 5)


def test_a_closure_that_calls_itself() -> None:
    mod = fn("""
    def @main(%x: Tensor[(2), float32]) {
      let %down = fn (%i: int32) -> Tensor[(2), float32] {
        if (equal(%i, 0)) { %x } else { add(%x, %down(subtract(%i, 1))) }
      };
      %down(4)
    }""")
    agree(mod, floats(2))


def test_references_change() -> None:
    mod = fn("""
    def @main(%x: Tensor[(2), float32]) {
      let %r = ref(%x);
      let %a = ref_read(%r);
      let %_ = ref_write(%r, add(%a, %a));
      (%a, ref_read(%r))
    }""")
    agree(mod, floats(2))


def test_data_types_and_matching() -> None:
    mod = IRModule()
    prelude: Any = Prelude(mod)
    items = prelude.nil()
    for number in (5, 2, 9):
        items = prelude.cons(relay.const(number), items)
    x = relay.var("x", shape=(), dtype="int32")
    double = relay.Function([x], x + x)
    mod["main"] = relay.Function([], relay.Tuple([prelude.map(double, items), prelude.length(items)]))
    agree(mod)


def test_patterns_within_patterns() -> None:
    mod = fn("""
    type Shape { Circle(float32), Box(float32, float32), Both(Shape, Shape), }
    def @size(%s: Shape) -> float32 {
      match (%s) {
        Both(Circle(%r), Circle(%q)) => multiply(%r, %q),
        Both(%a, Box(%w, _)) => add(@size(%a), %w),
        Both(%a, %b) => add(@size(%a), @size(%b)),
        Box(%w, %h) => multiply(%w, %h),
        _ => 100f,
      }
    }
    def @main() {
      (@size(Both(Circle(2f), Circle(3f))), @size(Both(Box(2f, 3f), Box(5f, 1f))),
       @size(Both(Box(2f, 3f), Circle(5f))), @size(Circle(1f)))
    }""")
    assert agree(mod) == [6, 11, 106, 100]


def test_a_value_that_no_clause_covers_is_an_error() -> None:
    mod = fn("""
    type Either { Left(), Right(), }
    def @main(%c: bool) {
      let %e = if (%c) { Left() } else { Right() };
      match? (%e) { Left() => 1 }
    }""")
    machine = VirtualMachine(relay.vm.compile(mod, "llvm"), runtime.cpu())
    assert machine.run(np.array(True)).numpy() == 1
    with pytest.raises(runtime.TVMError, match="no clause"):
        machine.run(np.array(False))


def test_a_long_list_is_freed_without_recursion() -> None:
    mod = IRModule()
    prelude = Prelude(mod)
    text = """
    def @grow(%i: int32, %l: List[int32]) -> List[int32] {
      if (equal(%i, 0)) { %l } else { @grow(subtract(%i, 1), Cons(%i, %l)) }
    }
    def @main(%i: int32) -> List[int32] { @grow(%i, Nil()) }"""
    del prelude
    mod = relay.fromtext(mod.astext() + text)
    machine = VirtualMachine(relay.vm.compile(mod, "llvm"), runtime.cpu())
    result = machine.run(100_000)
    assert result[0].numpy() == 1 and result[1][0].numpy() == 2
    del result
    machine.run(0)
    assert machine.memory_usage()[1] < 1000


def test_values_go_in_again() -> None:
    mod = fn("""
    type Pair { Pair(int32, int32), }
    def @make(%a: int32) -> Pair { Pair(%a, add(%a, 1)) }
    def @main(%p: Pair) -> int32 { match (%p) { Pair(%a, %b) => multiply(%a, %b) } }
    """)
    mod = IRModule(mod.functions, mod.type_definitions)
    made = relay.create_executor("vm", mod).evaluate(mod.get_global_var("make"))(6)
    assert values(made) == [6, 7]
    assert relay.create_executor("vm", mod).evaluate()(made).numpy() == 42


def test_an_input_that_is_given_back_stays() -> None:
    x = relay.var("x", shape=(5,))
    machine = VirtualMachine(relay.vm.compile(relay.Function([x], relay.Tuple([x, x + x])), "llvm"), runtime.cpu())
    first = machine.run(floats(5))
    second = machine.run(floats(5) + 1)
    assert values(first) == [floats(5).tolist(), (floats(5) * 2).tolist()]
    assert values(second)[1] == ((floats(5) + 1) * 2).tolist()


def test_inputs_by_name_and_what_is_wrong_with_them() -> None:
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    machine = VirtualMachine(relay.vm.compile(relay.Function([x, y], x - y), "llvm"), runtime.cpu())
    assert values(machine.run(y=floats(2), x=floats(2) + 1)) == [1, 1]
    assert machine.get_input_index("y") == 1 and machine.get_input_index("z") == -1
    with pytest.raises(runtime.TVMError, match="1 values for the 2 parameters"):
        machine.run(floats(2))
    with pytest.raises(runtime.TVMError, match='no function "other"'):
        machine.invoke("other")
    with pytest.raises(runtime.TVMError, match="no value for the parameter 'y'"):
        machine.run(x=floats(2))


def test_parameters_become_constants() -> None:
    x, w = relay.var("x", shape=(1, 5)), relay.var("w", shape=(3, 5))
    exe = relay.vm.compile(relay.Function([x, w], relay.nn.dense(x, w)), "llvm", params={"w": floats(3, 5)})
    assert values(VirtualMachine(exe, runtime.cpu()).run(floats(1, 5))) == (floats(1, 5) @ floats(3, 5).T).tolist()


def test_one_file_runs_without_the_compiler(tmp_path: Path) -> None:
    mod = fn("""
    def @main(%i: int32, %x: Tensor[(2), float32]) -> Tensor[(2), float32] {
      if (equal(%i, 0)) { %x } else { @main(subtract(%i, 1), add(%x, %x)) }
    }""")
    relay.vm.compile(mod, "llvm").export_library(tmp_path / "loop.so")
    script = """
import sys, numpy as np
from tilewright import runtime
module = runtime.load_module(sys.argv[1])
machine = runtime.vm.VirtualMachine(module, runtime.cpu())
assert (machine.run(3, np.ones(2, "float32")).numpy() == 8).all()
assert not [name for name in sys.modules if name.startswith("tilewright.relay")]
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "loop.so")], check=True)


def test_profile_counts_kernels() -> None:
    exe = relay.vm.compile(relay.Function([x := relay.var("x", shape=(3,))], relay.nn.softmax(x)), "llvm")
    report = runtime.profiler_vm.VirtualMachineProfiler(exe, runtime.cpu()).profile(floats(3))
    assert [call["Count"] for call in report.calls] == [1] and "softmax" in str(report)


def test_the_text_names_what_is_called() -> None:
    exe = relay.vm.compile(relay.Function([x := relay.var("x", shape=(3,))], x + relay.const(1.0)), "llvm")
    assert "main(x)" in exe.bytecode and "invoke_packed PackedFunc[0] (in: $0, out: $" in exe.bytecode
    assert exe.primitive_ops == ["fused_add"] and exe.globals == ["main"]


def test_reductions_of_bools_stay_within_their_memory() -> None:
    x = relay.var("x", shape=(10, 10), dtype="bool")
    for array in (np.ones((10, 10), bool), np.arange(100).reshape(10, 10) > 50):
        results = relay.Tuple([relay.min(x), relay.max(x), relay.min(x, axis=1)])
        assert agree(relay.Function([x], results), array)[0] == array.min()
