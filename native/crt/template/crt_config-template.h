/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * A board's choices; copy it as crt_config.h and change what does not fit. */
#ifndef TVM_RUNTIME_CRT_CRT_CONFIG_TEMPLATE_H_
#define TVM_RUNTIME_CRT_CRT_CONFIG_TEMPLATE_H_

/* Which messages are told (tvm/runtime/crt/logging.h). */
#define TVM_CRT_LOG_LEVEL TVM_CRT_LOG_LEVEL_DEBUG
#define TVM_CRT_DEBUG 0

/* Largest number of dimensions of an array, and of arguments of a function. */
#define TVM_CRT_MAX_NDIM 6
#define TVM_CRT_MAX_ARGS 10

/* Bytes of the table of global functions, and number of modules. */
#define TVM_CRT_GLOBAL_FUNC_REGISTRY_SIZE_BYTES 512
#define TVM_CRT_MAX_REGISTERED_MODULES 2

/* Bytes of the longest packet of remote calls, with its head. */
#define TVM_CRT_MAX_PACKET_SIZE_BYTES 2048

/* Longest names, in bytes: of a data type, of a function of a graph, of a parameter, of a packed function. */
#define TVM_CRT_MAX_STRLEN_DLTYPE 10
#define TVM_CRT_MAX_STRLEN_FUNCTION_NAME 120
#define TVM_CRT_MAX_STRLEN_PARAM_NAME 80
#define TVM_CRT_MAX_FUNCTION_NAME_LENGTH_BYTES 30

/* Find blocks of memory that are given back out of order (tvm/runtime/crt/stack_allocator.h). */
/* #define TVM_CRT_STACK_ALLOCATOR_ENABLE_LIFO_CHECK */

#endif /* TVM_RUNTIME_CRT_CRT_CONFIG_TEMPLATE_H_ */
