/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Plug-ins: shared libraries that add devices. */
#include "device.h"

#include "../core/system.h"

#include <errno.h>

/* What has been loaded. Code of a plug-in is in the table of devices, so that it stays as long as the process. */
static void** loaded;
static size_t num_loaded;
static TwLock loaded_lock = TW_LOCK_INITIALIZER;

/* Loads and starts a plug-in, with the lock held. */
static int load_plugin(const char* full) {
  void* handle = dlopen(full, RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL) {
    return tw_fail("cannot load the plug-in %s: %s; a plug-in is linked with libtilewright_runtime.so (docs/devices.md)", full,
                   dlerror());
  }
  for (size_t i = 0; i < num_loaded; ++i) {
    if (loaded[i] == handle) {
      dlclose(handle);
      return 0;
    }
  }
  int (*init)(void) = NULL;
  void* address = dlsym(handle, "TilewrightPluginInit");
  if (address == NULL) {
    dlclose(handle);
    return tw_fail("%s is no plug-in: it has no function TilewrightPluginInit", full);
  }
  memcpy(&init, &address, sizeof init);
  void** grown = realloc(loaded, (num_loaded + 1) * sizeof *grown);
  if (grown == NULL) return tw_out_of_memory(sizeof *grown);
  loaded = grown;
  tw_clear_error();
  int rc = init();
  if (rc != 0) {
    char* said = tw_strdup(TVMGetLastError());
    rc = tw_fail("the plug-in %s did not start: %s", full,
                 said == NULL || said[0] == '\0' ? "TilewrightPluginInit failed and left no message" : said);
    free(said);
    return rc; /* it stays mapped: it may have registered something */
  }
  loaded[num_loaded++] = handle;
  return 0;
}

int TilewrightLoadPlugin(const char* path) {
  char* full = realpath(path, NULL);
  if (full == NULL) return tw_fail("cannot load the plug-in %s: %s", path, strerror(errno));
  int rc = tw_elf_check(full);
  if (rc == 0) {
    tw_lock(&loaded_lock);
    rc = load_plugin(full);
    tw_unlock(&loaded_lock);
  }
  free(full);
  return rc;
}
