/* headrace.h: the embedding API over the engine's door.
 *
 * Runs on the embedder's threads. Thin on purpose: requests and events are the engine's own, so
 * all that happens here is defaults, one event held until the next poll, and plain copies. */
#include <string.h>

#include "base/log.h"
#include "base/utf8.h"
#include "engine/engine_int.h"

void headrace_options_init(headrace_options *o)
{
    *o = (headrace_options){ .size = sizeof *o,
                             .max_logprobs = 20,
                             .max_num_seqs = 256,
                             .max_num_batched_tokens = 2048,
                             .block_size = 16,
                             .compile_cache_bytes = (int64_t)4 << 30,
                             .seed = -1,
                             .use_generation_config = 1,
                             .enable_prefix_caching = 1 };
}

int headrace_engine_create(const headrace_options *o, headrace_engine **out)
{
    return (int)hr_engine_create(o, out);
}

void headrace_engine_destroy(headrace_engine *e)
{
    if (e) hr_engine_event_destroy(e->polled);
    hr_engine_destroy(e);
}

void headrace_sampling_init(const headrace_engine *e, headrace_sampling *s)
{
    *s = (headrace_sampling){ .size = sizeof *s,
                              .n = 1,
                              .temperature = 1,
                              .top_p = 1,
                              .repetition_penalty = 1,
                              .seed = -1,
                              .max_tokens = -1,
                              .skip_special_tokens = 1,
                              .logprobs = -1,
                              .prompt_logprobs = -1 };
    if (!e) return;
    if (e->sampler == HR_SAMPLER_GREEDY) s->temperature = 0;
    const hr_generation_defaults *d = &hr_model_config(e->model)->generation;
    if (d->has_temperature) s->temperature = d->temperature;
    if (d->has_top_p) s->top_p = d->top_p;
    if (d->has_top_k) s->top_k = d->top_k;
    if (d->has_min_p) s->min_p = d->min_p;
    if (d->has_repetition_penalty) s->repetition_penalty = d->repetition_penalty;
}

void headrace_request_init(headrace_request *r)
{
    *r = (headrace_request){ .size = sizeof *r,
                             .add_special_tokens = -1,
                             .add_generation_prompt = 1 };
}

int headrace_submit(headrace_engine *e, const headrace_request *r, uint64_t *id)
{
    *id = 0;
    if (r->size != sizeof *r || (r->sampling && r->sampling->size != sizeof *r->sampling))
        return (int)hr_fail(HR_INVALID_ARGUMENT, "request: call the init functions first");
    hr_request *copy;
    hr_status st = hr_request_create(e, r, &copy);
    return (int)(st ? st : hr_engine_submit(e, copy, id));
}

int headrace_cancel(headrace_engine *e, uint64_t id)
{
    return (int)hr_engine_cancel(e, id);
}

int headrace_poll(headrace_engine *e, headrace_event *out, int timeout_ms)
{
    hr_engine_event_destroy(e->polled);
    e->polled = hr_engine_poll(e, timeout_ms);
    if (!e->polled) return (int)hr_fail(HR_DEADLINE_EXCEEDED, "no event within %d ms", timeout_ms);
    *out = e->polled->event;
    return HEADRACE_OK;
}

int headrace_model_hash(const headrace_engine *e, char out[65])
{
    return (int)hr_model_hash(e->model, out);
}

int headrace_wake_fd(const headrace_engine *e)
{
    return e->wake_fd;
}

void headrace_info_get(const headrace_engine *e, headrace_info *out)
{
    const hr_build_options *b = &e->shapes.build;
    const hr_engine_stats *s = &e->stats;
    *out = (headrace_info){
        .size = sizeof *out,
        .model_name = e->options.model,
        .max_model_len = e->max_model_len,
        .vocab_size = e->shapes.sampler.vocab,
        .max_num_seqs = e->options.max_num_seqs,
        .max_num_batched_tokens = e->options.max_num_batched_tokens,
        .kv_blocks = b->blocks,
        .block_size = b->block_size,
        .programs = (int64_t)e->ledger.n,
        .programs_cached = (int64_t)hr_ledger_cached(&e->ledger),
        .load_s = e->load_s,
        .compile_s = e->ledger.total_s,
        .weight_bytes = e->weight_bytes,
        .weight_bytes_cached = e->weights_cached,
        .kv_bytes = hr_engine_block_bytes(e) * (size_t)b->blocks,
        .peak_bytes = hr_ledger_peak(&e->ledger),
        .buffer_bytes = e->buffer_bytes,
        .code_bytes = hr_ledger_code(&e->ledger),
        .device_bytes_in_use = e->device_memory.in_use,
        .device_bytes_limit = e->device_memory.limit,
        .late_compilations = hr_counter_get(&e->ledger.late),
        .steps = hr_counter_get(&s->steps),
        .preemptions = hr_counter_get(&s->preemptions),
        .draft_tokens = hr_counter_get(&s->draft_tokens),
        .accepted_tokens = hr_counter_get(&s->accepted_tokens),
        .prefill_s = (double)hr_counter_get(&s->prefill_ns) * 1e-9,
        .decode_s = (double)hr_counter_get(&s->decode_ns) * 1e-9,
        .prefill_tokens = hr_counter_get(&s->prefill_tokens),
        .decode_tokens = hr_counter_get(&s->decode_tokens),
        .eos_token_ids = e->eos,
        .n_eos_token_ids = e->n_eos,
        .compile_cache = e->compile_cache,
        .weights_file = e->weights_file,
        .numerics = e->numerics.p,
    };
}

