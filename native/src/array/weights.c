/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Files of weights beside libraries, which several libraries may share:
 *
 *   64 bytes of text, then for each tensor a record of 64 bytes (magic, size, checksum, zeros), its elements in row-major
 *   order, and zeros up to a multiple of 64.
 *
 * A library holds the place, the size and the checksum of its tensors. Tensors are added at the end alone, so what a
 * library holds stays true.
 *
 * The end is an index of all tensors before it: a record of 64 bytes, (place, size, checksum) of each by place, zeros up
 * to a multiple of 64, and the record again, which is found from the end. Who opens a library then touches no page
 * between weights, each of which the system reads from the disk with 2 MiB around it. Earlier indices stay where they are. */
#include "array.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <strings.h>

#include "../core/system.h"

enum { UNIT = TW_ALIGNMENT };
static const char head[UNIT] = "Tilewright weights 1\n";
static const char zeros[UNIT];
static const uint64_t record_magic = 0x7c1f5ad3e2964b0du, index_magic = 0x7c1f5ad3e2964b0eu;

typedef struct {
  uint64_t magic, size, checksum, reserved[5];
} Record;

/* A tensor in an index. */
typedef struct {
  uint64_t offset, size, checksum;
} Entry;

static uint64_t padding_of(uint64_t nbytes) { return (0 - nbytes) % UNIT; }

/* ---- checksums ---- */
enum { LANES = UNIT / sizeof(uint64_t) };
typedef struct {
  uint64_t lanes[LANES], size;
  char rest[UNIT]; /* the size % UNIT last bytes */
} Checksum;

/* A step maps a lane one to one, so that a word that changes always changes it. */
static uint64_t mix(uint64_t lane, uint64_t word) {
  lane = (lane ^ word) * 0x9e3779b97f4a7c15u;
  return lane << 29 | lane >> 35;
}

static void add_units(Checksum* c, const char* data, size_t count) {
  uint64_t words[LANES];
  for (size_t i = 0; i < count; ++i) {
    memcpy(words, data + i * UNIT, UNIT);
    for (int k = 0; k < LANES; ++k) c->lanes[k] = mix(c->lanes[k], words[k]);
  }
}

static int add_to_checksum(void* ctx, const void* data, size_t nbytes) {
  Checksum* c = ctx;
  const char* from = data;
  const size_t had = c->size % UNIT, missing = UNIT - had;
  c->size += nbytes;
  if (had != 0) {
    const size_t taken = nbytes < missing ? nbytes : missing;
    memcpy(c->rest + had, from, taken);
    if (taken < missing) return 0;
    add_units(c, c->rest, 1);
    from += taken;
    nbytes -= taken;
  }
  add_units(c, from, nbytes / UNIT);
  if (nbytes % UNIT != 0) memcpy(c->rest, from + nbytes / UNIT * UNIT, nbytes % UNIT);
  return 0;
}

static uint64_t checksum_of(Checksum* c) {
  const uint64_t size = c->size;
  if (size % UNIT != 0) add_to_checksum(c, zeros, UNIT - size % UNIT);
  uint64_t sum = size;
  for (int k = 0; k < LANES; ++k) sum = mix(sum, c->lanes[k] + (uint64_t)k);
  return mix(sum ^ sum >> 32, 0);
}

/* ---- reading ---- */
/* Finds the index at the end of a file; there is none in one that was cut. */
static void find_index(TwMapping* file) {
  Record first, last;
  if (file->length % UNIT != 0 || file->length < 3 * UNIT) return;
  memcpy(&last, file->start + file->length - UNIT, UNIT);
  const uint64_t room = file->length - 3 * UNIT;
  if (last.magic != index_magic || last.size > room || last.size + padding_of(last.size) > room) return;
  const size_t start = file->length - UNIT - (size_t)(last.size + padding_of(last.size));
  memcpy(&first, file->start + start - UNIT, UNIT);
  Checksum sum = {.size = 0};
  add_to_checksum(&sum, file->start + start, (size_t)last.size);
  if (memcmp(&first, &last, UNIT) != 0 || checksum_of(&sum) != last.checksum) return;
  file->index = start;
  file->indexed = (size_t)last.size / sizeof(Entry);
}

