"""``relay.create_executor``: values of expressions and functions, compiled or interpreted; numpy is the oracle."""

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.relay.backend.interpreter import ConstructorValue, RefValue
from tilewright.runtime.container import ADT

KINDS = ("debug", "graph")


def _xy(shape: tuple[int, ...] = (3, 1, 5)) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.random(shape, "float32"), rng.random(shape, "float32")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (7, 13)])
def test_a_function_takes_arrays_in_order_and_by_name(kind: str, shape: tuple[int, ...]) -> None:
    a, b = _xy(shape)
    x, y = relay.var("x", shape=shape), relay.var("y", shape=shape)
    run = relay.create_executor(kind).evaluate(relay.Function([x, y], relay.subtract(x, y)))
    for result in (run(a, b), run(a, y=b), run(y=b, x=a), run(tvm.nd.array(a), relay.const(b))):
        np.testing.assert_array_equal(result.numpy(), a - b)


@pytest.mark.parametrize("kind", KINDS)
def test_main_runs_with_params_bound(kind: str) -> None:
    a, b = _xy()
    x, y = relay.var("x", shape=a.shape), relay.var("y", shape=a.shape)
    mod = tvm.IRModule.from_expr(relay.Function([x, y], x + y))
    result = relay.create_executor(kind, mod=mod, device=tvm.cpu(), target="llvm", params={"y": b}).evaluate()(a)
    np.testing.assert_array_equal(result.numpy(), a + b)
    assert len(mod["main"].params) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_an_expression_has_a_value_and_binds_give_its_variables(kind: str) -> None:
    a, _ = _xy()
    x = relay.var("x", shape=a.shape)
    executor = relay.create_executor(kind)
    assert executor.evaluate(relay.const(2) + relay.const(3)).numpy() == 5
    np.testing.assert_array_equal(executor.evaluate(x * x, {x: a}).numpy(), a * a)


@pytest.mark.parametrize(("kind", "sequence"), [("debug", ADT), ("graph", list)])
def test_nested_tuples_go_in_and_come_out(kind: str, sequence: type) -> None:
    a, b = _xy()
    of = relay.TensorType(a.shape, "float32")
    t = relay.var("t", type_annotation=relay.TupleType([of, relay.TupleType([of])]))
    inner = relay.TupleGetItem(relay.TupleGetItem(t, 1), 0)
    func = relay.Function([t], relay.Tuple([inner, relay.Tuple([relay.TupleGetItem(t, 0) + inner])]))
    first, rest = relay.create_executor(kind).evaluate(func)((a, (b,)))
    assert isinstance(rest, sequence)
    np.testing.assert_array_equal(first.numpy(), b)
    np.testing.assert_array_equal(rest[0].numpy(), a + b)


def test_the_graph_executor_casts_arguments_as_tvm_does() -> None:
    x = relay.var("x", shape=(2,), dtype="float32")
    result = relay.create_executor("graph").evaluate(relay.Function([x], x + x))(np.array([1.5, 2.0], "float64"))
    assert result.dtype == "float32"
    np.testing.assert_array_equal(result.numpy(), [3.0, 4.0])


def test_a_module_may_change_between_evaluations() -> None:
    mod = tvm.IRModule()
    executor = relay.create_executor("debug", mod=mod)
    x = relay.var("x", shape=(), dtype="int32")
    double = relay.GlobalVar("double")
    mod[double] = relay.Function([x], x + x)
    assert executor.evaluate(double)(4).numpy() == 8
    assert executor.evaluate(double(relay.const(5))).numpy() == 10


def test_the_interpreter_runs_recursion_and_branches() -> None:
    mod = relay.fromtext("""
        #[version = "0.0.5"]
        def @sum_up(%i: int32) -> int32 {
          if (equal(%i, 0)) { %i } else { add(@sum_up(subtract(%i, 1)), %i) }
        }""")
    assert relay.create_executor(mod=mod).evaluate(mod.get_global_var("sum_up"))(10).numpy() == 55


def test_the_interpreter_takes_and_gives_data_types_and_references() -> None:
    mod = tvm.IRModule()
    prelude = relay.Prelude(mod)
    _, cons, nil = mod.get_type("List")
    a, _ = _xy()
    values = ConstructorValue(cons.tag, [tvm.nd.array(a), ConstructorValue(nil.tag, [], nil)], cons)
    identity = relay.create_executor(mod=mod).evaluate(prelude.id)
    result = identity(values)
    assert (result.tag, result.constructor, result.fields[1].tag) == (cons.tag, cons, nil.tag)
    np.testing.assert_array_equal(result.fields[0].numpy(), a)
    np.testing.assert_array_equal(identity(RefValue(a)).value.numpy(), a)


def test_shapes_known_only_at_run_time_are_interpreted() -> None:
    x = relay.var("x", shape=(relay.Any(), 2))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.concatenate([x - relay.const(3.0), x], axis=0)))
    a, _ = _xy((3, 2))
    result = relay.create_executor("debug", mod=mod).evaluate()(a)
    np.testing.assert_array_equal(result.numpy(), np.concatenate([a - 3, a]))
    with pytest.raises(UnsupportedError, match="known shapes; the parameter %x"):
        relay.create_executor("graph", mod=mod).evaluate()


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_arguments_are_named(kind: str) -> None:
    x, y = relay.var("x", shape=()), relay.var("y", shape=())
    run = relay.create_executor(kind).evaluate(relay.Function([x, y], x + y))
    with pytest.raises(TilewrightError, match="no value for the parameters y"):
        run(1.0)
    with pytest.raises(TilewrightError, match="3 values for the 2 parameters"):
        run(1.0, 2.0, 3.0)
    with pytest.raises(TilewrightError, match="in order and by name for the parameters x"):
        run(1.0, x=2.0)


def test_other_kinds_are_refused() -> None:
    with pytest.raises(
        UnsupportedError, match="no executor 'listing' to evaluate with; there is 'aot', 'debug', 'graph', 'vm'"
    ):
        relay.create_executor("listing")
    with pytest.raises(UnsupportedError, match=r"no executor 'grpah' to evaluate with \(did you mean 'graph'\?\)"):
        relay.create_executor("grpah")


@pytest.mark.parametrize("value", [np.float64(0.5), np.float32(0.5), np.int64(3), np.bool_(True)])
def test_scalars_of_numpy_keep_their_dtype(value: np.generic) -> None:
    x = relay.var("x", shape=(), dtype=value.dtype.name)
    found = relay.create_executor("debug", tvm.IRModule.from_expr(relay.Function([x], x))).evaluate()(value)
    assert found.numpy() == value and found.dtype == value.dtype.name
