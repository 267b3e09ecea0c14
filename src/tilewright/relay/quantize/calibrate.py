"""QuantizeCalibrate: scales and limits of every ``simulated_quantize``, from the weights and from a dataset."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.transform import PassContext
from tilewright.relay import build_module
from tilewright.relay.expr import Call, Constant, Function, Tuple, Var, const
from tilewright.relay.quantize.config import QAnnotateKind, QConfig, current_qconfig
from tilewright.relay.quantize.kl_divergence import Array, _find_scale_by_kl
from tilewright.relay.quantize.simulated import SimulatedQuantize
from tilewright.relay.type_infer import infer_module
from tilewright.relay.visitor import ExprMutator, bind, post_order
from tilewright.runtime.device import cpu, device
from tilewright.runtime.executor.graph import GraphModule
from tilewright.target.target import Target

_PERCENTILE = 0.99999
Dataset = Iterable[Mapping[str, Any]]


class _Plain(ExprMutator):
    """Leaves out ``simulated_quantize``: the network in float."""

    def visit_call(self, expr: Call) -> RelayExpr:
        """Give the data for its quantized form."""
        if expr.op is SimulatedQuantize.op:
            return self.visit(expr.args[0])
        return super().visit_call(expr)


def _simulated(func: RelayExpr) -> list[Call]:
    """Return the calls of ``simulated_quantize``, in order."""
    return [node for node in post_order(func) if isinstance(node, Call) and node.op is SimulatedQuantize.op]


def _kind(call: Call) -> int:
    kind: int = call.attrs.kind  # type: ignore[union-attr]
    return kind


def collect_stats(mod: IRModule, dataset: Dataset, chunk_by: int = -1) -> Iterator[list[Array]]:
    """Yield the numbers of each tensor that is quantized by the dataset, flat, over all its samples.

    Args:
        mod: an annotated module.
        dataset: values of the inputs by name; read once for each chunk.
        chunk_by: how many tensors are in memory at a time; -1 for all.
    """
    func: Any = mod["main"]
    tensors = [call.args[0] for call in _simulated(func) if _kind(call) != QAnnotateKind.WEIGHT]
    if not tensors:
        return
    plain = _Plain()
    found = [plain.visit(tensor) for tensor in tensors]
    runtime = _runtime([p for p in func.params if not _is_limit(p, func)], found)
    size = len(tensors) if chunk_by == -1 else chunk_by
    for start in range(0, len(tensors), size):
        yield _chunk(runtime, dataset, range(start, min(start + size, len(tensors))))


def _is_limit(param: Var, func: Function) -> bool:
    return any(param in call.args[1:] for call in _simulated(func))


def _runtime(params: Sequence[Var], outputs: Sequence[RelayExpr]) -> GraphModule:
    """Compile a function for the current target, the CPU by default."""
    target = Target.current()
    where = cpu() if target is None else device(str(target.kind), 0)
    with PassContext(opt_level=3):
        built = build_module.build(IRModule.from_expr(Function(params, Tuple(outputs))), target=target or "llvm")
    return GraphModule(built["default"](where))


def _chunk(runtime: GraphModule, dataset: Dataset, numbers: range) -> list[Array]:
    found: list[list[Array]] = [[] for _ in numbers]
    for batch in dataset:
        runtime.set_input(**batch)
        runtime.run()
        for kept, number in zip(found, numbers, strict=True):
            kept.append(runtime.get_output(number).numpy().reshape(-1))
    if not found[0]:
        raise TilewrightError("the dataset to calibrate with has no samples")
    return [np.concatenate(kept) for kept in found]


def _find_scale_by_percentile(arr: Array, percentile: float = _PERCENTILE) -> float:
    magnitudes = np.abs(arr)
    rank = min(int(magnitudes.size * percentile), magnitudes.size - 1)
    return float(np.partition(magnitudes, rank)[rank])


def _from_dataset(
    mod: IRModule, dataset: Dataset | None, find: Callable[[Array], float], mode: str
) -> Callable[[Call], float]:
    """Return a function from a call of ``simulated_quantize`` to its largest magnitude on the dataset."""
    if dataset is None:
        raise TilewrightError(f"calibrate_mode {mode!r} needs a dataset: quantize(mod, params, dataset)")
    samples = list(dataset)
    found = [find(a) for chunk in collect_stats(mod, samples, current_qconfig().calibrate_chunk_by) for a in chunk]
    calls = [call for call in _simulated(mod["main"]) if _kind(call) != QAnnotateKind.WEIGHT]
    scales = dict(zip(calls, found, strict=True))
    return lambda call: scales[call] or 1.0


def _weight_scale(call: Call, mode: str) -> float:
    """Return the largest magnitude of a constant, or the power of 2 from it up."""
    data = call.args[0]
    if not isinstance(data, Constant):
        raise TilewrightError("a weight that is quantized is not constant: give quantize() the params")
    largest = float(np.abs(data.data.numpy()).max(initial=0))
    if not largest:
        return 1.0
    return float(2.0 ** math.ceil(math.log2(largest))) if mode == "power2" else largest


def _input_scales(mod: IRModule, dataset: Dataset | None, cfg: QConfig) -> Callable[[Call], float]:
    if cfg.calibrate_mode == "global_scale":
        return lambda call: cfg.global_scale
    find = _find_scale_by_kl if cfg.calibrate_mode == "kl_divergence" else _find_scale_by_percentile
    return _from_dataset(mod, dataset, find, cfg.calibrate_mode)


def calibrate(dataset: Dataset | None = None) -> Callable[[IRModule, PassContext], IRModule]:
    """Return the function of a module pass that gives every ``simulated_quantize`` its scale and limits.

    Raises:
        TilewrightError: the mode needs a dataset and there is none, or a weight is not constant.
    """

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        cfg, result = current_qconfig(), infer_module(mod).copy()
        input_scale = _input_scales(result, dataset, cfg)
        values: dict[Var, RelayExpr] = {}
        for call in _simulated(result["main"]):
            steps = 2 ** (cfg.get_nbit_by_kind(_kind(call)) - int(call.attrs.sign))  # type: ignore[union-attr]
            is_weight = _kind(call) == QAnnotateKind.WEIGHT
            scale = _weight_scale(call, cfg.weight_scale) if is_weight else input_scale(call)
            for var, value in zip(call.args[1:], (scale / steps, -(steps - 1), steps - 1), strict=True):
                if isinstance(var, Var):
                    values[var] = const(np.float32(value))
        result["main"] = bind(result["main"], values)
        return result

    return run
