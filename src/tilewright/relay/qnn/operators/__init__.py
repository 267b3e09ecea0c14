"""Quantized operators: each with its type, its meaning in numpy, and how it is canonicalized. Users see them in ``op``.

affine.py        quantize, dequantize
requantize.py    requantize
convolution.py   conv2d, conv2d_transpose
product.py       dense, batch_matmul
binary.py        add, subtract, mul
join.py          concatenate
simulated.py     simulated_quantize, simulated_dequantize
by_target.py     what targets make of them; legalize.py has the rules of processors
layouts.py       how they carry layouts
parameters.py    scales and zero points: their types, their values, and how they broadcast
rounding.py      how a product with a real factor becomes an integer again
"""
