/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Element types: size, text form, and the shapes that go with them. */
#include "core.h"

size_t tw_type_bytes(DLDataType type) { return ((size_t)type.bits * type.lanes + 7) / 8; }

bool tw_same_type(DLDataType a, DLDataType b) { return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes; }

/* Floating-point types of 8 bits and fewer, a byte for each element, by DLPack's codes. */
static const struct {
  const char* name;
  uint8_t code, bits;
} small_floats[] = {{"float8_e4m3fnuz", 11, 8}, {"float8_e4m3fn", 10, 8},  {"float8_e5m2fnuz", 13, 8},
                    {"float8_e5m2", 12, 8},     {"float8_e8m0fnu", 14, 8}, {"float4_e2m1fn", 17, 4}};
enum { SMALL_FLOATS = sizeof small_floats / sizeof small_floats[0] };

static const char* small_float_name(uint8_t code) {
  for (size_t i = 0; i < SMALL_FLOATS; ++i) {
    if (small_floats[i].code == code) return small_floats[i].name;
  }
  return NULL;
}

/* Types that the user brings: the names of codes from CUSTOM_BEGIN on. An entry is written once, before it is used. */
enum { CUSTOM_BEGIN = 129, CUSTOM_NAME = 32 };
static char custom_names[256][CUSTOM_NAME];

int TilewrightRegisterDataType(const char* name, int code) {
  if (code < CUSTOM_BEGIN || code > 255) return tw_fail("type code %d of %s is not in %d..255", code, name, CUSTOM_BEGIN);
  if (name[0] == '\0' || strlen(name) >= CUSTOM_NAME) return tw_fail("\"%s\" is no name of a type", name);
  if (custom_names[code][0] != '\0' && strcmp(custom_names[code], name) != 0) {
    return tw_fail("type code %d is that of %s", code, custom_names[code]);
  }
  strcpy(custom_names[code], name);
  return 0;
}

/* "custom[name]bits", of a name that is registered. */
static bool parse_custom(const char* text, DLDataType* out) {
  for (int code = CUSTOM_BEGIN; code < 256; ++code) {
    size_t n = strlen(custom_names[code]);
    if (n == 0 || strncmp(text, "custom[", 7) != 0) continue;
    if (strncmp(text + 7, custom_names[code], n) != 0 || text[7 + n] != ']') continue;
    char* end;
    unsigned long bits = strtoul(text + 8 + n, &end, 10);
    if (bits == 0 || bits > 255 || *end != '\0') return false;
    *out = (DLDataType){(uint8_t)code, (uint8_t)bits, 1};
    return true;
  }
  return false;
}

char* tw_type_name(DLDataType type, char* buffer) {
  static const char* const names[] = {"int", "uint", "float", "handle", "bfloat", "complex"};
  if (type.code == kDLUInt && type.bits == 1 && type.lanes == 1) return strcpy(buffer, "bool");
  int size;
  if (type.code == kDLOpaqueHandle) {
    size = snprintf(buffer, 24, "handle");
  } else if (type.code < sizeof names / sizeof names[0]) {
    size = snprintf(buffer, 24, "%s%d", names[type.code], type.bits);
  } else if (small_float_name(type.code) != NULL) {
    size = snprintf(buffer, 24, "%s", small_float_name(type.code));
  } else if (custom_names[type.code][0] != '\0') {
    size = snprintf(buffer, 24, "custom[%.11s]%d", custom_names[type.code], type.bits);
  } else {
    size = snprintf(buffer, 24, "type%d_%d", type.code, type.bits);
  }
  if (type.lanes != 1) snprintf(buffer + size, 24 - (size_t)size, "x%d", type.lanes);
  return buffer;
}

int tw_parse_type(const char* text, DLDataType* out) {
  static const struct {
    const char* prefix;
    DLDataType type;
  } prefixes[] = {{"int", {kDLInt, 32, 1}},           {"uint", {kDLUInt, 32, 1}},      {"float", {kDLFloat, 32, 1}},
                  {"bfloat", {kDLBfloat, 16, 1}},     {"bool", {kDLUInt, 1, 1}},       {"complex", {kDLComplex, 64, 1}},
                  {"handle", {kDLOpaqueHandle, 64, 1}}};
  for (size_t i = 0; i < SMALL_FLOATS; ++i) {
    if (strcmp(text, small_floats[i].name) != 0) continue;
    *out = (DLDataType){small_floats[i].code, small_floats[i].bits, 1};
    return 0;
  }
  if (parse_custom(text, out)) return 0;
  for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; ++i) {
    size_t n = strlen(prefixes[i].prefix);
    if (strncmp(text, prefixes[i].prefix, n) != 0) continue;
    DLDataType type = prefixes[i].type;
    char* end = (char*)text + n;
    if (*end >= '0' && *end <= '9') {
      unsigned long bits = strtoul(end, &end, 10);
      if (bits == 0 || bits > 255) break;
      type.bits = (uint8_t)bits;
    }
    if (*end == 'x') {
      unsigned long lanes = strtoul(end + 1, &end, 10);
      if (lanes == 0 || lanes > 65535) break;
      type.lanes = (uint16_t)lanes;
    }
    if (*end != '\0') break;
    *out = type;
    return 0;
  }
  return tw_fail("unknown data type \"%s\"", text);
}

bool tw_tensor_bytes(int ndim, const int64_t* shape, DLDataType type, size_t* out) {
  size_t total = tw_type_bytes(type);
  bool empty = false;
  for (int i = 0; i < ndim; ++i) {
    if (shape[i] < 0) return false;
    if (shape[i] == 0) empty = true;
    if (shape[i] != 0 && total > (SIZE_MAX / 2) / (size_t)shape[i]) return false;
    if (shape[i] != 0) total *= (size_t)shape[i];
  }
  *out = empty ? 0 : total;
  return true;
}

bool tw_same_shape(int ndim, const int64_t* a, const int64_t* b) {
  for (int i = 0; i < ndim; ++i) {
    if (a[i] != b[i]) return false;
  }
  return true;
}

char* tw_shape_text(const DLTensor* t, char* buffer, size_t size) {
  size_t used = (size_t)snprintf(buffer, size, "(");
  for (int i = 0; i < t->ndim && used < size; ++i) {
    used += (size_t)snprintf(buffer + used, size - used, i == 0 ? "%lld" : ", %lld", (long long)t->shape[i]);
  }
  if (used < size) snprintf(buffer + used, size - used, t->ndim == 1 ? ",)" : ")");
  return buffer;
}

bool tw_is_compact(const DLTensor* t) {
  if (t->strides == NULL) return true;
  int64_t expected = 1;
  for (int i = t->ndim - 1; i >= 0; --i) {
    if (t->shape[i] == 0) return true;
    if (t->shape[i] != 1 && t->strides[i] != expected) return false;
    expected *= t->shape[i];
  }
  return true;
}
