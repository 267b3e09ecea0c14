/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * JSON by RFC 8259. Nesting is bounded, and all nodes of a tree come from one list of blocks. */
#include "json.h"

#include "core.h"

#define MAX_DEPTH 64
#define BLOCK_BYTES 65536

typedef struct Block {
  struct Block* next;
  size_t used, size;
  _Alignas(16) char bytes[];
} Block;

typedef struct {
  const char *start, *at, *end;
  Block* blocks; /* newest first */
  int depth;
} Parser;

static void* allocate(Parser* p, size_t size) {
  size = (size + 15) / 16 * 16;
  if (p->blocks == NULL || p->blocks->size - p->blocks->used < size) {
    size_t bytes = size > BLOCK_BYTES ? size : BLOCK_BYTES;
    Block* b = malloc(sizeof(Block) + bytes);
    if (b == NULL) {
      tw_out_of_memory(bytes);
      return NULL;
    }
    *b = (Block){.next = p->blocks, .size = bytes};
    p->blocks = b;
  }
  void* out = p->blocks->bytes + p->blocks->used;
  p->blocks->used += size;
  memset(out, 0, size);
  return out;
}

static void free_blocks(Block* b) {
  while (b != NULL) {
    Block* next = b->next;
    free(b);
    b = next;
  }
}

static bool fail_at(const Parser* p, const char* what) {
  tw_fail("bad JSON at byte %zu: %s", (size_t)(p->at - p->start), what);
  return false;
}

static void skip_space(Parser* p) {
  while (p->at < p->end && (*p->at == ' ' || *p->at == '\n' || *p->at == '\r' || *p->at == '\t')) ++p->at;
}

static bool read_hex4(Parser* p, uint32_t* out) {
  uint32_t v = 0;
  if (p->end - p->at < 4) return fail_at(p, "the text ends inside \\u");
  for (int i = 0; i < 4; ++i) {
    char c = *p->at++;
    uint32_t digit;
    if (c >= '0' && c <= '9') {
      digit = (uint32_t)(c - '0');
    } else if ((c | 32) >= 'a' && (c | 32) <= 'f') {
      digit = (uint32_t)((c | 32) - 'a' + 10);
    } else {
      return fail_at(p, "bad \\u escape");
    }
    v = v << 4 | digit;
  }
  *out = v;
  return true;
}

static char* put_utf8(char* to, uint32_t c) {
  if (c < 0x80) {
    *to++ = (char)c;
  } else if (c < 0x800) {
    *to++ = (char)(0xc0 | c >> 6);
    *to++ = (char)(0x80 | (c & 63));
  } else if (c < 0x10000) {
    *to++ = (char)(0xe0 | c >> 12);
    *to++ = (char)(0x80 | (c >> 6 & 63));
    *to++ = (char)(0x80 | (c & 63));
  } else {
    *to++ = (char)(0xf0 | c >> 18);
    *to++ = (char)(0x80 | (c >> 12 & 63));
    *to++ = (char)(0x80 | (c >> 6 & 63));
    *to++ = (char)(0x80 | (c & 63));
  }
  return to;
}

static bool read_escape(Parser* p, char** to) {
  static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
  if (p->at == p->end) return fail_at(p, "the text ends inside a string");
  char c = *p->at++;
  if (c == 'u') {
    uint32_t high, low;
    if (!read_hex4(p, &high)) return false;
    if (high >= 0xd800 && high < 0xdc00) {
      if (p->end - p->at < 6 || p->at[0] != '\\' || p->at[1] != 'u') return fail_at(p, "half a surrogate pair");
      p->at += 2;
      if (!read_hex4(p, &low)) return false;
      if (low < 0xdc00 || low > 0xdfff) return fail_at(p, "half a surrogate pair");
      high = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
    }
    *to = put_utf8(*to, high);
    return true;
  }
  const char* found = c == '\0' ? NULL : strchr(from, c);
  if (found == NULL) return fail_at(p, "unknown escape in a string");
  *(*to)++ = into[found - from];
  return true;
}

static bool read_string(Parser* p, char** out) {
  if (p->at == p->end || *p->at != '"') return fail_at(p, "expected a string");
  const char* scan = ++p->at;
  while (scan < p->end && *scan != '"') scan += *scan == '\\' && p->end - scan > 1 ? 2 : 1;
  /* an escape never takes more room decoded than written */
  char* text = allocate(p, (size_t)(scan - p->at) + 1);
  if (text == NULL) return false;
  char* to = text;
  while (p->at < p->end && *p->at != '"') {
    if ((unsigned char)*p->at < 0x20) return fail_at(p, "control character in a string");
    if (*p->at != '\\') {
      *to++ = *p->at++;
    } else {
      ++p->at;
      if (!read_escape(p, &to)) return false;
    }
  }
  if (p->at == p->end) return fail_at(p, "the text ends inside a string");
  ++p->at;
  *to = '\0';
  *out = text;
  return true;
}

static bool is_digit(const Parser* p) { return p->at < p->end && *p->at >= '0' && *p->at <= '9'; }

static bool skip_digits(Parser* p) {
  if (!is_digit(p)) return fail_at(p, "expected a digit");
  while (is_digit(p)) ++p->at;
  return true;
}

