"""Pictures of schedules, by the names of TVM's ``tvm.contrib.tedd``.

TVM draws with Graphviz; these pictures are drawn here, and Graphviz's language is an output. A call returns the
drawing, which Jupyter shows, or its text in that language.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.pictures.drawing import Drawing
from tilewright.pictures.schedule_graph import draw_data_flow, draw_loops, draw_stages
from tilewright.runtime.partial_files import write_whole
from tilewright.te.schedule.schedule import Schedule


def _view(
    draw: Callable[[Schedule], Drawing], sch: Schedule, dot_file_path: str, output_dot_string: bool
) -> Drawing | str:
    drawing = draw(sch)
    if dot_file_path:
        write_whole(dot_file_path, drawing.dot())
    return drawing.dot() if output_dot_string else drawing


def viz_schedule_tree(
    sch: Schedule, show_svg: bool = False, dot_file_path: str = "", output_dot_string: bool = False
) -> Drawing | str:
    """Draw the stages of a schedule, their loops, and where each is computed.

    Args:
        sch: the schedule.
        show_svg: as in TVM; Jupyter shows the result of the call in any case.
        dot_file_path: a file for the graph in Graphviz's language; "" for none.
        output_dot_string: whether that text is returned instead of the drawing.
    """
    return _view(draw_stages, sch, dot_file_path, output_dot_string)


def viz_itervar_relationship_graph(
    sch: Schedule, show_svg: bool = False, dot_file_path: str = "", output_dot_string: bool = False
) -> Drawing | str:
    """Draw the loops of each stage and the splits and fusions that made them; arguments as ``viz_schedule_tree``."""
    return _view(draw_loops, sch, dot_file_path, output_dot_string)


def viz_dataflow_graph(
    sch: Schedule, show_svg: bool = False, dot_file_path: str = "", output_dot_string: bool = False
) -> Drawing | str:
    """Draw which stage reads which; arguments as ``viz_schedule_tree``."""
    return _view(draw_data_flow, sch, dot_file_path, output_dot_string)
