"""XGBoost as cost model.

T. Chen and C. Guestrin, "XGBoost: A Scalable Tree Boosting System", KDD 2016.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tilewright.autotvm.task.task import Task
from tilewright.ir.errors import TilewrightError
from tilewright.tuning.tuner.features import TaskFeatures, exact_features, knob_values
from tilewright.tuning.tuner.metric import average_recall
from tilewright.tuning.tuner.model_based_tuner import CostModel
from tilewright.tuning.tuner.tuner import speed

logger = logging.getLogger("autotvm")

_OBJECTIVES = {"rank": "rank:pairwise", "reg": "reg:squarederror"}
_ROUNDS = 120  # trees
_LOOK_EVERY = 20  # trees, between looks at how well the model ranks
_HALVED_BY = 64.0  # measurements, after which an older model counts half


def _xgboost() -> Any:
    try:
        import xgboost
    except ImportError:
        raise TilewrightError(
            "the tuner's cost model needs xgboost: pip install 'tilewright[tune]', or take RandomTuner or GATuner"
        ) from None
    return xgboost


class XGBoostCostModel(CostModel):
    """Boosted trees over features of configurations.

    Parameters
    ----------
    feature_type : "itervar" and "curve" (of loops), or "knob" (the choices themselves)
    loss_type : "rank", what is learned is which of two is faster; "reg", the speed
    num_threads : of training
    upper_model : whose features are used, where this is its base model
    """

    def __init__(
        self,
        task: Task,
        feature_type: str = "itervar",
        loss_type: str = "rank",
        num_threads: int | None = None,
        log_interval: int = 25,
        upper_model: XGBoostCostModel | None = None,
    ) -> None:
        if loss_type not in _OBJECTIVES:
            raise ValueError(f"loss_type is rank or reg, found {loss_type!r}")
        self._xgb = _xgboost()
        self.task, self.fea_type, self.loss_type = task, feature_type, loss_type
        self.num_threads, self.log_interval = num_threads, log_interval
        self.features: TaskFeatures = upper_model.features if upper_model else TaskFeatures(task, feature_type)
        self.xgb_params = {
            "max_depth": 3, "gamma": 0.0001, "min_child_weight": 1, "eta": 0.3, "lambda": 1.0,
            "objective": _OBJECTIVES[loss_type], "verbosity": 0, "tree_method": "hist", "nthread": num_threads or 1,
        }  # fmt: skip
        self.base_model: XGBoostCostModel | None = None
        self.bst: Any = None
        self._samples = 0

    def fit(self, xs: Sequence[int], ys: Sequence[float], plan_size: int) -> None:
        """Learn that the configurations ``xs`` have the speeds ``ys``."""
        began = time.perf_counter()
        features, labels = self.features(np.asarray(xs)), np.asarray(ys, float)
        self._samples = len(features)
        margin = None
        if self.base_model is not None:
            if self._discount() < 0.05:
                self.base_model = None
            else:
                margin = self._discount() * self.base_model.predict(xs, output_margin=True)
        self._train(features, labels / max(labels.max(), 1e-8), plan_size, margin)
        logger.debug("model of %d trials fitted in %.2f s", len(labels), time.perf_counter() - began)

    def _train(self, features: np.ndarray, labels: np.ndarray, plan_size: int, margin: np.ndarray | None) -> None:
        data = self._xgb.DMatrix(features, label=labels, base_margin=margin)
        if self.loss_type == "rank":
            data.set_group([len(labels)])
        model, best, rounds = None, -1.0, 0
        while rounds < _ROUNDS:
            model = self._xgb.train(self.xgb_params, data, num_boost_round=_LOOK_EVERY, xgb_model=model)
            rounds += _LOOK_EVERY
            recall = average_recall(model.predict(data, output_margin=True), labels, min(plan_size, len(labels)))
            if recall <= best:
                break
            best = recall
        self.bst = model

    def fit_log(self, records: Iterable[tuple[Any, Any]], plan_size: int, min_seed_records: int = 500) -> bool:
        """Learn from records of the same template, also of other shapes; return False if there are too few."""
        rows = [(inp, result) for inp, result in records if inp.task.name == self.task.name]
        if len(rows) < min_seed_records:
            return False
        width = self.features([0]).shape[1]
        found = [(self._of_record(inp), speed_of(inp, result)) for inp, result in rows]
        known = [(f, y) for f, y in found if f is not None and len(f) == width and y is not None]
        if len(known) < min_seed_records:
            return False
        labels = np.array([y for _, y in known])
        self._train(np.stack([f for f, _ in known]), labels / max(labels.max(), 1e-8), 2 * plan_size, None)
        return True

    def _of_record(self, inp: Any) -> np.ndarray | None:
        """Return the features of a record's configuration; None if they do not match this task's."""
        if inp.task.workload == self.task.workload and inp.config.index is not None:
            assert self.task.config_space is not None
            if inp.config.index < len(self.task.config_space):
                row: np.ndarray = self.features([inp.config.index])[0]
                return row
        values = [float(np.log2(1 + v)) if v > 0 else v for v in inp.config.get_flatten_feature()]
        if len(values) != sum(t.shape[1] for t in knob_values(self.task)):
            return None
        if self.fea_type == "knob":
            return np.array(values, np.float32)
        task = Task(inp.task.name, inp.task.args)
        task.target = inp.target
        loops = exact_features(task, inp.config, self.fea_type)
        return None if loops is None else np.array([*values, *loops], np.float32)

    def predict(self, xs: Any, output_margin: bool = False) -> np.ndarray:
        """Scores of configurations: larger is faster."""
        margin = None
        if self.base_model is not None:
            margin = self._discount() * self.base_model.predict(xs, output_margin=True)
        if self.bst is None:
            return margin if margin is not None else np.zeros(len(xs))
        wanted = "margin" if output_margin else "value"
        scores: np.ndarray = self.bst.inplace_predict(self.features(xs), predict_type=wanted, base_margin=margin)
        return scores

    def _discount(self) -> float:
        return float(2 ** (-self._samples / _HALVED_BY))

    def load_basemodel(self, base_model: XGBoostCostModel) -> None:
        """Start from another model's knowledge, whose weight falls with every measurement."""
        self.base_model = base_model

    def spawn_base_model(self) -> XGBoostCostModel:
        """Return an untrained model of this kind."""
        return XGBoostCostModel(
            self.task, self.fea_type, self.loss_type, self.num_threads, self.log_interval, upper_model=self
        )


def speed_of(inp: Any, result: Any) -> float | None:
    """Return the FLOPS of a record; None if its operations cannot be counted."""
    if result.error_no != 0:
        return 0.0
    if not inp.task.flop:
        try:
            with inp.target:
                inp.task.instantiate(inp.config)
        except (TilewrightError, RuntimeError):
            return None
    return speed(inp, result)
