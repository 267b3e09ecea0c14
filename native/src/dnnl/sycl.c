/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * PyPI's oneDNN reaches processors through SYCL, and SYCL through an OpenCL loader that lies beside it. It asks for
 * "libOpenCL.so.1", a name that the process may have given away already: to the system's loader, which devices and
 * other packages open, and which need not know Intel's processors. So SYCL is shown its own loader by its path, and the
 * name is left to the system's, whichever of the two comes first. */
#include "dnnl.h"

#include <dlfcn.h>
#include <limits.h>

#define SHARED_NAME "libOpenCL.so.1"
#define IMPLEMENTATIONS "OCL_ICD_FILENAMES"

static char own_loader[PATH_MAX]; /* the path of SYCL's OpenCL loader; written once, before SYCL asks */
static bool implementation_named; /* by us, in the environment */

/* The path of a file in a folder, if it is there. */
static bool find_in(const char* folder, const char* name, char* path, size_t size) {
  if (snprintf(path, size, "%s/%s", folder, name) >= (int)size) return false;
  FILE* f = fopen(path, "rb");
  if (f == NULL) return false;
  fclose(f);
  return true;
}

#if defined(__x86_64__) && defined(__linux__) /* what the packages are made for */
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

typedef void* (*Opener)(const char* file, int mode);

/* What SYCL calls in dlopen's place. */
static void* open_for_sycl(const char* file, int mode) {
  void* own = file != NULL && strcmp(file, SHARED_NAME) == 0 ? dlopen(own_loader, mode) : NULL;
  return own != NULL ? own : dlopen(file, mode);
}

/* A loaded library's tables: of the functions of others that it calls, and where their addresses are written. */
typedef struct {
  uintptr_t base, read_only, read_only_end;
  const ElfW(Sym) * symbols;
  const char* names;
  const ElfW(Rela) * tables[2];
  size_t counts[2];
} Imports;

static void read_dynamic(const ElfW(Dyn) * entry, Imports* out) {
  for (; entry->d_tag != DT_NULL; ++entry) {
    /* glibc has added the base already, musl has not. */
    const uintptr_t address = entry->d_un.d_ptr + (entry->d_un.d_ptr < out->base ? out->base : 0);
    switch (entry->d_tag) {
      case DT_SYMTAB: out->symbols = (const ElfW(Sym)*)address; break;
      case DT_STRTAB: out->names = (const char*)address; break;
      case DT_RELA: out->tables[0] = (const ElfW(Rela)*)address; break;
      case DT_JMPREL: out->tables[1] = (const ElfW(Rela)*)address; break;
      case DT_RELASZ: out->counts[0] = entry->d_un.d_val / sizeof(ElfW(Rela)); break;
      case DT_PLTRELSZ: out->counts[1] = entry->d_un.d_val / sizeof(ElfW(Rela)); break;
      default: break;
    }
  }
}

/* Writes an address where a library looks for it; those pages may be read-only since it was loaded. */
static void write_address(const Imports* in, uintptr_t place, Opener opener) {
  const uintptr_t size = (uintptr_t)sysconf(_SC_PAGESIZE), page = place & ~(size - 1);
  const bool sealed = place >= in->read_only && place < in->read_only_end;
  if (sealed && mprotect((void*)page, size, PROT_READ | PROT_WRITE) != 0) return;
  memcpy((void*)place, &opener, sizeof opener);
  if (sealed) mprotect((void*)page, size, PROT_READ);
}

static void replace_dlopen(const Imports* in) {
  for (int t = 0; t < 2; ++t) {
    for (size_t i = 0; in->symbols != NULL && in->names != NULL && in->tables[t] != NULL && i < in->counts[t]; ++i) {
      const ElfW(Rela)* r = &in->tables[t][i];
      const uint64_t type = ELF64_R_TYPE(r->r_info);
      if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT) continue;
      if (strcmp(in->names + in->symbols[ELF64_R_SYM(r->r_info)].st_name, "dlopen") == 0) {
        write_address(in, in->base + r->r_offset, open_for_sycl);
      }
    }
  }
}

/* Of all loaded libraries, visits SYCL's in oneDNN's folder. */
static int visit(struct dl_phdr_info* info, size_t size, void* folder) {
  const size_t length = strlen(folder);
  (void)size;
  if (strncmp(info->dlpi_name, folder, length) != 0 || strncmp(info->dlpi_name + length, "/libsycl.so", 11) != 0) return 0;
  Imports in = {.base = info->dlpi_addr};
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)* part = &info->dlpi_phdr[i];
    if (part->p_type == PT_DYNAMIC) read_dynamic((const ElfW(Dyn)*)(in.base + part->p_vaddr), &in);
    if (part->p_type != PT_GNU_RELRO) continue;
    in.read_only = in.base + part->p_vaddr;
    in.read_only_end = in.read_only + part->p_memsz;
  }
  replace_dlopen(&in);
  return 1;
}

static void show_loader(const char* folder) {
  if (!find_in(folder, SHARED_NAME, own_loader, sizeof own_loader) || dl_iterate_phdr(visit, (void*)folder) == 0) return;
  (void)dlopen(SHARED_NAME, RTLD_LAZY | RTLD_LOCAL); /* the system's, if it has one, takes the name */
}
#else
static void show_loader(const char* folder) { (void)folder, (void)own_loader; }
#endif

void tw_sycl_begin(const char* folder) {
  char file[PATH_MAX];
  show_loader(folder);
  if (getenv(IMPLEMENTATIONS) != NULL || !find_in(folder, "libintelocl.so", file, sizeof file)) return;
  implementation_named = setenv(IMPLEMENTATIONS, file, 0) == 0;
}

void tw_sycl_end(void) {
  if (implementation_named) unsetenv(IMPLEMENTATIONS);
  implementation_named = false;
}
