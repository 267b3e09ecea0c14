"""Kernels in C for microcontrollers: hand-written loops on integers, for code without a runtime."""

from tilewright.topi.micro.integer_conv2d import integer_conv2d as integer_conv2d
from tilewright.topi.micro.integer_softmax import integer_softmax as integer_softmax
from tilewright.topi.micro.scaling import FixedPoint as FixedPoint
from tilewright.topi.micro.scaling import fixed_point as fixed_point
from tilewright.topi.micro.scaling import offset as offset
