"""Texts of a bundle of C; ``bundle.py`` fills them."""

HEADER = """\
/* The network "{name}", made by Tilewright {version} for {target}.
 *
 * {run} allocates nothing and keeps nothing: threads may call it at once, each with a workspace of its own.
 * Inputs, outputs and the workspace must not overlap.
 */
#ifndef {NAME}_H
#define {NAME}_H

#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {{
#endif

#define {NAME}_VERSION "{version}"
/* bytes of the workspace, and what its address must be a multiple of */
{pool_sizes}
#define {NAME}_ALIGNMENT {alignment}
/* bytes of the weights, which are constant */
#define {NAME}_WEIGHT_BYTES {weight_bytes}
/* elements of the tensors */
{sizes}

struct {name}_inputs {{
{inputs}
}};

struct {name}_outputs {{
{outputs}
}};

enum {{
  {NAME}_OK = 0,
  {NAME}_BAD_INDEX = -1,        /* an index, length or count of an input is out of range */
  {NAME}_NULL = -2,             /* a pointer is NULL */
  {NAME}_SMALL_WORKSPACE = -3,  /* the workspace, or a part of it, has fewer bytes than it needs */
  {NAME}_UNALIGNED = -4         /* the workspace is not aligned */
}};

/* Run the network once; returns {NAME}_OK, or another of these numbers and leaves outputs undefined. The three last
 * ones are not checked where {NAME}_UNCHECKED is defined. */
int32_t {run}(const struct {name}_inputs* inputs, const struct {name}_outputs* outputs,
                   {pool_parameters});

#ifdef __cplusplus
}}
#endif

#endif
"""

SOURCE_HEAD = """\
/* The network "{name}", made by Tilewright {version}. */
#include "{name}.h"
"""

RUN = """\
{declaration}

int32_t {run}(const struct {name}_inputs* inputs, const struct {name}_outputs* outputs,
                   {pool_parameters}) {{
#ifndef {NAME}_UNCHECKED
  if (inputs == NULL || outputs == NULL{nulls}) return {NAME}_NULL;
{pool_checks}#endif
{unused}{pool_unused}  return {symbol}({arguments}) == 0 ? {NAME}_OK : {NAME}_BAD_INDEX;
}}
"""

PLATFORM_RUN = """\
/* The same with a workspace of the platform (TVMBackendAllocWorkspace). */
int32_t {name}_run(struct {name}_inputs* inputs, struct {name}_outputs* outputs);

#ifdef __cplusplus
}}"""

STRUCT_RUN = "int32_t {name}_run(struct {name}_inputs* inputs, struct {name}_outputs* outputs)"

PACKED_RUN = """\
TVM_DLL int32_t {name}_run(void* args, int32_t* type_codes, int32_t num_args, void* result, int32_t* result_code,
                           void* resource)"""

PACKED_HEAD = """\
#include "tvm/runtime/c_runtime_api.h"

extern int32_t {symbol}({parameters});
static void* tw_data(void* args, int32_t index) {{
  const DLTensor* tensor = (const DLTensor*)((TVMValue*)args)[index].v_handle;
  return (char*)tensor->data + tensor->byte_offset;
}}
"""

RUN_ON_PLATFORM = """
{backend}{includes}

{declaration} {{
{take}  int32_t status = -1;
  if ({taken}) status = {call};
{give}  return status;
}}
"""

WEIGHTS = """\
/* The weights of the network "{name}": {weight_bytes} bytes as words of a little-endian machine. */
#include <stdint.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#error "the weights are for little-endian machines"
#endif
extern const uint32_t {name}_weights[{count}];

#ifdef __GNUC__
__attribute__((aligned({alignment})))
#endif
const uint32_t {name}_weights[{count}] = {{
{rows}
}};
"""

INCBIN = """\
/* The weights of the network "{name}"; run the assembler where {name}_weights.bin is, or name its folder with -I. */
#if defined(__ELF__)
  .section .rodata
#else
  .const_data
#endif
  .balign {alignment}
  .globl {name}_weights
{name}_weights:
  .incbin "{name}_weights.bin"
#if defined(__ELF__)
  .size {name}_weights, {weight_bytes}
  .section .note.GNU-stack,"",%progbits
#endif
"""

RULES = """\

lib{name}.a: {objects}
\t$(AR) rcs $@ $^

{name}.o: {name}.h

%.o: %.c
\t$(CC) $(ALL_CFLAGS) -c $< -o $@

%.o: %.S
\t$(CC) $(ALL_CFLAGS) -I. -c $< -o $@
"""

MAKEFILE = (
    """\
# The network "{name}" as a static library: make CC=arm-none-eabi-gcc CFLAGS="-O2 -mcpu=cortex-m4 -mthumb"
CFLAGS ?= -O3
ALL_CFLAGS = -std=c99 $(CFLAGS)
"""
    + RULES
)

