"""Each pass by its text before and after. The text is parsed, so what is shown is all there is."""

from __future__ import annotations

import numpy as np
import pytest
from tests.relay.transform.texts import check, parse

import tilewright as tvm
from tilewright import relay
from tilewright.ir.prim_expr import DimVar
from tilewright.ir.transform import PassContext
from tilewright.relay import transform
from tilewright.relay.interpreter import interpret
from tilewright.relay.op.transform.checks import CheckIndicesAttrs, check_indices


def test_fold_constant_evaluates_what_depends_on_constants_alone() -> None:
    check(
        transform.FoldConstant(),
        """
        def @main(%x: Tensor[(2), float32]) {
          %0 = add(1f, 2f);
          %1 = multiply(%0, 4f);
          add(%x, %1)
        }""",
        """
        def @main(%x: Tensor[(2), float32]) {
          add(%x, 12f)
        }""",
    )


def test_fold_constant_follows_variables_and_keeps_the_marks_of_devices() -> None:
    check(
        transform.FoldConstant(),
        """
        def @main(%x: Tensor[(1), float32], param_device_types=[1], result_device_type=1) {
          let %a = on_device(1f, device_type=1, is_fixed=True);
          %0 = add(%a, %a);
          let %b = on_device(%0, device_type=1, is_fixed=True);
          let %c = add(%b, 1f);
          let %d = add(%c, %x);
          multiply(%d, %b)
        }
        """,
        """
        def @main(%x: Tensor[(1), float32], param_device_types=[1], result_device_type=1) {
          let %d = add(3f, %x);
          %0 = on_device(2f, device_type=1, is_fixed=True);
          multiply(%d, %0)
        }
        """,
    )


def test_fold_constant_takes_the_branch_of_a_known_condition() -> None:
    check(
        transform.FoldConstant(),
        """
        def @main(%x: Tensor[(2), float32]) {
          if (less(1f, 2f)) { exp(%x) } else { %x }
        }""",
        """
        def @main(%x: Tensor[(2), float32]) {
          exp(%x)
        }""",
    )


def test_shape_of_a_static_tensor_is_a_constant() -> None:
    mod = transform.FoldConstant()(parse('def @main(%x: Tensor[(2, 5), float32]) { shape_of(%x, dtype="int64") }'))
    assert isinstance(mod["main"].body, relay.Constant)
    np.testing.assert_array_equal(mod["main"].body.data.numpy(), [2, 5])


def test_eliminate_common_subexpr_computes_equal_calls_once() -> None:
    check(
        transform.EliminateCommonSubexpr(),
        """
        def @main(%x: Tensor[(2), float32]) {
          %0 = exp(%x);
          %1 = exp(%x);
          add(%0, %1)
        }""",
        """
        def @main(%x: Tensor[(2), float32]) {
          %0 = exp(%x);
          add(%0, %0)
        }""",
    )


def test_calls_with_other_attributes_are_not_common() -> None:
    text = """
        def @main(%x: Tensor[(2, 2), float32]) {
          %0 = sum(%x, axis=[0]);
          %1 = sum(%x, axis=[1]);
          add(%0, %1)
        }"""
    check(transform.EliminateCommonSubexpr(), text, text)


def _lengths(first: relay.Expr, second: relay.Expr) -> relay.Expr:
    """The sum of the last dimensions of two matrices."""
    ends = [relay.take(relay.shape_of(x), relay.const(1, "int32")) for x in (first, second)]
    return relay.add(*ends)


def _left(mod: tvm.IRModule, operator: str) -> int:
    return transform.EliminateCommonSubexpr()(transform.InferType()(mod)).astext().count(f"{operator}(")


def test_shapes_with_the_same_names_are_read_once() -> None:
    past, other = DimVar("past"), DimVar("other")
    x, y, z = (relay.var(n, shape=(2, d)) for n, d in (("x", past), ("y", past), ("z", other)))
    alike, apart = (tvm.IRModule.from_expr(relay.Function([x, v], _lengths(x, v))) for v in (y, z))
    assert (_left(alike, "shape_of"), _left(alike, "take")) == (1, 1)
    assert (_left(apart, "shape_of"), _left(apart, "take")) == (2, 2)


