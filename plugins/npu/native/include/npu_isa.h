/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The command stream of the NPU. docs/isa.md says what each command computes and how many cycles it takes.
 *
 * All numbers are little-endian. A program is
 *
 *   npu_program           its header
 *   npu_region[]          the pieces of memory that its DMA commands name: constants, workspaces, arguments
 *   npu_layer[]           names that commands carry, for tools
 *   commands              128 bytes each: a header, then what its opcode needs
 *   strings               UTF-8, each ended by a zero byte; padded to 64 bytes
 *   constants             the first contents of the region of constants */
#ifndef NPU_ISA_H_
#define NPU_ISA_H_

#include <stdint.h>

#define NPU_ISA_VERSION 1u
#define NPU_PROGRAM_MAGIC 0x3150554eu /* "NUP1" as bytes 4e 55 50 31 */

enum {
  NPU_COMMAND_BYTES = 128,
  NPU_BLOCK = 16,                  /* rows, columns and depth of a block of the matrix unit */
  NPU_LANES = 64,                  /* elements that the vector unit takes a cycle */
  NPU_ALIGNMENT = 64,              /* of regions and of what strings are padded to */
  NPU_MAX_REGIONS = 64,
  NPU_NO_LAYER = 0xffff,
  NPU_SRAM_BYTES = 1 << 20,
  NPU_DDR_BYTES = 1 << 28
};

/* Each has a queue of its own; commands of one engine run in their order, one at a time. */
typedef enum { NPU_LOAD = 0, NPU_STORE = 1, NPU_MATRIX = 2, NPU_VECTOR = 3, NPU_ENGINES = 4 } npu_engine;

typedef enum { NPU_I8 = 0, NPU_U8 = 1, NPU_I32 = 2, NPU_F32 = 3, NPU_DTYPES = 4 } npu_dtype;

typedef enum {
  NPU_OP_NOP = 0,  /* any engine: tokens only */
  NPU_OP_DMA = 1,  /* LOAD, STORE: npu_dma */
  NPU_OP_GEMM = 2, /* MATRIX: npu_gemm */
  /* VECTOR, npu_vector: element by element; x is the first operand, y the second */
  NPU_OP_COPY = 16, /* x */
  NPU_OP_ADD = 17,
  NPU_OP_SUB = 18,
  NPU_OP_MUL = 19,
  NPU_OP_DIV = 20,
  NPU_OP_MAX = 21,
  NPU_OP_MIN = 22,
  NPU_OP_EXP = 32,
  NPU_OP_LOG = 33,
  NPU_OP_SQRT = 34,
  NPU_OP_RSQRT = 35,
  NPU_OP_RECIPROCAL = 36,
  NPU_OP_TANH = 37,
  NPU_OP_SIGMOID = 38,
  NPU_OP_ERF = 39,
  NPU_OP_GELU = 40, /* x * 0.5 * (1 + erf(x / sqrt(2))) */
  /* VECTOR, npu_vector: each row of n[3] elements becomes one */
  NPU_OP_ROW_SUM = 48,
  NPU_OP_ROW_MAX = 49,
  /* VECTOR, npu_window: each window becomes one element */
  NPU_OP_POOL_MAX = 64,
  NPU_OP_POOL_SUM = 65,  /* divided by divisor */
  NPU_OP_DEPTHWISE = 66  /* the sum of x * weight, from the bias on */
} npu_opcode;

/* Flags of npu_header. */
enum {
  /* GEMM: C starts from what is there; from bias[n]; else from zero. A is uint8 in place of int8. */
  NPU_ACCUMULATE = 1 << 0,
  NPU_BIAS = 1 << 1, /* DEPTHWISE too */
  NPU_A_UNSIGNED = 1 << 2,
  /* VECTOR: the steps of docs/isa.md, "The vector unit" */
  NPU_INTEGER = 1 << 3,      /* in int32, else in float32 */
  NPU_DEQUANTIZE_A = 1 << 4, /* x = (a - zero_a) * scale_a */
  NPU_DEQUANTIZE_B = 1 << 5, /* y = (b - zero_b) * scale_b */
  NPU_SCALAR_B = 1 << 6,     /* y is scale_b; zero_b with NPU_INTEGER */
  NPU_CLAMP = 1 << 7,        /* to low..high; after quantizing, where that is asked for */
  NPU_QUANTIZE_DIV = 1 << 8, /* rint(r / scale_out) + zero_out, saturated */
  NPU_QUANTIZE_MUL = 1 << 9  /* rint(r * scale_out) + zero_out, saturated */
};

/* 16 bytes: the beginning of every command. It starts when wait[e] tokens from each engine e are there, which it takes, and
 * gives push[e] tokens to each engine e when it ends. */
typedef struct {
  uint8_t engine;
  uint8_t opcode;
  uint16_t flags;
  uint8_t wait[4];
  uint8_t push[4];
  uint16_t layer; /* index of an npu_layer, or NPU_NO_LAYER */
  uint16_t reserved;
} npu_header;

/* A block of n[0] x n[1] x n[2] x n[3] elements of `element` bytes (1, 2 or 4), the last varying fastest. "Far" is the region,
 * from far_offset on; "near" is the SRAM. LOAD copies far to near, with before[d] elements of pad in front of each dimension d
 * and after[d] behind it: the near block has before[d] + n[d] + after[d]. STORE copies near to far and pads nothing. Strides
 * are in bytes, may be 0 on the side that is read, and negative. */
