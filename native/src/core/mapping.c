/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Shared libraries and files of data in memory, counted by those who use what is in them. */
#include "system.h"

#include <errno.h>
#include <limits.h>

/* What is mapped. The lock is held from the look at a file until it is there, and while it goes. */
static TwMapping* mappings;
static TwLock mappings_lock = TW_LOCK_INITIALIZER;

TwMapping* tw_mapping_retain(TwMapping* mapping) {
  atomic_fetch_add_explicit(&mapping->refs, 1, memory_order_relaxed);
  return mapping;
}

void tw_mapping_release(TwMapping* mapping) {
  if (atomic_fetch_sub_explicit(&mapping->refs, 1, memory_order_acq_rel) != 1) return;
  if (mapping->handle == NULL) {
    munmap(mapping->start, mapping->length);
    free(mapping->name);
    free(mapping);
    return;
  }
  tw_lock(&mappings_lock);
  TwMapping** link = &mappings;
  while (*link != mapping) link = &(*link)->next;
  *link = mapping->next;
  dlclose(mapping->handle);
  tw_unlock(&mappings_lock);
  free(mapping);
}

/* A mapping of what is open, which it takes over; with the lock held. */
static TwMapping* new_mapping(void* handle, uint64_t device, uint64_t node) {
  TwMapping* mapping = calloc(1, sizeof *mapping);
  if (mapping == NULL) {
    dlclose(handle);
    tw_out_of_memory(sizeof *mapping);
    return NULL;
  }
  atomic_init(&mapping->refs, 1);
  mapping->handle = handle;
  mapping->device = device;
  mapping->node = node;
  mapping->next = mappings;
  mappings = mapping;
  return mapping;
}

/* Whether what dlopen has under a name is another file than the one of that name now. */
static bool was_replaced(const char* name, const struct stat* file) {
  void* handle = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
  if (handle == NULL) return false;
  const TwMapping* mapping = mappings;
  while (mapping != NULL && mapping->handle != handle) mapping = mapping->next;
  dlclose(handle);
  return mapping != NULL && mapping->node != 0 &&
         (mapping->device != (uint64_t)file->st_dev || mapping->node != (uint64_t)file->st_ino);
}

/* Opens a library. One made with -system-lib calls this runtime by its functions' names, which other libraries see only
 * once they are global; they become so when the first such library comes. */
static void* open_library(const char* name) {
  Dl_info self;
  void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (handle != NULL) return handle;
  const char* why = dlerror();
  if (why != NULL && strstr(why, "undefined symbol: TVM") != NULL && dladdr((void*)&mappings, &self) != 0) {
    dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
  }
  return dlopen(name, RTLD_NOW | RTLD_LOCAL); /* again, for what dlerror() says */
}

/* dlopen knows libraries by their names: of a file that has taken the place of one
 * still in use it would give the old code and weights. The new one is then opened as folder/./file, and so on. */
TwMapping* tw_map_file(const char* full, const char* path) {
  struct stat file;
  char name[2 * PATH_MAX];
  size_t length = strlen(full), folder = (size_t)(strrchr(full, '/') - full) + 1;
  if (stat(full, &file) != 0 || length >= PATH_MAX) {
    tw_fail("cannot load %s: %s", path, strerror(length >= PATH_MAX ? ENAMETOOLONG : errno));
    return NULL;
  }
  memcpy(name, full, length + 1);
  TwMapping* mapping = NULL;
  tw_lock(&mappings_lock);
  for (; was_replaced(name, &file) && length < PATH_MAX; length += 2) {
    memmove(name + folder + 2, name + folder, length - folder + 1);
    memcpy(name + folder, "./", 2);
  }
  void* handle = open_library(name); /* NULL for a name that has become too long */
  if (handle == NULL) {
    tw_fail("cannot load %s: %s", path, dlerror());
  } else {
    mapping = new_mapping(handle, (uint64_t)file.st_dev, (uint64_t)file.st_ino);
  }
  tw_unlock(&mappings_lock);
  return mapping;
}

TwMapping* tw_map_open(void* handle) {
  tw_lock(&mappings_lock);
  TwMapping* mapping = new_mapping(handle, 0, 0);
  tw_unlock(&mappings_lock);
  return mapping;
}

/* Who writes to an array gets its pages for himself; the file is not changed, and needs no permission for that. */
TwMapping* tw_map_data(int fd, size_t length, const char* name) {
  TwMapping* mapping = calloc(1, sizeof *mapping);
  char* copy = mapping == NULL ? NULL : tw_strdup(name);
  if (copy == NULL) {
    free(mapping);
    tw_out_of_memory(sizeof *mapping);
    return NULL;
  }
  void* start = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
  if (start == MAP_FAILED) {
    tw_fail("cannot map %s: %s", name, strerror(errno));
    free(copy);
    free(mapping);
    return NULL;
  }
  atomic_init(&mapping->refs, 1);
  mapping->start = start;
  mapping->length = length;
  mapping->name = copy;
  if (length >= 2 * TW_HUGE_PAGE) tw_advise_huge_pages(start, length);
  return mapping;
}
