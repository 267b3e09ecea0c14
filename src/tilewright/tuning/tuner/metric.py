"""Quality of a ranking: curves over the first k items."""

from __future__ import annotations

import numpy as np


def max_curve(trial_scores: np.ndarray) -> np.ndarray:
    """The best score of the first k."""
    return np.maximum.accumulate(np.asarray(trial_scores))


def mean_curve(trial_scores: np.ndarray) -> np.ndarray:
    """The mean score of the first k."""
    scores = np.asarray(trial_scores, float)
    return np.cumsum(scores) / np.arange(1, len(scores) + 1)


def recall_curve(trial_ranks: np.ndarray, top: int | None = None) -> np.ndarray:
    """Return the share of the best k (or ``top``) items in the first k; ranks begin with 0."""
    ranks = np.asarray(trial_ranks)
    if not isinstance(top, int):
        sizes = np.arange(1, len(ranks) + 1)
        # An item is among the best k and the first k from k = max(rank, position) + 1 on.
        enters = np.maximum(ranks, np.arange(len(ranks)))
        return np.cumsum(np.bincount(enters, minlength=len(ranks))[: len(ranks)]) / sizes
    return np.cumsum(ranks < top) / top


def cover_curve(trial_ranks: np.ndarray) -> np.ndarray:
    """Return how many of the best items are all in the first k, as a share of k."""
    ranks = np.asarray(trial_ranks)
    covered = np.zeros(len(ranks))
    seen, next_rank = set[int](), 0
    for k, rank in enumerate(ranks):
        seen.add(int(rank))
        while next_rank in seen:
            next_rank += 1
        covered[k] = next_rank / (k + 1)
    return covered


def average_recall(preds: np.ndarray, labels: np.ndarray, N: int) -> float:
    """The mean of ``recall_curve`` over the first ``N``, items in the order of ``preds``."""
    order = np.argsort(-preds, kind="stable")
    by_label = np.argsort(-labels, kind="stable")
    ranks = np.empty(len(labels), np.int64)
    ranks[by_label] = np.arange(len(labels))
    return float(recall_curve(ranks[order])[:N].mean())
