/* The patterns that most vocabularies use, written by hand: a regular expression's answer at a
 * hundredth of its cost. */
#ifndef HEADRACE_TEXT_SCAN_H
#define HEADRACE_TEXT_SCAN_H

#include "text/charmap.h"

/* The end of the match that begins at byte `at` < text.n; valid UTF-8. There always is one, and it
 * is not empty: matches lie side by side. */
typedef size_t (*hr_scan_step)(const hr_char_map *map, hr_str text, size_t at);

/* NULL: the pattern is none of those known here, to the letter. */
hr_scan_step hr_scan_find(hr_str regex);
/* What the steps know of characters, into an empty map. */
HR_MUST_USE hr_status hr_scan_map(hr_char_map *out);

#endif
