"""Base of graph tuners: a network as choices of records, costs of layout conversions, results."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright import autotvm, te, topi
from tilewright.autotvm.lines import encode, load_from_file
from tilewright.autotvm.measurement import MeasureInput, MeasureResult
from tilewright.autotvm.task.space import FallbackConfigEntity
from tilewright.autotvm.task.task import Task, args_to_workload
from tilewright.autotvm.utils import mean
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Function
from tilewright.target.target import Target
from tilewright.tir.layout import layout
from tilewright.tuning.graph_tuner._base import INVALID_LAYOUT_TIME, OPT_OUT_OP
from tilewright.tuning.graph_tuner.problem import LayoutProblem
from tilewright.tuning.graph_tuner.utils import bind_inputs, expr2graph, get_in_nodes, is_boundary_node
from tilewright.tuning.graph_tuner.utils.utils import Node, has_multiple_inputs
from tilewright.tuning.measure import LocalBuilder, LocalRunner, RPCRunner, create_measure_batch, measure_option

Record = tuple[MeasureInput, MeasureResult]
Workload = tuple[Any, ...]


@autotvm.template("layout_transform")
def layout_transform(data: te.Tensor, src_layout: str, dst_layout: str) -> tuple[te.Schedule, list[te.Tensor]]:
    """A conversion between layouts as a task, which has no choices."""
    autotvm.get_config().add_flop(-1)
    out = topi.layout_transform(data, src_layout, dst_layout)
    target = Target.current(allow_none=False)
    on_cpu = target is not None and "cpu" in target.keys
    make = topi.cpu.schedule_injective if on_cpu else topi.generic.schedule_injective
    return make([out]), [data, out]


def get_infer_layout(task_name: str) -> Callable[[Workload, Any], Any]:
    """Return the function that infers the layouts of a task's configurations; raises ValueError if there is none."""
    if task_name.startswith("conv2d"):
        return topi.nn.conv2d_infer_layout
    if task_name.startswith("depthwise_conv2d"):
        return topi.nn.depthwise_conv2d_infer_layout
    raise ValueError(f"configurations of {task_name} choose no layouts")


@dataclass(frozen=True)
class Candidate:
    """A way to run an operator: its record (None is the untuned choice), seconds, layouts of its data and result."""

    record: Record | None
    cost: float
    data_layout: str
    out_layout: str


@dataclass
class Conversion:
    """The layout conversions on an edge: from each layout that ``source`` may produce to each that ``reader`` may need.

    ``workloads[i][j]`` is the conversion's task; None if no conversion is needed.
    """

    source: int
    reader: int
    workloads: list[list[Workload | None]] = field(default_factory=list)


