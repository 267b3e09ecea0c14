/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Programs and their files, which are TVM 0.8's:
 *
 *   u64 magic, the version "0.8.1"
 *   the functions' names, by index                                                   head, up to here
 *   the constants: a count, arrays, a vector of device types. Where a library holds many bytes of them, the count is
 *   ARRANGED, and they are as a factory's parameters, whose names are their numbers: they are used where they lie
 *   the packed functions' names; a map of maps: their attributes                     tail, from here on
 *   a count of functions, each: three strings (name, registers, instructions), names of parameters, their device types,
 *   then its instructions: vectors of a hash, the opcode and its fields */
#include "vm.h"

#include <errno.h>

static const uint64_t magic = 0xD225DE2F4214151Du;
static const char version[] = "0.8.1";
static const uint64_t ARRANGED = UINT64_MAX;

/* ---- reading ---- */
/* A vector of 64-bit numbers, where it lies in the stream; it is not aligned. */
static int number_vector(TilewrightStream* s, const char** out, size_t* count) {
  uint64_t n;
  if (tw_read_u64(s, &n) != 0) return -1;
  if (n > s->left / sizeof(int64_t)) return tw_fail("damaged bytecode: %llu numbers, and %zu bytes are left", (unsigned long long)n, s->left);
  *out = s->data;
  *count = (size_t)n;
  s->data += n * sizeof(int64_t);
  s->left -= (size_t)n * sizeof(int64_t);
  return 0;
}

static int read_numbers(TilewrightStream* s, int64_t** out, size_t expected, const char* what) {
  const char* data;
  size_t count;
  if (number_vector(s, &data, &count) != 0) return -1;
  if (count != expected) return tw_fail("damaged bytecode: %zu device types for %zu %s", count, expected, what);
  *out = malloc(count * sizeof(int64_t) + 1);
  if (*out == NULL) return tw_out_of_memory(count * sizeof(int64_t));
  memcpy(*out, data, count * sizeof(int64_t));
  return 0;
}

static int keep(const char* from, const char* to, char** out, size_t* size) {
  *size = (size_t)(to - from);
  *out = malloc(*size + 1);
  if (*out == NULL) return tw_out_of_memory(*size);
  memcpy(*out, from, *size);
  return 0;
}

static int read_head(TilewrightStream* s, VmProgram* p) {
  const char* start = s->data;
  uint64_t number;
  char* text;
  if (tw_read_u64(s, &number) != 0) return -1;
  if (number != magic) return tw_fail("this is no bytecode of the virtual machine");
  if (tw_read_string(s, &text, NULL) != 0) return -1;
  int rc = strcmp(text, version) == 0 ? 0 : tw_fail("bytecode of version %s; this machine runs version %s", text, version);
  free(text);
  char** names;
  if (rc != 0 || tw_read_strings(s, &names, &p->num_functions) != 0) return -1;
  p->functions = calloc(p->num_functions + 1, sizeof *p->functions);
  if (p->functions == NULL) {
    tw_free_strings(names, p->num_functions);
    p->num_functions = 0;
    return tw_out_of_memory(sizeof *p->functions);
  }
  for (size_t i = 0; i < p->num_functions; ++i) p->functions[i].name = names[i];
  free(names);
  return keep(start, s->data, &p->head, &p->head_size);
}

static int read_count(const char* text, const char* what, size_t limit, size_t* out) {
  char* end;
  errno = 0;
  long long value = strtoll(text, &end, 10);
  if (errno != 0 || end == text || *end != '\0' || value < 0 || (unsigned long long)value > limit) {
    return tw_fail("damaged bytecode: \"%s\" %s", text, what);
  }
  *out = (size_t)value;
  return 0;
}

static int new_constants(VmProgram* p, size_t count) {
  p->constants = calloc(count + 1, sizeof *p->constants);
  return p->constants == NULL ? tw_out_of_memory(count * sizeof *p->constants) : 0;
}

static int read_in_order(TilewrightStream* s, VmProgram* p, uint64_t count) {
  if (count > s->left / 40) return tw_fail("damaged bytecode: %llu constants", (unsigned long long)count);
  if (new_constants(p, (size_t)count) != 0) return -1;
  for (; p->num_constants < count; ++p->num_constants) {
    if (tw_read_array(s, &p->constants[p->num_constants]) != 0) return -1;
  }
  return 0;
}

static int read_arranged(TilewrightStream* s, VmProgram* p) {
  TwParams found;
  if (tw_read_named(s, &found) != 0) return -1;
  int rc = new_constants(p, found.count);
  if (rc == 0) p->num_constants = found.count;
  for (size_t i = 0, at; rc == 0 && i < found.count; ++i) {
    rc = read_count(found.names[i], "is the number of no constant", found.count - 1, &at);
    if (rc == 0 && p->constants[at] != NULL) rc = tw_fail("damaged bytecode: constant %zu is there twice", at);
    if (rc != 0) break;
    p->constants[at] = found.arrays[i];
    found.arrays[i] = NULL;
  }
  tw_free_params(&found);
  return rc;
}