static TwMapping* map_weights(const char* path, const char* library) {
  const char* why = NULL;
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  struct stat info = {.st_size = 0};
  if (fd < 0 || fstat(fd, &info) != 0) why = strerror(errno);
  if (why == NULL && !S_ISREG(info.st_mode)) why = "it is no regular file";
  TwMapping* mapping = why == NULL && (uint64_t)info.st_size >= UNIT ? tw_map_data(fd, (size_t)info.st_size, path) : NULL;
  if (fd >= 0) close(fd);
  if (why != NULL) {
    tw_fail("cannot load %s: its weights are in the file %s: %s; put the file that was written with the library there "
            "(and upload it to an RPC server too)", library, path, why);
  } else if ((uint64_t)info.st_size < UNIT || (mapping != NULL && memcmp(mapping->start, head, UNIT) != 0)) {
    tw_fail("cannot load %s: %s is no file of weights that --weights writes", library, path);
    if (mapping != NULL) tw_mapping_release(mapping);
    mapping = NULL;
  }
  return mapping;
}

int tw_open_weights(TilewrightStream* s, const char* library, const char* name) {
  if (library == NULL) return tw_fail("the weights are in the file %s beside a library, and this code is in none", name);
  char path[2 * PATH_MAX];
  char* full = realpath(library, NULL);
  if (full == NULL) return tw_fail("cannot find the folder of %s: %s", library, strerror(errno));
  const size_t folder = name[0] == '/' ? 0 : (size_t)(strrchr(full, '/') - full) + 1;
  const int length = snprintf(path, sizeof path, "%.*s%s", (int)folder, full, name);
  free(full);
  if (length < 0 || (size_t)length >= sizeof path) return tw_fail("cannot open %s: %s", name, strerror(ENAMETOOLONG));
  if (s->weights != NULL) tw_mapping_release(s->weights);
  s->weights = map_weights(path, library);
  if (s->weights == NULL) return -1;
  find_index(s->weights);
  return 0;
}

/* The entry of a place; false where there is none. */
static bool entry_at(const TwMapping* file, uint64_t offset, Entry* out) {
  const char* entries = file->start + file->index;
  size_t low = 0, high = file->indexed;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    memcpy(out, entries + middle * sizeof *out, sizeof *out);
    if (out->offset == offset) return true;
    if (out->offset < offset) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return false;
}

/* What a file says of the tensor at a place; without an index, in the record before it. */
static Entry tensor_at(const TwMapping* file, uint64_t offset) {
  Entry found;
  Record record;
  if (entry_at(file, offset, &found)) return found;
  memcpy(&record, file->start + offset - UNIT, sizeof record);
  return (Entry){offset, record.magic == record_magic ? record.size : UINT64_MAX, record.checksum};
}

static int find(const TwMapping* file, uint64_t offset, uint64_t nbytes, uint64_t checksum, const char** out) {
  if (offset % UNIT != 0 || offset < 2 * UNIT) return tw_fail("damaged reference to the file of weights %s", file->name);
  if (offset > file->length || nbytes > file->length - offset) {
    return tw_fail("the file of weights %s is too short: it has %zu bytes, and the library uses %" PRIu64 " bytes from %" PRIu64
                   " on; it was not copied whole, or is another build's", file->name, file->length, nbytes, offset);
  }
  const Entry found = tensor_at(file, offset);
  if (found.size != nbytes || found.checksum != checksum) {
    return tw_fail("the file of weights %s is another build's: it does not have the library's tensor of %" PRIu64
                   " bytes at %" PRIu64, file->name, nbytes, offset);
  }
  *out = file->start + offset;
  return 0;
}

static int verify(const TwMapping* file, uint64_t offset, uint64_t nbytes, uint64_t checksum) {
  Checksum found = {.size = 0};
  add_to_checksum(&found, file->start + offset, (size_t)nbytes);
  if (checksum_of(&found) == checksum) return 0;
  return tw_fail("the file of weights %s is damaged: the %" PRIu64 " bytes at %" PRIu64 " have another checksum", file->name,
                 nbytes, offset);
}

/* Whether the environment asks for checksums of all that is loaded. */
static bool verifies(void) {
  static const char* const on[] = {"1", "true", "on", "yes"};
  const char* text = getenv("TILEWRIGHT_VERIFY_WEIGHTS");
  for (size_t i = 0; text != NULL && i < sizeof on / sizeof on[0]; ++i) {
    if (strcasecmp(text, on[i]) == 0) return true;
  }
  return false;
}

