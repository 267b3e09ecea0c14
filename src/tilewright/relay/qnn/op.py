"""``tvm.relay.qnn.op``: the builders of quantized operators."""

from tilewright.relay.qnn.operators.affine import Dequantize as Dequantize
from tilewright.relay.qnn.operators.affine import Quantize as Quantize
from tilewright.relay.qnn.operators.affine import dequantize as dequantize
from tilewright.relay.qnn.operators.affine import quantize as quantize
from tilewright.relay.qnn.operators.binary import add as add
from tilewright.relay.qnn.operators.binary import mul as mul
from tilewright.relay.qnn.operators.binary import subtract as subtract
from tilewright.relay.qnn.operators.by_target import register_qnn_legalize as register_qnn_legalize
from tilewright.relay.qnn.operators.convolution import conv2d as conv2d
from tilewright.relay.qnn.operators.convolution import conv2d_transpose as conv2d_transpose
from tilewright.relay.qnn.operators.join import concatenate as concatenate
from tilewright.relay.qnn.operators.product import batch_matmul as batch_matmul
from tilewright.relay.qnn.operators.product import dense as dense
from tilewright.relay.qnn.operators.requantize import requantize as requantize
from tilewright.relay.qnn.operators.simulated import simulated_dequantize as simulated_dequantize
from tilewright.relay.qnn.operators.simulated import simulated_quantize as simulated_quantize
