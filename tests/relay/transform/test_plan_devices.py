"""PlanDevices by text before and after; 1 is the CPU, 2 the default device."""

from __future__ import annotations

from textwrap import dedent

import pytest
from tests.relay.transform.texts import parse

import tilewright as tvm
from tilewright import relay
from tilewright.ir.errors import TilewrightError

HEADER = "def @main(%a: Tensor[(5, 7), float32], %b: Tensor[(5, 7), float32], %c: Tensor[(5, 7), float32]"


def planned(mod: tvm.IRModule, default: object = 2) -> tvm.IRModule:
    return relay.transform.PlanDevices(default)(mod)


def check(before: str, after: str, header: str = HEADER, params: str = "[1, 1, 2]", result: int = 2) -> None:
    """Both are bodies of main; what the pass gives goes through it unchanged."""
    given = parse(f"{header}) {{{before}}}")
    expected = parse(f"{header}, param_device_types={params}, result_device_type={result}) {{{after}}}")
    found = planned(given)
    assert str(found) == str(expected)
    assert str(planned(expected)) == str(expected)


def test_a_marked_value_is_computed_there_and_copied_to_its_user() -> None:
    check(
        "%0 = add(%a, %b); %1 = on_device(%0, device_type=1); subtract(%1, %c)",
        """
        %0 = add(%a, %b);
        %1 = on_device(%0, device_type=1, is_fixed=True);
        %2 = device_copy(%1, src_dev_type=1, dst_dev_type=2);
        subtract(%2, %c)
        """,
    )


def test_a_copy_that_is_written_out_says_as_much() -> None:
    check(
        "%0 = add(%a, %b); %1 = device_copy(%0, src_dev_type=1, dst_dev_type=2); subtract(%1, %c)",
        """
        %0 = add(%a, %b);
        %1 = on_device(%0, device_type=1, is_fixed=True);
        %2 = device_copy(%1, src_dev_type=1, dst_dev_type=2);
        subtract(%2, %c)
        """,
    )


def test_what_no_mark_is_about_is_on_the_default_device() -> None:
    check("%0 = add(%a, %b); subtract(%0, %c)", "%0 = add(%a, %b); subtract(%0, %c)", params="[2, 2, 2]")


def test_a_mark_of_the_result_is_where_the_result_stays() -> None:
    check(
        "%0 = add(%a, %b); %1 = subtract(%0, %c); on_device(%1, device_type=1)",
        "%0 = add(%a, %b); subtract(%0, %c)",
        params="[1, 1, 1]",
        result=1,
    )


def test_one_mark_serves_users_on_several_devices() -> None:
    check(
        """
        %0 = add(%a, %b);
        %1 = on_device(%0, device_type=1);
        %2 = exp(%1);
        %3 = on_device(%2, device_type=1);
        %4 = subtract(%1, %c);
        add(%3, %4)
        """,
        """
        %0 = add(%a, %b);
        %1 = exp(%0);
        %2 = on_device(%1, device_type=1, is_fixed=True);
        %3 = on_device(%0, device_type=1, is_fixed=True);
        %4 = device_copy(%3, src_dev_type=1, dst_dev_type=2);
        %5 = device_copy(%2, src_dev_type=1, dst_dev_type=2);
        %6 = subtract(%4, %c);
        add(%5, %6)
        """,
    )


def test_a_constant_is_wherever_it_is_used() -> None:
    check(
        """
        %0 = add(%a, meta[relay.Constant][0]);
        %1 = on_device(%0, device_type=1);
        %2 = add(%c, meta[relay.Constant][0]);
        subtract(%1, %2)
        """.replace("meta[relay.Constant][0]", "2f"),
        """
        %0 = add(%a, 2f);
        %1 = on_device(%0, device_type=1, is_fixed=True);
        %2 = device_copy(%1, src_dev_type=1, dst_dev_type=2);
        %3 = add(%c, 2f);
        subtract(%2, %3)
        """,
        params="[1, 2, 2]",
    )
    shared = relay.const(2.0)
    x = relay.var("x", shape=(3,))
    here = relay.annotation.on_device(relay.add(x, shared), "cpu")
    mod = planned(tvm.IRModule.from_expr(relay.Function([x], relay.multiply(here, shared))), "cuda")
    assert mod["main"].attrs["param_device_types"] == (1,) and mod["main"].attrs["result_device_type"] == 2


