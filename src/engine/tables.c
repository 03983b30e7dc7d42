/* Small writes instead of rebuilt tables.
 *
 * Engine thread. A sequence owns one row of each table while it runs. The first time it samples,
 * its row is cleared and filled from its tokens; afterwards each step adds the one token that is
 * new. What a row holds is a function of the sequence's tokens alone, so a preempted sequence gets
 * the very same row again, and earlier output never turns into prompt. */
#include "engine/tables.h"

#include <string.h>

/* A new row: cleared, its mask written. */
static bool open_row(hr_seq *q, hr_table_writes *w, int64_t vocab)
{
    if (w->n_clear == HR_TABLE_ROWS || w->n_allowed == HR_TABLE_ROWS) return false;
    if (q->sampling.penalty_slot) w->count_clear[w->n_clear++] = q->sampling.penalty_slot;
    if (q->sampling.allowed_slot) {
        size_t words = (size_t)(vocab + 31) / 32;
        memcpy(w->allowed_rows + (size_t)w->n_allowed * words, q->sampling.allowed_mask,
               words * sizeof *w->allowed_rows);
        w->allowed_slots[w->n_allowed++] = q->sampling.allowed_slot;
    }
    q->n_counted = 0;
    return true;
}

bool hr_tables_collect(hr_seq *q, hr_table_writes *w, int64_t vocab)
{
    if (q->n_counted < 0 && !open_row(q, w, vocab)) return false;
    if (!q->sampling.penalty_slot) return true;
    for (; q->n_counted < q->n_tokens; q->n_counted++) {
        if (w->n_updates == HR_TABLE_UPDATES) return false;
        w->count_slots[w->n_updates] = q->sampling.penalty_slot;
        w->count_ids[w->n_updates] = q->tokens[q->n_counted];
        w->count_add[w->n_updates++] = q->n_counted < q->n_prompt ? -1 : 1;
    }
    return true;
}