def test_a_branch_does_not_read_the_shape_of_a_tensor_of_another() -> None:
    x, y = (relay.var(n, shape=(2, DimVar("past"))) for n in "xy")
    which = relay.var("which", shape=(), dtype="bool")
    branches = (relay.shape_of(relay.exp(x)), relay.shape_of(relay.log(y)))
    mod = tvm.IRModule.from_expr(relay.Function([which, x, y], relay.If(which, *branches)))
    assert _left(mod, "shape_of") == 2


def test_checks_that_differ_in_their_texts_alone_are_made_once() -> None:
    x = relay.var("x", shape=(3,), dtype="int32")
    first, second, third = (
        check_indices(x, CheckIndicesAttrs(what, (extent,))) for what, extent in (("a", 4), ("b", 4), ("c", 5))
    )
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.Tuple([first, second, third])))
    assert _left(mod, "check_indices") == 2


@pytest.mark.parametrize(("one", "two", "left"), [(1, 1, 1), (1, 2, 2), (0.0, -0.0, 2)])
def test_constants_are_compared_by_their_bits(one: float, two: float, left: int) -> None:
    x = relay.var("x", shape=(2,))
    sums = relay.Tuple([relay.add(x, relay.const(value, "float32")) for value in (one, two)])
    assert _left(tvm.IRModule.from_expr(relay.Function([x], sums)), "add") == left


def test_dead_lets_are_dropped_with_what_only_they_used() -> None:
    check(
        transform.DeadCodeElimination(),
        """
        def @main(%x: Tensor[(2), float32]) {
          let %a = exp(%x);
          let %b = add(%a, %a);
          let %c = add(%x, %x);
          %c
        }""",
        """
        def @main(%x: Tensor[(2), float32]) {
          let %c = add(%x, %x);
          %c
        }""",
    )


def test_a_let_used_once_can_be_inlined() -> None:
    check(
        transform.DeadCodeElimination(inline_once=True),
        """
        def @main(%x: Tensor[(2), float32]) {
          let %a = exp(%x);
          negative(%a)
        }""",
        """
        def @main(%x: Tensor[(2), float32]) {
          %0 = exp(%x);
          negative(%0)
        }""",
    )


def test_writes_to_references_are_not_dead() -> None:
    text = """
        def @main(%x: Tensor[(2), float32]) {
          let %r = ref(%x);
          let %u = ref_write(%r, exp(%x));
          ref_read(%r)
        }"""
    check(transform.DeadCodeElimination(), text, text)


def test_a_function_that_only_itself_calls_is_dead() -> None:
    check(
        transform.DeadCodeElimination(),
        """
        def @main(%x: float32) {
          let %f = fn (%n: float32) -> float32 { %f(exp(%n)) };
          let %g = fn (%n: float32) -> float32 { %g(exp(%n)) };
          %g(%x)
        }""",
        """
        def @main(%x: float32) {
          let %g = fn (%n: float32) -> float32 { %g(exp(%n)) };
          %g(%x)
        }""",
    )


def test_references_that_nobody_reads_are_dead() -> None:
    check(
        transform.DeadCodeElimination(),
        """
        def @main(%x: Tensor[(2), float32]) {
          let %r = ref(%x);
          let %f = fn () { ref_write(%r, negative(%x)) };
          let %u = ref_write(%r, exp(%x));
          let %v = %f();
          %x
        }""",
        """
        def @main(%x: Tensor[(2), float32]) {
          let %f = fn () { () };
          let %v = %f();
          %x
        }""",
    )


@pytest.mark.parametrize("use", ["%s", "(%x, %r)", "@other(%r)"])
def test_writes_to_references_that_go_elsewhere_are_not_dead(use: str) -> None:
    text = f"""
        def @other(%r: ref(Tensor[(2), float32])) {{ ref_read(%r) }}
        def @main(%x: Tensor[(2), float32], %s: ref(Tensor[(2), float32])) {{
          let %r = ref(%x);
          let %u = ref_write(%r, exp(%x));
          let %v = ref_write(%s, exp(%x));
          let %w = {use};
          %w
        }}"""
    mod = transform.DeadCodeElimination()(tvm.parser.fromtext('#[version = "0.0.5"]\n' + text))
    assert mod["main"].astext().count("ref_write") == (1 if use == "%s" else 2)


