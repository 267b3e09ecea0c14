/* Licensed under the Apache License, Version 2.0; see LICENSE. */
#include <string.h>
#include <tvm/runtime/crt/stack_allocator.h>

#ifdef TVM_CRT_STACK_ALLOCATOR_ENABLE_LIFO_CHECK
#define CHECKED 1
#else
#define CHECKED 0
#endif

static size_t aligned(size_t nbytes) {
  const size_t mask = TVM_RUNTIME_ALLOC_ALIGNMENT_BYTES - 1;
  return (nbytes + mask) & ~mask;
}

tvm_crt_error_t StackMemoryManager_Init(tvm_workspace_t* workspace, uint8_t* memory, size_t workspace_size) {
  const size_t skipped = aligned((uintptr_t)memory) - (uintptr_t)memory;
  if (skipped > workspace_size) return kTvmErrorPlatformNoMemory;
  workspace->workspace = workspace->next_alloc = memory + skipped;
  workspace->workspace_size = workspace_size - skipped;
  return kTvmErrorNoError;
}

tvm_crt_error_t StackMemoryManager_Allocate_Body(tvm_workspace_t* workspace, int32_t nbytes, void** current_alloc,
                                                 uint8_t do_lifo_check) {
  const size_t left = workspace->workspace + workspace->workspace_size - workspace->next_alloc;
  const size_t tag = do_lifo_check ? STACK_ALLOCATOR_TAG_SIZE_BYTES : 0;
  if (nbytes < 0 || (size_t)nbytes > left || aligned((size_t)nbytes + tag) > left) return kTvmErrorPlatformNoMemory;
  const size_t size = aligned((size_t)nbytes + tag);
  *current_alloc = workspace->next_alloc;
  workspace->next_alloc += size;
  if (do_lifo_check) {
    const uint32_t word = (uint32_t)size ^ STACK_ALLOCATOR_TAG;
    memcpy(workspace->next_alloc - tag, &word, tag);
  }
  return kTvmErrorNoError;
}

tvm_crt_error_t StackMemoryManager_Allocate(tvm_workspace_t* workspace, int32_t nbytes, void** current_alloc) {
  return StackMemoryManager_Allocate_Body(workspace, nbytes, current_alloc, CHECKED);
}

tvm_crt_error_t StackMemoryManager_Free_Body(tvm_workspace_t* workspace, void* ptr, uint8_t do_lifo_check) {
  uint8_t* block = (uint8_t*)ptr;
  if (do_lifo_check) {
    uint32_t word;
    if (block < workspace->workspace || block + sizeof word > workspace->next_alloc) {
      return kTvmErrorPlatformStackAllocBadFree;
    }
    memcpy(&word, workspace->next_alloc - sizeof word, sizeof word);
    if ((word ^ STACK_ALLOCATOR_TAG) != (uint32_t)(workspace->next_alloc - block)) {
      return kTvmErrorPlatformStackAllocBadFree;
    }
  }
  workspace->next_alloc = block;
  return kTvmErrorNoError;
}

tvm_crt_error_t StackMemoryManager_Free(tvm_workspace_t* workspace, void* ptr) {
  return StackMemoryManager_Free_Body(workspace, ptr, CHECKED);
}
