/* Filling the host arrays of a step.
 *
 * Engine thread; owns the arrays, allocated once for the largest buckets. Warm-up comes through
 * here with a dummy plan, so what is served and what was compiled cannot differ. Padding rows are
 * made safe as they are made: slot -1, length 0, the sampler's identity. A backend of static shapes
 * computes them. */
#include "engine/batch.h"

#include <assert.h>
#include <string.h>

hr_status hr_batch_init(hr_batch *b, const hr_batch_limits *l, const hr_sampler_options *sampler)
{
    *b = (hr_batch){ .limits = *l };
    hr_arena *a = &b->arena;
    size_t t = (size_t)l->tokens, n = (size_t)l->requests, r = (size_t)l->rows;
    size_t i32 = sizeof(int32_t), tables;
    if (!hr_mul_add(n, (size_t)l->table_width, 0, &tables))
        return hr_fail(HR_RESOURCE_EXHAUSTED, "block tables");
    b->ids = hr_arena_array(a, t, i32);
    b->positions = hr_arena_array(a, t * 3, i32);
    b->slots = hr_arena_array(a, t, i32);
    b->block_tables = hr_arena_array(a, tables, i32);
    b->query_starts = hr_arena_array(a, n + 1, i32);
    b->seq_lens = hr_arena_array(a, n, i32);
    b->rows = hr_arena_array(a, r, i32);
    b->targets = hr_arena_array(a, r, i32);
    hr_status st = HR_OK;
    if (!b->ids || !b->positions || !b->slots || !b->block_tables || !b->query_starts ||
        !b->seq_lens || !b->rows || !b->targets)
        st = hr_fail(HR_RESOURCE_EXHAUSTED, "host inputs of %zu tokens", t);
    if (!st) st = hr_sampling_inputs_create(sampler, l->rows, &b->sampling);
    if (st) hr_batch_deinit(b);
    return st;
}

void hr_batch_deinit(hr_batch *b)
{
    hr_sampling_inputs_destroy(b->sampling);
    hr_arena_deinit(&b->arena);
    *b = (hr_batch){ 0 };
}

/* Where position `p` of a sequence lies in the cache: block × block size + offset. */
static int32_t cache_slot(const hr_batch *b, const hr_seq *q, int64_t p)
{
    int64_t size = b->limits.block_size;
    return (int32_t)((int64_t)q->blocks.ids[p / size] * size + p % size);
}

static void add_tokens(hr_batch *b, const hr_step_item *item, int64_t bucket)
{
    int64_t at = b->n_tokens;
    for (int64_t i = 0; i < item->count; i++) {
        int64_t p = item->start + i;
        b->ids[at + i] = item->seq->tokens[p];
        b->slots[at + i] = cache_slot(b, item->seq, p);
        for (int64_t axis = 0; axis < 3; axis++) b->positions[axis * bucket + at + i] = (int32_t)p;
    }
    b->n_tokens += item->count;
}

static void add_request(hr_batch *b, const hr_step_item *item)
{
    int64_t i = b->n_requests++;
    const hr_block_list *blocks = &item->seq->blocks;
    int32_t *table = b->block_tables + i * b->limits.table_width;
    memcpy(table, blocks->ids, (size_t)blocks->n * sizeof *blocks->ids);
    if (b->limits.static_shapes)
        memset(table + blocks->n, 0,
               (size_t)(b->limits.table_width - blocks->n) * sizeof *blocks->ids);
    b->query_starts[i + 1] = (int32_t)b->n_tokens;
    b->seq_lens[i] = (int32_t)(item->start + item->count);
}

/* Row j draws what follows the newest token and j drafts, as if they were all there were. */
static void add_rows(hr_batch *b, const hr_step_item *item)
{
    const hr_seq *q = item->seq;
    for (int64_t j = 0; j <= item->drafts; j++) {
        b->rows[b->n_rows] = (int32_t)(b->n_tokens - 1 - item->drafts + j);
        hr_sampling_inputs_set_row(b->sampling, b->n_rows++, &q->sampling, q->tokens, q->n_prompt,
                                   q->n_tokens + j);
    }
}