typedef struct {
  npu_header header;
  uint32_t n[4];
  int32_t far_stride[4];
  int32_t near_stride[4];
  uint16_t before[4];
  uint16_t after[4];
  uint32_t far_offset;
  uint32_t near_address;
  uint32_t pad; /* the bytes of an element; the low ones of a narrow one */
  uint8_t region;
  uint8_t element;
  uint16_t reserved;
  uint32_t unused[8];
} npu_dma;

/* C[m][j] (+)= sum over k of A[m][k] * B[k][j], with
 *   m = (m0, m1) below m[0], m[1];  k = (k0, k1, k2, i) below k[0], k[1], k[2], depth;  j below columns
 *   A at a + m0 * a_m[0] + m1 * a_m[1] + k0 * a_k[0] + k1 * a_k[1] + k2 * a_k[2] + i * sizeof
 *   B in blocks of 16 x 16 elements [i % 16][j % 16], one after another over (k0, k1, k2, i / 16), at b + (j / 16) * b_n
 *   C at c + m0 * c_m[0] + m1 * c_m[1] + (j / 16) * c_n + (j % 16) * 4, of 4 bytes
 *   bias[j] at bias + j * 4, of C's type
 * dtype NPU_I8: A and B int8 (A uint8 with NPU_A_UNSIGNED), C int32. NPU_F32: all float32. Addresses are of the SRAM. */
typedef struct {
  npu_header header;
  uint32_t a, b, c, bias;
  uint32_t m[2];
  uint32_t k[3];
  uint32_t depth;
  uint32_t columns;
  int32_t a_m[2];
  int32_t a_k[3];
  int32_t b_n;
  int32_t c_m[2];
  int32_t c_n;
  uint8_t dtype;
  uint8_t reserved[3];
  uint32_t unused[7];
} npu_gemm;

/* n[0] x n[1] x n[2] x n[3] elements; dst, a, b by strides in bytes (0 repeats an operand). A row reduction gives n[0] x n[1] x
 * n[2] elements, and dst_stride[3] is not used. Addresses are of the SRAM. */
typedef struct {
  npu_header header;
  uint32_t dst, a, b;
  uint32_t n[4];
  int32_t dst_stride[4];
  int32_t a_stride[4];
  int32_t b_stride[4];
  uint8_t dst_type, a_type, b_type, reserved;
  float low, high;
  float scale_a, scale_b, scale_out;
  int32_t zero_a, zero_b, zero_out;
} npu_vector;

/* dst[p][q][r][i] of n[0] x n[1] x n[2] x n[3], i contiguous, from windows of window[0] x window[1] elements
 *   dst at dst + p * dst_stride[0] + q * dst_stride[1] + r * dst_stride[2] + i * sizeof
 *   x at a + p * a_stride[0] + q * a_stride[1] + r * a_stride[2] + u * window_stride[0] + v * window_stride[1] + i * sizeof
 *   weight at b + p * b_stride[0] + (u * window[1] + v) * b_stride[1] + i * sizeof     DEPTHWISE only
 *   bias at c + (p * n[3] + i) * 4                                                    float32, int32 with NPU_INTEGER
 * Strides in bytes; addresses of the SRAM. */
typedef struct {
  npu_header header;
  uint32_t dst, a, b, c;
  uint32_t n[4];
  uint16_t window[2];
  int32_t dst_stride[3];
  int32_t a_stride[3];
  int32_t window_stride[2];
  int32_t b_stride[2];
  uint8_t dst_type, a_type, b_type, reserved;
  float low, high;
  float scale_a, scale_out;
  int32_t zero_a, zero_b, zero_out;
  float divisor;
} npu_window;

typedef union {
  npu_header header;
  npu_dma dma;
  npu_gemm gemm;
  npu_vector vector;
  npu_window window;
  uint8_t bytes[NPU_COMMAND_BYTES];
} npu_command;

typedef enum {
  NPU_CONSTANT = 0, /* loaded with the model; at most one */
  NPU_WORKSPACE = 1, /* given by the driver when the model is loaded */
  NPU_INPUT = 2,    /* inputs and outputs are bound at each launch, in the order of the regions */
  NPU_OUTPUT = 3
} npu_region_kind;

typedef struct {
  uint32_t kind;
  uint32_t bytes;
  uint32_t name; /* offset in the strings */
  uint32_t reserved;
} npu_region;

typedef struct {
  uint32_t name; /* offset in the strings */
  uint32_t reserved;
} npu_layer;

typedef struct {
  uint32_t magic;
  uint32_t isa_version;
  uint32_t total_bytes;
  uint32_t region_count;
  uint32_t layer_count;
  uint32_t command_count;
  uint32_t string_bytes;   /* a multiple of 64 */
  uint32_t constant_bytes; /* as the region of constants has */
  uint32_t sram_bytes;     /* the commands use SRAM addresses below it */
  uint32_t name;           /* offset in the strings: of the program */
  uint32_t reserved[6];
} npu_program;

_Static_assert(sizeof(npu_header) == 16 && sizeof(npu_program) == 64, "a header has no holes");
_Static_assert(sizeof(npu_dma) == NPU_COMMAND_BYTES && sizeof(npu_gemm) == NPU_COMMAND_BYTES, "commands are of one size");
_Static_assert(sizeof(npu_vector) == NPU_COMMAND_BYTES && sizeof(npu_window) == NPU_COMMAND_BYTES, "commands are of one size");

#endif /* NPU_ISA_H_ */
