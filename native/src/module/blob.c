/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The module table that an exported library carries in __tvm_dev_mblob:
 *
 *   u64 number of entries, then each entry: its type key, then what its loader reads
 *     "_weights"      the name of the file, beside the library, that arrays of further entries are in
 *     "_lib"          nothing; stands for the library itself
 *     "_import_tree"  two vectors of u64: row pointers, and child indices into the other entries
 *     any other key   the payload that the loader of that key reads (loaders.c) */
#include "module.h"

typedef struct {
  TwModule** modules;
  size_t num_modules;
  uint64_t *rows, *children;
  size_t num_rows, num_children;
} Table;

static int read_u64_vector(TilewrightStream* s, uint64_t** out, size_t* count) {
  uint64_t n;
  if (tw_read_u64(s, &n) != 0) return -1;
  if (n > s->left / sizeof(uint64_t)) return tw_fail("the module table ends too early");
  uint64_t* v = malloc((size_t)n * sizeof(uint64_t) + 1);
  if (v == NULL) return tw_out_of_memory((size_t)n * sizeof(uint64_t));
  if (TilewrightStreamRead(s, v, (size_t)n * sizeof(uint64_t)) != 0) {
    free(v);
    return -1;
  }
  free(*out);
  *out = v;
  *count = (size_t)n;
  return 0;
}

static int open_weights(TilewrightStream* s, const char* path) {
  char* name;
  if (tw_read_string(s, &name, NULL) != 0) return -1;
  int rc = tw_open_weights(s, path, name);
  free(name);
  return rc;
}

static int load_entry(TilewrightStream* s, const char* key, const char* path, TwModule* lib, Table* t) {
  if (strcmp(key, "_weights") == 0) return open_weights(s, path);
  if (strcmp(key, "_import_tree") == 0) {
    if (read_u64_vector(s, &t->rows, &t->num_rows) != 0) return -1;
    return read_u64_vector(s, &t->children, &t->num_children);
  }
  TwModule* m = NULL;
  if (strcmp(key, "_lib") == 0) {
    if (lib == NULL) return tw_fail("the module table refers to a library, and none was given");
    m = tw_module_retain(lib);
  } else if (tw_load_binary(key, s, &m) != 0) {
    return -1;
  }
  t->modules[t->num_modules++] = m;
  return 0;
}

static int connect(Table* t, TwModule* lib, TwModule** out) {
  if (t->rows == NULL) {
    /* libraries from before the import tree: everything belongs to the library */
    for (size_t i = 0; i < t->num_modules; ++i) {
      if (t->modules[i] != lib && tw_module_import(lib, t->modules[i]) != 0) return -1;
    }
    *out = tw_module_retain(lib);
    return 0;
  }
  if (t->num_modules == 0 || t->num_rows != t->num_modules + 1) return tw_fail("damaged module table: import tree");
  for (size_t i = 0; i < t->num_modules; ++i) {
    if (t->rows[i] > t->rows[i + 1] || t->rows[i + 1] > t->num_children) {
      return tw_fail("damaged module table: import tree");
    }
    for (uint64_t j = t->rows[i]; j < t->rows[i + 1]; ++j) {
      if (t->children[j] >= t->num_modules) return tw_fail("damaged module table: import tree");
      if (tw_module_import(t->modules[i], t->modules[t->children[j]]) != 0) return -1;
    }
  }
  *out = tw_module_retain(t->modules[0]);
  return 0;
}

int tw_load_blob(const char* blob, size_t nbytes, TwMapping* mapping, const char* path, TwModule* lib, TwModule** out) {
  TilewrightStream s = {.data = blob, .left = nbytes, .mapping = mapping};
  Table t = {0};
  uint64_t count;
  if (tw_read_u64(&s, &count) != 0) return -1;
  if (count > nbytes / sizeof(uint64_t)) return tw_fail("damaged module table: %llu entries", (unsigned long long)count);
  t.modules = calloc((size_t)count + 1, sizeof(TwModule*));
  int rc = t.modules == NULL ? tw_out_of_memory((size_t)count * sizeof(TwModule*)) : 0;
  for (uint64_t i = 0; rc == 0 && i < count; ++i) {
    char* key;
    rc = tw_read_string(&s, &key, NULL);
    if (rc != 0) break;
    rc = load_entry(&s, key, path, lib, &t);
    free(key);
  }
  if (rc == 0) rc = connect(&t, lib, out);
  if (s.weights != NULL) tw_mapping_release(s.weights); /* arrays keep it */
  for (size_t i = 0; i < t.num_modules; ++i) tw_module_release(t.modules[i]);
  free(t.modules);
  free(t.rows);
  free(t.children);
  return rc;
}

int TilewrightModFromBlob(const char* blob, size_t nbytes, TVMModuleHandle lib, TVMModuleHandle* out) {
  uint64_t size;
  if (nbytes < sizeof size) return tw_fail("the module table ends too early");
  memcpy(&size, blob, sizeof size);
  if (size > nbytes - sizeof size) return tw_fail("the module table ends too early");
  TwModule* m;
  if (tw_load_blob(blob + sizeof size, (size_t)size, NULL, NULL, lib, &m) != 0) return -1;
  *out = m;
  return 0;
}
