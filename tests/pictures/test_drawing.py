"""Pictures of graphs and schedules: what is in them, and that boxes of a layer do not overlap."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from tests.driver.command import DIGITS, tilewright

import tilewright as tvm
from tilewright import relay, te
from tilewright.contrib import relay_viz, tedd
from tilewright.pictures.drawing import Box, Drawing
from tilewright.pictures.relay_graph import draw_module

SVG = "{http://www.w3.org/2000/svg}"


def boxes(svg: str) -> list[tuple[float, float, float, float]]:
    found = ElementTree.fromstring(svg).iter(f"{SVG}rect")
    return [tuple(float(rect.attrib[name]) for name in ("x", "y", "width", "height")) for rect in found]  # type: ignore[misc]


def test_boxes_do_not_overlap_and_arrows_go_down() -> None:
    arrows = ((0, 1), (0, 2), (1, 3), (2, 3), (0, 3), (3, 4))
    drawing = Drawing(tuple(Box((f"box {i}", "x" * i)) for i in range(5)), arrows)
    places = boxes(drawing.svg())
    for i, (x, y, width, height) in enumerate(places):
        for left, top, *_ in places[i + 1 :]:
            assert x + width <= left or left + 1 <= x or y + height <= top or top < y, i
    assert all(places[a][1] + places[a][3] < places[b][1] for a, b in arrows)


def test_texts_are_escaped_in_both_languages() -> None:
    drawing = Drawing((Box(('a "<b>" \\',)),), ())
    assert "a &quot;&lt;b&gt;&quot; \\" in drawing.svg()
    assert 'label="a \\"<b>\\" \\\\"' in drawing.dot()


def test_a_drawing_of_nothing_is_a_picture() -> None:
    assert boxes(Drawing((), ()).svg()) == []


def test_a_deep_chain_is_drawn() -> None:
    drawing = Drawing(tuple(Box((str(i),)) for i in range(3000)), tuple((i, i + 1) for i in range(2999)))
    assert len(boxes(drawing.svg())) == 3000


def test_functions_of_an_external_compiler_are_drawn_from_inside_in_their_colour() -> None:
    x, y = relay.var("x", shape=(2, 3)), relay.var("y", shape=(2, 3))
    inner = relay.Function([y], relay.exp(relay.abs(y))).with_attr({"Compiler": "chip", "global_symbol": "chip_0"})
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.tanh(relay.var("x", shape=(2, 3)))))
    region = relay.GlobalVar("chip_0")
    mod[region] = inner
    mod["main"] = relay.Function([x], relay.tanh(relay.Call(region, [x])))
    drawing = draw_module(relay.transform.InferType()(mod))
    assert [(box.lines[0], box.group) for box in drawing.boxes] == [
        ("%x", ""), ("abs", "chip: chip_0"), ("exp", "chip: chip_0"), ("tanh", ""),
    ]  # fmt: skip
    assert drawing.arrows == ((0, 1), (1, 2), (2, 3)) and "(2, 3)" in drawing.boxes[3].lines[1]


def test_a_model_is_drawn_by_the_command(tmp_path: Path) -> None:
    assert tilewright("show", DIGITS, "--svg", tmp_path / "model.svg").returncode == 0
    assert "nn.softmax" in (tmp_path / "model.svg").read_text()
    assert [p.name for p in tmp_path.iterdir()] == ["model.svg"]


def test_a_visualizer_writes_a_picture_and_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, w = relay.var("x", shape=(2, 3)), relay.var("w", shape=(4, 3))
    mod = tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.dense(x, w)))
    relay_viz.RelayVisualizer(mod).render(str(tmp_path / "model"))
    assert len(boxes((tmp_path / "model.svg").read_text())) == 3 and "n0 -> n2" in (tmp_path / "model.dot").read_text()
    weights = {"w": tvm.nd.array(np.ones((4, 3), "float32"))}
    relay_viz.RelayVisualizer(mod, weights, relay_viz.TermPlotter()).render()
    assert capsys.readouterr().out.splitlines()[-1].startswith("@1 nn.dense")
    with pytest.raises(TypeError, match="takes no parser"):
        relay_viz.RelayVisualizer(mod, parser=object())  # type: ignore[arg-type]


def _schedule() -> te.Schedule:
    a = te.placeholder((64,), name="a")
    b = te.compute((64,), lambda i: a[i] + 1.0, name="b")
    c = te.compute((64,), lambda i: b[i] * 2.0, name="c")
    schedule = te.create_schedule(c.op)
    outer, inner = schedule[c].split(c.op.axis[0], 8)
    schedule[c].parallel(outer)
    schedule[c].vectorize(inner)
    schedule[b].compute_at(schedule[c], outer)
    return schedule


def test_a_schedule_tree_has_loops_and_attachments() -> None:
    text = str(tedd.viz_schedule_tree(_schedule(), output_dot_string=True))
    assert "for i.outer (parallel)" in text and "for i.inner (vectorized)" in text
    assert "b\\ncomputed at c, i.outer" in text and "n2 -> n1" in text


def test_loops_are_drawn_with_what_made_them(tmp_path: Path) -> None:
    drawing = tedd.viz_itervar_relationship_graph(_schedule(), dot_file_path=str(tmp_path / "loops.dot"))
    assert isinstance(drawing, Drawing)
    assert drawing.dot() == (tmp_path / "loops.dot").read_text() and "split 8" in drawing.dot()


def test_data_flow_goes_from_stage_to_stage() -> None:
    drawing = tedd.viz_dataflow_graph(_schedule())
    assert isinstance(drawing, Drawing)
    assert [box.lines[0] for box in drawing.boxes] == ["a", "b", "c"] and drawing.arrows == ((0, 1), (1, 2))


def test_jupyter_shows_modules_functions_and_schedules() -> None:
    x = relay.var("x", shape=(2,))
    function = relay.Function([x], relay.less(x, x))
    for shown in (function, tvm.IRModule.from_expr(function), _schedule()):
        ElementTree.fromstring(shown._repr_html_())
    assert "less(%x, %x)" in function._repr_html_() and "for i.outer" in _schedule()._repr_html_()


def test_jupyter_shows_the_beginning_and_the_end_of_an_array() -> None:
    numbers = np.zeros((1000, 1000), "int64")
    numbers[-1, -1] = 77
    shown = tvm.nd.array(numbers)._repr_html_()
    ElementTree.fromstring(f"<div>{shown}</div>")
    assert "NDArray (1000, 1000) int64, cpu(0)" in shown and "77]]" in shown and len(shown) < 2000
