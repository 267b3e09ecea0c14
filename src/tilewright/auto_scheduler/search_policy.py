"""Search policies: choice of the programs to measure next.

``SketchPolicy`` derives sketches by rules, draws programs from them, lets the best evolve under a learned cost model,
and measures those that the model ranks best, with a few at random.

L. Zheng et al., "Ansor: Generating High-Performance Tensor Programs for Deep Learning", OSDI 2020.
"""

from __future__ import annotations

import heapq
import itertools
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from tilewright.auto_scheduler import state_queries as ask
from tilewright.auto_scheduler.cost_model.cost_model import CostModel, RandomModel
from tilewright.auto_scheduler.gpu_population import GPU_POPULATION, MALI_POPULATION, fits_hardware
from tilewright.auto_scheduler.loop_nest import StateObject
from tilewright.auto_scheduler.loop_state import State
from tilewright.auto_scheduler.measure import ProgramMeasurer
from tilewright.auto_scheduler.measure_pair import MeasureErrorNo, MeasureInput, MeasureResult
from tilewright.auto_scheduler.measure_record import RecordReader
from tilewright.auto_scheduler.mutation import CPU_MUTATIONS, GPU_MUTATIONS, Mutation
from tilewright.auto_scheduler.population import CPU_POPULATION, PopulationRule, rebuilt
from tilewright.auto_scheduler.sketch_rules import (
    APPLY,
    APPLY_AND_SKIP_REST,
    CPU_RULES,
    GPU_RULES,
    PASS,
    CustomRule,
    SketchRule,
)
from tilewright.auto_scheduler.stage_steps import RfactorStep
from tilewright.auto_scheduler.task import TaskRecord
from tilewright.auto_scheduler.transform_step import SplitStep, Step
from tilewright.ir.errors import TilewrightError

Steps = tuple[Step, ...]


class SearchCallback:
    """Is called with a policy before its search."""

    def callback(self, policy: SearchPolicy) -> None:
        """Prepare ``policy``."""
        raise NotImplementedError


class PreloadMeasuredStates(SearchCallback):
    """Initialises a policy from a file of records: evolution begins with them, and none is measured again."""

    def __init__(self, filename: str) -> None:
        self.filename = str(filename)

    def callback(self, policy: SearchPolicy) -> None:
        policy.preload_measured_states(self.filename)


class PreloadCustomSketchRule(SearchCallback):
    """Adds a rule of the user's to a ``SketchPolicy``, before its own.

    Parameters
    ----------
    meet_condition_func : (policy, state, stage number) -> PASS, APPLY or APPLY_AND_SKIP_REST
    apply_func : (policy, state, stage number) -> list of [state, number of the stage to go on with]
    rule_name : for messages
    """

    PASS, APPLY, APPLY_AND_SKIP_REST = PASS, APPLY, APPLY_AND_SKIP_REST

    def __init__(
        self,
        meet_condition_func: Callable[..., int],
        apply_func: Callable[..., Any],
        rule_name: str = "CustomSketchRule",
    ) -> None:
        self.rule = CustomRule(meet_condition_func, apply_func, rule_name)

    def callback(self, policy: SearchPolicy) -> None:
        if not isinstance(policy, SketchPolicy):
            raise TilewrightError("custom sketch rules are for SketchPolicy")
        policy.sketch_rules.append(self.rule)


class SearchPolicy:
    """Base class: ``search`` returns the best state that it finds."""

    def __init__(self, task: TaskRecord, verbose: int = 1) -> None:
        self.search_task = task
        self.verbose = verbose
        self.measured: dict[Steps, float] = {}
        """states that were measured, by their steps, with calls a second (0 for failures)"""

    def set_verbose(self, verbose: int) -> None:
        """0 for silence."""
        self.verbose = verbose

    def preload_measured_states(self, filename: str) -> None:
        """Load the measured states of this task from a file of records."""
        for inp, res in RecordReader(filename):
            if (
                inp.task.workload_key == self.search_task.workload_key
                and inp.task.target.kind == self.search_task.target.kind
            ):
                self._remember(inp, res)

    def _remember(self, inp: MeasureInput, res: MeasureResult) -> None:
        worked = res.error_no == MeasureErrorNo.NO_ERROR
        self.measured[inp.state.transform_steps] = 1.0 / max(res.mean, 1e-12) if worked else 0.0

    def search(
        self, n_trials: int, early_stopping: int, num_measure_per_iter: int, measurer: ProgramMeasurer
    ) -> StateObject | None:
        """The best state of ``n_trials`` measurements; of one at most, the state that the policy likes best."""
        raise NotImplementedError

    def continue_search_one_round(
        self, num_measure: int, measurer: ProgramMeasurer
    ) -> tuple[list[MeasureInput], list[MeasureResult]]:
        """Measure ``num_measure`` states more."""
        raise NotImplementedError

    def _say(self, text: str) -> None:
        if self.verbose >= 1:
            print(text, flush=True)

    def _title(self, text: str) -> None:
        self._say(f"{'-' * 70}\n{'-' * 30}  [ {text} ]\n{'-' * 70}")