static int read_constants(TilewrightStream* s, VmProgram* p) {
  uint64_t count;
  if (tw_read_u64(s, &count) != 0) return -1;
  if ((count == ARRANGED ? read_arranged(s, p) : read_in_order(s, p, count)) != 0) return -1;
  for (size_t i = 0; i < p->num_constants; ++i) p->constants[i]->read_only = true;
  return read_numbers(s, &p->constant_devices, p->num_constants, "constants");
}

static int skip_attributes(TilewrightStream* s) {
  uint64_t maps, pairs, index;
  if (tw_read_u64(s, &maps) != 0) return -1;
  for (uint64_t i = 0; i < maps; ++i) {
    if (tw_read_u64(s, &index) != 0 || tw_read_u64(s, &pairs) != 0) return -1;
    for (uint64_t k = 0; k < pairs; ++k) {
      char *key, *value;
      if (tw_read_string(s, &key, NULL) != 0) return -1;
      free(key);
      if (tw_read_string(s, &value, NULL) != 0) return -1;
      free(value);
    }
  }
  return 0;
}

static uint64_t hash_of(const int64_t* fields, size_t count) {
  uint64_t key = (uint64_t)fields[0];
  for (size_t i = 1; i < count; ++i) key ^= (uint64_t)fields[i] + 0x9e3779b9u + (key << 6) + (key >> 2);
  return key;
}

static int read_code(TilewrightStream* s, const VmProgram* p, VmFunction* f) {
  const TilewrightStream start = *s;
  const char* data;
  size_t count, total = 0;
  if (f->size > s->left / 24) return tw_fail("damaged bytecode: %zu instructions, and %zu bytes are left", f->size, s->left);
  for (size_t i = 0; i < f->size; ++i) {
    if (number_vector(s, &data, &count) != 0) return -1;
    if (count < 2) return tw_fail("damaged bytecode: function \"%s\", instruction %zu is of %zu numbers", f->name, i, count);
    total += count;
  }
  f->fields = malloc(total * sizeof(int64_t) + 1);
  f->code = calloc(f->size + 1, sizeof *f->code);
  if (f->fields == NULL || f->code == NULL) return tw_out_of_memory(total * sizeof(int64_t));
  *s = start;
  int64_t* fields = f->fields;
  for (size_t i = 0; i < f->size; ++i, fields += count) {
    if (number_vector(s, &data, &count) != 0) return -1;
    memcpy(fields, data, count * sizeof(int64_t));
    if ((uint64_t)fields[0] != hash_of(fields + 1, count - 1)) {
      return tw_fail("damaged bytecode: function \"%s\", instruction %zu has another hash than its fields", f->name, i);
    }
    if (vm_decode(p, f, i, fields + 1, count - 1, &f->code[i]) != 0) return -1;
  }
  return 0;
}

static VmFunction* function_named(VmProgram* p, const char* name) {
  for (size_t i = 0; i < p->num_functions; ++i) {
    if (strcmp(p->functions[i].name, name) == 0) return &p->functions[i];
  }
  return NULL;
}

/* The function's name, its registers and its instructions. */
static int read_header(VmProgram* p, char* const* info, size_t count, VmFunction** out) {
  enum { MOST_REGISTERS = 1 << 24 };
  size_t registers, size;
  if (count != 3) return tw_fail("damaged bytecode: a function of %zu strings", count);
  *out = function_named(p, info[0]);
  if (*out == NULL || (*out)->code != NULL) {
    return tw_fail("damaged bytecode: the function \"%s\" is %s", info[0], *out == NULL ? "not listed" : "there twice");
  }
  if (read_count(info[1], "registers", MOST_REGISTERS, &registers) != 0) return -1;
  if (read_count(info[2], "instructions", INT32_MAX - 1, &size) != 0) return -1;
  (*out)->num_registers = (int)registers;
  (*out)->size = size;
  return 0;
}

static int read_function(TilewrightStream* s, VmProgram* p) {
  char** info;
  size_t count;
  VmFunction* f;
  if (tw_read_strings(s, &info, &count) != 0) return -1;
  int rc = read_header(p, info, count, &f);
  tw_free_strings(info, count);
  if (rc != 0 || tw_read_strings(s, &f->params, &f->num_params) != 0) return -1;
  if (f->num_params > (size_t)f->num_registers) {
    return tw_fail("damaged bytecode: function \"%s\" has %zu parameters and %d registers", f->name, f->num_params, f->num_registers);
  }
  f->takes_room = calloc(f->num_params + 1, sizeof *f->takes_room);
  f->written = calloc(f->num_params + 1, sizeof *f->written);
  if (f->takes_room == NULL || f->written == NULL) return tw_out_of_memory(f->num_params);
  return read_numbers(s, &f->param_devices, f->num_params, "parameters") != 0 ? -1 : read_code(s, p, f);
}

