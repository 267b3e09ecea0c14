/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Errors of programs on boards, with TVM 0.8's names and numbers: the category in bits 8 to 15, its error below. */
#ifndef TVM_RUNTIME_CRT_ERROR_CODES_H_
#define TVM_RUNTIME_CRT_ERROR_CODES_H_

#ifdef __cplusplus
extern "C" {
#endif

#define TVM_CRT_ERROR_CATEGORY_Pos 8
#define TVM_CRT_ERROR_CATEGORY_Msk (0xff << TVM_CRT_ERROR_CATEGORY_Pos)
#define TVM_CRT_ERROR_CODE_Pos 0
#define TVM_CRT_ERROR_CODE_Msk (0xff << TVM_CRT_ERROR_CODE_Pos)
#define DEFINE_TVM_CRT_ERROR(category, code) ((category) << TVM_CRT_ERROR_CATEGORY_Pos | (code) << TVM_CRT_ERROR_CODE_Pos)

typedef enum {
  kTvmErrorCategoryFunctionRegistry = 1,
  kTvmErrorCategoryFraming,
  kTvmErrorCategoryWriteStream,
  kTvmErrorCategorySession,
  kTvmErrorCategoryPlatform,
  kTvmErrorCategoryGenerated,
  kTvmErrorCategoryGraphExecutor,
  kTvmErrorCategoryFunctionCall,
  kTvmErrorCategoryTimeEvaluator,
} tvm_crt_error_category_t;

typedef enum {
  kTvmErrorNoError = 0,

  kTvmErrorFunctionNameNotFound = 0x100,
  kTvmErrorFunctionIndexInvalid,
  kTvmErrorFunctionRegistryFull,
  kTvmErrorFunctionAlreadyDefined,
  kTvmErrorBufferTooSmall,

  kTvmErrorFramingInvalidState = 0x200,
  kTvmErrorFramingShortPacket,
  kTvmErrorFramingInvalidEscape,
  kTvmErrorFramingPayloadOverflow,
  kTvmErrorFramingPayloadIncomplete,

  kTvmErrorWriteStreamShortWrite = 0x300,
  kTvmErrorWriteStreamLongWrite,

  kTvmErrorSessionInvalidState = 0x400,
  kTvmErrorSessionReceiveBufferBusy,
  kTvmErrorSessionReceiveBufferShortWrite,

  kTvmErrorPlatformCheckFailure = 0x500,
  kTvmErrorPlatformMemoryManagerInitialized,
  kTvmErrorPlatformShutdown,
  kTvmErrorPlatformNoMemory,
  kTvmErrorPlatformTimerBadState,
  kTvmErrorPlatformStackAllocBadFree,

  kTvmErrorGeneratedInvalidStorageId = 0x600,

  kTvmErrorGraphModuleAlreadyCreated = 0x700,
  kTvmErrorGraphModuleBadContext,
  kTvmErrorGraphModuleNoSuchInput,

  kTvmErrorFunctionCallNumArguments = 0x800,
  kTvmErrorFunctionCallWrongArgType,
  kTvmErrorFunctionCallNotImplemented,
  kTvmErrorFunctionCallInvalidArg,

  kTvmErrorTimeEvaluatorBadHandle = 0x900,

  kTvmErrorSystemErrorMask = 1 << (sizeof(int) * 4 - 1), /* set in errors of the system, which are negative numbers */
} tvm_crt_error_t;

#ifdef __cplusplus
}
#endif
#endif /* TVM_RUNTIME_CRT_ERROR_CODES_H_ */