class EmptyPolicy(SearchPolicy):
    """Returns the initial state only."""

    def __init__(self, task: TaskRecord, init_search_callbacks: Sequence[SearchCallback] | None = None) -> None:
        super().__init__(task)
        for callback in init_search_callbacks or ():
            callback.callback(self)

    def search(
        self, n_trials: int, early_stopping: int, num_measure_per_iter: int, measurer: ProgramMeasurer
    ) -> StateObject | None:
        dag = self.search_task.compute_dag
        if n_trials > 1:
            self.continue_search_one_round(num_measure_per_iter, measurer)
        found: StateObject = dag.infer_bound(dag.init_state)
        return found

    def continue_search_one_round(
        self, num_measure: int, measurer: ProgramMeasurer
    ) -> tuple[list[MeasureInput], list[MeasureResult]]:
        inputs = [MeasureInput(self.search_task, self.search_task.compute_dag.init_state)]
        return inputs, measurer.measure(self.search_task, self, inputs)


class SketchPolicy(SearchPolicy):
    """Sketches, random programs, evolution.

    Parameters
    ----------
    task : what to search for
    program_cost_model : predicts which programs are fast
    params : the search's parameters that differ from ``DEFAULT_PARAMS``
    seed : of all random choices
    verbose : 0 for silence
    init_search_callbacks : called first
    """

    DEFAULT_PARAMS: ClassVar[dict[str, Any]] = {
        "eps_greedy": 0.05,
        "retry_search_one_round_on_empty": 1,
        "sample_init_min_population": 50,
        "sample_init_use_measured_ratio": 0.2,
        "evolutionary_search_population": 256,
        "evolutionary_search_num_iters": 4,
        "evolutionary_search_mutation_prob": 0.85,
        "cpu_multi_level_tiling_structure": "SSRSRS",
        "gpu_multi_level_tiling_structure": "SSSRRSRS",
        "max_innermost_split_factor": 64,
        "max_vectorize_size": 64,
        "register_tile_ratio": 0.7,
        "compute_inside_ratio": 0.7,
        "inline_padding_ratio": 0.3,
        "vector_reduction_weight": 6,
        "lane_parts_ratio": 0.7,
        "disable_change_compute_location": 0,
    }

    def __init__(
        self,
        task: TaskRecord,
        program_cost_model: CostModel | None = None,
        params: dict[str, Any] | None = None,
        seed: int | None = None,
        verbose: int = 1,
        init_search_callbacks: Sequence[SearchCallback] | None = None,
    ) -> None:
        super().__init__(task, verbose)
        self.program_cost_model = program_cost_model or RandomModel()
        self.params = {**self.DEFAULT_PARAMS, **(params or {})}
        self.rng = random.Random(seed if seed is not None else random.randrange(1 << 30))
        self.sketch_rules: list[SketchRule] = []
        for callback in init_search_callbacks or ():
            callback.callback(self)
        gpu, mali = ask.is_gpu(task), ask.is_mali(task)
        self.sketch_rules += GPU_RULES if gpu and not mali else CPU_RULES
        self.population_rules: Sequence[PopulationRule] = (
            MALI_POPULATION if mali else GPU_POPULATION if gpu else CPU_POPULATION
        )
        self.mutations: Sequence[tuple[Mutation, float]] = GPU_MUTATIONS if gpu else CPU_MUTATIONS
        self._sketches: list[StateObject] = []
        self._sketch_weights: list[float] = []
        self._min_population = int(self.params["sample_init_min_population"])

    def generate_sketches(self, print_for_debug: bool = False) -> list[StateObject]:
        """All sketches of the task."""
        start = self.search_task.compute_dag.init_state
        open_states: list[tuple[StateObject, int]] = [(start, len(start.stages) - 1)]
        found: list[StateObject] = []
        while open_states:
            later: list[tuple[StateObject, int]] = []
            for state, stage_id in open_states:
                if stage_id < 0:
                    found.append(_with_open_rfactors(state))
                else:
                    later += self._derive(state, stage_id)
            open_states = later
        if print_for_debug:
            for i, sketch in enumerate(found):
                print(f"{'=' * 20} {i} {'=' * 20}\n{sketch}")
        self._say(f"Generate Sketches\t\t#s: {len(found)}")
        return found

    def _derive(self, state: StateObject, stage_id: int) -> list[tuple[StateObject, int]]:
        made: list[tuple[StateObject, int]] = []
        for rule in self.sketch_rules:
            condition = rule.meets(self, state, stage_id)
            if condition != PASS:
                made += rule.apply(self, state, stage_id)
            if condition == APPLY_AND_SKIP_REST:
                break
        return made

    def sketches(self) -> list[StateObject]:
        """The sketches, derived once."""
        if not self._sketches:
            self._sketches = self.generate_sketches()
            wanted = 1.0 if ask.is_gpu(self.search_task) else float(self.params["vector_reduction_weight"])
            self._sketch_weights = [wanted ** _vector_reductions(s) for s in self._sketches]
        return self._sketches

    def random_state(self) -> StateObject | None:
        """Draw a program from a sketch; return None if the draw is invalid."""
        sketches = self.sketches()
        state: StateObject | None = self.rng.choices(sketches, self._sketch_weights)[0]
        for rule in self.population_rules:
            if state is None:
                return None
            state = rule(self, state, self.rng)
        return state

    def sample_initial_population(self) -> list[StateObject]:
        """Draw different valid programs: ``sample_init_min_population``, or as many as exist.

        Raises TilewrightError when no draw makes a program.
        """
        began = time.monotonic()
        found: dict[Steps, StateObject] = {}
        in_vain = 0
        while len(found) < self._min_population and in_vain < 20:
            batch: dict[Steps, StateObject] = {}
            for _ in range(self._min_population):
                state = self.random_state()
                if state is not None and state.transform_steps not in found:
                    batch[state.transform_steps] = state
            valid = self._valid(list(batch.values()))
            in_vain = 0 if valid else in_vain + 1
            for state, _ in valid:
                found[state.transform_steps] = state
        if not found:
            raise TilewrightError(
                f"no valid program was drawn for {self.search_task.workload_key} on {self.search_task.target}; "
                "the cost model rejects all, or the custom rules make none"
            )
        self._say(f"Sample Initial Population\t#s: {len(found)}\tTime elapsed: {time.monotonic() - began:.2f}")
        return list(found.values())

    def _valid(self, states: Sequence[StateObject]) -> list[tuple[StateObject, float]]:
        """The states that can be programs, with their scores."""
        task = self.search_task
        can_be = (lambda s: fits_hardware(task, s)) if ask.is_gpu(task) else (lambda s: not ask.has_nested_parallel(s))
        kept = [s for s in states if can_be(s)]
        if not kept:
            return []
        scores = self.program_cost_model.predict(self.search_task, kept)
        return [(s, float(v)) for s, v in zip(kept, scores, strict=True) if v > -1e10]

    def evolutionary_search(self, init_populations: Sequence[Any], out_size: int) -> list[StateObject]:
        """Return the best unmeasured states that mutations of initial states reach, the best first."""
        began = time.monotonic()
        now = [s.state_object if isinstance(s, State) else s for s in init_populations]
        rounds = int(self.params["evolutionary_search_num_iters"])
        if isinstance(self.program_cost_model, RandomModel):
            rounds = min(rounds, 2)
        best: list[tuple[float, int, StateObject]] = []
        seen: set[Steps] = set(self.measured)
        scored = self._valid(now)
        for number in range(rounds + 1):
            for state, score in scored:
                if state.transform_steps not in seen:
                    seen.add(state.transform_steps)
                    heapq.heappush(best, (score, len(seen), state))
                    if len(best) > out_size:
                        heapq.heappop(best)
            if number == rounds or not scored:
                break
            scored = self._valid(self._next_generation(scored))
        self._say(f"EvolutionarySearch\t\t#s: {len(best)}\tTime elapsed: {time.monotonic() - began:.2f}")
        return [state for _, _, state in sorted(best, reverse=True)]

    def _next_generation(self, scored: Sequence[tuple[StateObject, float]]) -> list[StateObject]:
        states = [s for s, _ in scored]
        weights = [max(v, 0.0) + 1e-9 for _, v in scored]
        rules, odds = [r for r, _ in self.mutations], [w for _, w in self.mutations]
        population = int(self.params["evolutionary_search_population"])
        chosen = self.rng.choices(states, weights, k=population)
        made: dict[Steps, StateObject] = {}
        for state in chosen:
            if self.rng.random() < self.params["evolutionary_search_mutation_prob"]:
                changed = self.rng.choices(rules, odds)[0](self, state, self.rng)
                if changed is None:
                    continue
                state = changed
            made[state.transform_steps] = state
        return list(made.values())

    def search_one_round(self, num_random: int, num_best: int) -> tuple[list[StateObject], list[StateObject]]:
        """The most promising states, and some at random."""
        self._title("Search")
        population = self.sample_initial_population()
        limit = int(self.params["sample_init_use_measured_ratio"] * self.params["evolutionary_search_population"])
        fastest = heapq.nlargest(limit, [s for s, v in self.measured.items() if v], key=self.measured.__getitem__)
        known = [state for steps in fastest if (state := rebuilt(self, steps)) is not None]
        at_random = self.rng.choices(population, k=num_random) if num_random else []
        return self.evolutionary_search([*population, *known], num_best), at_random

    def _pick(self, num_measure: int) -> list[MeasureInput]:
        """The states to measure next: some at random, the others the most promising; none twice."""
        num_random = int(self.params["eps_greedy"] * num_measure)
        best, at_random = self.search_one_round(num_random * 3, num_measure * 2)
        picked: dict[Steps, StateObject] = {}
        good, rest = iter(best), iter(at_random)
        while len(picked) < num_measure:
            source = good if len(picked) < num_measure - num_random else rest
            state = next(source, None) or next(good, None) or next(rest, None)
            if state is None:
                break
            if state.transform_steps not in self.measured:
                picked[state.transform_steps] = state
        return [MeasureInput(self.search_task, s) for s in picked.values()]

    def _measure(self, inputs: Sequence[MeasureInput], measurer: ProgramMeasurer) -> list[MeasureResult]:
        self._title("Measure")
        results = measurer.measure(self.search_task, self, inputs)
        for inp, res in zip(inputs, results, strict=True):
            self._remember(inp, res)
        best = measurer.best_flops.get(self.search_task.workload_key)
        if best is not None:
            self._say(f"Measured {len(inputs)} programs, best GFLOPS: {best / 1e9:.2f}")
        return results

    def _train(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        began = time.monotonic()
        self.program_cost_model.update(inputs, results)
        self._say(f"Time elapsed for training: {time.monotonic() - began:.2f} s")

    def search(
        self, n_trials: int, early_stopping: int, num_measure_per_iter: int, measurer: ProgramMeasurer
    ) -> StateObject | None:
        if n_trials <= 1:
            best, _ = self.search_one_round(0, num_measure_per_iter * 2)
            return best[0] if best else None
        key = self.search_task.workload_key
        patience = early_stopping if early_stopping >= 0 else sys.maxsize
        measurer.reset()
        done, retries = 0, int(self.params["retry_search_one_round_on_empty"])
        while done < n_trials:
            inputs, results = self._round(min(num_measure_per_iter, n_trials - done), measurer)
            if not inputs:
                if retries <= 0:
                    self._say("It seems all candidates in the search space have been measured.")
                    break
                retries -= 1
                continue
            retries = int(self.params["retry_search_one_round_on_empty"])
            done += len(inputs)
            if key in measurer.best_ct and done - measurer.best_ct[key] > patience:
                self._say(f"Stop early since no performance improvement in the last {patience} measurements trials.")
                break
            self._train(inputs, results)
        self._title("Done")
        found: StateObject | None = measurer.best_state.get(key)
        return found

    def _round(self, num_measure: int, measurer: ProgramMeasurer) -> tuple[list[MeasureInput], list[MeasureResult]]:
        inputs = self._pick(num_measure)
        return (inputs, self._measure(inputs, measurer)) if inputs else ([], [])

    def continue_search_one_round(
        self, num_measure: int, measurer: ProgramMeasurer
    ) -> tuple[list[MeasureInput], list[MeasureResult]]:
        inputs, results = self._round(num_measure, measurer)
        if inputs:
            self._train(inputs, results)
        return inputs, results


def _with_open_rfactors(state: StateObject) -> StateObject:
    """The lengths of the splits before rfactors wait for the search: while rules run, a number is needed there."""
    steps = list(state.transform_steps)
    for i, step in enumerate(steps[1:], 1):
        if isinstance(step, RfactorStep):
            split = steps[i - 1]
            assert isinstance(split, SplitStep)
            steps[i - 1] = replace(split, lengths=(None,))
    return replace(state, transform_steps=tuple(steps), concrete=not any(_is_open(s) for s in steps))


def _vector_reductions(sketch: StateObject) -> int:
    """Return how many reductions of a sketch are vector reductions: the inner part of the reduced axis is an axis of
    its own.
    """
    pairs = itertools.pairwise(sketch.transform_steps)
    return sum(
        isinstance(split, SplitStep) and isinstance(step, RfactorStep) and step.iter_id == split.iter_id + 1
        for split, step in pairs
    )


def _is_open(step: Any) -> bool:
    return isinstance(step, SplitStep) and None in step.lengths