def test_a_call_may_stand_where_its_variable_is_the_result() -> None:
    check(
        transform.DeadCodeElimination(inline_once=True),
        "def @main(%f: fn (int32) -> int32) { let %a = %f(1); %a }",
        "def @main(%f: fn (int32) -> int32) { %f(1) }",
    )


def test_to_graph_normal_form_replaces_lets_by_sharing() -> None:
    check(
        transform.ToGraphNormalForm(),
        """
        def @main(%x: Tensor[(2), float32]) {
          let %a = exp(%x);
          let %b = add(%a, %a);
          %b
        }""",
        """
        def @main(%x: Tensor[(2), float32]) {
          %0 = exp(%x);
          add(%0, %0)
        }""",
    )


def test_a_normal_form_names_values_in_the_scope_that_encloses_their_uses() -> None:
    check(
        transform.ToANormalForm(),
        """
        def @main(%x: Tensor[(2), float32], %c: bool) {
          %0 = exp(%x);
          if (%c) { negative(%0) } else { add(%0, %0) }
        }""",
        """
        def @main(%x: Tensor[(2), float32], %c: bool) {
          let %x1 = exp(%x);
          let %x2 = if (%c) {
            let %x3 = negative(%x1);
            %x3
          } else {
            let %x4 = add(%x1, %x1);
            %x4
          };
          %x2
        }""",
    )


def test_known_functions_are_opened_up() -> None:
    check(
        transform.InlineFunctions(),
        """
        def @main(%x: Tensor[(2), float32]) {
          %1 = fn (%y: Tensor[(2), float32]) {
            add(%y, %y)
          };
          %1(%x)
        }""",
        """
        def @main(%x: Tensor[(2), float32]) {
          add(%x, %x)
        }""",
    )


def test_functions_that_a_let_binds_are_opened_up() -> None:
    check(
        transform.InlineFunctions(),
        """
        def @main(%x: Tensor[(2), float32]) {
          let %f = fn (%y: Tensor[(2), float32]) { add(%y, %y) };
          let %g = fn (%y: Tensor[(2), float32]) { %f(%f(%y)) };
          %g(%x)
        }""",
        """
        def @main(%x: Tensor[(2), float32]) {
          let %f = fn (%y: Tensor[(2), float32]) { add(%y, %y) };
          let %g = fn (%y: Tensor[(2), float32]) {
            %0 = add(%y, %y);
            add(%0, %0)
          };
          %1 = add(%x, %x);
          add(%1, %1)
        }""",
    )


def test_a_recursive_function_that_a_let_binds_stays() -> None:
    text = """
        def @main(%x: Tensor[(2), float32]) -> Tensor[(2), float32] {
          let %f: fn (Tensor[(2), float32]) -> Tensor[(2), float32] =
            fn (%y: Tensor[(2), float32]) -> Tensor[(2), float32] { %f(exp(%y)) };
          %f(%x)
        }"""
    check(transform.InlineFunctions(), text, text)


def test_unused_functions_are_removed() -> None:
    mod = parse(
        """
        def @used(%x: Tensor[(2), float32]) { exp(%x) }
        def @unused(%x: Tensor[(2), float32]) { %x }
        def @main(%x: Tensor[(2), float32]) { @used(%x) }"""
    )
    names = [v.name_hint for v in transform.RemoveUnusedFunctions()(mod).get_global_vars()]
    assert sorted(names) == ["main", "used"]


def test_defuse_undoes_fusion() -> None:
    text = """
        def @main(%x: Tensor[(2), float32]) {
          %0 = exp(%x);
          negative(%0)
        }"""
    with PassContext(opt_level=3):
        fused = transform.FuseOps()(parse(text))
    assert "Primitive=1" in str(fused)
    check(transform.DefuseOps(), str(fused), text)


def test_explicit_padding_moves_into_the_convolution() -> None:
    check(
        transform.FoldExplicitPadding(),
        """
        def @main(%x: Tensor[(1, 3, 8, 8), float32], %w: Tensor[(4, 3, 3, 3), float32]) {
          %0 = nn.pad(%x, 0f, pad_width=[[0, 0], [0, 0], [1, 2], [0, 1]]);
          nn.conv2d(%0, %w, padding=[1, 0, 0, 0], channels=4, kernel_size=[3, 3])
        }""",
        """
        def @main(%x: Tensor[(1, 3, 8, 8), float32], %w: Tensor[(4, 3, 3, 3), float32]) {
          nn.conv2d(%x, %w, padding=[2, 0, 2, 1], channels=4, kernel_size=[3, 3])
        }""",
    )


