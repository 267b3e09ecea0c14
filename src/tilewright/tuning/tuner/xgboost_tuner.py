"""Tuner that learns speeds by XGBoost."""

from __future__ import annotations

from tilewright.autotvm.task.task import Task
from tilewright.tuning.tuner.model_based_tuner import ModelBasedTuner, ModelOptimizer
from tilewright.tuning.tuner.sa_model_optimizer import SimulatedAnnealingOptimizer
from tilewright.tuning.tuner.xgboost_cost_model import XGBoostCostModel


class XGBTuner(ModelBasedTuner):
    """Measures configurations that boosted trees predict to be fast.

    Parameters
    ----------
    plan_size : trials between two fits of the model
    feature_type : "itervar" (loops), "curve" (arrays, whatever the loops), or "knob" (the choices themselves)
    loss_type : "rank" (which of two is faster) or "reg" (the speed)
    num_threads : of the model's training
    optimizer : "sa", simulated annealing, or a ModelOptimizer: what finds the model's best
    diversity_filter_ratio : so many times ``plan_size`` are proposed, and the most different taken
    """

    def __init__(
        self,
        task: Task,
        plan_size: int = 64,
        feature_type: str = "itervar",
        loss_type: str = "rank",
        num_threads: int | None = None,
        optimizer: str | ModelOptimizer = "sa",
        diversity_filter_ratio: float | None = None,
        log_interval: int = 50,
    ) -> None:
        model = XGBoostCostModel(task, feature_type, loss_type, num_threads, log_interval // 2)
        if isinstance(optimizer, str):
            if optimizer != "sa":
                raise ValueError(f'optimizer is "sa" or a ModelOptimizer, found {optimizer!r}')
            optimizer = SimulatedAnnealingOptimizer(task, log_interval=log_interval)
        super().__init__(task, model, optimizer, plan_size, diversity_filter_ratio)