int tw_find_weight(const TwMapping* file, uint64_t offset, uint64_t nbytes, uint64_t checksum, const char** out) {
  if (find(file, offset, nbytes, checksum, out) != 0) return -1;
  return verifies() ? verify(file, offset, nbytes, checksum) : 0;
}

int TilewrightCheckWeights(const char* library, const char* name, const uint64_t* tensors, size_t count) {
  TilewrightStream s = {.left = 0};
  const char* data;
  if (tw_open_weights(&s, library, name) != 0) return -1;
  int rc = 0;
  for (const uint64_t* t = tensors; rc == 0 && t < tensors + 3 * count; t += 3) {
    rc = find(s.weights, t[0], t[1], t[2], &data);
    if (rc == 0) rc = verify(s.weights, t[0], t[1], t[2]);
  }
  tw_mapping_release(s.weights);
  return rc;
}

/* ---- writing ---- */
struct TwWeights {
  int old;       /* the file that is there already, or -1 */
  int added;     /* what comes behind it, at the places that it will have */
  uint64_t from; /* the old file's size, where the added begins */
  uint64_t end;
  Entry* tensors; /* of both, by place */
  size_t count, capacity;
  size_t listed; /* of them, in an index at the end */
  TilewrightSaving* saving;
};

static int read_at(int fd, void* data, size_t nbytes, uint64_t at) {
  for (size_t done = 0; done < nbytes;) {
    const ssize_t n = pread(fd, (char*)data + done, nbytes - done, (off_t)(at + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return tw_fail("cannot read the file of weights: %s", n == 0 ? "it ends too early" : strerror(errno));
    done += (size_t)n;
  }
  return 0;
}

static int append(void* ctx, const void* data, size_t nbytes) {
  struct TwWeights* w = ctx;
  for (size_t done = 0; done < nbytes;) {
    const size_t together = nbytes - done < TW_SAVED_TOGETHER ? nbytes - done : TW_SAVED_TOGETHER;
    const ssize_t n = pwrite(w->added, (const char*)data + done, together, (off_t)w->end);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return tw_fail("writing the file of weights failed: %s", strerror(errno));
    done += (size_t)n;
    w->end += (uint64_t)n;
    if (tw_saved(w->saving, (size_t)n) != 0) return -1;
  }
  return 0;
}

static int remember(struct TwWeights* w, uint64_t offset, uint64_t size, uint64_t checksum) {
  if (w->count == w->capacity) {
    const size_t capacity = 2 * w->capacity + 64;
    void* grown = realloc(w->tensors, capacity * sizeof *w->tensors);
    if (grown == NULL) return tw_out_of_memory(capacity * sizeof *w->tensors);
    w->tensors = grown;
    w->capacity = capacity;
  }
  w->tensors[w->count++] = (Entry){offset, size, checksum};
  return 0;
}

/* Lists the tensors between w->end and `size`, and passes over indices. */
static int list_tensors(struct TwWeights* w, int fd, uint64_t size, const char* path) {
  while (w->end < size) {
    Record r = {.magic = 0};
    const uint64_t offset = w->end + UNIT;
    if (offset <= size && read_at(fd, &r, sizeof r, w->end) != 0) return -1;
    const uint64_t behind = padding_of(r.size) + (r.magic == index_magic ? UNIT : 0);
    const bool known = r.magic == record_magic || r.magic == index_magic;
    if (!known || r.size > size - offset || size - offset - r.size < behind) {
      return tw_fail("%s is damaged at byte %" PRIu64 "; remove it to write a new one", path, w->end);
    }
    if (r.magic == record_magic && remember(w, offset, r.size, r.checksum) != 0) return -1;
    w->end = offset + r.size + behind;
    w->listed = r.magic == index_magic ? w->count : w->listed;
  }
  return 0;
}

static int open_old(struct TwWeights* w, const char* path) {
  char found[UNIT];
  struct stat info;
  w->old = open(path, O_RDONLY | O_CLOEXEC);
  if (w->old < 0 || fstat(w->old, &info) != 0) return tw_fail("cannot read %s: %s", path, strerror(errno));
  if (info.st_size < UNIT || read_at(w->old, found, UNIT, 0) != 0 || memcmp(found, head, UNIT) != 0) {
    return tw_fail("%s is no file of weights, and would be overwritten; name another, or remove it", path);
  }
  w->end = UNIT;
  w->from = (uint64_t)info.st_size;
  return list_tensors(w, w->old, w->from, path);
}

struct TwWeights* tw_weights_open(const char* old, const char* added, TilewrightSaving* saving) {
  struct TwWeights* w = calloc(1, sizeof *w);
  if (w == NULL) {
    tw_out_of_memory(sizeof *w);
    return NULL;
  }
  struct stat info;
  w->old = w->added = -1;
  w->saving = saving;
  int rc = old[0] == '\0' ? 0 : open_old(w, old);
  if (rc == 0) {
    w->added = open(added, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (w->added < 0 || fstat(w->added, &info) != 0) rc = tw_fail("cannot write %s: %s", added, strerror(errno));
  }
  if (rc == 0 && w->end == 0) {
    if (info.st_size == 0) rc = append(w, head, UNIT);
    w->end = UNIT;
  }
  if (rc == 0) rc = list_tensors(w, w->added, (uint64_t)info.st_size, added);
  if (rc == 0) return w;
  tw_weights_close(w);
  return NULL;
}

static int append_index(struct TwWeights* w) {
  const size_t nbytes = w->count * sizeof(Entry);
  Checksum sum = {.size = 0};
  add_to_checksum(&sum, w->tensors, nbytes);
  const Record r = {.magic = index_magic, .size = nbytes, .checksum = checksum_of(&sum)};
  if (append(w, &r, sizeof r) != 0 || append(w, w->tensors, nbytes) != 0) return -1;
  return append(w, zeros, padding_of(nbytes)) != 0 ? -1 : append(w, &r, sizeof r);
}

int tw_weights_close(struct TwWeights* w) {
  int rc = w->added >= 0 && w->listed < w->count ? append_index(w) : 0;
  if (w->old >= 0) close(w->old);
  if (w->added >= 0 && close(w->added) != 0) rc = tw_fail("writing the file of weights failed: %s", strerror(errno));
  free(w->tensors);
  free(w);
  return rc;
}

typedef struct {
  int fd;
  uint64_t at;
  bool differs;
} Comparison;

static int compare(void* ctx, const void* data, size_t nbytes) {
  enum { PIECE = 1 << 16 };
  Comparison* c = ctx;
  char* piece = malloc(PIECE);
  int rc = piece == NULL ? tw_out_of_memory(PIECE) : 0;
  for (size_t done = 0; rc == 0 && !c->differs && done < nbytes;) {
    const size_t n = nbytes - done < PIECE ? nbytes - done : PIECE;
    rc = read_at(c->fd, piece, n, c->at);
    if (rc == 0) c->differs = memcmp(piece, (const char*)data + done, n) != 0;
    done += n;
    c->at += n;
  }
  free(piece);
  return rc;
}

/* Finds a tensor of the same bytes; *offset is 0 where there is none. */
static int find_equal(const struct TwWeights* w, const TwArray* array, const Record* r, uint64_t* offset) {
  *offset = 0;
  for (size_t i = 0; i < w->count; ++i) {
    if (w->tensors[i].size != r->size || w->tensors[i].checksum != r->checksum) continue;
    const uint64_t at = w->tensors[i].offset;
    Comparison c = {at < w->from ? w->old : w->added, at, false};
    TilewrightStream s = {.sink = compare, .ctx = &c};
    if (tw_write_elements(&s, array, (size_t)r->size) != 0) return -1;
    if (c.differs) continue;
    *offset = at;
    return 0;
  }
  return 0;
}

int tw_weights_add(struct TwWeights* w, const TwArray* array, size_t nbytes, uint64_t* offset, uint64_t* checksum) {
  Checksum sum = {.size = 0};
  TilewrightStream counting = {.sink = add_to_checksum, .ctx = &sum}, adding = {.sink = append, .ctx = w};
  if (tw_write_elements(&counting, array, nbytes) != 0) return -1;
  const Record r = {.magic = record_magic, .size = nbytes, .checksum = checksum_of(&sum)};
  *checksum = r.checksum;
  if (find_equal(w, array, &r, offset) != 0) return -1;
  if (*offset != 0) return 0;
  *offset = w->end + UNIT;
  if (append(w, &r, sizeof r) != 0 || tw_write_elements(&adding, array, nbytes) != 0) return -1;
  return append(w, zeros, padding_of(nbytes)) != 0 ? -1 : remember(w, *offset, nbytes, r.checksum);
}
