"""TVM 0.8's names of functions that its Python reaches in C++, for programs that call them."""

from typing import Any

from tilewright.auto_scheduler import state_queries as ask
from tilewright.auto_scheduler.loop_nest import Stage
from tilewright.auto_scheduler.loop_state import State
from tilewright.auto_scheduler.measure_pair import (
    deserialize_input as DeserializeMeasureInput,
)
from tilewright.auto_scheduler.measure_pair import (
    deserialize_task as DeserializeSearchTask,
)
from tilewright.auto_scheduler.measure_pair import (
    serialize_input as SerializeMeasureInput,
)
from tilewright.auto_scheduler.measure_pair import (
    serialize_task as SerializeSearchTask,
)


def _object(state: Any) -> Any:
    return state.state_object if isinstance(state, State) else state


def SearchPolicyUtilsIsTiled(stage: Stage) -> bool:
    """Return whether splits or fusions changed the number of a stage's loops."""
    return stage.is_tiled


def SearchPolicyUtilsHasCacheReadStage(state: Any, stage_id: int) -> bool:
    """Return whether a stage is read through a copy."""
    return ask.has_cache_read(_object(state), stage_id)


def SearchPolicyUtilsHasCacheWriteStage(state: Any, stage_id: int) -> bool:
    """Return whether a stage is the computing half of a ``cache_write``."""
    return ask.has_cache_write(_object(state), stage_id)


def SearchPolicyUtilsHasRfactorStage(state: Any, stage_id: int) -> bool:
    """Return whether a stage is the partial result of an ``rfactor``."""
    return ask.has_rfactor(_object(state), stage_id)


def SearchPolicyUtilsHasCrossThreadReduction(state: Any, stage_id: int) -> bool:
    """Return whether threads share a reduction of a stage."""
    return ask.has_cross_thread_reduction(_object(state), stage_id)


def SearchPolicyUtilsGetConsumers(task: Any, state: Any, stage_id: int) -> dict[int, int]:
    """The stages that read a stage, as keys and values."""
    return {i: i for i in ask.consumers(task, _object(state), stage_id)}


def SearchPolicyUtilsIsElementwiseMatch(task: Any, state: Any, stage_id: int, target_stage_id: int) -> bool:
    """Return whether a stage is read element by element by another."""
    found = _object(state)
    analysis = ask.analysis(task, found)
    return analysis.elementwise_match(found.stages[stage_id].op, found.stages[target_stage_id].op)


__all__ = [
    "DeserializeMeasureInput",
    "DeserializeSearchTask",
    "SearchPolicyUtilsGetConsumers",
    "SearchPolicyUtilsHasCacheReadStage",
    "SearchPolicyUtilsHasCacheWriteStage",
    "SearchPolicyUtilsHasCrossThreadReduction",
    "SearchPolicyUtilsHasRfactorStage",
    "SearchPolicyUtilsIsElementwiseMatch",
    "SearchPolicyUtilsIsTiled",
    "SerializeMeasureInput",
    "SerializeSearchTask",
]
