/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Strings, aligned memory, and the string-keyed hash map. */
#include "system.h"

#include <time.h>

void tw_add_name(TwNames* names, const char* name) {
  static const char rest[] = ", ...";
  const char* comma = names->used == 0 ? "" : ", ";
  const size_t size = strlen(comma) + strlen(name), room = sizeof names->text - sizeof rest;
  if (names->used > room) return;
  if (size > room - names->used) {
    memcpy(names->text + names->used, rest + 2 - strlen(comma), sizeof rest - 2 + strlen(comma));
    names->used = sizeof names->text;
    return;
  }
  names->used += (size_t)sprintf(names->text + names->used, "%s%s", comma, name);
}

char* tw_strdup(const char* text) {
  size_t size = strlen(text) + 1;
  char* copy = malloc(size);
  if (copy != NULL) memcpy(copy, text, size);
  return copy;
}

void* tw_aligned_alloc(size_t nbytes, size_t alignment) {
  if (alignment < TW_ALIGNMENT) alignment = TW_ALIGNMENT;
  if (nbytes >= TW_HUGE_PAGE && alignment < TW_HUGE_PAGE) alignment = TW_HUGE_PAGE;
  void* p = NULL;
  /* zero bytes still give a distinct address, so that empty tensors have a valid pointer */
#ifdef _WIN32
  p = nbytes > SIZE_MAX - alignment ? NULL : _aligned_malloc(nbytes == 0 ? alignment : nbytes, alignment);
  if (p == NULL) return NULL;
#else
  if (nbytes > SIZE_MAX - alignment || posix_memalign(&p, alignment, nbytes == 0 ? alignment : nbytes) != 0) return NULL;
#endif
  if (nbytes >= TW_HUGE_PAGE) tw_advise_huge_pages(p, nbytes / TW_HUGE_PAGE * TW_HUGE_PAGE);
  return p;
}

void tw_aligned_free(void* memory) {
#ifdef _WIN32
  _aligned_free(memory);
#else
  free(memory);
#endif
}

static void (*take_message)(void* context, const char* text);
static void* message_context;

void TilewrightSetMessageCallback(void (*take)(void* context, const char* text), void* context) {
  take_message = take;
  message_context = context;
}

void tw_warn(const char* text) {
  if (take_message != NULL) {
    take_message(message_context, text);
  } else {
    fprintf(stderr, "tilewright: warning: %s\n", text);
  }
}

size_t tw_round_up(size_t nbytes, size_t unit) { return (nbytes + unit - 1) / unit * unit; }

void tw_advise_huge_pages(void* start, size_t nbytes) {
#ifdef MADV_HUGEPAGE
  madvise(start, nbytes, MADV_HUGEPAGE);
#else
  (void)start, (void)nbytes;
#endif
}

double tw_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double tw_thread_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* FNV-1a */
static size_t hash_of(const char* key) {
  uint64_t h = 1469598103934665603u;
  for (const unsigned char* p = (const unsigned char*)key; *p != 0; ++p) h = (h ^ *p) * 1099511628211u;
  return (size_t)(h ^ (h >> 32));
}

static struct TwMapSlot* find_slot(const TwMap* map, const char* key) {
  size_t mask = map->capacity - 1;
  for (size_t i = hash_of(key) & mask;; i = (i + 1) & mask) {
    struct TwMapSlot* slot = &map->slots[i];
    if (slot->key == NULL || strcmp(slot->key, key) == 0) return slot;
  }
}

void* tw_map_get(const TwMap* map, const char* key) {
  return map->count == 0 ? NULL : find_slot(map, key)->value;
}

static bool grow(TwMap* map) {
  TwMap bigger = {.capacity = map->capacity == 0 ? 16 : map->capacity * 2, .count = map->count};
  bigger.slots = calloc(bigger.capacity, sizeof(struct TwMapSlot));
  if (bigger.slots == NULL) return false;
  for (size_t i = 0; i < map->capacity; ++i) {
    if (map->slots[i].key != NULL) *find_slot(&bigger, map->slots[i].key) = map->slots[i];
  }
  free(map->slots);
  *map = bigger;
  return true;
}

bool tw_map_set(TwMap* map, const char* key, void* value) {
  if ((map->count + 1) * 2 > map->capacity && !grow(map)) return false;
  struct TwMapSlot* slot = find_slot(map, key);
  if (slot->key == NULL) {
    slot->key = tw_strdup(key);
    if (slot->key == NULL) return false;
    ++map->count;
  }
  slot->value = value;
  return true;
}

void* tw_map_remove(TwMap* map, const char* key) {
  if (map->count == 0) return NULL;
  struct TwMapSlot* slot = find_slot(map, key);
  if (slot->key == NULL) return NULL;
  void* value = slot->value;
  free(slot->key);
  slot->key = NULL;
  slot->value = NULL;
  --map->count;
  /* entries after the hole may have probed past it: put each of that run in its place again */
  size_t mask = map->capacity - 1;
  for (size_t i = ((size_t)(slot - map->slots) + 1) & mask; map->slots[i].key != NULL; i = (i + 1) & mask) {
    struct TwMapSlot moved = map->slots[i];
    map->slots[i].key = NULL;
    map->slots[i].value = NULL;
    *find_slot(map, moved.key) = moved;
  }
  return value;
}

void tw_map_clear(TwMap* map, void (*free_value)(void*)) {
  for (size_t i = 0; i < map->capacity; ++i) {
    if (map->slots[i].key == NULL) continue;
    free(map->slots[i].key);
    if (free_value != NULL) free_value(map->slots[i].value);
  }
  free(map->slots);
  *map = (TwMap){0};
}
