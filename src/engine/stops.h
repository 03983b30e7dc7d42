/* Stop strings, looked for in texts that grow. */
#ifndef HEADRACE_ENGINE_STOPS_H
#define HEADRACE_ENGINE_STOPS_H

#include "base/mem.h"
#include "base/str.h"

/* Those of a request; read by all its choices. */
typedef struct hr_stops {
    const hr_str *strings; /* [n] borrowed, none is empty */
    uint32_t **links;      /* [n] of [length], arena: where a match goes on when it breaks */
    size_t n;
} hr_stops;
HR_MUST_USE hr_status hr_stops_init(hr_stops *s, hr_arena *arena, const hr_str *strings, size_t n);

/* Takes the next bytes of a text. matched [n], zero before the first: bytes of each string that the
 * text ends with. The index of the string met, -1 = none; *begin is then where it begins, counted
 * from the first of `bytes` (negative: before). Of several the one that begins first, and of those
 * the first listed. */
int64_t hr_stops_feed(const hr_stops *s, uint32_t *matched, hr_str bytes, int64_t *begin);
/* Bytes at the text's end that may still become a stop string. */
size_t hr_stops_held(const hr_stops *s, const uint32_t *matched);

#endif
