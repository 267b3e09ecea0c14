"""A cost model of gradient-boosted trees.

The score of a program is the sum of the trees' scores of its stores. They learn how fast programs are,
relative to the best one measured of the same task, by squared error weighted by that speed: it matters most which of
the fast ones are fastest.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.auto_scheduler.cost_model.cost_model import PythonBasedModel
from tilewright.auto_scheduler.feature import (
    get_per_store_features_from_measure_pairs,
    get_per_store_features_from_states,
)
from tilewright.auto_scheduler.measure_record import RecordReader
from tilewright.ir.errors import TilewrightError
from tilewright.runtime.partial_files import whole_file

logger = logging.getLogger("auto_scheduler")

Array = np.ndarray[Any, Any]


def _xgboost() -> Any:
    try:
        import xgboost
    except ImportError:
        text = "XGBModel needs xgboost: pip install 'tilewright[tune]', or take search_policy=\"sketch.random\""
        raise ImportError(text) from None
    return xgboost


class XGBModel(PythonBasedModel):
    """Learns from measurements which programs are fast.

    Parameters
    ----------
    verbose_eval : taken for TVM's sake
    num_warmup_sample : before so many measurements scores are random
    seed : of training and of random scores
    model_file : is written after each training
    adapative_training : train only when there are a fifth more measurements than at the last time
    """

    def __init__(
        self,
        verbose_eval: int = 25,
        num_warmup_sample: int = 100,
        seed: int | None = None,
        model_file: str | None = None,
        adapative_training: bool = False,
    ) -> None:
        _xgboost()
        self.xgb_params = {
            "max_depth": 6,
            "gamma": 0.001,
            "min_child_weight": 0,
            "eta": 0.2,
            "nthread": 1,  # some hundreds of rows: threads would wait for each other
            "tree_method": "hist",
            "verbosity": 0,
            "seed": seed or 43,
            "disable_default_eval_metric": 1,
            "base_score": 0.0,
        }
        self.num_warmup_sample = num_warmup_sample
        self.model_file = model_file
        self.adapative_training = adapative_training
        self.bst: Any = None
        self.inputs: list[Any] = []
        self.results: list[Any] = []
        self._features: list[Array] = []
        self._trained_on = 0
        self._rng = np.random.default_rng(seed or 43)

    def update(self, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        """Learn from all measurements so far and these."""
        if not inputs:
            return
        self.inputs += inputs
        self.results += results
        if self.adapative_training and len(self.inputs) - self._trained_on < self._trained_on / 5:
            return
        self._trained_on = len(self.inputs)
        features, speeds, _ = get_per_store_features_from_measure_pairs(self.inputs, self.results, len(self._features))
        self._features += list(features[len(self._features) :])
        self._train(speeds)
        if self.model_file:
            self.save(self.model_file)

    def _train(self, speeds: Array) -> None:
        xgboost = _xgboost()
        rows, packs = _packed(self._features)
        labels = speeds[packs]
        matrix = xgboost.DMatrix(rows, labels)
        weights = np.maximum(labels, 0.05)

        def gradient(predicted: Array, _: Any) -> tuple[Array, Array]:
            total = np.bincount(packs, weights=predicted)
            return (total[packs] - labels) * weights, weights

        rounds = 60 if len(speeds) < 200 else 100
        self.bst = xgboost.train(self.xgb_params, matrix, num_boost_round=rounds, obj=gradient)

    @property
    def is_trained(self) -> bool:
        """Return whether scores are learned ones."""
        return self.bst is not None and (len(self.inputs) > self.num_warmup_sample)

    def _scores(self, task: Any, states: Sequence[Any]) -> tuple[Array, list[Array]]:
        """The score of each state, and of each of its stores."""
        features = list(get_per_store_features_from_states(states, task))
        if not self.is_trained:
            scores: Array = self._rng.uniform(0, 1, len(states))
            stores: list[Array] = [np.zeros(0)] * len(states)
        else:
            rows, packs = _packed(features)
            predicted = self.bst.predict(_xgboost().DMatrix(rows))
            scores = np.bincount(packs, weights=predicted, minlength=len(states))
            stores = [predicted[packs == i] for i in range(len(states))]
        for i, matrix in enumerate(features):
            if not matrix.any():
                scores[i] = -np.inf
        return scores, stores

    def predict(self, task: Any, states: Sequence[Any]) -> Sequence[float]:
        """A score for each state: its speed relative to the best one measured; minus infinity for no program."""
        return [float(s) for s in self._scores(task, states)[0]] if states else []

    def predict_stages(self, task: Any, states: Sequence[Any]) -> Sequence[float]:
        """The scores, then for each state the number of its stores and their scores."""
        scores, stores = self._scores(task, states)
        return [*map(float, scores), *[float(v) for found in stores for v in (len(found), *found)]]

    def update_from_file(self, file_name: str, n_lines: int | None = None) -> None:
        """Learn from a file of records, or from its first ``n_lines``."""
        inputs, results = RecordReader(file_name).read_lines(n_lines)
        logger.info("XGBModel: Loaded %s measurement records from %s", len(inputs), file_name)
        self.update(inputs, results)

    def save(self, file_name: str) -> None:
        """Write the trees to a file."""
        if self.bst is None:
            raise TilewrightError("the model has learned nothing yet; there is nothing to save")
        with whole_file(file_name) as partial:
            as_json = partial.with_suffix(".json")  # by which it chooses the format
            self.bst.save_model(as_json)
            as_json.replace(partial)

    def load(self, file_name: str) -> None:
        """Load trees from a file; scores are learned ones from then on."""
        self.bst = _xgboost().Booster(self.xgb_params)
        with open(file_name, "rb") as file:
            self.bst.load_model(bytearray(file.read()))
        self.num_warmup_sample = -1


def _packed(features: Sequence[Array]) -> tuple[Array, Array]:
    """Stack the rows of all states, and return the number of the state of each."""
    packs = np.repeat(np.arange(len(features)), [len(f) for f in features])
    return np.concatenate(features), packs