static void pad_tokens(hr_batch *b, int64_t bucket)
{
    for (int64_t t = b->n_tokens; t < bucket; t++) {
        b->ids[t] = 0;
        b->slots[t] = -1;
        for (int64_t axis = 0; axis < 3; axis++) b->positions[axis * bucket + t] = 0;
    }
    for (int64_t i = b->n_requests; i < b->limits.requests; i++) {
        b->query_starts[i + 1] = (int32_t)b->n_tokens;
        b->seq_lens[i] = 0;
    }
    int64_t unused = b->limits.requests - b->n_requests, width = b->limits.table_width;
    if (b->limits.static_shapes)
        memset(b->block_tables + b->n_requests * width, 0,
               (size_t)(unused * width) * sizeof *b->block_tables);
}

void hr_batch_build(hr_batch *b, const hr_step_plan *plan, int64_t token_bucket,
                    int64_t request_bucket)
{
    assert(plan->n_tokens <= token_bucket && token_bucket <= b->limits.tokens);
    assert(plan->n_rows <= request_bucket && request_bucket <= b->limits.rows);
    b->n_tokens = b->n_requests = b->n_rows = 0;
    b->query_starts[0] = 0;
    hr_sampling_inputs_clear(b->sampling, 0);
    for (int64_t i = 0; i < plan->n_items; i++) {
        const hr_step_item *item = &plan->items[i];
        add_tokens(b, item, token_bucket);
        add_request(b, item);
        if (item->samples) add_rows(b, item);
    }
    pad_tokens(b, token_bucket);
    for (int64_t r = b->n_rows; r < request_bucket; r++) b->rows[r] = 0;
}

void hr_batch_build_prompt(hr_batch *b, const hr_step_plan *plan, int64_t item, int64_t from,
                           int64_t n)
{
    const hr_step_item *it = &plan->items[item];
    const hr_seq *q = it->seq;
    int64_t first_token = 0;
    for (int64_t i = 0; i < item; i++) first_token += plan->items[i].count;
    b->n_rows = n;
    hr_sampling_inputs_clear(b->sampling, 0);
    for (int64_t r = 0; r < n; r++) hr_sampling_inputs_set_prompt_row(b->sampling, r, &q->sampling);
    for (int64_t r = 0; r < b->limits.rows; r++) {
        bool live = r < n;
        b->rows[r] = live ? (int32_t)(first_token + from + r - it->start) : 0;
        b->targets[r] = live ? q->tokens[from + r + 1] : 0;
    }
}

bool hr_batch_input(const hr_batch *b, const char *name, hr_host_input *out)
{
    const struct {
        const char *name;
        hr_host_input input;
    } own[] = {
        { "ids", { b->ids, HR_EXTENT_TOKENS, 0 } },
        { "positions", { b->positions, HR_EXTENT_ALL, 0 } },
        { "slots", { b->slots, HR_EXTENT_TOKENS, 0 } },
        { "block_tables", { b->block_tables, HR_EXTENT_REQUESTS, 0 } },
        { "query_starts", { b->query_starts, HR_EXTENT_ALL, 0 } },
        { "seq_lens", { b->seq_lens, HR_EXTENT_ALL, 0 } },
        { "rows", { b->rows, HR_EXTENT_ROWS, 0 } },
        { "targets", { b->targets, HR_EXTENT_ROWS, 0 } },
    };
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        if (strcmp(own[i].name, name)) continue;
        *out = own[i].input;
        return true;
    }
    int index = hr_sampling_inputs_index(name);
    *out = (hr_host_input){ .extent = HR_EXTENT_SAMPLING, .sampling = index };
    if (index >= 0) out->data = hr_sampling_inputs_at(b->sampling, index, 0).data;
    return index >= 0;
}
