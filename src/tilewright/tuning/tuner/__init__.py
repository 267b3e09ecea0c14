"""Tuners: choice of the configurations to measure next.

tuner.py   the loop        index_based_tuner.py  all in order, or at random    ga_tuner.py  genetic algorithm
model_based_tuner.py  the best by a cost model: xgboost_tuner.py, its model xgboost_cost_model.py, its search
sa_model_optimizer.py      callback.py  reports of progress                failures.py  reports of failures
feature.py features.py     features of programs          points.py  configurations as numbers     metric.py  of rankings
"""

import importlib
from typing import Any

from tilewright.tuning.tuner import callback
from tilewright.tuning.tuner.ga_tuner import GATuner
from tilewright.tuning.tuner.index_based_tuner import GridSearchTuner, RandomTuner
from tilewright.tuning.tuner.tuner import Tuner

_ON_USE = {"XGBTuner": "tilewright.tuning.tuner.xgboost_tuner"}


def __getattr__(name: str) -> Any:
    if name not in _ON_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_ON_USE[name]), name)


__all__ = ["GATuner", "GridSearchTuner", "RandomTuner", "Tuner", "callback"]
