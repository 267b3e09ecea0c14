"""``tvm.relay.quantize``: networks in small integers, as TVM 0.8 makes them.

config.py      the choices               annotate.py   where values are quantized
partition.py   sections of operators     calibrate.py  in what steps
realize.py     the integers              conversions.py  inputs and outputs in functions of their own
forward.py     rules of operators        simulated.py  the operator simulated_quantize
kl_divergence.py  ranges by histograms   pipeline.py   ``quantize``: all of it in order
"""

from tilewright.relay.quantize import kl_divergence as kl_divergence
from tilewright.relay.quantize.annotate import QAnnotateExpr as QAnnotateExpr
from tilewright.relay.quantize.annotate import annotate as annotate
from tilewright.relay.quantize.annotate import attach_simulated_quantize as attach_simulated_quantize
from tilewright.relay.quantize.annotate import register_annotate_function as register_annotate_function
from tilewright.relay.quantize.calibrate import calibrate as calibrate
from tilewright.relay.quantize.calibrate import collect_stats as collect_stats
from tilewright.relay.quantize.config import QAnnotateKind as QAnnotateKind
from tilewright.relay.quantize.config import QConfig as QConfig
from tilewright.relay.quantize.config import QuantizeContext as QuantizeContext
from tilewright.relay.quantize.config import current_qconfig as current_qconfig
from tilewright.relay.quantize.config import kind2str as kind2str
from tilewright.relay.quantize.config import qconfig as qconfig
from tilewright.relay.quantize.config import quantize_context as quantize_context
from tilewright.relay.quantize.conversions import partition_conversions as partition_conversions
from tilewright.relay.quantize.partition import QPartitionExpr as QPartitionExpr
from tilewright.relay.quantize.partition import partition as partition
from tilewright.relay.quantize.partition import partition_expr_check as partition_expr_check
from tilewright.relay.quantize.partition import register_partition_function as register_partition_function
from tilewright.relay.quantize.pipeline import prerequisite_optimize as prerequisite_optimize
from tilewright.relay.quantize.pipeline import quantize as quantize
from tilewright.relay.quantize.realize import QRealizeIntExpr as QRealizeIntExpr
from tilewright.relay.quantize.realize import realize as realize
from tilewright.relay.quantize.realize import register_realize_function as register_realize_function
