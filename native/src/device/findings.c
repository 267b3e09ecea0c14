/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * What kernels on devices found wrong. Such a kernel cannot end a run: it clamps an index that is out of range and notes it
 * in a record in the device's memory. Whoever ran the kernels reads the records when all are launched. A check keeps its
 * record, so that recorded launches stay right. */
#include "device.h"

enum { CHUNK = 64 };

/* One for each row of coordinates, or for all indices. Threads that write at once write the same, but for the index. */
typedef struct {
  int64_t found, index, low, high;
} Record;

/* Records that are read with one copy. */
typedef struct TwFindingsChunk {
  DLDevice device;
  Record* there; /* [room] on the device */
  size_t used, room;
  struct TwFindingsChunk* next;
  Record here[]; /* [room] */
} Chunk;

typedef struct TwFindingsCheck {
  char* what;
  Chunk* chunk;
  size_t first, rows;
  struct TwFindingsCheck* next;
} Check;

static _Thread_local TwFindings* current;
static _Thread_local TwFindings alone; /* of a kernel that no executor runs */

static const DLDataType int64_type = {kDLInt, 64, 1};

static bool is_on(const Chunk* c, DLDevice device) {
  return c->device.device_type == device.device_type && c->device.device_id == device.device_id;
}

/* ---- records ---- */
static Chunk* new_chunk(TwFindings* f, DLDevice device, size_t rows) {
  const size_t room = rows < CHUNK ? CHUNK : rows;
  Chunk* c = calloc(1, sizeof *c + room * sizeof *c->here);
  if (c == NULL) {
    tw_out_of_memory(room * sizeof *c->here);
    return NULL;
  }
  *c = (Chunk){.device = device, .room = room, .next = f->chunks};
  c->there = tw_device_alloc(device, room * sizeof *c->there, TW_ALIGNMENT, int64_type, NULL);
  if (c->there != NULL && tw_device_zero(device, c->there, room * sizeof *c->there) == 0) return f->chunks = c;
  if (c->there != NULL) tw_device_free(device, c->there);
  free(c);
  return NULL;
}

static Chunk* chunk_with_room(TwFindings* f, DLDevice device, size_t rows) {
  for (Chunk* c = f->chunks; c != NULL; c = c->next) {
    if (is_on(c, device) && c->room - c->used >= rows) return c;
  }
  return new_chunk(f, device, rows);
}

static Check* new_check(TwFindings* f, const char* what, DLDevice device, size_t rows, Check** link) {
  Chunk* chunk = chunk_with_room(f, device, rows);
  Check* c = chunk == NULL ? NULL : calloc(1, sizeof *c);
  if (c == NULL || (c->what = tw_strdup(what)) == NULL) {
    if (chunk != NULL) tw_out_of_memory(sizeof *c + strlen(what));
    free(c);
    return NULL;
  }
  c->chunk = chunk;
  c->first = chunk->used;
  c->rows = rows;
  chunk->used += rows;
  return *link = c;
}

void* tw_findings_record(const char* what, DLDevice device, size_t rows) {
  TwFindings* f = current == NULL ? &alone : current;
  Check** link = &f->checks;
  for (; *link != NULL; link = &(*link)->next) {
    const Check* c = *link;
    if (c->rows == rows && is_on(c->chunk, device) && strcmp(c->what, what) == 0) break;
  }
  const Check* c = *link != NULL ? *link : new_check(f, what, device, rows, link);
  return c == NULL ? NULL : c->chunk->there + c->first;
}

/* ---- reading them ---- */
static int read_chunk(Chunk* c) {
  const TwPlace from = {c->there, 0, c->device}, to = {c->here, 0, {kDLCPU, 0}};
  if (tw_device_copy(&from, &to, c->used * sizeof *c->here, int64_type, NULL) != 0) return -1;
  bool found = false;
  for (size_t i = 0; i < c->used; ++i) found = found || c->here[i].found != 0;
  return found ? tw_device_zero(c->device, c->there, c->used * sizeof *c->there) : 0;
}

static const Record* first_found(const Check* c) {
  for (size_t i = 0; i < c->rows; ++i) {
    const Record* r = &c->chunk->here[c->first + i];
    if (r->found != 0) return r;
  }
  return NULL;
}

int tw_findings_read(TwFindings* f) {
  for (Chunk* c = f->chunks; c != NULL; c = c->next) {
    if (read_chunk(c) != 0) return -1;
  }
  for (const Check* c = f->checks; c != NULL; c = c->next) {
    const Record* r = first_found(c);
    if (r == NULL) continue;
    if (r->high < r->low) return tw_fail("%s %lld is out of range: there are no elements", c->what, (long long)r->index);
    return tw_fail("%s %lld is out of range: expected %lld to %lld", c->what, (long long)r->index, (long long)r->low,
                   (long long)r->high);
  }
  return 0;
}

/* ---- who runs the kernels ---- */
TwFindings* tw_findings_begin(TwFindings* f) {
  TwFindings* before = current;
  current = f;
  return before;
}

int tw_findings_end(TwFindings* before, int rc) {
  TwFindings* f = current;
  current = before;
  if (f->checks == NULL || f->held) return rc;
  if (rc == 0) return tw_findings_read(f);
  char* said = tw_strdup(TVMGetLastError());
  if (tw_findings_read(f) == 0 && said != NULL) tw_fail("%s", said); /* else it came of the wrong index */
  free(said);
  return rc;
}

int tw_findings_launched(void) {
  if (current != NULL) return 0;
  const int rc = tw_findings_read(&alone);
  tw_findings_free(&alone);
  return rc;
}

void tw_findings_free(TwFindings* f) {
  while (f->checks != NULL) {
    Check* c = f->checks;
    f->checks = c->next;
    free(c->what);
    free(c);
  }
  while (f->chunks != NULL) {
    Chunk* c = f->chunks;
    f->chunks = c->next;
    tw_device_free(c->device, c->there);
    free(c);
  }
}
