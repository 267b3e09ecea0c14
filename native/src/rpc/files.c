/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * A server's folder: tvm.rpc.server.upload(name, bytes), download(name) and remove(name). The global function
 * tvm.rpc.server.workpath(name), which whoever makes the folder registers, says where it is. */
#include "rpc.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE ((size_t)256 << 10) /* between file and channel: a cache holds it */

static const char upload_name[] = "tvm.rpc.server.upload", download_name[] = "tvm.rpc.server.download";

/* Names stay in the folder: no absolute path, no "..". */
static bool stays_inside(const char* name) {
  if (name[0] == '\0' || name[0] == '/') return false;
  for (const char* part = name; part != NULL; part = strchr(part, '/')) {
    if (*part == '/') ++part;
    if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0')) return false;
  }
  return true;
}

/* The path of the file that the first argument names, which the caller frees. */
static int path_of(TVMValue* args, int* codes, int n, const char* who, char** out) {
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
  if (rc == 0 && (*out = tw_strdup(value.v_str)) == NULL) rc = tw_out_of_memory(strlen(value.v_str));
  return rc;
}

/* ---- upload ---- */
typedef struct {
  int fd;
  char* path;
} NewFile;

/* A file of the name that there was may be in use, as a library is: it stays as it is. */
static int begin_file(TVMValue* args, int* codes, int n, NewFile* out) {
  if (path_of(args, codes, n, upload_name, &out->path) != 0) return -1;
  unlink(out->path);
  out->fd = open(out->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (out->fd >= 0) return 0;
  tw_fail("%s: cannot write %s: %s", upload_name, out->path, strerror(errno));
  free(out->path);
  return -1;
}

static int write_piece(const NewFile* f, const char* data, size_t size) {
  while (size != 0) {
    ssize_t n = write(f->fd, data, size);
    if (n < 0 && errno != EINTR) return tw_fail("%s: cannot write %s: %s", upload_name, f->path, strerror(errno));
    data += n < 0 ? 0 : n;
    size -= n < 0 ? 0 : (size_t)n;
  }
  return 0;
}

/* What is not whole is removed. */
static int end_file(const NewFile* f, int rc) {
  if (close(f->fd) != 0 && rc == 0) rc = tw_fail("%s: cannot write %s: %s", upload_name, f->path, strerror(errno));
  if (rc != 0) unlink(f->path);
  free(f->path);
  return rc;
}

static int upload(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  TVMByteArray bytes;
  NewFile file;
  (void)ret;
  (void)resource;
  if (tw_arg_bytes(args, codes, n, 1, upload_name, &bytes) != 0 || begin_file(args, codes, n, &file) != 0) return -1;
  return end_file(&file, write_piece(&file, bytes.data, bytes.size));
}

int rpc_receive_file(RpcChannel* channel, TVMValue name, uint64_t size) {
  NewFile file;
  char* piece = malloc(PIECE);
  if (piece == NULL) return tw_out_of_memory(PIECE);
  int rc = begin_file(&name, &(int){kTVMStr}, 1, &file);
  if (rc == 0) {
    while (rc == 0 && size != 0) {
      const size_t part = size < PIECE ? (size_t)size : PIECE;
      rc = rpc_get(channel, piece, part);
      if (rc == 0) rc = write_piece(&file, piece, part);
      size -= part;
    }
    rc = end_file(&file, rc);
  }
  free(piece);
  return rc;
}

/* ---- download ---- */
static int open_file(TVMValue* args, int* codes, int n, int* fd, uint64_t* size) {
  char* path;
  struct stat info;
  if (path_of(args, codes, n, download_name, &path) != 0) return -1;
  *fd = open(path, O_RDONLY | O_CLOEXEC);
  int rc = *fd >= 0 && fstat(*fd, &info) == 0 ? 0 : tw_fail("%s: cannot read %s: %s", download_name, path, strerror(errno));
  if (rc == 0 && !S_ISREG(info.st_mode)) rc = tw_fail("%s: %s is not a file", download_name, path);
  if (rc == 0) *size = (uint64_t)info.st_size;
  else if (*fd >= 0) close(*fd);
  free(path);
  return rc;
}

int rpc_open_file(TVMValue name, int* fd, uint64_t* size) { return open_file(&name, &(int){kTVMStr}, 1, fd, size); }

static int read_piece(int fd, char* data, size_t size) {
  while (size != 0) {
    ssize_t n = read(fd, data, size);
    if (n == 0 || (n < 0 && errno != EINTR)) return tw_fail("%s: the file could not be read to its end", download_name);
    data += n < 0 ? 0 : n;
    size -= n < 0 ? 0 : (size_t)n;
  }
  return 0;
}

int rpc_put_file(RpcChannel* channel, int fd, uint64_t size) {
  char* piece = malloc(PIECE);
  int rc = piece == NULL ? tw_out_of_memory(PIECE) : 0;
  while (rc == 0 && size != 0) {
    const size_t part = size < PIECE ? (size_t)size : PIECE;
    rc = read_piece(fd, piece, part);
    if (rc == 0) rc = rpc_put(channel, piece, part);
    size -= part;
  }
  free(piece);
  return rc;
}

static int download(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  int fd;
  uint64_t size;
  (void)resource;
  if (open_file(args, codes, n, &fd, &size) != 0) return -1;
  char* data = size < SIZE_MAX ? malloc((size_t)size + 1) : NULL;
  int rc = data == NULL ? tw_out_of_memory((size_t)size) : read_piece(fd, data, (size_t)size);
  close(fd);
  if (rc == 0) rc = tw_return_bytes(ret, data, (size_t)size);
  free(data);
  return rc;
}

static int remove_file(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  static const char who[] = "tvm.rpc.server.remove";
  char* path;
  (void)ret;
  (void)resource;
  if (path_of(args, codes, n, who, &path) != 0) return -1;
  int rc = remove(path) == 0 ? 0 : tw_fail("%s: cannot remove %s: %s", who, path, strerror(errno));
  free(path);
  return rc;
}

RpcFileService rpc_file_service(const TwFunc* f) {
  return f == NULL ? RPC_NO_FILES : f->callback == upload ? RPC_UPLOAD : f->callback == download ? RPC_DOWNLOAD : RPC_NO_FILES;
}

TW_GLOBAL_FUNCTIONS({upload_name, upload}, {download_name, download}, {"tvm.rpc.server.remove", remove_file})
