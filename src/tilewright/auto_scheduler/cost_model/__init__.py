"""Cost models: predicted speed of programs before they are measured."""

from tilewright.auto_scheduler.cost_model.cost_model import CostModel, PythonBasedModel, RandomModel
from tilewright.auto_scheduler.cost_model.xgb_model import XGBModel

__all__ = ["CostModel", "PythonBasedModel", "RandomModel", "XGBModel"]
