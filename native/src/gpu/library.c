/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Libraries of drivers, which are opened when a device is first asked for, and never closed: their threads live on. */
#include "gpu.h"

#include <dlfcn.h>

int tw_open_driver(const char* const* names, const TwSymbol* symbols, size_t count) {
  void* handle = NULL;
  const char* found = NULL;
  for (const char* const* name = names; *name != NULL && handle == NULL; ++name) {
    if ((*name)[0] == '\0') continue;
    handle = dlopen(*name, RTLD_NOW | RTLD_LOCAL);
    found = *name;
  }
  if (handle == NULL) return tw_fail("the driver's library cannot be loaded: %s", dlerror());
  for (size_t i = 0; i < count; ++i) {
    void* address = dlsym(handle, symbols[i].name);
    if (address == NULL && !symbols[i].optional) return tw_fail("%s is too old: it has no function %s", found, symbols[i].name);
    memcpy(symbols[i].place, &address, sizeof address);
  }
  return 0;
}
