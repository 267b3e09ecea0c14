"""PlaceOperators by text before and after; 1 is the CPU, 4 the device."""

from __future__ import annotations

from textwrap import indent

from tests.relay.transform.texts import parse

import tilewright as tvm
from tilewright import relay

HEADER = "def @main(%d: Tensor[(1, 7, 6), float32], %c: Tensor[(1), int32], %i: Tensor[(1, 7), int32])"
NMS = "vision.non_max_suppression({}, {}, {}, -1, 0.5f, return_indices=False)"


def check(before: str, after: str, device: object = 4) -> None:
    """Both are bodies of main."""
    given, expected = (parse(f"{HEADER} {{\n{indent(body, '  ')}\n}}") for body in (before, after))
    assert str(relay.transform.PlaceOperators(device)(given)) == str(expected)


def test_a_sequential_operator_goes_to_the_cpu_and_what_follows_it_stays_there() -> None:
    check(
        f"%0 = nn.relu(%d); %1 = {NMS.format('%0', '%c', '%i')}; multiply(%1, 2f)",
        f"""
        %0 = nn.relu(%d);
        %1 = on_device(%0, device_type=4);
        %2 = on_device(%c, device_type=4);
        %3 = on_device(%i, device_type=4);
        %4 = {NMS.format("%1", "%2", "%3")};
        %5 = multiply(%4, 2f);
        on_device(%5, device_type=1)
        """,
    )


def test_what_takes_other_values_too_is_on_the_device() -> None:
    check(
        f"%1 = {NMS.format('%d', '%c', '%i')}; add(%1, %d)",
        f"""
        %0 = on_device(%d, device_type=4);
        %1 = on_device(%c, device_type=4);
        %2 = on_device(%i, device_type=4);
        %3 = {NMS.format("%0", "%1", "%2")};
        %4 = on_device(%3, device_type=1);
        add(%4, %d)
        """,
    )


def test_results_in_a_tuple_stay_where_they_are_computed() -> None:
    check(
        "%0 = vision.non_max_suppression(%d, %c, %i, -1, 0.5f); %1 = %0.0; %2 = %0.1; (%1, %2)",
        """
        %0 = on_device(%d, device_type=4);
        %1 = on_device(%c, device_type=4);
        %2 = on_device(%i, device_type=4);
        %3 = vision.non_max_suppression(%0, %1, %2, -1, 0.5f);
        %4 = %3.0;
        %5 = %3.1;
        %6 = (%4, %5);
        on_device(%6, device_type=1)
        """,
    )


def test_a_tuple_of_the_cpu_reaches_the_device_field_by_field() -> None:
    marked = "%0 = on_device(%d, device_type=4); %1 = on_device(%c, device_type=4); %2 = on_device(%i, device_type=4);"
    call = f"%3 = {NMS.format('%0', '%1', '%2')};"
    check(
        f"%0 = {NMS.format('%d', '%c', '%i')}; %1 = (%0, %d); concatenate(%1)",
        f"{marked} {call} %4 = on_device(%3, device_type=1); %5 = (%4, %d); concatenate(%5)",
    )


def test_marks_that_are_there_stay() -> None:
    marked = f"%0 = {NMS.format('%d', '%c', '%i')}; %1 = on_device(%0, device_type=4); nn.relu(%1)"
    check(marked, marked)


def test_networks_without_such_operators_and_the_cpu_itself_stay_as_they_are() -> None:
    check("%0 = nn.relu(%d); multiply(%0, 2f)", "%0 = nn.relu(%d); multiply(%0, 2f)")
    body = NMS.format("%d", "%c", "%i")
    check(body, body, device="cpu")


def test_an_operator_of_ones_own_is_placed_by_its_attribute() -> None:
    relu = tvm.ir.Op.get("nn.leaky_relu")
    relu.set_attr("TSequential", True)
    try:
        check(
            "nn.leaky_relu(%d, alpha=0.1f)",
            """
            %0 = on_device(%d, device_type=4);
            %1 = nn.leaky_relu(%0, alpha=0.1f);
            on_device(%1, device_type=1)
            """,
        )
    finally:
        relu.set_attr("TSequential", False)