static int read_tail(TilewrightStream* s, VmProgram* p) {
  const char* start = s->data;
  uint64_t count;
  if (tw_read_strings(s, &p->packed, &p->num_packed) != 0 || skip_attributes(s) != 0 || tw_read_u64(s, &count) != 0) return -1;
  if (count != p->num_functions) {
    return tw_fail("damaged bytecode: %llu functions and %zu names", (unsigned long long)count, p->num_functions);
  }
  for (uint64_t i = 0; i < count; ++i) {
    if (read_function(s, p) != 0) return -1;
  }
  return keep(start, s->data, &p->tail, &p->tail_size) != 0 ? -1 : vm_link(p);
}

int vm_read_program(TilewrightStream* s, VmProgram* p) {
  int rc = read_head(s, p);
  if (rc == 0) rc = read_constants(s, p);
  return rc == 0 ? read_tail(s, p) : rc;
}

int vm_make_program(const VmParts* parts, VmProgram* p) {
  TilewrightStream head = {.data = parts->head.data, .left = parts->head.size};
  TilewrightStream tail = {.data = parts->tail.data, .left = parts->tail.size};
  if (read_head(&head, p) != 0 || new_constants(p, parts->num_constants) != 0) return -1;
  p->constant_devices = malloc(parts->num_constants * sizeof(int64_t) + 1);
  if (p->constant_devices == NULL) return tw_out_of_memory(parts->num_constants * sizeof(int64_t));
  for (; p->num_constants < parts->num_constants; ++p->num_constants) {
    p->constants[p->num_constants] = tw_array_read_only(parts->constants[p->num_constants]);
    if (p->constants[p->num_constants] == NULL) return -1;
    p->constant_devices[p->num_constants] = parts->constant_devices[p->num_constants];
  }
  if (read_tail(&tail, p) != 0) return -1;
  return head.left + tail.left == 0 ? 0 : tw_fail("damaged bytecode: %zu bytes follow its end", head.left + tail.left);
}

static int write_arranged(TilewrightStream* s, const VmProgram* p) {
  enum { DIGITS = 24 };
  char* texts = malloc(p->num_constants * DIGITS);
  char** names = malloc(p->num_constants * sizeof *names);
  int rc = texts == NULL || names == NULL ? tw_out_of_memory(p->num_constants * DIGITS) : tw_write_u64(s, ARRANGED);
  for (size_t i = 0; rc == 0 && i < p->num_constants; ++i) {
    names[i] = texts + i * DIGITS;
    snprintf(names[i], DIGITS, "%zu", i);
  }
  const TwParams named = {.names = names, .arrays = p->constants, .count = p->num_constants};
  if (rc == 0) rc = tw_write_named(s, &named);
  free(names);
  free(texts);
  return rc;
}

static int write_constants(TilewrightStream* s, const VmProgram* p, bool to_library) {
  size_t total = 0, nbytes;
  for (size_t i = 0; i < p->num_constants; ++i) {
    const DLTensor* t = &p->constants[i]->tensor;
    if (tw_tensor_bytes(t->ndim, t->shape, t->dtype, &nbytes)) total += nbytes;
  }
  if (to_library && s->apart == NULL && total >= TW_INDEXED_BYTES) return write_arranged(s, p);
  int rc = tw_write_u64(s, p->num_constants);
  for (size_t i = 0; rc == 0 && i < p->num_constants; ++i) rc = tw_write_array(s, p->constants[i]);
  return rc;
}

int vm_write_program(TilewrightStream* s, const VmProgram* p, bool to_library) {
  if (TilewrightStreamWrite(s, p->head, p->head_size) != 0 || write_constants(s, p, to_library) != 0) return -1;
  if (tw_write_u64(s, p->num_constants) != 0) return -1;
  if (TilewrightStreamWrite(s, p->constant_devices, p->num_constants * sizeof(int64_t)) != 0) return -1;
  return TilewrightStreamWrite(s, p->tail, p->tail_size);
}

void vm_free_program(VmProgram* p) {
  for (size_t i = 0; i < p->num_functions; ++i) {
    VmFunction* f = &p->functions[i];
    free(f->name);
    tw_free_strings(f->params, f->num_params);
    free(f->param_devices);
    free(f->takes_room);
    free(f->written);
    free(f->code);
    free(f->fields);
  }
  free(p->functions);
  for (size_t i = 0; i < p->num_constants; ++i) tw_array_release(p->constants[i]);
  free(p->constants);
  free(p->constant_devices);
  tw_free_strings(p->packed, p->num_packed);
  free(p->head);
  free(p->tail);
}

int vm_find_function(const VmProgram* p, const char* name) {
  for (size_t i = 0; i < p->num_functions; ++i) {
    if (strcmp(p->functions[i].name, name) == 0) return (int)i;
  }
  return tw_fail("the executable has no function \"%s\"", name);
}
