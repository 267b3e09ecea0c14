"""Names that programs had before TVM 0.8."""

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_runtime


def test_a_program_with_older_names_runs() -> None:
    x = relay.var("x", shape=(2, 3))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.add(x, x)))
    with relay.build_config(opt_level=3, disabled_pass=["FoldConstant"]) as context:
        assert context.opt_level == 3 and "FoldConstant" in context.disabled_pass
        graph, lib, params = relay.build(mod, target="llvm")
    module = graph_runtime.create(graph, lib, tvm.cpu(0))
    value = np.arange(6, dtype="float32").reshape(2, 3)
    module.run(x=value, **params)
    np.testing.assert_array_equal(module.get_output(0).numpy(), value + value)


def test_the_older_name_checks_as_the_newer_does() -> None:
    with pytest.raises(Exception, match="opt_level"):
        relay.build_config(opt_level="three")  # type: ignore[arg-type]
