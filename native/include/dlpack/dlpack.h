/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The DLPack tensor layout (version 0.5), as TVM 0.8 uses it. The struct layouts and numeric values are the
 * interchange format; every framework that speaks DLPack agrees on them. */
#ifndef DLPACK_DLPACK_H_
#define DLPACK_DLPACK_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DLPACK_VERSION 50
#define DLPACK_ABI_VERSION 1
#define DLPACK_DLL __attribute__((visibility("default")))

/* Kind of memory that a tensor lives in. */
typedef enum {
  kDLCPU = 1,
  kDLCUDA = 2,
  kDLCUDAHost = 3,
  kDLOpenCL = 4,
  kDLVulkan = 7,
  kDLMetal = 8,
  kDLVPI = 9,
  kDLROCM = 10,
  kDLROCMHost = 11,
  kDLExtDev = 12,
  kDLCUDAManaged = 13,
} DLDeviceType;

typedef struct {
  int32_t device_type; /* a DLDeviceType; TVM adds values above 13 */
  int32_t device_id;
} DLDevice;

typedef enum {
  kDLInt = 0U,
  kDLUInt = 1U,
  kDLFloat = 2U,
  kDLOpaqueHandle = 3U,
  kDLBfloat = 4U,
  kDLComplex = 5U,
  kDLBool = 6U, /* 8 bits; from DLPack 0.8, exchanged with other frameworks but not used inside */
} DLDataTypeCode;

/* Element type: code, bits of one lane, number of lanes (more than 1 for vector types). */
typedef struct {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} DLDataType;

/* A strided view of memory; it owns nothing. strides is in elements, NULL meaning compact row-major. */
typedef struct {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} DLTensor;

/* A tensor with its owner; the receiver calls deleter(self) once. */
typedef struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensor* self);
} DLManagedTensor;

#ifdef __cplusplus
}
#endif
#endif /* DLPACK_DLPACK_H_ */
