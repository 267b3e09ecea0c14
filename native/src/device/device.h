/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The table of devices. */
#ifndef TILEWRIGHT_DEVICE_TABLE_H_
#define TILEWRIGHT_DEVICE_TABLE_H_

#include "../core/core.h"
/* ---- devices (device.c, device_cpu.c, plugin.c) ---- */
/* Finds the rows of device types above TILEWRIGHT_MAX_DEVICE_TYPE, which belong to RPC; or NULL. */
extern const TilewrightDeviceAPI* (*tw_find_remote_device)(int type);
extern const TilewrightDeviceAPI tw_cpu_device;
/* A type from this number on is one of a session on another machine: its type there, plus the number times the session's. */
#define TW_SESSION_TYPES 128
/* "npu(0)" in a buffer of TW_DEVICE_TEXT bytes, which it returns. */
#define TW_DEVICE_TEXT 80
char* tw_device_text(DLDevice device, char* buffer);
/* The row of a device's type, or NULL and an error. */
const TilewrightDeviceAPI* tw_device_row(DLDevice device);
static inline const TilewrightDeviceAPI* tw_device_api(DLDevice device) {
  return device.device_type == kDLCPU ? &tw_cpu_device : tw_device_row(device);
}
/* Fails when there is no such device. */
int tw_device_check(DLDevice device);
int tw_device_exists(DLDevice device, bool* out);
/* Whether the host may touch memory of the device. */
static inline bool tw_is_host(DLDevice device) {
  return device.device_type == kDLCPU || TilewrightDeviceIsHost(device.device_type);
}
/* Whether memory of one serves where memory of the other is wanted. */
bool tw_same_memory(DLDevice a, DLDevice b);
/* NULL and an error on failure. scope may be NULL. */
void* tw_device_alloc(DLDevice device, size_t nbytes, size_t alignment, DLDataType hint, const char* scope);
int tw_device_free(DLDevice device, void* ptr);
/* A place in memory of a device. */
typedef struct {
  void* data;
  size_t offset;
  DLDevice device;
} TwPlace;
/* Copies between any two devices. */
int tw_device_copy(const TwPlace* from, const TwPlace* to, size_t nbytes, DLDataType hint, TVMStreamHandle stream);
int tw_device_zero(DLDevice device, void* data, size_t nbytes);
/* Asks the device's get_attr, which may leave ret as it is. */
int tw_device_attribute(DLDevice device, int attr, TVMRetValueHandle ret);
int tw_device_set(DLDevice device);
/* Of devices that bring functions of their own for that. */
void* tw_device_workspace(DLDevice device, size_t nbytes, DLDataType hint);
int tw_device_workspace_free(DLDevice device, void* ptr);
int tw_device_synchronize(DLDevice device);
/* Time on a device: its own clock, or the host's when the device has done its work. */
typedef struct {
  DLDevice device;
  void* own;
  double start;
} TwTimer;
int tw_device_timer_start(DLDevice device, TwTimer* timer);
int tw_device_timer_stop(TwTimer* timer, double* seconds);
int tw_device_executor_made(DLDevice device, TVMModuleHandle module, void** state);
void tw_device_executor_gone(DLDevice device, void* state);

/* ---- what kernels on devices found wrong (findings.c) ---- */
/* An executor's: all zero at first, and at the end for tw_findings_free. */
typedef struct {
  struct TwFindingsCheck* checks; /* in the order in which they ran first */
  struct TwFindingsChunk* chunks;
  bool held; /* runs do not read them: what they launch is only recorded */
} TwFindings;
void tw_findings_free(TwFindings* findings);
/* Makes findings the place for what the calling thread's launches find; gives the place before. */
TwFindings* tw_findings_begin(TwFindings* findings);
/* Ends that. rc is the run's: -1 also where its kernels found something wrong, with the message of the first check. */
int tw_findings_end(TwFindings* before, int rc);
/* Waits for what was launched; fails where it found something wrong. */
int tw_findings_read(TwFindings* findings);
/* The records of a check, on the device: one for each of its rows, {found, index, low, high} of int64. NULL and an error when
 * there are none. */
void* tw_findings_record(const char* what, DLDevice device, size_t rows);
/* The check is launched: reads its records at once where no executor will. */
int tw_findings_launched(void);

#endif /* TILEWRIGHT_DEVICE_TABLE_H_ */