def test_padding_with_another_value_stays() -> None:
    text = """
        def @main(%x: Tensor[(1, 3, 8, 8), float32], %w: Tensor[(4, 3, 3, 3), float32]) {
          %0 = nn.pad(%x, 1f, pad_width=[[0, 0], [0, 0], [1, 1], [1, 1]]);
          nn.conv2d(%0, %w, padding=[0, 0, 0, 0], channels=4, kernel_size=[3, 3])
        }"""
    check(transform.FoldExplicitPadding(), text, text)


def test_parallel_convolutions_become_one() -> None:
    check(
        transform.CombineParallelConv2D(2),
        """
        def @main(%x: Tensor[(1, 3, 8, 8), float32],
                  %w: Tensor[(4, 3, 1, 1), float32], %v: Tensor[(2, 3, 1, 1), float32]) {
          %0 = nn.conv2d(%x, %w, padding=[0, 0, 0, 0], channels=4, kernel_size=[1, 1]);
          %1 = nn.conv2d(%x, %v, padding=[0, 0, 0, 0], channels=2, kernel_size=[1, 1]);
          (%0, %1)
        }""",
        """
        def @main(%x: Tensor[(1, 3, 8, 8), float32],
                  %w: Tensor[(4, 3, 1, 1), float32], %v: Tensor[(2, 3, 1, 1), float32]) {
          %0 = (%w, %v);
          %1 = concatenate(%0);
          %2 = nn.conv2d(%x, %1, padding=[0, 0, 0, 0], channels=6, kernel_size=[1, 1]);
          %3 = strided_slice(%2, begin=[0, 0], end=[-1, 4], strides=[1, 1], slice_mode="size");
          %4 = strided_slice(%2, begin=[0, 4], end=[-1, 2], strides=[1, 1], slice_mode="size");
          (%3, %4)
        }""",
        opt_level=4,
    )


def test_fast_math_runs_at_level_four_only() -> None:
    text = "def @main(%x: Tensor[(2), float32]) { exp(%x) }"
    steps = tvm.transform.Sequential([transform.FastMath()])
    check(steps, text, text, opt_level=3)
    check(steps, text, "def @main(%x: Tensor[(2), float32]) { fast_exp(%x) }", opt_level=4)


SCALED = """
    def @main(%x: Tensor[(1, 4, 6, 6), float32], %w: Tensor[(8, 4, 3, 3), float32], %s: Tensor[(4, 1, 1), float32],
              %t: Tensor[(8, 1, 1), float32], %v: Tensor[(8, 1, 3, 3), float32]) {
      %0 = multiply(%x, %s);
      %1 = add(%0, %s);
      %2 = nn.conv2d(%1, %w, padding=[1, 1, 1, 1], channels=8, kernel_size=[3, 3]);
      %3 = add(%2, %t);
      %4 = multiply(%3, %t);
      %5 = nn.conv2d(%4, %v, padding=[1, 1, 1, 1], groups=8, channels=8, kernel_size=[3, 3]);
      multiply(%5, %t)
    }"""


@pytest.mark.parametrize(
    "step",
    [
        transform.ForwardFoldScaleAxis,
        transform.BackwardFoldScaleAxis,
        transform.FoldScaleAxis,
        transform.CanonicalizeOps,
        transform.AlterOpLayout,
        lambda: transform.ConvertLayout({"nn.conv2d": ["NHWC", "default"]}),
        transform.FuseOps,
        transform.ToANormalForm,
    ],
)
def test_passes_keep_what_a_network_computes(step: object) -> None:
    before = parse(SCALED)
    rng = np.random.default_rng(0)
    inputs = {p.name_hint: rng.random(p.checked_type.concrete_shape, "float32") + 0.5 for p in before["main"].params}
    with PassContext(opt_level=3), tvm.target.Target("llvm"):
        after = step()(before)  # type: ignore[operator]
    np.testing.assert_allclose(interpret(after, inputs), interpret(before, inputs), rtol=1e-4)


