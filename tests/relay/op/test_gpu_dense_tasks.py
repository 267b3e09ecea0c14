"""Tasks of dense layers on GPUs have TVM's names, by rows and dtype; one schedule is behind them all."""

from __future__ import annotations

import pytest

from tilewright import IRModule, autotvm, relay


@pytest.mark.parametrize(
    ("target", "rows", "dtype", "out_dtype", "name"),
    [
        ("cuda", 1, "float32", "", "dense_small_batch.gpu"),
        ("opencl", 31, "float32", "", "dense_small_batch.gpu"),
        ("opencl", 32, "float32", "", "dense_large_batch.gpu"),
        ("cuda", 1, "int8", "int32", "dense_int8.cuda"),
        ("cuda", 64, "int8", "int32", "dense_int8.cuda"),
        ("opencl", 7, "int8", "int32", "dense_small_batch.gpu"),
        ("cuda", 64, "int32", "", "dense_large_batch.gpu"),
    ],
)
def test_tasks_of_dense_layers_on_gpus(target: str, rows: int, dtype: str, out_dtype: str, name: str) -> None:
    data, weight = relay.var("data", shape=(rows, 16), dtype=dtype), relay.var("weight", shape=(24, 16), dtype=dtype)
    network = relay.Function([data, weight], relay.nn.dense(data, weight, out_dtype=out_dtype))
    tasks = autotvm.task.extract_from_program(IRModule.from_expr(network), target=target, params={})
    assert [task.name for task in tasks] == [name]
