"""Questions about programs."""

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.ir.errors import TilewrightError
from tilewright.relay import analysis
from tilewright.relay.text.parser import fromtext


def names(variables: list) -> list[str]:
    return [v.name_hint for v in variables]


def test_free_bound_and_all_variables_in_order() -> None:
    x, y, z = (relay.var(n, shape=(3,)) for n in "xyz")
    expr = relay.Let(y, relay.add(x, z), relay.multiply(y, x))
    assert names(analysis.free_vars(expr)) == ["x", "z"]
    assert names(analysis.bound_vars(expr)) == ["y"]
    assert names(analysis.all_vars(expr)) == ["y", "x", "z"]
    assert analysis.free_vars(relay.Function([x, z], expr)) == []


def test_free_variables_of_a_deep_program() -> None:
    x = expr = relay.var("x", shape=(3,))
    for _ in range(10_000):
        expr = relay.tanh(expr)
    assert analysis.free_vars(expr) == [x]


def test_type_variables() -> None:
    a = relay.TypeVar("a")
    x = relay.var("x", a)
    assert analysis.free_type_vars(x) == [a]
    assert analysis.free_type_vars(relay.Function([x], x, a, [a])) == []


def test_a_variable_bound_twice_is_not_well_formed() -> None:
    x = relay.var("x", shape=(3,))
    twice = relay.Let(x, relay.const(1.0), relay.Let(x, relay.const(2.0), x))
    assert not analysis.well_formed(twice)
    with pytest.raises(TilewrightError, match="%x is bound more than once"):
        analysis.check_well_formed(twice)


def test_a_variable_used_outside_its_scope_is_not_well_formed() -> None:
    x, y = relay.var("x"), relay.var("y")
    inner = relay.Let(x, relay.const(1.0), relay.tanh(x))
    assert analysis.well_formed(inner)
    assert not analysis.well_formed(relay.Let(y, inner, relay.tanh(x)))
    assert not analysis.well_formed(tvm.IRModule({relay.GlobalVar("f"): relay.Function([], relay.tanh(x))}))


def test_two_thousand_nested_lets_are_well_formed() -> None:
    variables = [relay.var(f"v{i}") for i in range(2000)]
    body = variables[-1]
    for var in reversed(variables):
        body = relay.Let(var, relay.const(1.0), body)
    assert analysis.well_formed(body)


def test_multiply_accumulates() -> None:
    x, w, v = relay.var("x", shape=(1, 8, 10, 10)), relay.var("w", shape=(16, 4, 3, 3)), relay.var("v", shape=(5, 1600))
    conv = relay.nn.conv2d(x, w, padding=(1, 1), groups=2)
    dense = relay.nn.dense(relay.nn.batch_flatten(conv), v)
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x, w, v], dense)))
    assert analysis.get_total_mac_number(mod["main"]) == 16 * 100 * 4 * 9 + 5 * 1600


def test_multiply_accumulates_do_not_depend_on_the_layout() -> None:
    def macs(x_shape: tuple, w_shape: tuple, **layouts: str) -> int:
        x, w = relay.var("x", shape=x_shape), relay.var("w", shape=w_shape)
        mod = tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.conv2d(x, w, **layouts)))
        return analysis.get_total_mac_number(relay.transform.InferType()(mod)["main"])

    plain = macs((1, 8, 9, 9), (16, 8, 3, 3))
    assert macs((1, 9, 9, 8), (3, 3, 8, 16), data_layout="NHWC", kernel_layout="HWIO") == plain


def test_layers_are_counted_along_the_deepest_path() -> None:
    x = relay.var("x", shape=(4, 4))
    w = [relay.var(f"w{i}", shape=(4, 4)) for i in range(3)]
    deep = relay.nn.dense(relay.nn.dense(x, w[0]), w[1])
    assert analysis.count_layers(relay.add(deep, relay.nn.dense(x, w[2])), ["nn.dense"]) == 2


def test_dtypes_and_constants() -> None:
    x = relay.var("x", shape=(3,))
    expr = relay.transform.InferType()(tvm.IRModule.from_expr(relay.cast(x, "int8")))["main"]
    assert analysis.all_dtypes(expr) == {"float32", "int8"}
    assert analysis.check_constant(relay.Tuple([relay.const(1), relay.add(relay.const(1), relay.const(2))]))
    assert not analysis.check_constant(relay.add(x, x))


