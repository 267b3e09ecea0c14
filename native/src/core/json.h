/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * A reader for JSON texts, as a tree. */
#ifndef TILEWRIGHT_JSON_H_
#define TILEWRIGHT_JSON_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT } JsonKind;

typedef struct Json {
  JsonKind kind;
  double number;      /* of a number or bool */
  char* text;         /* of a string, NUL-terminated (a NUL inside cuts it for C readers) */
  char* key;          /* when inside an object */
  struct Json* first; /* child of an array or object */
  struct Json* next;  /* sibling */
  size_t count;       /* number of children */
} Json;

/* NULL on failure, with the thread's error text set. Free with json_free. */
Json* json_parse(const char* text, size_t size);
void json_free(Json* root);
/* The member of an object, or NULL. */
const Json* json_member(const Json* object, const char* key);
/* False when value is not an integer of that range. */
bool json_int(const Json* value, int64_t least, int64_t most, int64_t* out);

#endif /* TILEWRIGHT_JSON_H_ */
