/* Sequences that wait to run, in the order in which they may. */
#ifndef HEADRACE_ENGINE_WAITING_H
#define HEADRACE_ENGINE_WAITING_H

#include "engine/seq.h"

typedef struct hr_waiting {
    hr_seq *first; /* the next to run; NULL = none */
    int64_t n;
} hr_waiting;

/* Smaller priority first, then the earlier request, then the smaller choice. */
bool hr_waiting_before(const hr_seq *a, const hr_seq *b);
void hr_waiting_add(hr_waiting *w, hr_seq *q);
void hr_waiting_remove(hr_waiting *w, hr_seq *q); /* any of them */

#endif
