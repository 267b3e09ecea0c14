/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * A server's folder: tvm.rpc.server.upload(name, bytes), download(name) and remove(name). The global function
 * tvm.rpc.server.workpath(name), which whoever makes the folder registers, says where it is. */
#include "rpc.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

/* Names stay in the folder: no absolute path, no "..". */
static bool stays_inside(const char* name) {
  if (name[0] == '\0' || name[0] == '/') return false;
  for (const char* part = name; part != NULL; part = strchr(part, '/')) {
    if (*part == '/') ++part;
    if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0')) return false;
  }
  return true;
}

/* The file's path, which lives until the thread's next call. */
static int path_of(TVMValue* args, int* codes, int n, const char* who, const char** out) {
  const char* name;
  TVMValue value;
  int code;
  if (tw_arg_str(args, codes, n, 0, who, &name) != 0) return -1;
  if (!stays_inside(name)) return tw_fail("%s: \"%s\" is not a name inside of the server's folder", who, name);
  TwFunc* f = tw_find_global("tvm.rpc.server.workpath");
  if (f == NULL) return tw_fail("%s: this server has no folder for files", who);
  int rc = TVMFuncCall(f, args, codes, 1, &value, &code);
  tw_func_release(f);
  if (rc == 0 && code != kTVMStr) rc = tw_fail("%s: tvm.rpc.server.workpath gave no text", who);
  if (rc == 0) *out = value.v_str;
  return rc;
}

static int upload(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  static const char who[] = "tvm.rpc.server.upload";
  const char* path;
  TVMByteArray bytes;
  (void)ret;
  (void)resource;
  if (tw_arg_bytes(args, codes, n, 1, who, &bytes) != 0 || path_of(args, codes, n, who, &path) != 0) return -1;
  FILE* file = fopen(path, "wb");
  if (file == NULL) return tw_fail("%s: cannot write %s: %s", who, path, strerror(errno));
  bool ok = bytes.size == 0 || fwrite(bytes.data, 1, bytes.size, file) == bytes.size;
  ok = fclose(file) == 0 && ok;
  return ok ? 0 : tw_fail("%s: cannot write %zu bytes to %s: %s", who, bytes.size, path, strerror(errno));
}

static int download(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  static const char who[] = "tvm.rpc.server.download";
  const char* path;
  struct stat info;
  (void)resource;
  if (path_of(args, codes, n, who, &path) != 0) return -1;
  FILE* file = fopen(path, "rb");
  if (file == NULL) return tw_fail("%s: cannot read %s: %s", who, path, strerror(errno));
  int rc = fstat(fileno(file), &info) == 0 ? 0 : tw_fail("%s: cannot read the file: %s", who, strerror(errno));
  size_t size = rc == 0 ? (size_t)info.st_size : 0;
  char* data = malloc(size + 1);
  if (rc == 0 && data == NULL) rc = tw_out_of_memory(size);
  if (rc == 0 && fread(data, 1, size, file) != size) rc = tw_fail("%s: the file could not be read to its end", who);
  fclose(file);
  if (rc == 0) rc = tw_return_bytes(ret, data, size);
  free(data);
  return rc;
}

static int remove_file(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  static const char who[] = "tvm.rpc.server.remove";
  const char* path;
  (void)ret;
  (void)resource;
  if (path_of(args, codes, n, who, &path) != 0) return -1;
  return remove(path) == 0 ? 0 : tw_fail("%s: cannot remove %s: %s", who, path, strerror(errno));
}

TW_GLOBAL_FUNCTIONS({"tvm.rpc.server.upload", upload}, {"tvm.rpc.server.download", download},
                    {"tvm.rpc.server.remove", remove_file})
