"""Tuners: choice of the configurations to measure next.

tuner.py   the loop        index_based_tuner.py  all in order, or at random    ga_tuner.py  genetic algorithm
model_based_tuner.py  the best by a cost model: xgboost_tuner.py, its model xgboost_cost_model.py, its search
sa_model_optimizer.py      callback.py  reports of progress                failures.py  reports of failures
feature.py features.py     features of programs          points.py  configurations as numbers     metric.py  of rankings
"""

from tilewright.ir.load_on_use import load_on_use
from tilewright.tuning.tuner import callback
from tilewright.tuning.tuner.ga_tuner import GATuner
from tilewright.tuning.tuner.index_based_tuner import GridSearchTuner, RandomTuner
from tilewright.tuning.tuner.tuner import Tuner

__getattr__, __dir__ = load_on_use(__name__, names={".xgboost_tuner": ("XGBTuner",)})


__all__ = ["GATuner", "GridSearchTuner", "RandomTuner", "Tuner", "callback"]