class BaseGraphTuner:
    """Chooses the record of each operator that makes a whole network fastest, layout conversions included.

    First ``benchmark_layout_transform`` measures conversions, then ``run`` chooses; ``get_optimal_records`` and
    ``write_opt_sch2record_file`` return the choice, which ``autotvm.apply_graph_best`` applies.

    Parameters
    ----------
    graph : the network's function or module
    input_shapes : shapes of its inputs, by name; other parameters are weights
    records : a file of records, or (MeasureInput, MeasureResult) pairs, of tasks as ``extract_from_program`` finds them
    target_ops : operators whose layouts are chosen: ``[relay.op.get("nn.conv2d")]``
    target : the network's target
    max_sch_num : records considered for an operator, the fastest of each pair of layouts
    dtype : of the inputs, or a mapping of their names
    verbose : whether the log goes to the console too
    log_file, log_level, name : of the log; without a file it is kept nowhere

    An operator of which there is no record keeps its untuned choice, whose layouts take part. Raises RuntimeError where
    no operator of ``target_ops`` is.
    """

    def __init__(
        self,
        graph: Any,
        input_shapes: Mapping[str, Sequence[int]],
        records: Any,
        target_ops: Sequence[Any],
        target: Any,
        max_sch_num: int = 20,
        dtype: str | Mapping[str, str] = "float32",
        verbose: bool = True,
        log_file: str | None = "graph_tuner.log",
        log_level: int = logging.DEBUG,
        name: str = "graph_tuner",
    ) -> None:
        self._target = Target(target)
        self._max_sch_num = max_sch_num
        self._input_names, self._target_ops = list(input_shapes), list(target_ops)
        self._logger = _logger(f"{name}_logger", log_file, log_level, verbose)
        main = graph["main"] if isinstance(graph, IRModule) else graph
        if not isinstance(main, Function):
            raise RuntimeError(f"a graph tuner takes a function or a module, found {type(main).__name__}")
        self._node_list: list[Node] = []
        expr2graph(bind_inputs(main, input_shapes, dtype), self._target_ops, {}, self._node_list, self._target)
        self._in_nodes_dict = get_in_nodes(self._node_list, self._target_ops, self._input_names)
        if not self._in_nodes_dict:
            raise RuntimeError(f"the network has none of the operators {[str(op) for op in target_ops]}")
        self._candidates = self._candidates_of_nodes(records)
        self._conversions = list(self._needed_conversions())
        self._layout_transform_perf_records: dict[Workload, Record] = {}
        self._optimal_record_dict: dict[int, int] = {}
        self.optimal_cost = math.inf

    @property
    def layout_transform_perf_records(self) -> dict[Workload, Record]:
        """Measured times of layout conversions, by their workload."""
        return self._layout_transform_perf_records

    def _is_target(self, index: int) -> bool:
        return self._node_list[index]["op"] in self._target_ops

    def _candidates_of_nodes(self, records: Any) -> dict[int, list[Candidate]]:
        """Return, for each target operator, the fastest record of each pair of layouts, or the untuned choice."""
        by_workload: dict[Workload, list[Record]] = {}
        for inp, result in load_from_file(records) if isinstance(records, str) else records:
            if result.error_no == 0:
                by_workload.setdefault(inp.task.workload, []).append((inp, result))
        known: dict[Workload | None, list[Candidate]] = {}
        found = {}
        for index in filter(self._is_target, self._in_nodes_dict):
            workload = self._node_list[index]["workloads"][0]
            if workload not in known:
                known[workload] = self._candidates_of(workload, by_workload.get(workload, []))
            found[index] = known[workload]
        return found

    def _candidates_of(self, workload: Workload | None, records: Sequence[Record]) -> list[Candidate]:
        if workload is None:
            return [Candidate(None, 0.0, "NCHW", "NCHW")]
        best: dict[tuple[str, str], Candidate] = {}
        for inp, result in records:
            pair = self._layouts(workload, inp.config)
            cost = mean(result.costs)
            if pair not in best or cost < best[pair].cost:
                best[pair] = Candidate((inp, result), cost, *pair)
        if not best:
            self._logger.warning("no record of %s: its untuned layouts are taken", workload)
            return [Candidate(None, 0.0, *self._layouts(workload, FallbackConfigEntity()))]
        return sorted(best.values(), key=lambda c: c.cost)[: self._max_sch_num]

    def _layouts(self, workload: Workload, config: Any) -> tuple[str, str]:
        infer = get_infer_layout(workload[0])
        with self._target:
            ((_, data_layout),), ((_, out_layout),) = infer(workload, config)
        return data_layout, out_layout

    def _source(self, index: int) -> int | None:
        """Return the target operator that decides a node's layout: itself, or for nodes with several inputs the
        first's.
        """
        while not self._is_target(index):
            if index not in self._in_nodes_dict:
                return None
            index = self._in_nodes_dict[index][0]
        return index if index in self._candidates else None

    def _needed_conversions(self) -> Iterator[Conversion]:
        """Between every two operators that meet."""
        for index in sorted(self._in_nodes_dict):
            joins = not self._is_target(index)
            reader = self._source(index)
            for above, type_ in self._read_by(index):
                source = self._source(above)
                if source is not None and reader is not None and source != reader:
                    yield self._conversion(source, reader, type_, joins)

    def _read_by(self, index: int) -> Iterator[tuple[int, Any]]:
        """Yield the choosing nodes that a node reads, with the tensor that it gets."""
        above = self._in_nodes_dict[index]
        for direct, number, _ in self._node_list[index]["inputs"]:
            at = self._above(direct)
            if at is not None and at in above and not is_boundary_node(self._node_list[at], self._input_names):
                yield at, self._node_list[direct]["types"][number]

    def _above(self, index: int) -> int | None:
        """The node whose layout a value has; None of a parameter."""
        while not (self._is_target(index) or self._joins(index)):
            node = self._node_list[index]
            inputs = [i for i, *_ in node["inputs"] if self._is_data(i)]
            if is_boundary_node(node, self._input_names) or not inputs:
                return None
            index = inputs[0]
        return index

    def _joins(self, index: int) -> bool:
        return has_multiple_inputs(self._node_list, index, self._input_names, OPT_OUT_OP)

    def _is_data(self, index: int) -> bool:
        node = self._node_list[index]
        return node["op"] is not None or bool(node["inputs"]) or node["name"] in self._input_names

    def _conversion(self, source: int, reader: int, type_: Any, joins: bool) -> Conversion:
        found = Conversion(source, reader)
        for given in self._candidates[source]:
            row: list[Workload | None] = []
            for wanted in self._candidates[reader]:
                target = wanted.out_layout if joins else wanted.data_layout
                same = given.out_layout == target
                row.append(None if same else _workload(type_, given.out_layout, target))
            found.workloads.append(row)
        return found

    def benchmark_layout_transform(
        self,
        min_exec_num: int = 100,
        timeout: float = 10,
        use_rpc: bool = False,
        device_key: str | None = None,
        host: str = "127.0.0.1",
        port: int = 9190,
        n_parallel: int = 1,
        build_func: str | Callable[..., Any] = "default",
        layout_records: Any = None,
        target_host: Any = None,
        infer_layout: bool = False,
        runner: Any = None,
        most_measured: int | None = None,
    ) -> None:
        """Measure every layout conversion that the choices may need.

        Parameters ---------- min_exec_num, timeout : runs that are averaged, and the seconds of one measurement
        use_rpc, device_key, host, port : measure on a board from a tracker n_parallel, build_func : of the builder
        layout_records : a file of records of "layout_transform", or pairs, which are taken as they are target_host :
        the target of the code that launches kernels infer_layout : do not measure conversions without a record;
        estimate them by the mean time per element of the others runner : used instead of a ``LocalRunner``
        most_measured : how many are measured; others are estimated from these

        Raises
        ------
        RuntimeError : there is nothing to infer from, or no key of boards
        """
        self._target, _ = Target.check_and_update_host_consist(self._target, target_host)
        given = load_from_file(layout_records) if isinstance(layout_records, str) else layout_records or []
        known = {inp.task.workload: (inp, result) for inp, result in given}
        if infer_layout and not known:
            raise RuntimeError("infer_layout needs layout_records, records of layout_transform to infer times from")
        self._layout_transform_perf_records.update(known)
        if infer_layout:
            self._infer(known)
            return
        if use_rpc:
            if device_key is None:
                raise RuntimeError("use_rpc needs device_key, the kind of boards that the tracker is asked for")
            runner = RPCRunner(
                device_key, host, port, n_parallel=n_parallel, number=min_exec_num, repeat=1, timeout=timeout
            )
        builder = LocalBuilder(n_parallel=n_parallel, build_func=build_func)
        own = runner or LocalRunner(number=min_exec_num, repeat=1, timeout=timeout)
        option = measure_option(builder, own)
        try:
            tasks = [self._task(workload) for workload in self._unknown()[:most_measured]]
            builder.know(tasks)
            for task in tasks:
                self._layout_transform_perf_records[task.workload] = self._measured(task, option)
            self._infer(self._layout_transform_perf_records)
        finally:
            builder.close()
            if own is not runner:
                own.close()
        self._logger.info("%d conversions between layouts are known", len(self._layout_transform_perf_records))

    def _unknown(self) -> list[Workload]:
        """Return the conversions without a known time, each once; impossible ones are known."""
        needed = dict.fromkeys(w for c in self._conversions for row in c.workloads for w in row if w is not None)
        return [w for w in needed if w != _IMPOSSIBLE and w not in self._layout_transform_perf_records]

    def _infer(self, known: Mapping[Workload, Record]) -> None:
        good = {w: mean(r.costs) for w, (_, r) in known.items() if mean(r.costs) < INVALID_LAYOUT_TIME}
        average = sum(good.values()) / max(1, sum(math.prod(workload[1][1]) for workload in good))
        for workload in self._unknown():
            cost = math.prod(workload[1][1]) * average
            inp = MeasureInput(self._target, None, None)  # type: ignore[arg-type]
            self._layout_transform_perf_records[workload] = inp, MeasureResult((cost,), 0, -1, -1)

    def _task(self, workload: Workload) -> Task:
        return autotvm.create(workload[0], autotvm.task.deserialize_args(workload[1:]), self._target)

    def _measured(self, task: Task, option: Mapping[str, Any]) -> Record:
        assert task.config_space is not None
        inp = MeasureInput(self._target, task, task.config_space.get(0))
        (result,) = create_measure_batch(task, option)([inp])
        if result.error_no != 0:
            self._logger.warning("%s cannot be measured: %s", task.workload, result.costs[0])
            result = result._replace(costs=(INVALID_LAYOUT_TIME,))
        return inp, result

    def problem(self, alike: bool = False) -> LayoutProblem:
        """The choice as numbers: a node for each operator, whose choices are records, by the operator's number.

        ``alike``: operators of one workload have one record, as ``apply_history_best`` knows them; their node is the
        first of them. Raises RuntimeError before ``benchmark_layout_transform``.
        """
        if self._unknown():
            raise RuntimeError("call benchmark_layout_transform first: what conversions take is not known")
        nodes = self._nodes(alike)
        problem = LayoutProblem({})
        for index, found in self._candidates.items():
            problem.add_node(nodes[index], [c.cost for c in found])
        for conversion in self._conversions:
            rows = [[self._seconds(w) for w in row] for row in conversion.workloads]
            problem.add_edge(nodes[conversion.source], nodes[conversion.reader], rows)
        return problem

    def _nodes(self, alike: bool) -> dict[int, int]:
        """Return the operator whose choice each operator takes: its own, or that of the first of its workload."""
        if not alike:
            return {index: index for index in self._candidates}
        first: dict[int, int] = {}
        return {index: first.setdefault(id(found), index) for index, found in self._candidates.items()}

    def _seconds(self, workload: Workload | None) -> float:
        if workload is None:
            return 0.0
        if workload == _IMPOSSIBLE:
            return INVALID_LAYOUT_TIME
        return mean(self._layout_transform_perf_records[workload][1].costs)

    def _choose(self, chosen: Mapping[int, int], alike: bool) -> None:
        """Keep a solver's choice."""
        self._optimal_record_dict = {index: chosen[node] for index, node in self._nodes(alike).items()}
        self.optimal_cost = self.problem().total(self._optimal_record_dict)
        if self.optimal_cost >= INVALID_LAYOUT_TIME:
            self._logger.warning(
                "no choice of records fits together: where blocks do not divide channels, the network will convert to "
                "plain layouts and back. Records of more configurations may help"
            )

    def get_optimal_records(self) -> list[Record]:
        """The chosen records in the order of the network's operators; without those that have none."""
        chosen = [self._candidates[i][k].record for i, k in sorted(self._optimal_record_dict.items())]
        return [record for record in chosen if record is not None]

    def write_opt_sch2record_file(self, record_file: str = "graph_opt_schedule.log") -> None:
        """Append the chosen records to a file."""
        with open(record_file, "a") as file:
            file.writelines(encode(*record) + "\n" for record in self.get_optimal_records())
        self._logger.info("the chosen records are in %s", record_file)

    def run(self, **kwargs: Any) -> None:
        """Choose a record for each operator; with ``alike=True`` one for all of a workload."""
        raise NotImplementedError