MAKEFILE_TEST = """
{name}_test: {name}_test.o lib{name}.a
\t$(CC) $(ALL_CFLAGS) $^ -lm -o $@

test: {name}_test
\t./{name}_test

.PHONY: test
"""

CMAKE = """\
# The network "{name}" as a static library: add_subdirectory() this folder and link with {name}.
cmake_minimum_required(VERSION 3.10)
project({name} {languages})
add_library({name} STATIC {sources})
target_include_directories({name} PUBLIC ${{CMAKE_CURRENT_SOURCE_DIR}})
set_target_properties({name} PROPERTIES C_STANDARD 99)
if(NOT CMAKE_BUILD_TYPE)
  target_compile_options({name} PRIVATE -O3)
endif()
find_library({NAME}_MATH m)
if({NAME}_MATH)
  target_link_libraries({name} PUBLIC ${{{NAME}_MATH}})
endif()
"""

CMAKE_TEST = """
enable_testing()
add_executable({name}_test EXCLUDE_FROM_ALL {name}_test.c)
target_link_libraries({name}_test {name})
add_test(NAME {name} COMMAND {name}_test)
"""

TEST = (
    """\
/* Runs the network "{name}" on recorded inputs and compares its outputs with recorded ones. */
#include "{name}.h"
#ifdef TW_BOARD
#include "board.h"
#define say(text) board_print(text)
#else
#include <stdio.h>
#define say(text) fputs(text, stdout)
#endif
/* what floating-point outputs may differ by, beside their size and 1 */
#ifndef TW_TOLERANCE
#define TW_TOLERANCE 1e-3
#endif

static void say_integer(int32_t number) {{
  char digits[12], *at = digits + sizeof digits - 1;
  uint32_t rest = number < 0 ? 0u - (uint32_t)number : (uint32_t)number;
  *at = 0;
  do *--at = (char)('0' + rest % 10);
  while ((rest /= 10) != 0);
  if (number < 0) *--at = '-';
  say(at);
}}

static void say_place(const char* name, int32_t index) {{
  say(name);
  say("[");
  say_integer(index);
  say("]");
}}

{arrays}

{compared}
"""
    + "{pool_arrays}"
    + """
int main(void) {{
  struct {name}_inputs inputs = {{0}};
  struct {name}_outputs outputs = {{0}};
{pool_pointers}  int failed = 0;
{setters}
  failed = {name}_run(&inputs, &outputs, {pool_arguments});
  if (failed != {NAME}_OK) {{
    say("{name}_run returned ");
    say_integer(failed);
    say("\\n");
    return 1;
  }}
{checks}
  say(failed ? "{name}: outputs differ\\n" : "{name}: outputs are as recorded\\n");
  return failed;
}}
"""
)

_COMPARE_FLOATS = """\
static int differs_{dtype}(const char* name, const {type}* found, const {type}* expected, int32_t count) {{
  for (int32_t i = 0; i < count; ++i) {{
    const {type} a = found[i], b = expected[i];
    const {type} error = a > b ? a - b : b - a, size = b < 0 ? -b : b;
    const int same = a == b || (a != a && b != b);
    if (!same && !(error <= ({type})({tolerance}) * (1 + size))) {{
      say_place(name, i);
      say(": expected ");
      say_number((double)b);
      say(", found ");
      say_number((double)a);
      say("\\n");
      return 1;
    }}
  }}
  return 0;
}}
"""

SAY_NUMBER = """\
static void say_number(double value) {
  int32_t exponent = 0, millionths;
  if (value != value || value - value != 0) {
    say(value != value ? "nan" : value < 0 ? "-inf" : "inf");
    return;
  }
  if (value < 0) say("-");
  if (value < 0) value = -value;
  for (; value >= 9.9999995; ++exponent) value /= 10;
  for (; value != 0 && value < 0.99999995; --exponent) value *= 10;
  millionths = (int32_t)(value * 1e6 + 0.5);
  say_integer(millionths / 1000000);
  say(".");
  for (int32_t unit = 100000; unit != 0; unit /= 10) say_integer(millionths / unit % 10);
  say("e");
  say_integer(exponent);
}
"""

COMPARE = {
    "float32": _COMPARE_FLOATS.format(dtype="float32", type="float", tolerance="TW_TOLERANCE"),
    "float64": _COMPARE_FLOATS.format(dtype="float64", type="double", tolerance="TW_TOLERANCE * 1e-6"),
    "bytes": """\
static int differs_bytes(const char* name, const void* found, const void* expected, size_t count, size_t size) {
  for (size_t i = 0; i < count; ++i) {
    if (memcmp((const char*)found + i * size, (const char*)expected + i * size, size) != 0) {
      say_place(name, (int32_t)i);
      say(" differs\\n");
      return 1;
    }
  }
  return 0;
}
""",
}