def test_kinds() -> None:
    handle = relay.GlobalTypeVar("List")
    assert analysis.check_kind(handle(relay.TensorType(()))) == relay.TypeKind.Type
    with pytest.raises(TilewrightError, match="no algebraic data type"):
        analysis.check_kind(relay.TypeCall(relay.TensorType(()), []))


LISTS = """#[version = "0.0.5"]
type List[A] { Cons(A, List[A]), Nil, }
"""


@pytest.mark.parametrize(
    ("clauses", "missing"),
    [
        ("Cons(_, _) => 1, Nil => 0,", 0),
        ("Cons(_, _) => 1,", 1),
        ("_ => 1,", 0),
        ("Cons(_, Cons(_, Nil)) => 1, Nil => 0,", 2),
        ("Cons(_, Nil) => 1, Cons(_, Cons(_, _)) => 2, Nil => 0,", 0),
    ],
)
def test_cases_that_a_match_leaves_out(clauses: str, missing: int) -> None:
    mod = fromtext(LISTS + f"def @main(%l: List[int32]) {{ match? (%l) {{ {clauses} }} }}")
    assert len(analysis.unmatched_cases(mod["main"].body, mod)) == missing


def test_calls_are_counted_by_operator() -> None:
    x = relay.var("x", shape=(2,))
    func = relay.Function([x], relay.add(relay.exp(x), relay.exp(relay.exp(x))))
    assert relay.analysis.list_op_freqs(func) == {"exp": 3, "add": 1}
    assert relay.analysis.list_op_freqs(tvm.IRModule.from_expr(func)) == {"exp": 3, "add": 1}


def test_features_of_programs() -> None:
    x = relay.var("x", shape=(2,))
    shared = relay.exp(x)
    F = analysis.Feature
    assert analysis.detect_feature(relay.Function([x], shared)) == {F.fVar, F.fFunction, F.fCall, F.fOp}
    assert F.fGraph in analysis.detect_feature(relay.add(shared, shared))
    assert F.fGraph not in analysis.detect_feature(relay.add(x, x))
    mod = fromtext(
        "def @main(%n: int32) { let %f = fn (%i: int32) -> int32 { %f(%i) }; if (True) { %f(%n) } else { %n } }"
    )
    assert analysis.detect_feature(mod) >= {F.fLet, F.fLetRec, F.fIf, F.fConstant}


def test_what_flows_through_the_functions_of_another_compiler() -> None:
    mod = fromtext(
        """
        def @part(%a: Tensor[(2, 3), float32], %b: Tensor[(2, 3), float32], Compiler="other") {
          (add(%a, %b), subtract(%a, %b))
        }
        def @last(%a: Tensor[(2, 3), float32], Compiler="other") { negative(%a) }
        def @main(%x: Tensor[(2, 3), float32], %y: Tensor[(2, 3), float32]) {
          %0 = @part(%x, exp(%y));
          @last(multiply(%0.0, %0.1))
        }
        """
    )
    x, y = (np.random.default_rng(i).random((2, 3), "float32") for i in range(2))
    found = {var.name_hint: data for var, data in analysis.get_calibration_data(mod, {"x": x, "y": y}).items()}
    e = np.exp(y)
    expected = {"part": ([x, e], [x + e, x - e]), "last": ([x * x - e * e], [e * e - x * x])}
    for name, (inputs, outputs) in expected.items():
        for kind, arrays in (("inputs", inputs), ("outputs", outputs)):
            for got, wanted in zip(found[name][kind], arrays, strict=True):
                np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-5, atol=1e-5)


def test_calibration_refuses_functions_that_are_called_twice() -> None:
    mod = fromtext(
        """def @part(%a: int32, Compiler="other") { negative(%a) }
        def @main(%x: int32) { @part(@part(%x)) }"""
    )
    with pytest.raises(tvm.error.TVMError, match="@part is called more than once"):
        analysis.get_calibration_data(mod, {"x": np.int32(1)})


def test_a_look_at_a_value_while_the_interpreter_runs() -> None:
    seen: list[int] = []
    x = relay.var("x", "int32")
    program = relay.op.debug(x + x, debug_func=lambda value: seen.append(int(value.numpy())))
    assert relay.create_executor().evaluate(relay.Function([x], program * x))(3).numpy() == 18
    assert seen == [6]
