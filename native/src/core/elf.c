/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Checks an ELF file before dlopen sees it: dlopen of a file that was cut short ends in SIGBUS, and its message for
 * another architecture names none. */
#include "core.h"

#include <errno.h>
#include <sys/stat.h>

enum { MACHINE_386 = 3, MACHINE_ARM = 40, MACHINE_X86_64 = 62, MACHINE_AARCH64 = 183, MACHINE_RISCV = 243 };

#if defined(__x86_64__)
#define HOST_MACHINE MACHINE_X86_64
#elif defined(__i386__)
#define HOST_MACHINE MACHINE_386
#elif defined(__aarch64__)
#define HOST_MACHINE MACHINE_AARCH64
#elif defined(__arm__)
#define HOST_MACHINE MACHINE_ARM
#elif defined(__riscv)
#define HOST_MACHINE MACHINE_RISCV
#endif

static const char* machine_name(unsigned machine, bool wide) {
  switch (machine) {
    case 2: return "sparc";
    case 8: return "mips";
    case 20: return "powerpc";
    case 21: return "powerpc64";
    case 22: return "s390";
    case MACHINE_386: return "i386";
    case MACHINE_ARM: return "arm";
    case MACHINE_X86_64: return "x86_64";
    case 164: return "hexagon";
    case MACHINE_AARCH64: return "aarch64";
    case 190: return "cuda";
    case 224: return "amdgpu";
    case MACHINE_RISCV: return wide ? "riscv64" : "riscv32";
    case 258: return "loongarch";
    default: return "an unknown machine";
  }
}

typedef struct {
  FILE* file;
  const char* path;
  uint64_t size;
  bool wide; /* 64-bit */
} Elf;

static uint64_t field(const unsigned char* p, int bytes) {
  uint64_t v = 0;
  for (int i = bytes; i-- > 0;) v = v << 8 | p[i];
  return v;
}

static int truncated(const Elf* e) {
  return tw_fail("%s is truncated: it is %llu bytes long and should be longer; export or copy it again", e->path,
                 (unsigned long long)e->size);
}

/* Whether [offset, offset + count * size) lies in the file. */
static bool fits(const Elf* e, uint64_t offset, uint64_t count, uint64_t size) {
  if (size != 0 && count > e->size / size) return false;
  return offset <= e->size && count * size <= e->size - offset;
}

static bool read_at(const Elf* e, uint64_t offset, void* to, size_t n) {
  return fseek(e->file, (long)offset, SEEK_SET) == 0 && fread(to, 1, n, e->file) == n;
}

static int check_segments(const Elf* e, const unsigned char* header) {
  uint64_t offset = e->wide ? field(header + 32, 8) : field(header + 28, 4);
  uint64_t entry = field(header + (e->wide ? 54 : 42), 2), count = field(header + (e->wide ? 56 : 44), 2);
  unsigned char p[56];
  size_t least = e->wide ? 56 : 32;
  if (count != 0 && entry < least) return tw_fail("%s is damaged: bad program headers", e->path);
  if (!fits(e, offset, count, entry)) return truncated(e);
  for (uint64_t i = 0; i < count; ++i) {
    if (!read_at(e, offset + i * entry, p, least)) return truncated(e);
    uint64_t start = e->wide ? field(p + 8, 8) : field(p + 4, 4);
    uint64_t size = e->wide ? field(p + 32, 8) : field(p + 16, 4);
    if (!fits(e, start, 1, size)) return truncated(e);
  }
  return 0;
}

static int check_sections(const Elf* e, const unsigned char* header) {
  enum { NOBITS = 8 };
  uint64_t offset = e->wide ? field(header + 40, 8) : field(header + 32, 4);
  uint64_t entry = field(header + (e->wide ? 58 : 46), 2), count = field(header + (e->wide ? 60 : 48), 2);
  unsigned char s[64];
  size_t least = e->wide ? 64 : 40;
  if (count != 0 && entry < least) return tw_fail("%s is damaged: bad section headers", e->path);
  if (!fits(e, offset, count, entry)) return truncated(e);
  for (uint64_t i = 0; i < count; ++i) {
    if (!read_at(e, offset + i * entry, s, least)) return truncated(e);
    uint64_t start = e->wide ? field(s + 24, 8) : field(s + 16, 4);
    uint64_t size = e->wide ? field(s + 32, 8) : field(s + 20, 4);
    if (field(s + 4, 4) != NOBITS && !fits(e, start, 1, size)) return truncated(e);
  }
  return 0;
}

#ifdef __ELF__
static int check_open(Elf* e) {
  enum { DYNAMIC = 3 };
  unsigned char header[64] = {0};
  size_t got = fread(header, 1, sizeof header, e->file);
  if (e->size == 0) return tw_fail("%s is empty", e->path);
  if (got >= 4 && memcmp(header, "\177ELF", 4) != 0) {
    return tw_fail("%s is not a shared library (it does not begin as an ELF file does)", e->path);
  }
  e->wide = header[4] == 2;
  if (got < (e->wide ? 64u : 52u)) return truncated(e);
  unsigned machine = (unsigned)field(header + 18, 2);
  if (header[5] != 1) return tw_fail("%s is for a big-endian machine; this one is little-endian", e->path);
#ifdef HOST_MACHINE
  if (machine != HOST_MACHINE || e->wide != (sizeof(void*) == 8)) {
    return tw_fail("%s is for %s; this machine is %s", e->path, machine_name(machine, e->wide),
                   machine_name(HOST_MACHINE, sizeof(void*) == 8));
  }
#endif
  if (field(header + 16, 2) != DYNAMIC) {
    return tw_fail("%s is an ELF file but not a shared library; link it with -shared", e->path);
  }
  return check_segments(e, header) != 0 ? -1 : check_sections(e, header);
}
#endif

int tw_elf_check(const char* path) {
#ifdef __ELF__
  Elf e = {.path = path};
  struct stat st;
  e.file = fopen(path, "rb");
  if (e.file == NULL) return tw_fail("cannot load %s: %s", path, strerror(errno));
  int rc;
  if (fstat(fileno(e.file), &st) != 0 || !S_ISREG(st.st_mode)) {
    rc = tw_fail("cannot load %s: it is not a file", path);
  } else {
    e.size = (uint64_t)st.st_size;
    rc = check_open(&e);
  }
  fclose(e.file);
  return rc;
#else
  (void)path;
  return 0;
#endif
}
