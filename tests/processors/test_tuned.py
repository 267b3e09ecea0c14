"""Random points of the templates' config spaces: whatever a tuner tries, the answers stay right."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
from tests.processors.test_implementations import check, draw_cases
from tests.processors.x86 import TARGETS
from tests.tiers import full

from tilewright import autotvm
from tilewright.autotvm.task.dispatcher import DispatchContext


class RandomConfigs(DispatchContext):
    """For each workload a point of its space, chosen by the workload and a seed."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed
        self.chosen: dict[Any, Any] = {}

    def _query_inside(self, target: Any, workload: Any) -> Any:
        if workload not in self.chosen:
            space = autotvm.create(workload[0], workload[1:], target).config_space
            assert space is not None
            number = zlib.crc32(f"{self.seed} {workload}".encode()) % len(space)
            self.chosen[workload] = space.get(number)
        return self.chosen[workload]


TUNED = ["conv2d", *full("dense", "winograd", "strassen")]  # families whose kernels are templates


@pytest.mark.parametrize("family", TUNED)
def test_any_configuration_gives_the_right_answer(family: str) -> None:
    with RandomConfigs(0) as context:
        check(draw_cases(family, 6), TARGETS["AVX2"])
    assert context.chosen


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("family", [*TUNED, "winograd_network", "conv1d", "attention"])
def test_many_configurations_give_the_right_answer(family: str, target: str) -> None:
    for seed in range(100, 108):
        with RandomConfigs(seed):
            check(draw_cases(family, seed), target)
