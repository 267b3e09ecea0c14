"""Tuning whole networks: what ``tilewright tune`` does.

network.py   which task is measured next, and the finals    roofline.py   what the machine could do
compare.py   the tuned network against the untuned          store.py      records that builds take by default
report.py    the page about it                              places.py    where both are run
"""

from tilewright.tuning.network import NetworkTuner, TaskState
from tilewright.tuning.roofline import Machine, measure_machine

__all__ = ["Machine", "NetworkTuner", "TaskState", "measure_machine"]
