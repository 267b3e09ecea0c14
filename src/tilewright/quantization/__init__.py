"""Quantizing float models: calibration, the quantized ONNX file, and what each layer costs and gains."""

from tilewright.quantization.static import Quantized as Quantized
from tilewright.quantization.static import quantize as quantize
from tilewright.quantization.weights import QuantizedWeights as QuantizedWeights
from tilewright.quantization.weights import quantize_weights as quantize_weights