_IMPOSSIBLE: Workload = ("impossible",)


def _workload(type_: Any, given: str, wanted: str) -> Workload:
    """Return the task of converting an image (n, c, h, w) to a layout; ``_IMPOSSIBLE`` if blocks do not divide its
    channels.
    """
    plain = layout("NCHW")
    shape, channels = type_.concrete_shape, type_.concrete_shape[1]
    blocks = [_block(name) for name in (given, wanted)]
    if len(shape) != len(plain) or any(channels % block for block in blocks):
        return _IMPOSSIBLE
    block = blocks[0]
    packed = shape if given == "NCHW" else (shape[0], channels // block, *shape[2:], block)
    return args_to_workload([te.placeholder(packed, dtype=type_.dtype), given, wanted], "layout_transform")


def _block(name: str) -> int:
    """The channels of a block in a layout like NCHW8c."""
    return int(layout(name).factor_of("C")) if name != "NCHW" else 1


def _logger(name: str, file: str | None, level: int, verbose: bool) -> logging.Logger:
    """Return the log of a tuner, which goes to its file, and to the console if ``verbose``."""
    logger = logging.getLogger(name)
    for handler in logger.handlers[:]:
        logger.removeHandler(handler)
        handler.close()
    formatter = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handlers: list[logging.Handler] = [logging.FileHandler(file)] if file is not None else []
    for handler in [*handlers, logging.StreamHandler()] if verbose else handlers or [logging.NullHandler()]:
        handler.setFormatter(formatter)
        logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False
    return logger
