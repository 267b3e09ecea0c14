/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Of the operating system: libraries, files in memory, processors. The names are POSIX's; on Windows this header and
 * system_windows.c define them, as far as the runtime asks for them. Threads and locks are pthreads there too (winpthreads). */
#ifndef TILEWRIGHT_SYSTEM_H_
#define TILEWRIGHT_SYSTEM_H_

#include "core.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#ifndef _WIN32
#include <dlfcn.h>
#include <sys/mman.h>

/* A file in memory, which its close gives; the caller frees that. */
static inline FILE* tw_memory_file(char** data, size_t* size) { return open_memstream(data, size); }
static inline int tw_memory_file_close(FILE* file, char** data, size_t* size) { return (void)data, (void)size, fclose(file); }
static inline int tw_processors(void) { return (int)sysconf(_SC_NPROCESSORS_ONLN); }
static inline size_t tw_page_size(void) { return (size_t)sysconf(_SC_PAGESIZE); }

#else
#define O_CLOEXEC (_O_NOINHERIT | _O_BINARY)
#define RTLD_NOW 0
#define RTLD_LOCAL 0
#define RTLD_GLOBAL 0
#define RTLD_NOLOAD 1
#define PROT_READ 1
#define PROT_WRITE 2
#define MAP_PRIVATE 0
#define MAP_NORESERVE 0
#define MAP_FAILED NULL

typedef struct {
  const char* dli_fname; /* until the thread's next call of dladdr */
} Dl_info;

void* dlopen(const char* name, int flags);
void* dlsym(void* handle, const char* name);
int dlclose(void* handle);
const char* dlerror(void);
int dladdr(const void* address, Dl_info* info);
/* Reads the file into memory of its own: a private mapping, whose pages a writer gets for himself. */
void* mmap(void* at, size_t length, int access, int flags, int fd, off_t offset);
int munmap(void* start, size_t length);
FILE* tw_memory_file(char** data, size_t* size);
int tw_memory_file_close(FILE* file, char** data, size_t* size);
ssize_t pwrite(int fd, const void* from, size_t nbytes, off_t offset);
ssize_t pread(int fd, void* to, size_t nbytes, off_t offset);
/* Gives a path with slashes. */
char* realpath(const char* path, char* to);
/* Whether memory may be written to. */
bool tw_is_writable(const void* address);
int tw_processors(void);
size_t tw_page_size(void);
#endif

#endif /* TILEWRIGHT_SYSTEM_H_ */
