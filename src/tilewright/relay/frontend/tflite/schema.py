"""TensorFlow Lite's file format, version 3: tables, numbers of operators, and of types."""

from __future__ import annotations

from tilewright.relay.frontend.tflite.flatbuffer import described

IDENTIFIER = b"TFL3"

TABLES = described(
    """
Model version:I operator_codes:[OperatorCode] subgraphs:[SubGraph] description:s buffers:[Buffer]
OperatorCode deprecated:b custom:s version:i=1 code:i
SubGraph tensors:[Tensor] inputs:[i] outputs:[i] operators:[Operator] name:s
Tensor shape:[i] type:b buffer:I name:s quantization:Quantization is_variable:? sparsity:Sparsity shape_signature:[i]
Buffer data:[B] offset:Q size:Q
Quantization min:- max:- scale:[f] zero_point:[q] details_type:- details:- axis:i
Sparsity traversal_order:[i] block_map:[i] dimensions:[Dimension]
Dimension format:b size:i segments_type:B segments:* indices_type:B indices:*
Int32Vector values:[i]
Uint16Vector values:[H]
Uint8Vector values:[B]
Operator code:I inputs:[i] outputs:[i] options_type:B options:* custom:[B] custom_format:- variables:- \
intermediates:[i] large_offset:Q large_size:Q options2_type:B options2:*
1 padding:b stride_w:i stride_h:i activation:b dilation_w:i=1 dilation_h:i=1
2 padding:b stride_w:i stride_h:i multiplier:i activation:b dilation_w:i=1 dilation_h:i=1
5 padding:b stride_w:i stride_h:i filter_w:i filter_h:i activation:b
6 rank:i activation:b asymmetric:?
7 activation:b asymmetric:?
8 activation:b weights_format:b keep_num_dims:? asymmetric:?
9 beta:f
10 axis:i activation:b
11 activation:b
12 activation:b
13 radius:i bias:f alpha:f beta:f
14 activation:b cell_clip:f projection_clip:f kernel_type:b asymmetric:?
15 new_height:- new_width:- align_corners:? half_pixel_centers:?
16 subgraph:I
17 new_shape:[i]
19 block_size:i
20 combiner:b
21 activation:b
23 axis:i batch_dims:i
27 keep_dims:?
28 activation:b
29 activation:b
30 squeeze_dims:[i]
31 time_major:? activation:b asymmetric:?
32 begin_mask:i end_mask:i ellipsis_mask:i new_axis_mask:i shrink_axis_mask:i offset:?
35 num_splits:i
37 in_type:b out_type:b
40 output_type:b
49 padding:b stride_w:i stride_h:i activation:b
55 out_type:b
57 output_type:b
58 min:f max:f num_bits:i narrow_range:?
59 count:i axis:i
61 axis:i
64 count:i axis:i
69 activation:b cell_clip:f projection_clip:f merge_outputs:? time_major:?=1 asymmetric:?
70 time_major:? activation:b merge_outputs:? asymmetric:?
71 activation:b cell_clip:f projection_clip:f time_major:? asymmetric:? diagonal:?
74 align_corners:? half_pixel_centers:?
75 alpha:f
77 mode:b
79 num_splits:i
80 index_type:b=2
87 sequence_axis:i batch_axis:i
92 then_subgraph:i else_subgraph:i
93 condition_subgraph:i body_subgraph:i
94 block_size:i
101 transpose_a:? transpose_b:? asymmetric:?
102 exclusive:? reverse:?
103 subgraph:i
106 padding:b stride_d:i stride_w:i stride_h:i activation:b dilation_d:i=1 dilation_w:i=1 dilation_h:i=1
111 container:s shared_name:s
115 boundaries:[f]
116 approximate:?
""".replace("\\\n", "")
)

# Operators by their numbers.
OPERATORS = """
ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE EMBEDDING_LOOKUP FLOOR
FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION LSTM
MAX_POOL_2D MUL RELU RELU_N1_TO_1 RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH CONCAT_EMBEDDINGS
SKIP_GRAM CALL CUSTOM EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER BATCH_TO_SPACE_ND
SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE BIDIRECTIONAL_SEQUENCE_RNN
EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE BIDIRECTIONAL_SEQUENCE_LSTM CAST PRELU MAXIMUM ARG_MAX MINIMUM LESS NEG PADV2
GREATER GREATER_EQUAL LESS_EQUAL SELECT SLICE SIN TRANSPOSE_CONV SPARSE_TO_DENSE TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG
SUM SQRT RSQRT SHAPE POW ARG_MIN FAKE_QUANT REDUCE_PROD REDUCE_MAX PACK LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT
UNPACK REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD RANGE RESIZE_NEAREST_NEIGHBOR LEAKY_RELU
SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL REVERSE_V2 ADD_N GATHER_ND COS WHERE RANK ELU REVERSE_SEQUENCE
MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 SCATTER_ND
SELECT_V2 DENSIFY SEGMENT_SUM BATCH_MATMUL PLACEHOLDER_FOR_GREATER_OP_CODES CUMSUM CALL_ONCE BROADCAST_TO RFFT2D CONV_3D
IMAG REAL COMPLEX_ABS HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL CONV_3D_TRANSPOSE VAR_HANDLE
READ_VARIABLE ASSIGN_VARIABLE BROADCAST_ARGS RANDOM_STANDARD_NORMAL BUCKETIZE RANDOM_UNIFORM MULTINOMIAL GELU
DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_SUM ATAN2
UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR RIGHT_SHIFT STABLEHLO_LOGISTIC STABLEHLO_ADD STABLEHLO_DIVIDE
STABLEHLO_MULTIPLY STABLEHLO_MAXIMUM STABLEHLO_RESHAPE STABLEHLO_CLAMP STABLEHLO_CONCATENATE
STABLEHLO_BROADCAST_IN_DIM STABLEHLO_CONVOLUTION STABLEHLO_SLICE STABLEHLO_CUSTOM_CALL STABLEHLO_REDUCE STABLEHLO_ABS
STABLEHLO_AND STABLEHLO_COSINE STABLEHLO_EXPONENTIAL STABLEHLO_FLOOR STABLEHLO_LOG STABLEHLO_MINIMUM STABLEHLO_NEGATE
STABLEHLO_OR STABLEHLO_POWER STABLEHLO_REMAINDER STABLEHLO_RSQRT STABLEHLO_SELECT STABLEHLO_SUBTRACT STABLEHLO_TANH
STABLEHLO_SCATTER STABLEHLO_COMPARE STABLEHLO_CONVERT STABLEHLO_DYNAMIC_SLICE STABLEHLO_DYNAMIC_UPDATE_SLICE
STABLEHLO_PAD STABLEHLO_IOTA STABLEHLO_DOT_GENERAL STABLEHLO_REDUCE_WINDOW STABLEHLO_SORT STABLEHLO_WHILE
STABLEHLO_GATHER STABLEHLO_TRANSPOSE DILATE STABLEHLO_RNG_BIT_GENERATOR REDUCE_WINDOW STABLEHLO_COMPOSITE
STABLEHLO_SHIFT_LEFT STABLEHLO_CBRT
""".split()  # noqa: SIM905

PLACEHOLDER = 127  # the old field of operators' numbers has 7 bits

# Data types by their numbers.
TYPES = (
    "float32", "float16", "int32", "uint8", "int64", "string", "bool", "int16", "complex64", "int8", "float64",
    "complex128", "uint64", "resource", "variant", "uint32", "uint16", "int4", "bfloat16",
)  # fmt: skip
ACTIVATIONS = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT")
