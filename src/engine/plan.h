/* A start without its model: what `headrace plan` tells. */
#ifndef HEADRACE_ENGINE_PLAN_H
#define HEADRACE_ENGINE_PLAN_H

#include "engine/bucket_list.h"
#include "engine/measure.h"

typedef struct hr_engine_plan {
    hr_memory memory;
    hr_ledger ledger;         /* owned: every program with its bucket and peak_bytes */
    const char *architecture; /* owned, like the model's other words, by the plan's arena */
    const char *activation, *rows, *kv_dtype;
    int64_t layers, hidden, vocab;
    hr_bucket_list tokens, requests;
    int64_t max_model_len, max_num_seqs, max_num_batched_tokens;
    int64_t blocks, block_size;
    size_t block_bytes;
    hr_arena arena;
} hr_engine_plan;

/* Opens the model, reads no weight, starts no thread. Fails as a start would, naming the flag to
 * change when the machine cannot hold it; `out` is filled as far as it came and is the caller's to
 * deinit either way. */
HR_MUST_USE hr_status hr_engine_plan_make(const headrace_options *o, hr_engine_plan *out);
void hr_engine_plan_deinit(hr_engine_plan *p);

#endif
