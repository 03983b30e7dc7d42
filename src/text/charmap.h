/* A byte for every character, found in two steps: what its sets say of it. */
#ifndef HEADRACE_TEXT_CHARMAP_H
#define HEADRACE_TEXT_CHARMAP_H

#include "text/unicode.h"

#define HR_CHAR_PAGES ((HR_UNICODE_LAST + 1) / 256)

typedef struct hr_char_map {
    uint8_t *pages;           /* owned, [n_pages][256], all different */
    size_t n_pages, capacity; /* capacity: bytes */
    uint16_t page_of[HR_CHAR_PAGES];
} hr_char_map;

/* Characters from `lo` up to the next run's. */
typedef struct hr_char_run {
    uint32_t lo;
    uint8_t value;
} hr_char_run;

/* Into an empty map; runs [n] ascend, the first begins at 0. */
HR_MUST_USE hr_status hr_char_map_fill(hr_char_map *m, const hr_char_run *runs, size_t n);
/* Bit k of a character's byte: it is in sets[k], which is sorted; n ≤ 8. */
HR_MUST_USE hr_status hr_char_map_of_sets(hr_char_map *m, const hr_charset *sets, size_t n);
void hr_char_map_deinit(hr_char_map *m);

static inline const uint8_t *hr_char_map_ascii(const hr_char_map *m)
{
    return m->pages + (size_t)m->page_of[0] * 256;
}

static inline uint8_t hr_char_map_get(const hr_char_map *m, uint32_t c)
{
    return m->pages[(size_t)m->page_of[c >> 8] * 256 + (c & 255)];
}

#endif
