"""From operators that a compiler takes to global functions: composites, marks, regions, functions."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest
from tests.relay.transform.texts import check, parse

import tilewright as tvm
from tilewright import relay
from tilewright.ir.errors import TilewrightError
from tilewright.ir.op import Op
from tilewright.ir.structural import structural_equal
from tilewright.ir.transform import Sequential
from tilewright.relay.dataflow_pattern import is_op, wildcard
from tilewright.relay.interpreter import interpret
from tilewright.relay.op.annotation import compiler_begin, compiler_end
from tilewright.relay.op.contrib import get_pattern_table, register_pattern_table
from tilewright.relay.transform import (
    AnnotateTarget,
    MergeCompilerRegions,
    MergeComposite,
    PartitionGraph,
)
from tilewright.relay.visitor import post_order

TAKES = {"one": ["nn.relu", "add", "split"], "two": ["tanh", "add", "multiply"]}


@pytest.fixture(autouse=True)
def compilers() -> Iterator[None]:
    """Two compilers that take some operators each."""
    pairs = [(compiler, name) for compiler, names in TAKES.items() for name in names]
    for compiler, name in pairs:
        tvm.ir.register_op_attr(name, f"target.{compiler}", lambda call: True)
    yield
    for compiler, name in pairs:
        Op.get(name).reset_attr(f"target.{compiler}")


def test_marks_stand_around_what_a_compiler_takes() -> None:
    check(
        AnnotateTarget("one"),
        """
        def @main(%x: Tensor[(2), float32]) { nn.softmax(nn.relu(%x)) }
        """,
        """
        def @main(%x: Tensor[(2), float32]) {
          %0 = annotation.compiler_begin(%x, compiler="one");
          %1 = nn.relu(%0);
          %2 = annotation.compiler_end(%1, compiler="one");
          %3 = annotation.compiler_begin(%2, compiler="default");
          %4 = nn.softmax(%3);
          annotation.compiler_end(%4, compiler="default")
        }
        """,
    )


def test_the_first_compiler_that_takes_an_operator_has_it() -> None:
    before = "def @main(%x: Tensor[(2), float32]) { tanh(add(%x, %x)) }"
    after = """
        def @main(%x: Tensor[(2), float32]) {{
          %0 = annotation.compiler_begin(%x, compiler="{0}");
          %1 = annotation.compiler_begin(%x, compiler="{0}");
          %2 = add(%0, %1);
          %3 = annotation.compiler_end(%2, compiler="{0}");
          %4 = annotation.compiler_begin(%3, compiler="two");
          %5 = tanh(%4);
          annotation.compiler_end(%5, compiler="two")
        }}
        """
    check(AnnotateTarget(["one", "two"]), before, after.format("one"))
    check(AnnotateTarget(["two", "one"]), before, after.format("two"))


def test_a_second_run_leaves_the_marks_of_the_first() -> None:
    mod = parse("def @main(%x: Tensor[(2), float32]) { exp(tanh(nn.relu(%x))) }")
    apart = AnnotateTarget("two")(AnnotateTarget("one")(mod))
    assert structural_equal(apart, AnnotateTarget(["one", "two"])(mod))
    assert structural_equal(apart, AnnotateTarget("two")(apart))


def test_tuples_go_where_their_fields_go_unless_only_calls_are_marked() -> None:
    before = "def @main(%x: Tensor[(4), float32]) { split(nn.relu(%x), indices_or_sections=2).0 }"
    every = str(AnnotateTarget("one")(parse(before)))
    calls = str(AnnotateTarget("one", include_non_call_ops=False)(parse(before)))
    assert every.count("compiler_begin") == 3 and calls.count("compiler_begin") == 2


def test_a_rule_may_look_at_the_call_and_its_types() -> None:
    tvm.ir.register_op_attr("exp", "target.one", lambda call: int(call.args[0].checked_type.shape[0]) == 2)
    mod = parse("def @main(%x: Tensor[(2), float32], %y: Tensor[(3), float32]) { (exp(%x), exp(%y)) }")
    try:
        result = PartitionGraph()(AnnotateTarget("one")(mod))
    finally:
        Op.get("exp").reset_attr("target.one")
    assert [v.name_hint for v in result.get_global_vars()] == ["main", "tvmgen_default_one_main_0"]


def test_composite_functions_go_to_the_compiler_that_their_name_begins_with() -> None:
    pattern = is_op("exp")(is_op("sqrt")(wildcard()))
    mod = parse("def @main(%x: Tensor[(2), float32]) { log(exp(sqrt(%x))) }")
    steps = [MergeComposite([("three.exp_sqrt", pattern)]), AnnotateTarget("three"), PartitionGraph()]
    text = str(Sequential(steps)(mod))
    assert 'PartitionedFromPattern="sqrt_exp_", Composite="three.exp_sqrt"' in text
    assert "@tvmgen_default_three_main_0(%x)" in text


def test_the_first_pattern_of_a_table_wins_and_checks_refuse() -> None:
    big, small = is_op("exp")(is_op("sqrt")(wildcard())), is_op("sqrt")(wildcard())
    mod = parse("def @main(%x: Tensor[(2), float32]) { exp(sqrt(%x)) }")
    names = lambda table: [  # noqa: E731
        f.attrs["Composite"] for f in post_order(MergeComposite(table)(mod)["main"].body)
        if isinstance(f, relay.Function)
    ]  # fmt: skip
    assert names([("c.big", big), ("c.small", small)]) == ["c.big"]
    assert names([("c.small", small), ("c.big", big)]) == ["c.small"]
    refuse = lambda match: match.checked_type.dtype == "int8"  # noqa: E731
    assert names([("c.big", big, refuse), ("c.small", small)]) == ["c.small"]


def test_what_is_wrong_with_a_table_is_said() -> None:
    mod = parse("def @main(%x: Tensor[(2), float32]) { exp(%x) }")
    with pytest.raises(TilewrightError, match=r"entry 1 of the pattern table is \('b',\); expected \(name, pattern\)"):
        MergeComposite([("a", wildcard()), ("b",)])
    table = [("my.exp", is_op("exp")(wildcard()), lambda match: match.no_such_field)]
    with pytest.raises(TilewrightError, match=r"the check of the pattern 'my.exp' failed on a match that ends in exp"):
        MergeComposite(table)(mod)
    tvm.ir.register_op_attr("exp", "target.bad", lambda call: call.no_such_field)
    with pytest.raises(TilewrightError, match=r"the rule target.bad of exp failed: AttributeError"):
        AnnotateTarget("bad")(mod)
    Op.get("exp").reset_attr("target.bad")


def test_a_check_without_an_answer_is_an_error_that_names_it() -> None:
    mod = parse("def @main(%x: Tensor[(2), float32]) { exp(%x) }")
    with pytest.raises(TilewrightError, match=r"pattern 'my.exp' gave None .* ends in exp; expected True"):
        MergeComposite([("my.exp", is_op("exp")(wildcard()), lambda match: None)])(mod)
    tvm.ir.register_op_attr("exp", "target.mute", lambda call: None)
    with pytest.raises(TilewrightError, match=r"the rule target.mute of exp gave None"):
        AnnotateTarget("mute")(mod)
    Op.get("exp").reset_attr("target.mute")


def test_a_compiler_that_nobody_has_is_warned_of() -> None:
    mod = parse("def @main(%x: Tensor[(2), float32]) { exp(%x) }")
    with pytest.warns(UserWarning, match=r"no operator has a rule target.dnn, .*did you mean 'dnnl'.* marks nothing"):
        AnnotateTarget("dnn")(mod)


def test_tables_are_registered_by_compiler() -> None:
    table = [("mine.exp", is_op("exp")(wildcard()))]
    register_pattern_table("mine", lambda: table)
    assert get_pattern_table("mine") == table and get_pattern_table("nobody") is None
    assert [name for name, *_ in get_pattern_table("dnnl")][:2] == ["dnnl.conv2d_bias_relu", "dnnl.conv2d_relu"]


def partition(mod: tvm.IRModule, targets: list[str], merge: bool = True, **options: object) -> tvm.IRModule:
    steps = [AnnotateTarget(targets), *([MergeCompilerRegions()] if merge else []), PartitionGraph(**options)]
    return Sequential(steps)(mod)


def test_regions_become_functions_with_the_attributes_of_external_code() -> None:
    mod = parse("def @main(%x: Tensor[(2), float32]) { exp(nn.relu(%x)) }")
    check(
        Sequential([AnnotateTarget("one"), PartitionGraph("net")]),
        "def @main(%x: Tensor[(2), float32]) { exp(nn.relu(%x)) }",
        """
        def @main(%x: Tensor[(2), float32]) {
          %0 = @tvmgen_net_one_main_0(%x);
          exp(%0)
        }

        def @tvmgen_net_one_main_0(%one_0_i0: Tensor[(2), float32], Inline=1, Compiler="one", global_symbol="tvmgen_net_one_main_0", Primitive=1) -> Tensor[(2), float32] {
          nn.relu(%one_0_i0)
        }
        """,  # noqa: E501
    )
    again = partition(partition(mod, ["one"]), ["one"])
    assert structural_equal(again, partition(mod, ["one"]))


def test_two_compilers_have_functions_of_their_own() -> None:
    result = partition(parse("def @main(%x: Tensor[(2), float32]) { tanh(nn.relu(%x)) }"), ["one", "two"])
    assert [v.name_hint for v in result.get_global_vars()][1:] == [
        "tvmgen_default_one_main_0",
        "tvmgen_default_two_main_1",
    ]


def test_several_results_make_one_flat_tuple() -> None:
    mod = parse("""
        def @main(%x: Tensor[(4), float32]) {
          %0 = split(nn.relu(%x), indices_or_sections=2);
          (concatenate(%0), exp(add(%0.0, %0.1)))
        }""")
    result = partition(mod, ["one"])
    (name,) = [v for v in result.get_global_vars() if v.name_hint != "main"]
    assert str(result[name].ret_type) == "(Tensor[(2), float32], Tensor[(2), float32], Tensor[(2), float32])"
    x = np.array([-1, 2, 3, 4], "float32")
    for got, expected in zip(interpret(result, [x]), [np.maximum(x, 0), np.exp([3, 6])], strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_constants_move_into_the_function_unless_they_are_to_stay() -> None:
    x = relay.var("x", shape=(2,))
    mod = relay.transform.InferType()(
        tvm.IRModule.from_expr(relay.Function([x], x + relay.const(np.ones(2, "float32"))))
    )
    for bind, count in ((True, 1), (False, 2)):
        result = partition(mod, ["one"], bind_constants=bind)
        assert len(result["main"].body.args) == len(result["tvmgen_default_one_main_0"].params) == count


def test_names_are_fit_for_c() -> None:
    tvm.ir.register_op_attr("exp", "target.odd-name++", lambda call: True)
    result = partition(parse("def @main(%x: Tensor[(2), float32]) { exp(%x) }"), ["odd-name++"])
    Op.get("exp").reset_attr("target.odd-name++")
    assert "tvmgen_default_odd_name___main_0" in result


def test_a_compiler_may_optimize_its_functions() -> None:
    @tvm.register_func("relay.ext.one.optimize", override=True)
    def optimize(mod: tvm.IRModule) -> object:
        return answer[0](mod)

    mod = parse("def @main(%x: Tensor[(2), float32]) { exp(nn.relu(%x)) }")
    try:
        tanh = parse("def @main(%y: Tensor[(2), float32]) { tanh(%y) }")
        answer = [lambda given: tanh]
        assert "tanh(%y)" in str(partition(mod, ["one"])["tvmgen_default_one_main_0"])
        answer = [lambda given: None]
        with pytest.raises(TilewrightError, match=r"relay.ext.one.optimize returned a NoneType; expected the module"):
            partition(mod, ["one"])
    finally:
        tvm.runtime.registry.remove_global_func("relay.ext.one.optimize")


def test_a_region_that_would_need_its_own_results_is_refused() -> None:
    x = relay.var("x", shape=(2,))
    first = relay.nn.relu(compiler_begin(x, "one"))
    outside = relay.exp(compiler_end(first, "one"))
    both = relay.add(first, compiler_begin(outside, "one"))
    mod = tvm.IRModule.from_expr(relay.Function([x], compiler_end(both, "one")))
    with pytest.raises(TilewrightError, match="region 0 for the compiler 'one' needs what others make"):
        PartitionGraph()(mod)


def test_marks_that_do_not_fit_together_are_refused() -> None:
    x = relay.var("x", shape=(2,))
    for expr, message in [
        (compiler_end(relay.nn.relu(x), "one"), "stands on what no compiler_begin leads to"),
        (
            compiler_end(relay.nn.relu(compiler_begin(x, "one")), "two"),
            "begins for the compiler 'one' and ends for 't",
        ),
        (compiler_end(relay.add(compiler_begin(x, "one"), x), "one"), "is in none; put compiler_begin on it"),
    ]:
        with pytest.raises(TilewrightError, match=message):
            PartitionGraph()(tvm.IRModule.from_expr(relay.Function([x], expr)))


def test_neighbours_stay_apart_where_another_compiler_stands_between_them() -> None:
    diamond = """
        def @main(%x: Tensor[(2), float32]) {
          %0 = nn.relu(%x);
          %1 = {between}(%0);
          add(%0, %1)
        }"""
    joined = partition(parse(diamond.replace("{between}", "nn.relu")), ["one"])
    apart = partition(parse(diamond.replace("{between}", "exp")), ["one"])
    assert len(joined.get_global_vars()) == 2 and len(apart.get_global_vars()) == 3


def test_the_regions_of_a_marked_function() -> None:
    x = relay.var("x", shape=(2,))
    begin, other = compiler_begin(x, "one"), compiler_begin(x, "one")
    inner = relay.add(begin, other)
    end, leaving = compiler_end(inner, "one"), compiler_end(inner, "one")
    default = compiler_begin(leaving, "default")
    outer = compiler_end(relay.exp(default), "default")
    regions = relay.analysis.AnnotatedRegionSet(
        relay.Function([x], relay.Tuple([end, outer])),
        Op.get("annotation.compiler_begin"), Op.get("annotation.compiler_end"),
    )  # fmt: skip
    first, second = regions
    assert (first.id, first.target, first.args, first.rets) == (0, "one", [begin, other], [end, leaving])
    assert set(first.nodes) == {begin, other, inner, end, leaving}
    assert regions.get_region(outer) is second and second.id == 2 and regions.get_region(x) is None


def random_module(rng: random.Random, size: int) -> tvm.IRModule:
    x, y = (relay.var(name, shape=(4,)) for name in "xy")
    nodes: list[relay.Expr] = [x, y, relay.const(np.full(4, 0.5, "float32"))]
    for _ in range(size):
        a, b = rng.choice(nodes[-5:]), rng.choice(nodes)
        halves = relay.split(relay.concatenate([a, b], axis=0), 2)
        made = [a + b, a * b, relay.nn.relu(a), relay.tanh(a), relay.exp(relay.tanh(a)), halves[0], halves[1]]
        nodes.append(rng.choice(made))
    results = rng.sample(nodes[3:], k=min(rng.randint(1, 3), size))
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x, y], relay.Tuple(results))))


@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize("targets", [["one"], ["two", "one"]], ids=",".join)
def test_partitioned_programs_compute_the_same(targets: list[str], merge: bool) -> None:
    rng = random.Random(11)
    inputs = [np.linspace(-1, 1, 4, dtype="float32"), np.linspace(2, -0.5, 4, dtype="float32")]
    regions = 0
    for size in itertools.islice(itertools.cycle((1, 3, 8, 20, 40)), 15):
        mod = random_module(rng, size)
        result = partition(mod, targets, merge)
        regions += len(result.get_global_vars()) - 1
        for got, expected in zip(interpret(result, inputs), interpret(mod, inputs), strict=True):
            np.testing.assert_array_equal(got, expected)
    assert regions > 15


def random_program(rng: random.Random, size: int) -> tvm.IRModule:
    """Operators around branches, whose parts read what is outside, lets, and closures."""
    x, y = (relay.var(name, shape=(4,)) for name in "xy")

    def part(nodes: list[relay.Expr], size: int, depth: int) -> relay.Expr:
        nodes = list(nodes)
        for i in range(size):
            a, b = rng.choice(nodes[-4:]), rng.choice(nodes)
            kind = rng.randrange(9)
            if kind < 3 or not depth:
                nodes.append(rng.choice([a + b, a * b, relay.nn.relu(a), relay.tanh(a), relay.exp(relay.tanh(a))]))
            elif kind < 6:
                condition = relay.less(relay.sum(a), relay.const(rng.choice([0.1, 100.0])))
                nodes.append(relay.If(condition, part(nodes, 3, depth - 1), part(nodes, 2, depth - 1)))
            elif kind < 8:
                var = relay.var(f"v{i}", shape=(4,))
                return relay.Let(var, a * b + a, part([*nodes, var], size - i, depth - 1))
            else:
                given, func = relay.var("given", shape=(4,)), relay.var("func")
                inner = relay.Function([given], part([*nodes, given], 2, depth - 1))
                nodes.append(relay.Let(func, inner, relay.add(relay.Call(func, [a]), b)))
        return relay.add(nodes[-1], rng.choice(nodes))

    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x, y], part([x, y], size, 3))))


@pytest.mark.parametrize("targets", [["one"], ["two", "one"]], ids=",".join)
def test_partitioned_programs_with_branches_and_lets_compute_the_same(targets: list[str]) -> None:
    rng = random.Random(12)
    inputs = [np.linspace(-1, 1, 4, dtype="float32"), np.linspace(2, -0.5, 4, dtype="float32")]
    for size in itertools.islice(itertools.cycle((2, 4, 8)), 15):
        mod = random_program(rng, size)
        result = partition(mod, targets)
        np.testing.assert_array_equal(interpret(result, inputs), interpret(mod, inputs))


def test_the_work_of_a_branch_stays_in_it() -> None:
    mod = parse("""
        def @main(%c: bool, %x: Tensor[(2), float32]) {
          %0 = nn.relu(%x);
          %1 = if (%c) { nn.relu(add(%0, %x)) } else { exp(%0) };
          add(nn.relu(%1), %0)
        }""")
    regions = [v for v in partition(mod, ["one"]).get_global_vars() if v.name_hint != "main"]
    assert len(regions) == 3


def test_large_networks_take_seconds_at_most() -> None:
    x = relay.var("x", shape=(4,))
    expr: relay.Expr = x
    for i in range(1000):
        skipped = expr
        expr = relay.nn.relu(relay.add(expr, x))
        expr = relay.add(relay.exp(expr) if i % 50 == 0 else expr, skipped)
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], expr)))
    begin = time.process_time()
    result = partition(mod, ["one"])
    assert len(result.get_global_vars()) == 22
    assert time.process_time() - begin < 10  # 1.6 s on a core of Zen 3


LAZY = """
import sys
import tilewright as tvm
from tilewright import relay
loaded = lambda: "tilewright.relay.op.contrib.dnnl" in sys.modules
before = loaded()
rule = tvm.ir.register_op_attr("nn.conv2d", "target.dnnl", lambda call: "mine")
after = loaded()
print(before, after, tvm.ir.Op.get("nn.conv2d").get_attr("target.dnnl") is rule, relay.op.contrib.dnnl.__name__)
"""


def test_what_this_packages_compilers_take_is_loaded_when_it_is_asked_for() -> None:
    """A rule of one's own comes after theirs, and counts."""
    out = subprocess.run([sys.executable, "-c", LAZY], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["False", "True", "True", "tilewright.relay.op.contrib.dnnl"]


CIRCLE = """
    def @main(%x: Tensor[(2), float32], %y: Tensor[(2), float32], %z: Tensor[(2), float32]) {
      %0 = subtract(%x, %x);
      %1 = subtract(%z, %y);
      %2 = add(%z, %x);
      %3 = add(%0, %1);
      %4 = subtract(%0, %2);
      %5 = add(%2, %3);
      (%3, add(%4, %5), %2, multiply(%0, %1))
    }"""


def test_regions_that_others_merged_meanwhile_close_no_circle() -> None:
    """Sums and differences merge in an order that would have the one region need the other, and the other way round."""
    taken = {"sums": "add", "differences": "subtract", "products": "multiply"}
    for compiler, operator in taken.items():
        tvm.ir.register_op_attr(operator, f"target.{compiler}", lambda call: True)
    try:
        mod = parse(CIRCLE)
        parted = Sequential([AnnotateTarget([*taken]), MergeCompilerRegions(), PartitionGraph()])(mod)
    finally:
        for compiler, operator in taken.items():
            Op.get(operator).reset_attr(f"target.{compiler}")
    values = [np.float32([1, 2]), np.float32([3, -4]), np.float32([5, 7])]
    for found, expected in zip(interpret(parted, values), interpret(mod, values), strict=True):
        np.testing.assert_array_equal(found, expected)