def test_a_marked_constant_is_copied() -> None:
    check(
        "%0 = on_device(1f, device_type=1); add(%a, %0)",
        """
        %0 = on_device(1f, device_type=1, is_fixed=True);
        %1 = device_copy(%0, src_dev_type=1, dst_dev_type=2);
        add(%a, %1)
        """,
        params="[2, 2, 2]",
    )


def test_a_field_is_copied_rather_than_its_tuple() -> None:
    header = "def @main(%x: Tensor[(3, 3, 4), float32]"
    check(
        """
        %0 = split(%x, indices_or_sections=3);
        %1 = on_device(%0, device_type=1);
        %2 = %1.0;
        %3 = %1.1;
        subtract(%2, %3)
        """,
        """
        %0 = split(%x, indices_or_sections=3);
        %1 = %0.0;
        %2 = on_device(%1, device_type=1, is_fixed=True);
        %3 = %0.1;
        %4 = on_device(%3, device_type=1, is_fixed=True);
        %5 = device_copy(%2, src_dev_type=1, dst_dev_type=2);
        %6 = device_copy(%4, src_dev_type=1, dst_dev_type=2);
        subtract(%5, %6)
        """,
        header,
        "[1]",
    )


def test_a_variable_is_where_its_users_want_it() -> None:
    check(
        "let %l = add(%a, %b); let %r = negative(%c); %0 = on_device(%l, device_type=1); subtract(%0, %r)",
        """
        %0 = add(%a, %b);
        let %l = on_device(%0, device_type=1, is_fixed=True);
        let %r = negative(%c);
        %1 = device_copy(%l, src_dev_type=1, dst_dev_type=2);
        subtract(%1, %r)
        """,
    )


def test_a_variable_stays_on_the_device_of_the_mark_that_it_is_bound_to() -> None:
    check(
        "%0 = add(%a, %b); let %l = on_device(%0, device_type=1); exp(%l)",
        "let %l = add(%a, %b); exp(%l)",
        params="[1, 1, 1]",
        result=1,
    )


def test_functions_have_their_devices_at_every_call() -> None:
    check(
        """
        let %f = fn (%x, %y) { %0 = on_device(%y, device_type=1); add(%x, %0) };
        %1 = %f(%a, %b);
        %2 = %f(%c, %b);
        subtract(%1, %2)
        """,
        """
        let %f = fn (%x, %y, param_device_types=[2, 1], result_device_type=2) {
          %0 = device_copy(%y, src_dev_type=1, dst_dev_type=2);
          add(%x, %0)
        };
        %1 = %f(%a, %b);
        %2 = %f(%c, %b);
        subtract(%1, %2)
        """,
        params="[2, 1, 2]",
    )


def test_devices_flow_through_functions_that_are_passed() -> None:
    header = "def @main(%x: Tensor[(5, 7), float32], %y: Tensor[(5, 7), float32]"
    check(
        """
        let %f = fn (%g) { fn (%a) { %0 = on_device(%a, device_type=1); %1 = %g(%0); add(%1, %x) } };
        let %h = fn (%b) { negative(%b) };
        %2 = %f(%h);
        %2(%y)
        """,
        """
        let %f = fn (%g, param_device_types=[2], result_device_type=2) {
          fn (%a, param_device_types=[1], result_device_type=2) {
            %0 = device_copy(%a, src_dev_type=1, dst_dev_type=2);
            %1 = %g(%0);
            add(%1, %x)
          }
        };
        let %h = fn (%b, param_device_types=[2], result_device_type=2) { negative(%b) };
        %2 = %f(%h);
        %2(%y)
        """,
        header,
        "[2, 1]",
    )