static bool read_number(Parser* p, double* out) {
  const char* start = p->at;
  char buffer[64];
  if (*p->at == '-') ++p->at;
  if (!skip_digits(p)) return false;
  if (p->at < p->end && *p->at == '.') {
    ++p->at;
    if (!skip_digits(p)) return false;
  }
  if (p->at < p->end && (*p->at | 32) == 'e') {
    ++p->at;
    if (p->at < p->end && (*p->at == '+' || *p->at == '-')) ++p->at;
    if (!skip_digits(p)) return false;
  }
  size_t size = (size_t)(p->at - start);
  if (size >= sizeof buffer) return fail_at(p, "a number of too many digits");
  memcpy(buffer, start, size);
  buffer[size] = '\0';
  *out = strtod(buffer, NULL);
  return true;
}

static bool read_word(Parser* p, const char* word) {
  size_t n = strlen(word);
  if ((size_t)(p->end - p->at) < n || memcmp(p->at, word, n) != 0) return fail_at(p, "unexpected character");
  p->at += n;
  return true;
}

static Json* read_value(Parser* p);

/* The children of an array or object, up to and including the closing bracket. */
static bool read_children(Parser* p, Json* parent, char close) {
  Json** link = &parent->first;
  ++p->at;
  if (++p->depth > MAX_DEPTH) return fail_at(p, "nested too deeply");
  skip_space(p);
  if (p->at < p->end && *p->at == close) {
    ++p->at;
    --p->depth;
    return true;
  }
  for (;;) {
    char* key = NULL;
    if (parent->kind == JSON_OBJECT) {
      skip_space(p);
      if (!read_string(p, &key)) return false;
      skip_space(p);
      if (p->at == p->end || *p->at != ':') return fail_at(p, "expected ':'");
      ++p->at;
    }
    Json* child = read_value(p);
    if (child == NULL) return false;
    child->key = key;
    *link = child;
    link = &child->next;
    ++parent->count;
    skip_space(p);
    if (p->at == p->end) return fail_at(p, "the text ends too early");
    char c = *p->at++;
    if (c == close) break;
    if (c != ',') {
      --p->at;
      return fail_at(p, "expected ',' or a closing bracket");
    }
  }
  --p->depth;
  return true;
}

static Json* read_value(Parser* p) {
  Json* v = allocate(p, sizeof *v);
  if (v == NULL) return NULL;
  skip_space(p);
  if (p->at == p->end) {
    fail_at(p, "the text ends too early");
    return NULL;
  }
  bool ok;
  switch (*p->at) {
    case '{':
      v->kind = JSON_OBJECT;
      ok = read_children(p, v, '}');
      break;
    case '[':
      v->kind = JSON_ARRAY;
      ok = read_children(p, v, ']');
      break;
    case '"':
      v->kind = JSON_STRING;
      ok = read_string(p, &v->text);
      break;
    case 't':
      v->kind = JSON_BOOL;
      v->number = 1;
      ok = read_word(p, "true");
      break;
    case 'f':
      v->kind = JSON_BOOL;
      ok = read_word(p, "false");
      break;
    case 'n':
      ok = read_word(p, "null");
      break;
    default:
      v->kind = JSON_NUMBER;
      if (*p->at != '-' && !is_digit(p)) {
        fail_at(p, "unexpected character");
        return NULL;
      }
      ok = read_number(p, &v->number);
  }
  return ok ? v : NULL;
}

/* What json_parse returns points into this, so that json_free finds the blocks. */
typedef struct {
  Json root;
  Block* blocks;
} Tree;

Json* json_parse(const char* text, size_t size) {
  Parser p = {.start = text, .at = text, .end = text + size};
  Tree* tree = calloc(1, sizeof *tree);
  if (tree == NULL) {
    tw_out_of_memory(sizeof *tree);
    return NULL;
  }
  Json* root = read_value(&p);
  if (root != NULL) {
    skip_space(&p);
    if (p.at != p.end) {
      fail_at(&p, "more text after the value");
      root = NULL;
    }
  }
  if (root == NULL) {
    free_blocks(p.blocks);
    free(tree);
    return NULL;
  }
  tree->root = *root;
  tree->blocks = p.blocks;
  return &tree->root;
}

void json_free(Json* root) {
  if (root == NULL) return;
  Tree* tree = (Tree*)root;
  free_blocks(tree->blocks);
  free(tree);
}

const Json* json_member(const Json* object, const char* key) {
  if (object == NULL || object->kind != JSON_OBJECT) return NULL;
  for (const Json* m = object->first; m != NULL; m = m->next) {
    if (strcmp(m->key, key) == 0) return m;
  }
  return NULL;
}

bool json_int(const Json* value, int64_t least, int64_t most, int64_t* out) {
  const double exact = 9007199254740992.0; /* doubles hold every integer up to 2^53 */
  if (value == NULL || value->kind != JSON_NUMBER || value->number > exact || value->number < -exact) return false;
  int64_t v = (int64_t)value->number;
  if ((double)v != value->number || v < least || v > most) return false;
  *out = v;
  return true;
}