def test_a_scale_that_the_network_computes_is_not_folded() -> None:
    rng = np.random.default_rng(0)
    w1, w3 = (relay.const(rng.random((8, 8, k, k), "float32")) for k in (1, 3))
    x = relay.var("x", shape=(1, 8, 6, 6))
    gate = relay.sigmoid(relay.nn.conv2d(relay.nn.global_avg_pool2d(x), w1, kernel_size=1, channels=8))
    before = relay.nn.conv2d(relay.multiply(x, gate), w3, kernel_size=3, channels=8)
    after = relay.multiply(relay.nn.conv2d(x, w3, kernel_size=3, channels=8), gate)
    for body in (before, after):
        mod = transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], body)))
        with PassContext(opt_level=3):
            assert tvm.ir.structural_equal(transform.FoldScaleAxis()(mod), mod)


def test_folding_scales_leaves_the_multiplications_that_a_sum_would_be_divided_by() -> None:
    with PassContext(opt_level=3):
        mod = transform.BackwardFoldScaleAxis()(transform.ForwardFoldScaleAxis()(parse(SCALED)))
    large = [
        call
        for call in _calls(mod["main"].body)
        if call.op.name == "multiply" and len(call.checked_type.shape) == 4 and int(call.checked_type.shape[2]) == 6
    ]
    assert [str(call.args[1].name_hint) for call in large] == ["s"]  # may be 0


def _calls(expr: relay.Expr) -> list[relay.Call]:
    found: list[relay.Call] = []
    relay.analysis.post_order_visit(expr, lambda e: found.append(e) if isinstance(e, relay.Call) else None)
    return found


def test_reshape_sinks_below_element_wise_operators() -> None:
    check(
        transform.SinkReshape(),
        """
        def @main(%x: Tensor[(4, 6), float32], %w: Tensor[(8, 6), float32], %b: Tensor[(8), float32],
                  %r: Tensor[(2, 2, 8), float32]) {
          %0 = nn.dense(%x, %w, units=8);
          %1 = reshape(%0, newshape=[2, 2, 8]);
          %2 = add(%1, %b);
          add(%2, %r)
        }""",
        """
        def @main(%x: Tensor[(4, 6), float32], %w: Tensor[(8, 6), float32], %b: Tensor[(8), float32],
                  %r: Tensor[(2, 2, 8), float32]) {
          %0 = nn.dense(%x, %w, units=8);
          %1 = add(%0, %b);
          %2 = reshape(%r, newshape=[4, 8]);
          %3 = add(%1, %2);
          reshape(%3, newshape=[2, 2, 8])
        }""",
    )


@pytest.mark.parametrize("other", ["(2, 1, 8)", "(2, 2, 1)", "(2, 8)"])
def test_reshape_stays_above_a_broadcast_that_it_changes(other: str) -> None:
    text = f"""
        def @main(%x: Tensor[(4, 6), float32], %w: Tensor[(8, 6), float32], %r: Tensor[{other}, float32]) {{
          %0 = nn.dense(%x, %w, units=8);
          %1 = reshape(%0, newshape=[2, 2, 8]);
          add(%1, %r)
        }}"""
    check(transform.SinkReshape(), text, text)


def test_sink_reshape_below_what_follows_a_biased_layer() -> None:
    check(
        transform.SinkReshape(),
        """
        def @main(%x: Tensor[(6, 4), float32], %w: Tensor[(8, 4), float32], %b: Tensor[(8), float32],
                  %r: Tensor[(2, 3, 8), float32]) {
          %0 = nn.dense(%x, %w, units=8);
          %1 = nn.bias_add(%0, %b);
          %2 = reshape(%1, newshape=[2, 3, 8]);
          add(%r, %2)
        }""",
        """
        def @main(%x: Tensor[(6, 4), float32], %w: Tensor[(8, 4), float32], %b: Tensor[(8), float32],
                  %r: Tensor[(2, 3, 8), float32]) {
          %0 = nn.dense(%x, %w, units=8);
          %1 = reshape(%r, newshape=[6, 8]);
          %2 = nn.bias_add(%0, %b);
          %3 = add(%1, %2);
          reshape(%3, newshape=[2, 3, 8])
        }""",
    )
