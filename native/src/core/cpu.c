/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The features of this processor, in LLVM's names: a compiled library records those that it needs. */
#include "core.h"

#include <errno.h>

typedef struct {
  const char* name;
  bool present;
} Feature;

#define MAX_FEATURES 96
static Feature features[MAX_FEATURES + 1];
static char feature_list[MAX_FEATURES * 20];
static pthread_once_t features_once = PTHREAD_ONCE_INIT;
static int tiles_error; /* of the system, where it refuses tiles that the processor has */

static void add(const char* name, bool present) {
  for (int i = 0; i < MAX_FEATURES; ++i) {
    if (features[i].name != NULL) continue;
    features[i] = (Feature){name, present};
    return;
  }
}

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

static uint64_t enabled_state(void) {
  uint32_t lo, hi;
  __asm__ __volatile__("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
  return (uint64_t)hi << 32 | lo;
}

/* Linux gives a process the tile registers (8 KiB of state) when it asks. */
static bool may_use_tiles(void) {
#ifdef __linux__
  enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
  if (syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0) return true;
  tiles_error = errno;
#endif
  return false;
}

static void detect(void) {
  enum { EAX, EBX, ECX, EDX };
  unsigned l1[4] = {0}, l7[4] = {0}, l71[4] = {0}, e1[4] = {0}, e8[4] = {0}, l14[4] = {0}, ld1[4] = {0};
  __get_cpuid(1, &l1[EAX], &l1[EBX], &l1[ECX], &l1[EDX]);
  __get_cpuid_count(7, 0, &l7[EAX], &l7[EBX], &l7[ECX], &l7[EDX]);
  if (l7[EAX] >= 1) __get_cpuid_count(7, 1, &l71[EAX], &l71[EBX], &l71[ECX], &l71[EDX]);
  __get_cpuid(0x80000001u, &e1[EAX], &e1[EBX], &e1[ECX], &e1[EDX]);
  __get_cpuid(0x80000008u, &e8[EAX], &e8[EBX], &e8[ECX], &e8[EDX]);
  __get_cpuid_count(0xd, 1, &ld1[EAX], &ld1[EBX], &ld1[ECX], &ld1[EDX]);
  __get_cpuid_count(0x14, 0, &l14[EAX], &l14[EBX], &l14[ECX], &l14[EDX]);
  /* the operating system must save the wide registers, or they cannot be used */
  uint64_t state = (l1[ECX] >> 27 & 1) ? enabled_state() : 0;
  const bool avx = (state & 0x6) == 0x6, avx512 = avx && (state & 0xe0) == 0xe0;
  const bool amx = (state & 0x60000) == 0x60000 && may_use_tiles();
#define HAS(leaf, reg, bit, name) add(name, (leaf[reg] >> (bit)) & 1)
#define HAS_IF(state, leaf, reg, bit, name) add(name, (state) && ((leaf[reg] >> (bit)) & 1))
  HAS(l1, EDX, 8, "cx8");
  HAS(l1, EDX, 15, "cmov");
  HAS(l1, EDX, 23, "mmx");
  HAS(l1, EDX, 24, "fxsr");
  HAS(l1, EDX, 25, "sse");
  HAS(l1, EDX, 26, "sse2");
  HAS(l1, ECX, 0, "sse3");
  HAS(l1, ECX, 1, "pclmul");
  HAS(l1, ECX, 9, "ssse3");
  HAS(l1, ECX, 13, "cx16");
  HAS(l1, ECX, 19, "sse4.1");
  HAS(l1, ECX, 20, "sse4.2");
  HAS(l1, ECX, 20, "crc32");
  HAS(l1, ECX, 22, "movbe");
  HAS(l1, ECX, 23, "popcnt");
  HAS(l1, ECX, 25, "aes");
  HAS(l1, ECX, 30, "rdrnd");
  HAS(l1, ECX, 26, "xsave");
  HAS_IF(avx, l1, ECX, 28, "avx");
  HAS_IF(avx, l1, ECX, 12, "fma");
  HAS_IF(avx, l1, ECX, 29, "f16c");
  HAS(l7, EBX, 0, "fsgsbase");
  HAS(l7, EBX, 3, "bmi");
  HAS_IF(avx, l7, EBX, 5, "avx2");
  HAS(l7, EBX, 8, "bmi2");
  HAS(l7, EBX, 10, "invpcid");
  HAS(l7, EBX, 11, "rtm");
  HAS_IF(avx512, l7, EBX, 16, "avx512f");
  HAS_IF(avx512, l7, EBX, 17, "avx512dq");
  HAS(l7, EBX, 18, "rdseed");
  HAS(l7, EBX, 19, "adx");
  HAS_IF(avx512, l7, EBX, 21, "avx512ifma");
  HAS(l7, EBX, 23, "clflushopt");
  HAS(l7, EBX, 24, "clwb");
  HAS_IF(avx512, l7, EBX, 28, "avx512cd");
  HAS(l7, EBX, 29, "sha");
  HAS_IF(avx512, l7, EBX, 30, "avx512bw");
  HAS_IF(avx512, l7, EBX, 31, "avx512vl");
  HAS_IF(avx512, l7, ECX, 1, "avx512vbmi");
  HAS(l7, ECX, 4, "pku");
  HAS(l7, ECX, 5, "waitpkg");
  HAS_IF(avx512, l7, ECX, 6, "avx512vbmi2");
  HAS(l7, ECX, 7, "shstk");
  HAS(l7, ECX, 8, "gfni");
  HAS_IF(avx, l7, ECX, 9, "vaes");
  HAS_IF(avx, l7, ECX, 10, "vpclmulqdq");
  HAS_IF(avx512, l7, ECX, 11, "avx512vnni");
  HAS_IF(avx512, l7, ECX, 12, "avx512bitalg");
  HAS_IF(avx512, l7, ECX, 14, "avx512vpopcntdq");
  HAS(l7, ECX, 22, "rdpid");
  HAS(l7, ECX, 25, "cldemote");
  HAS(l7, ECX, 27, "movdiri");
  HAS(l7, ECX, 28, "movdir64b");
  HAS(l7, ECX, 29, "enqcmd");
  HAS_IF(avx512, l7, EDX, 8, "avx512vp2intersect");
  HAS(l7, EDX, 14, "serialize");
  HAS_IF(amx, l7, EDX, 22, "amx-bf16");
  HAS_IF(avx512, l7, EDX, 23, "avx512fp16");
  HAS_IF(amx, l7, EDX, 24, "amx-tile");
  HAS_IF(amx, l7, EDX, 25, "amx-int8");
  HAS_IF(avx, l71, EAX, 0, "sha512");
  HAS_IF(avx, l71, EAX, 4, "avxvnni");
  HAS_IF(avx512, l71, EAX, 5, "avx512bf16");
  HAS_IF(amx, l71, EAX, 21, "amx-fp16");
  HAS_IF(avx, l71, EAX, 23, "avxifma");
  HAS_IF(avx, l71, EDX, 4, "avxvnniint8");
  HAS_IF(avx, l71, EDX, 5, "avxneconvert");
  HAS_IF(avx, l71, EDX, 10, "avxvnniint16");
  HAS(l71, EDX, 14, "prefetchi");
  HAS(e1, ECX, 0, "sahf");
  HAS(e1, ECX, 5, "lzcnt");
  HAS(e1, ECX, 6, "sse4a");
  HAS(e1, ECX, 8, "prfchw");
  HAS_IF(avx, e1, ECX, 11, "xop");
  HAS_IF(avx, e1, ECX, 16, "fma4");
  HAS(e1, ECX, 21, "tbm");
  HAS(e1, ECX, 29, "mwaitx");
  HAS(e1, EDX, 29, "64bit");
  HAS(e8, EBX, 0, "clzero");
  HAS(e8, EBX, 4, "rdpru");
  HAS(e8, EBX, 9, "wbnoinvd");
  HAS(ld1, EAX, 0, "xsaveopt");
  HAS(ld1, EAX, 1, "xsavec");
  HAS(ld1, EAX, 3, "xsaves");
  HAS(l14, EBX, 4, "ptwrite");
}

#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>

static void detect(void) {
  unsigned long caps = getauxval(AT_HWCAP), caps2 = getauxval(AT_HWCAP2);
#define CAP(word, bit, name) add(name, ((word) >> (bit)) & 1)
  CAP(caps, 0, "fp-armv8");
  CAP(caps, 1, "neon");
  CAP(caps, 3, "aes");
  CAP(caps, 6, "sha2");
  CAP(caps, 7, "crc");
  CAP(caps, 8, "lse");
  CAP(caps, 10, "fullfp16");
  CAP(caps, 12, "rdm");
  CAP(caps, 13, "jsconv");
  CAP(caps, 14, "complxnum");
  CAP(caps, 15, "rcpc");
  CAP(caps, 17, "sha3");
  CAP(caps, 20, "dotprod");
  CAP(caps, 22, "sve");
  CAP(caps, 23, "fp16fml");
  CAP(caps2, 1, "sve2");
  CAP(caps2, 13, "i8mm");
  CAP(caps2, 14, "bf16");
  CAP(caps2, 23, "sme");
}

#elif defined(__arm__) && defined(__linux__)
#include <sys/auxv.h>

static void detect(void) {
  unsigned long caps = getauxval(AT_HWCAP), caps2 = getauxval(AT_HWCAP2);
  add("neon", (caps >> 12) & 1);
  add("vfp3", (caps >> 13) & 1);
  add("vfp4", (caps >> 16) & 1);
  add("hwdiv-arm", (caps >> 17) & 1);
  add("hwdiv", (caps >> 18) & 1);
  add("aes", caps2 & 1);
  add("sha2", (caps2 >> 3) & 1);
  add("crc", (caps2 >> 4) & 1);
}

#elif defined(__riscv) && defined(__linux__)
#include <sys/auxv.h>

/* A bit for each letter; what Linux needs is there, and what is a part of something is with it. */
static void detect(void) {
  static const struct {
    const char* name;
    char letter;
  } names[] = {{"i", 'i'},     {"m", 'm'},      {"a", 'a'},     {"f", 'f'},   {"d", 'd'},   {"c", 'c'},        {"v", 'v'},
               {"zmmul", 'm'}, {"zaamo", 'a'}, {"zalrsc", 'a'}, {"zca", 'c'}, {"zcd", 'c'}, {"zicsr", 'i'}, {"zifencei", 'i'}};
  const unsigned long caps = getauxval(AT_HWCAP);
  for (size_t k = 0; k < sizeof names / sizeof names[0]; ++k) add(names[k].name, (caps >> (names[k].letter - 'a')) & 1);
  add("64bit", __riscv_xlen == 64);
}

#else
static void detect(void) { add("", false); }
#endif

static void init_features(void) {
  detect();
  size_t used = 0;
  for (const Feature* f = features; f->name != NULL; ++f) {
    if (f->present) {
      used += (size_t)snprintf(feature_list + used, sizeof feature_list - used, used == 0 ? "%s" : ",%s", f->name);
    }
  }
}

const char* TilewrightHostCpuFeatures(void) {
  pthread_once(&features_once, init_features);
  return feature_list;
}

static bool has_feature(const char* name, size_t size) {
  for (const Feature* f = features; f->name != NULL; ++f) {
    if (strlen(f->name) == size && memcmp(f->name, name, size) == 0) return f->present;
  }
  return false; /* a feature that this runtime cannot test may be absent */
}

/* Why the process gets no tiles, to follow a message; empty where the processor has none. */
static const char* why_no_tiles(char* reason, size_t size) {
  reason[0] = '\0';
  if (tiles_error == ENOSPC) {
    snprintf(reason, size,
             " (the processor has tiles; Linux refuses them to a process in which a thread's signal stack, set by "
             "sigaltstack, is too small for them: make it 16 KiB or more, or load the library first)");
  } else if (tiles_error != 0) {
    snprintf(reason, size, " (the processor has tiles; Linux refuses them: %s)", strerror(tiles_error));
  }
  return reason;
}

int TilewrightCheckCpuFeatures(const char* needed, const char* who) {
  pthread_once(&features_once, init_features);
  char* missing = calloc(1, strlen(needed) * 2 + 1);
  if (missing == NULL) return tw_out_of_memory(strlen(needed));
  for (const char* p = needed; *p != '\0';) {
    size_t size = strcspn(p, ",");
    const char* name = p;
    size_t n = size;
    if (n > 0 && *name == '+') {
      ++name;
      --n;
    }
    if (n > 0 && !has_feature(name, n)) {
      if (missing[0] != '\0') strcat(missing, ", ");
      strncat(missing, name, n);
    }
    p += size + (p[size] == ',');
  }
  int rc = 0;
  if (missing[0] != '\0') {
    char reason[256];
    rc = tw_fail("%s needs CPU features that this machine lacks: %s%s; compile it for this machine", who, missing,
                 strstr(missing, "amx-") != NULL ? why_no_tiles(reason, sizeof reason) : "");
  }
  free(missing);
  return rc;
}