def test_functions_that_are_chosen_between_agree() -> None:
    header = "def @main(%x: bool, %y: Tensor[(5, 7), float32], %z: Tensor[(5, 7), float32]"
    check(
        """
        let %f = fn (%a) { %0 = on_device(%y, device_type=1, is_fixed=True); add(%a, %0) };
        let %g = fn (%a1) { subtract(%a1, %y) };
        let %h = if (%x) { %f } else { %g };
        %h(%z)
        """,
        """
        let %f = fn (%a, param_device_types=[1], result_device_type=1) { add(%a, %y) };
        let %g = fn (%a1, param_device_types=[1], result_device_type=1) { subtract(%a1, %y) };
        let %h = if (%x) { %f } else { %g };
        %h(%z)
        """,
        header,
        "[1, 1, 1]",
        1,
    )


def test_a_function_in_a_tuple_has_everything_on_the_tuples_device() -> None:
    check(
        """
        let %f = fn (%x, %y) { %0 = on_device(%y, device_type=1); %1 = on_device(%x, device_type=1); add(%1, %0) };
        let %t = (%f, %a);
        %2 = %t.0;
        %2(%b, %c)
        """,
        """
        let %f = fn (%x, %y, param_device_types=[1, 1], result_device_type=1) { add(%x, %y) };
        let %t = (%f, %a);
        %0 = %t.0;
        %0(%b, %c)
        """,
        params="[1, 1, 1]",
        result=1,
    )


def test_global_functions() -> None:
    mod = parse("""
        def @f(%a: Tensor[(5), float32], %b: Tensor[(5), float32]) -> Tensor[(5), float32] {
          %0 = on_device(%b, device_type=1);
          add(%a, %0)
        }
        def @main(%x: Tensor[(5), float32], %y: Tensor[(5), float32]) -> Tensor[(5), float32] { @f(%y, %x) }
        """)
    found = planned(mod)
    assert found["f"].attrs["param_device_types"] == (2, 1)
    assert found["main"].attrs["param_device_types"] == (1, 2) and found["main"].attrs["result_device_type"] == 2


def test_references_and_data_types_live_where_what_they_hold_does() -> None:
    header = "def @main(%x: Tensor[(5), float32], %y: Tensor[(5), float32]"
    check(
        """
        let %r = ref(%x);
        %0 = on_device(%y, device_type=1);
        ref_write(%r, %0);
        ref_read(%r)
        """,
        """
        let %r = ref(%x);
        %0 = device_copy(%y, src_dev_type=1, dst_dev_type=2);
        ref_write(%r, %0);
        ref_read(%r)
        """,
        header,
        "[2, 1]",
    )
    before = """
        type List[A] { Cons(A, List[A]), Nil, }
        def @main(%x: Tensor[(5), float32], %y: Tensor[(5), float32]) {
          %0 = on_device(%y, device_type=1, is_fixed=True);
          %1 = Nil;
          %2 = Cons(%0, %1);
          let %l = Cons(%x, %2);
          match? (%l) { Cons(%z, _) => %z }
        }
        """
    main = planned(parse(before))["main"]
    assert main.attrs["param_device_types"] == (1, 1) and main.attrs["result_device_type"] == 1


def test_fused_functions_are_like_operators() -> None:
    mod = parse("""
        def @main(%a: Tensor[(5), float32], %b: Tensor[(5), float32]) {
          %0 = fn (%p: Tensor[(5), float32], Primitive=1) { exp(%p) };
          %1 = %0(%a);
          %2 = on_device(%1, device_type=1);
          %3 = %0(%b);
          add(%2, %3)
        }
        """)
    main = planned(mod)["main"]
    assert main.attrs["param_device_types"] == (1, 2) and main.attrs["result_device_type"] == 2


