/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Windows by POSIX's names (system.h). */
#ifdef _WIN32
#include "system.h"

#include <errno.h>
#include <io.h>
#include <windows.h>

static _Thread_local char message[256];
static _Thread_local char module_name[MAX_PATH];

static void* failed(void) {
  const DWORD code = GetLastError();
  DWORD n = FormatMessageA(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS, NULL, code, 0, message, sizeof message - 1, NULL);
  if (n == 0) n = (DWORD)snprintf(message, sizeof message, "error %lu of Windows", code);
  while (n > 0 && (message[n - 1] == '\n' || message[n - 1] == '\r' || message[n - 1] == '.')) --n;
  message[n] = '\0';
  return NULL;
}

void* dlopen(const char* name, int flags) {
  HMODULE found = NULL;
  if (name == NULL || (flags & RTLD_NOLOAD) != 0) {
    return GetModuleHandleExA(0, name, &found) ? (void*)found : failed();
  }
  char path[MAX_PATH];
  snprintf(path, sizeof path, "%s", name);
  for (char* c = path; *c != '\0'; ++c) {
    if (*c == '/') *c = '\\';
  }
  found = LoadLibraryA(path);
  return found == NULL ? failed() : (void*)found;
}

void* dlsym(void* handle, const char* name) {
  const FARPROC found = GetProcAddress((HMODULE)handle, name);
  void* address;
  memcpy(&address, &found, sizeof address);
  return address == NULL ? failed() : address;
}

int dlclose(void* handle) { return FreeLibrary((HMODULE)handle) ? 0 : -1; }

const char* dlerror(void) { return message; }

int dladdr(const void* address, Dl_info* info) {
  HMODULE found = NULL;
  const DWORD flags = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT;
  if (!GetModuleHandleExA(flags, (LPCSTR)address, &found) || GetModuleFileNameA(found, module_name, sizeof module_name) == 0) {
    failed();
    return 0;
  }
  info->dli_fname = module_name;
  return 1;
}

void* mmap(void* at, size_t length, int access, int flags, int fd, off_t offset) {
  (void)at, (void)access, (void)flags;
  char* start = VirtualAlloc(NULL, length, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
  if (start == NULL) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  for (size_t done = 0; done < length;) {
    const ssize_t n = pread(fd, start + done, length - done, offset + (off_t)done);
    if (n <= 0) {
      VirtualFree(start, 0, MEM_RELEASE);
      return MAP_FAILED;
    }
    done += (size_t)n;
  }
  return start;
}

int munmap(void* start, size_t length) {
  (void)length;
  return VirtualFree(start, 0, MEM_RELEASE) ? 0 : -1;
}

ssize_t pread(int fd, void* to, size_t nbytes, off_t offset) {
  OVERLAPPED at = {.Offset = (DWORD)((uint64_t)offset & 0xffffffffu), .OffsetHigh = (DWORD)((uint64_t)offset >> 32)};
  DWORD read = 0;
  const DWORD wanted = nbytes > (1u << 30) ? 1u << 30 : (DWORD)nbytes;
  if (ReadFile((HANDLE)_get_osfhandle(fd), to, wanted, &read, &at) || GetLastError() == ERROR_HANDLE_EOF) return (ssize_t)read;
  errno = EIO;
  return -1;
}

ssize_t pwrite(int fd, const void* from, size_t nbytes, off_t offset) {
  OVERLAPPED at = {.Offset = (DWORD)((uint64_t)offset & 0xffffffffu), .OffsetHigh = (DWORD)((uint64_t)offset >> 32)};
  DWORD written = 0;
  const DWORD wanted = nbytes > (1u << 30) ? 1u << 30 : (DWORD)nbytes;
  if (WriteFile((HANDLE)_get_osfhandle(fd), from, wanted, &written, &at)) return (ssize_t)written;
  errno = EIO;
  return -1;
}

FILE* tw_memory_file(char** data, size_t* size) {
  *data = NULL;
  *size = 0;
  return tmpfile();
}

int tw_memory_file_close(FILE* file, char** data, size_t* size) {
  const long long length = _ftelli64(file);
  *data = length < 0 ? NULL : malloc((size_t)length + 1);
  const bool ok = *data != NULL && fseek(file, 0, SEEK_SET) == 0 && fread(*data, 1, (size_t)length, file) == (size_t)length;
  *size = ok ? (size_t)length : 0;
  return fclose(file) == 0 && ok ? 0 : -1;
}

char* realpath(const char* path, char* to) {
  char* full = _fullpath(to, path, PATH_MAX);
  for (char* c = full; c != NULL && *c != '\0'; ++c) {
    if (*c == '\\') *c = '/';
  }
  if (full == NULL || _access(full, 0) == 0) return full;
  if (to == NULL) free(full);
  errno = ENOENT;
  return NULL;
}

bool tw_is_writable(const void* address) {
  MEMORY_BASIC_INFORMATION info;
  const DWORD writable = PAGE_READWRITE | PAGE_WRITECOPY | PAGE_EXECUTE_READWRITE | PAGE_EXECUTE_WRITECOPY;
  return VirtualQuery(address, &info, sizeof info) != 0 && (info.Protect & writable) != 0;
}

int tw_processors(void) {
  SYSTEM_INFO info;
  GetSystemInfo(&info);
  return (int)info.dwNumberOfProcessors;
}

size_t tw_page_size(void) {
  SYSTEM_INFO info;
  GetSystemInfo(&info);
  return info.dwPageSize;
}
#endif
typedef int tw_system_windows; /* a file is not empty */
