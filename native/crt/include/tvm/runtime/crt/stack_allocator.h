/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Memory of one array, given and taken back in order (the last first), with TVM 0.8's names: the workspace of
 * ahead-of-time programs. */
#ifndef TVM_RUNTIME_CRT_STACK_ALLOCATOR_H_
#define TVM_RUNTIME_CRT_STACK_ALLOCATOR_H_

#include <stddef.h>
#include <stdint.h>

#include "crt_config.h"
#include "error_codes.h"

/* With TVM_CRT_STACK_ALLOCATOR_ENABLE_LIFO_CHECK a word behind each block tells its size, and a block that is not the
 * last is not taken back: its size XOR the tag. */
#define STACK_ALLOCATOR_TAG 0xabcd1234
#define STACK_ALLOCATOR_TAG_SIZE_BYTES 4

/* What blocks are aligned to, a power of two. */
#ifndef TVM_RUNTIME_ALLOC_ALIGNMENT_BYTES
#define TVM_RUNTIME_ALLOC_ALIGNMENT_BYTES 16
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  uint8_t* next_alloc;   /* where the next block begins */
  uint8_t* workspace;    /* where the first one does */
  size_t workspace_size; /* bytes of all blocks together */
} tvm_workspace_t;

/* Lets blocks be parts of an array of workspace_size bytes; kTvmErrorPlatformNoMemory where none fits. */
tvm_crt_error_t StackMemoryManager_Init(tvm_workspace_t* workspace, uint8_t* memory, size_t workspace_size);

/* Gives a block of nbytes bytes; kTvmErrorPlatformNoMemory where the array ends before. */
tvm_crt_error_t StackMemoryManager_Allocate(tvm_workspace_t* workspace, int32_t nbytes, void** current_alloc);
tvm_crt_error_t StackMemoryManager_Allocate_Body(tvm_workspace_t* workspace, int32_t nbytes, void** current_alloc,
                                                 uint8_t do_lifo_check);

/* Takes the last block back; kTvmErrorPlatformStackAllocBadFree where a check finds that it is another. */
tvm_crt_error_t StackMemoryManager_Free(tvm_workspace_t* workspace, void* ptr);
tvm_crt_error_t StackMemoryManager_Free_Body(tvm_workspace_t* workspace, void* ptr, uint8_t do_lifo_check);

#ifdef __cplusplus
}
#endif
#endif /* TVM_RUNTIME_CRT_STACK_ALLOCATOR_H_ */
