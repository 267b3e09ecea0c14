"""What the runtime declares of oneDNN is what oneDNN's own headers declare."""

from __future__ import annotations

import re
import subprocess
import sysconfig
from pathlib import Path

from tests.runtime.kernels import ROOT

HEADER = ROOT / "native" / "src" / "dnnl" / "onednn.h"

VALUES = {
    "ONEDNN_MAX_NDIMS": "DNNL_MAX_NDIMS", "SUCCESS": "dnnl_success", "OUT_OF_MEMORY": "dnnl_out_of_memory",
    "INVALID_ARGUMENTS": "dnnl_invalid_arguments", "UNIMPLEMENTED": "dnnl_unimplemented",
    "RUNTIME_OMP": "DNNL_RUNTIME_OMP", "RUNTIME_TBB": "DNNL_RUNTIME_TBB", "RUNTIME_SYCL": "DNNL_RUNTIME_SYCL",
    "CPU": "dnnl_cpu", "IN_ORDER": "dnnl_stream_in_order", "F32": "dnnl_f32", "ANY": "dnnl_format_tag_any",
    "INFERENCE": "dnnl_forward_inference", "USER_SCRATCHPAD": "dnnl_scratchpad_mode_user",
    "CONVOLUTION_AUTO": "dnnl_convolution_auto", "DECONVOLUTION_DIRECT": "dnnl_deconvolution_direct",
    "SOFTMAX": "dnnl_softmax_accurate", "LOG_SOFTMAX": "dnnl_softmax_log", "MAX_POOL": "dnnl_pooling_max",
    "AVG_POOL_WITH_PADDING": "dnnl_pooling_avg_include_padding", "AVG_POOL": "dnnl_pooling_avg_exclude_padding",
    "GLOBAL_STATS": "dnnl_use_global_stats", "SCALE": "dnnl_use_scale", "SHIFT": "dnnl_use_shift",
    "QUERY_NAME": "dnnl_query_impl_info_str", "QUERY_SRC": "dnnl_query_src_md",
    "QUERY_WEIGHTS": "dnnl_query_weights_md", "QUERY_DST": "dnnl_query_dst_md",
    "QUERY_SCRATCHPAD": "dnnl_query_scratchpad_md", "ARG_POST_OP": "DNNL_ARG_ATTR_MULTIPLE_POST_OP_BASE",
    **{n.upper(): f"dnnl_binary_{n}" for n in ("add", "mul", "max", "min", "div", "sub")},
    **{n.upper(): f"dnnl_eltwise_{n}" for n in ("relu", "tanh", "abs", "sqrt", "linear", "logistic", "exp")},
    **{n.upper(): f"dnnl_eltwise_{n}" for n in ("swish", "log", "clip", "gelu_erf", "gelu_tanh")},
    **{f"ARG_{n}": f"DNNL_ARG_{n}" for n in ("SRC", "SRC_1", "DST", "WEIGHTS", "BIAS", "MEAN", "VARIANCE", "SCALE")},
    **{f"ARG_{n}": f"DNNL_ARG_{n}" for n in ("SHIFT", "SCRATCHPAD", "MULTIPLE_SRC")},
}  # fmt: skip


def test_every_value_and_function_is_onednns(tmp_path: Path) -> None:
    text = HEADER.read_text()
    declared = set(re.findall(r"ONEDNN_([A-Z0-9_]+) =", text))
    assert declared == {name for name in VALUES if not name.startswith("ONEDNN_")}
    checks = [
        f'_Static_assert((long)ONEDNN_{name.removeprefix("ONEDNN_")} == (long){value}, "{name}");'
        for name, value in VALUES.items()
    ]
    functions = re.findall(r"^  X\([\w* ]+?,\s*(\w+),", text, re.MULTILINE)
    assert len(functions) > 40
    # a function pointer of ours takes oneDNN's function: C compares results and arguments, enumerations as int
    calls = [f"  table.{name} = (__typeof__(table.{name}))&dnnl_{name};" for name in functions]
    sizes = ["sizeof(OnednnArg) == sizeof(dnnl_exec_arg_t)", "sizeof(OnednnVersion) == sizeof(dnnl_version_t)"]
    checks += [f'_Static_assert({size}, "{size}");' for size in sizes]
    source = tmp_path / "check.c"
    source.write_text(
        f'#include <oneapi/dnnl/dnnl.h>\n#include "{HEADER}"\n' + "\n".join(checks)
        + "\nvoid fill(void) {\n  Onednn table;\n" + "\n".join(calls) + "\n  (void)table;\n}\n"
    )  # fmt: skip
    include = Path(sysconfig.get_path("data")) / "include"
    command = [
        "gcc",
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Wcast-function-type",
        "-Werror",
        f"-I{include}",
        "-c",
        str(source),
    ]
    done = subprocess.run([*command, "-o", str(tmp_path / "check.o")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