/* A buffer's bytes as the caller's own, terminated. */
static char *give(hr_buf *b, size_t *n)
{
    *n = b->n;
    hr_buf_c(b);
    char *p = hr_buf_status(b) ? NULL : b->p;
    if (!p) hr_buf_deinit(b);
    return p;
}

char *headrace_manifest(const headrace_engine *e, int with_times)
{
    hr_buf out = { 0 };
    size_t n;
    hr_ledger_manifest(&e->ledger, hr_buf_str(&e->numerics), with_times, &out);
    return give(&out, &n);
}

void headrace_free(void *p)
{
    hr_free(p);
}

int headrace_tokenize(const headrace_engine *e, const char *text, size_t bytes,
                      int add_special_tokens, int64_t **ids, size_t *n)
{
    *ids = NULL;
    *n = 0;
    if (!e->tokenizer) return (int)hr_fail(HR_FAILED_PRECONDITION, "the model has no tokenizer");
    hr_tokenizer_scratch scratch = { 0 };
    hr_ids found = { 0 };
    hr_text_span span = { { text, bytes }, HR_SPAN_SPECIAL };
    hr_status st = hr_tokenizer_encode(
        e->tokenizer, &span, 1, add_special_tokens ? HR_ENCODE_ADD_SPECIAL : HR_ENCODE_DEFAULT,
        &scratch, &found);
    if (!st) *ids = hr_alloc_array0(found.n, sizeof **ids);
    if (!st && !*ids) st = hr_fail(HR_RESOURCE_EXHAUSTED, "token ids");
    for (size_t i = 0; !st && i < found.n; i++) (*ids)[i] = found.p[i];
    if (!st) *n = found.n;
    hr_ids_deinit(&found);
    hr_tokenizer_scratch_deinit(&scratch);
    return (int)st;
}

int headrace_detokenize(const headrace_engine *e, const int64_t *ids, size_t n,
                        int skip_special_tokens, char **text, size_t *bytes)
{
    *text = NULL;
    *bytes = 0;
    if (!e->tokenizer) return (int)hr_fail(HR_FAILED_PRECONDITION, "the model has no tokenizer");
    hr_buf out = { 0 };
    hr_detok d;
    hr_detok_init(&d, e->tokenizer,
                  skip_special_tokens ? HR_DECODE_SKIP_SPECIAL : HR_DECODE_DEFAULT);
    hr_status st = HR_OK;
    for (size_t i = 0; !st && i < n; i++) {
        if (ids[i] < 0 || ids[i] >= e->shapes.sampler.vocab)
            st = hr_fail(HR_INVALID_ARGUMENT, "token id %lld is not in [0, %lld)",
                         (long long)ids[i], (long long)e->shapes.sampler.vocab);
        else st = hr_detok_push(&d, (int32_t)ids[i], &out);
    }
    if (!st) st = hr_detok_flush(&d, &out);
    if (!st) *text = give(&out, bytes);
    if (st) hr_buf_deinit(&out);
    if (!st && !*text) st = hr_fail(HR_RESOURCE_EXHAUSTED, "text");
    return (int)st;
}

const char *headrace_message(void)
{
    return hr_message();
}

const char *headrace_version(void)
{
    return HR_VERSION;
}

const char *headrace_token_bytes(const headrace_engine *e, int64_t id, size_t *n)
{
    hr_str bytes = { "", 0 };
    bool named = e->tokenizer && id >= 0 && (uint64_t)id < hr_tokenizer_size(e->tokenizer);
    if (named && !hr_tokenizer_is_special(e->tokenizer, (int32_t)id))
        bytes = hr_tokenizer_token_bytes(e->tokenizer, (int32_t)id);
    *n = bytes.n;
    return bytes.p;
}
