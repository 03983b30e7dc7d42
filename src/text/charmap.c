/* Maps from characters to bytes, as pages of 256 characters.
 *
 * Filled while a tokenizer is loaded, read by every thread afterwards. Most pages lie wholly inside
 * one run and are known by its value alone, so a map over all of Unicode is made in microseconds.
 */
#include "text/charmap.h"

#define PAGE 256u

/* Keeps `page` unless an equal one is there. */
static hr_status add_page(hr_char_map *m, size_t at, const uint8_t page[PAGE])
{
    size_t i = 0;
    while (i < m->n_pages && memcmp(m->pages + i * PAGE, page, PAGE) != 0) i++;
    if (i == m->n_pages) {
        HR_TRY(hr_grow((void **)&m->pages, &m->capacity, (m->n_pages + 1) * PAGE, 1));
        memcpy(m->pages + i * PAGE, page, PAGE);
        m->n_pages++;
    }
    m->page_of[at] = (uint16_t)i;
    return HR_OK;
}

hr_status hr_char_map_fill(hr_char_map *m, const hr_char_run *runs, size_t n)
{
    uint16_t uniform[PAGE] = { 0 }; /* a value's page of nothing else, plus one */
    size_t r = 0;
    for (uint32_t at = 0; at < HR_CHAR_PAGES; at++) {
        uint32_t first = at * PAGE, next = first + PAGE;
        while (r + 1 < n && runs[r + 1].lo <= first) r++;
        bool whole = r + 1 == n || runs[r + 1].lo >= next;
        uint8_t page[PAGE], value = runs[r].value;
        if (whole && uniform[value]) {
            m->page_of[at] = (uint16_t)(uniform[value] - 1);
            continue;
        }
        size_t k = r;
        for (uint32_t i = 0; i < PAGE; i++) {
            while (k + 1 < n && runs[k + 1].lo <= first + i) k++;
            page[i] = runs[k].value;
        }
        HR_TRY(add_page(m, at, page));
        if (whole) uniform[value] = (uint16_t)(m->page_of[at] + 1);
    }
    return HR_OK;
}

/* Where a set that is at its range *r next begins or ends, behind `c`. */
static uint32_t next_bound(const hr_charset *set, size_t *r, uint32_t c, bool *inside)
{
    while (*r < set->n && set->ranges[*r].hi < c) ++*r;
    *inside = *r < set->n && set->ranges[*r].lo <= c;
    if (*r == set->n) return HR_UNICODE_LAST + 1;
    return *inside ? set->ranges[*r].hi + 1 : set->ranges[*r].lo;
}

hr_status hr_char_map_of_sets(hr_char_map *m, const hr_charset *sets, size_t n)
{
    hr_char_run *runs = NULL;
    size_t count = 0, capacity = 0, at[8] = { 0 };
    hr_status st = HR_OK;
    for (uint32_t c = 0, next; !st && c <= HR_UNICODE_LAST; c = next) {
        unsigned value = 0;
        next = HR_UNICODE_LAST + 1;
        for (size_t k = 0; k < n; k++) {
            bool inside;
            uint32_t bound = next_bound(&sets[k], &at[k], c, &inside);
            if (bound < next) next = bound;
            value |= (unsigned)inside << k;
        }
        st = hr_grow((void **)&runs, &capacity, count + 1, sizeof *runs);
        if (!st) runs[count++] = (hr_char_run){ c, (uint8_t)value };
    }
    if (!st) st = hr_char_map_fill(m, runs, count);
    hr_free(runs);
    return st;
}

void hr_char_map_deinit(hr_char_map *m)
{
    hr_free(m->pages);
    *m = (hr_char_map){ 0 };
}
