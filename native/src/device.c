/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Devices. This build has the CPU alone; other device types are refused by name. */
#include "internal.h"

static const char* device_name(int type) {
  switch (type) {
    case kDLCPU: return "cpu";
    case kDLCUDA: return "cuda";
    case kDLCUDAHost: return "cuda_host";
    case kDLOpenCL: return "opencl";
    case kDLVulkan: return "vulkan";
    case kDLMetal: return "metal";
    case kDLROCM: return "rocm";
    case kDLExtDev: return "ext_dev";
    default: return "unknown device";
  }
}

int tw_check_cpu(DLDevice device) {
  if (device.device_type == kDLCPU || device.device_type == kDLCUDAHost) return 0;
  return tw_fail("device %s(%d) (type %d) is not available in this runtime", device_name(device.device_type),
                 device.device_id, device.device_type);
}

int TVMDeviceAllocDataSpace(DLDevice dev, size_t nbytes, size_t alignment, DLDataType type_hint, void** out_data) {
  (void)type_hint;
  if (tw_check_cpu(dev) != 0) return -1;
  if ((alignment & (alignment - 1)) != 0) return tw_fail("alignment %zu is not a power of two", alignment);
  *out_data = tw_aligned_alloc(nbytes, alignment);
  return *out_data == NULL ? tw_out_of_memory(nbytes) : 0;
}

int TVMDeviceFreeDataSpace(DLDevice dev, void* ptr) {
  if (tw_check_cpu(dev) != 0) return -1;
  free(ptr);
  return 0;
}

int TVMDeviceCopyDataFromTo(DLTensor* from, DLTensor* to, TVMStreamHandle stream) {
  (void)stream;
  return tw_copy(from, to);
}

int TVMStreamCreate(int device_type, int device_id, TVMStreamHandle* out) {
  *out = NULL; /* the CPU has one stream, the default */
  return tw_check_cpu((DLDevice){device_type, device_id});
}

int TVMStreamFree(int device_type, int device_id, TVMStreamHandle stream) {
  (void)stream;
  return tw_check_cpu((DLDevice){device_type, device_id});
}

int TVMSetStream(int device_type, int device_id, TVMStreamHandle handle) {
  (void)handle;
  return tw_check_cpu((DLDevice){device_type, device_id});
}

int TVMSynchronize(int device_type, int device_id, TVMStreamHandle stream) {
  (void)stream;
  return tw_check_cpu((DLDevice){device_type, device_id});
}

int TVMStreamStreamSynchronize(int device_type, int device_id, TVMStreamHandle src, TVMStreamHandle dst) {
  (void)src;
  (void)dst;
  return tw_check_cpu((DLDevice){device_type, device_id});
}
