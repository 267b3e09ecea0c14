"""Layouts for a whole network: which record of each convolution, when conversions between layouts cost time too.

base_graph_tuner.py                            a network as choices, and what pairs of them cost
problem.py                                     such choices in numbers, and their optimum
dynamic_programming_tuner.py, pbqp_tuner.py    exactly, and approximately
utils/                                         who takes the results of whom
"""

from tilewright.tuning.graph_tuner.base_graph_tuner import BaseGraphTuner
from tilewright.tuning.graph_tuner.dynamic_programming_tuner import DPTuner
from tilewright.tuning.graph_tuner.pbqp_tuner import PBQPTuner

__all__ = ["BaseGraphTuner", "DPTuner", "PBQPTuner"]