def test_devices_that_a_function_states_are_kept() -> None:
    x = relay.var("x", shape=(3,))
    func = relay.annotation.function_on_device(relay.Function([x], relay.exp(x)), ["cpu"], "cpu")
    main = planned(tvm.IRModule.from_expr(func))["main"]
    assert main.attrs["param_device_types"] == (1,) and main.attrs["result_device_type"] == 1


def test_long_and_deeply_nested_programs() -> None:
    x = relay.var("x", shape=(3,))
    body = x
    for i in range(4_000):
        body = relay.negative(body)
        if i % 100 == 50:
            body = relay.annotation.on_device(body, 1 + i // 100 % 2)
    main = planned(tvm.IRModule.from_expr(relay.Function([x], body)))["main"]
    assert main.attrs["param_device_types"] == (1,) and main.attrs["result_device_type"] == 2

    names = [relay.var(f"v{i}", shape=(3,)) for i in range(2_000)]
    body = relay.annotation.on_device(names[-1], "cpu")
    for i in reversed(range(2_000)):
        body = relay.Let(names[i], relay.negative(names[i - 1] if i else x), body)
    main = planned(tvm.IRModule.from_expr(relay.Function([x], body)))["main"]
    assert main.attrs["param_device_types"] == (1,)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            "%0 = on_device(%a, device_type=1); %1 = on_device(%a, device_type=2); add(%0, %1)",
            ["%a is to be on cpu (1)", "on_device(%a, device_type=1)", "cuda (2)", "on_device(%a, device_type=2)"],
        ),
        (
            "%0 = on_device(%a, device_type=1, is_fixed=True); "
            "%1 = on_device(%b, device_type=2, is_fixed=True); add(%0, %1)",
            ["cpu (1)", "on_device(%a, device_type=1, is_fixed=True)", "on_device(%b, device_type=2, is_fixed=True)"],
        ),
        (
            "%0 = device_copy(%a, src_dev_type=1, dst_dev_type=2); %1 = on_device(%0, device_type=1); add(%1, %b)",
            ["device_copy(%a, src_dev_type=1, dst_dev_type=2)", "on_device(device_copy(%a)", "device_type=1)"],
        ),
    ],
)
def test_a_contradiction_names_both_ends_and_the_remedy(body: str, words: list[str]) -> None:
    with pytest.raises(TilewrightError) as error:
        planned(parse(f"{HEADER}) {{{body}}}"))
    for word in [*words, "put relay.annotation.on_device(value, device)"]:
        assert word in str(error.value)


def test_marks_take_devices_names_and_numbers() -> None:
    x = relay.var("x", shape=(3,))
    for device in ("cuda", tvm.device("cuda", 1), 2):
        mark = relay.annotation.on_device(x, device, True)
        assert mark.attrs.device_type == 2 and mark.attrs.is_fixed
        assert relay.op.device_copy(x, device, "cpu").attrs.src_dev_type == 2
    for wrong in ("bogus", None, True):
        with pytest.raises(ValueError):
            relay.annotation.on_device(x, wrong)
    with pytest.raises(ValueError, match="1 parameters; got 2 devices"):
        relay.annotation.function_on_device(relay.Function([x], x), ["cpu", "cuda"], "cuda")


def test_marks_and_copies_go_through_text() -> None:
    mod = planned(parse(f"{HEADER}) {{%0 = add(%a, %b); %1 = on_device(%0, device_type=1); subtract(%1, %c)}}"))
    assert "device_copy(%1, src_dev_type=1, dst_dev_type=2)" in str(mod)
    assert "on_device(%0, device_type=1, is_fixed=True)" in str(mod)
    again = tvm.parser.fromtext(dedent('#[version = "0.0.5"]\n') + str(mod))
    assert tvm.ir.structural_equal(relay.transform.InferType()(again), mod)
