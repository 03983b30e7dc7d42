/* Planning: the start of an engine up to the point where it would read weights.
 *
 * Caller's thread. The same functions as a start resolve the options and size the cache, so that
 * what is printed and what will happen cannot differ. */
#include "engine/plan.h"

#include <string.h>

#include "engine/engine_int.h"

static const char *copy(hr_engine_plan *p, const char *text)
{
    const char *c = hr_arena_copy(&p->arena, text, strlen(text));
    return c ? c : "";
}

static void describe(const hr_engine *e, hr_engine_plan *p)
{
    const hr_config *c = hr_model_config(e->model);
    const hr_build_options *b = &e->shapes.build;
    p->architecture = copy(p, c->architecture);
    p->activation = hr_dtype_name(b->activation);
    p->rows = hr_engine_rows_text(e);
    p->kv_dtype = hr_dtype_name(b->kv_dtype);
    p->layers = c->layers;
    p->tokens = e->shapes.tokens;
    p->requests = e->shapes.requests;
    p->hidden = c->hidden;
    p->vocab = c->vocab;
    p->max_model_len = e->max_model_len;
    p->max_num_seqs = e->options.max_num_seqs;
    p->max_num_batched_tokens = e->options.max_num_batched_tokens;
    p->block_size = b->block_size;
    p->block_bytes = hr_engine_block_bytes(e);
}

hr_status hr_engine_plan_make(const headrace_options *o, hr_engine_plan *out)
{
    *out = (hr_engine_plan){ 0 };
    hr_engine *e = hr_new0(hr_engine);
    if (!e) return hr_fail(HR_RESOURCE_EXHAUSTED, "engine");
    e->wake_fd = -1;
    hr_status st = hr_engine_open(e, o);
    if (!st) describe(e, out);
    if (!st) st = hr_engine_measure(e, &out->ledger, &e->memory);
    if (!st) out->memory = e->memory;
    if (!st) st = hr_engine_size_cache(e);
    if (!st) {
        out->blocks = e->shapes.build.blocks;
        out->max_model_len = e->max_model_len;
    }
    char message[HR_MESSAGE_MAX];
    memcpy(message, hr_message(), sizeof message);
    hr_engine_destroy(e);
    return st ? hr_fail(st, "%s", message) : HR_OK;
}

void hr_engine_plan_deinit(hr_engine_plan *p)
{
    hr_ledger_deinit(&p->ledger);
    hr_arena_deinit(&p->arena);
    *p = (hr_engine_plan){ 0 };
}
