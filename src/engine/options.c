/* From flags and a checkpoint to the shapes of everything.
 *
 * Runs on the creating thread before any other exists (the cache size on the engine thread, once
 * the backend is there). Every combination that cannot be honoured is refused here, by name. */
#include <ctype.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "engine/engine_int.h"

#define MIB ((size_t)1 << 20)

/* A dtype's name, or auto (NULL) for `otherwise`; int8 where `codes` says so. */
static hr_status choose_dtype(const char *flag, const char *name, hr_dtype otherwise, bool codes,
                              hr_dtype *out)
{
    *out = otherwise;
    if (!name || !strcmp(name, "auto")) return HR_OK;
    *out = HR_DTYPE_F32;
    if (!strcmp(name, "float32")) return HR_OK;
    *out = HR_DTYPE_BF16;
    if (!strcmp(name, "bfloat16")) return HR_OK;
    *out = HR_DTYPE_I8;
    if (codes && !strcmp(name, "int8")) return HR_OK;
    return hr_fail(HR_INVALID_ARGUMENT, "%s %s: it is auto, bfloat16%s float32", flag, name,
                   codes ? ", int8 or" : " or");
}

static hr_status resolve_dtype(hr_engine *e)
{
    const headrace_options *o = &e->options;
    hr_build_options *b = &e->shapes.build;
    bool blocks = hr_model_has_blocks(e->model), is_auto = !o->dtype || !strcmp(o->dtype, "auto");
    bool pjrt = e->device.kind == HR_DEVICE_PJRT;
    hr_dtype natural = pjrt && !blocks ? HR_DTYPE_BF16 : HR_DTYPE_F32;
    HR_TRY(choose_dtype("--dtype", o->dtype, natural, false, &b->activation));
    HR_TRY(choose_dtype("--kv-cache-dtype", o->kv_cache_dtype, b->activation, true, &b->kv_dtype));
    b->rows = is_auto && blocks ? HR_ROWS_INT8_32 : HR_ROWS_FLOAT;
    return HR_OK;
}

const char *hr_engine_rows_text(const hr_engine *e)
{
    if (hr_model_has_int8_rows(e->model)) return "int8 per row";
    return e->shapes.build.rows == HR_ROWS_INT8_32 ? "int8 per 32" : "float";
}

/* What only the native backend looks at is not taken and forgotten. */
static hr_status check_custom_call(const hr_engine *e)
{
    const char *target = e->options.attention_custom_call;
    if (!target) return HR_OK;
    if (e->device.kind != HR_DEVICE_PJRT)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "--attention-custom-call names a kernel of a PJRT plugin, "
                       "and the device is none");
    for (const char *p = target; *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr("_.$-", *p))
            return hr_fail(HR_INVALID_ARGUMENT,
                           "--attention-custom-call '%s': a target has letters, "
                           "digits and _ . $ -",
                           target);
    return *target ? HR_OK : hr_fail(HR_INVALID_ARGUMENT, "--attention-custom-call: no target");
}

/* Nowhere is as good as anywhere when there is no home. */
static hr_status resolve_compile_cache(hr_engine *e)
{
    hr_buf path = { 0 };
    if (e->device.kind == HR_DEVICE_REF || e->options.compile_cache) return HR_OK;
    if (!hr_cache_root(&path)) hr_buf_add_c(&path, "/headrace/compile");
    const char *text = hr_buf_c(&path);
    e->options.compile_cache = hr_arena_copy(&e->arena, text, strlen(text));
    hr_status st = hr_buf_status(&path);
    hr_buf_deinit(&path);
    if (!e->options.compile_cache) st = hr_fail(HR_RESOURCE_EXHAUSTED, "options");
    return st;
}

static hr_status check_device(const hr_engine *e)
{
    const headrace_options *o = &e->options;
    HR_TRY(check_custom_call(e));
    if (e->device.kind == HR_DEVICE_REF && o->compile_cache && *o->compile_cache)
        return hr_fail(HR_INVALID_ARGUMENT, "--compile-cache: the reference interpreter compiles "
                                            "nothing that could be kept");
    if (e->device.kind != HR_DEVICE_PJRT || (!o->isa && !o->threads)) return HR_OK;
    return hr_fail(HR_INVALID_ARGUMENT, "%s is the native backend's: a plugin chooses its own%s",
                   o->isa ? "--isa" : "--threads",
                   o->isa ? "" : " (XLA's CPU plugin reads PJRT_NPROC)");
}

static hr_status check_not_negative(const headrace_options *o)
{
    const struct {
        const char *flag;
        int64_t value;
    } sizes[] = {
        { "--max-model-len", o->max_model_len == -1 ? 0 : o->max_model_len },
        { "--long-prefill-token-threshold", o->long_prefill_token_threshold },
        { "--bucket-padding-gap", o->bucket_padding_gap },
        { "--kv-cache-memory-bytes", o->kv_cache_memory_bytes },
        { "--max-num-queued-reqs", o->max_num_queued_reqs },
        { "--max-num-queued-tokens", o->max_num_queued_tokens },
        { "--compile-cache-size", o->compile_cache_bytes },
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].value < 0)
            return hr_fail(HR_INVALID_ARGUMENT, "%s must not be negative: %lld", sizes[i].flag,
                           (long long)sizes[i].value);
    return HR_OK;
}

static hr_status resolve_lengths(hr_engine *e)
{
    headrace_options *o = &e->options;
    int64_t longest = hr_model_config(e->model)->max_positions;
    if (o->max_num_seqs < 1 || o->max_num_seqs > 65535)
        return hr_fail(HR_INVALID_ARGUMENT, "--max-num-seqs must be 1..65535, not %lld",
                       (long long)o->max_num_seqs);
    if (o->max_num_batched_tokens < 1 || o->max_num_batched_tokens > 1 << 20)
        return hr_fail(HR_INVALID_ARGUMENT, "--max-num-batched-tokens must be 1..1048576, not %lld",
                       (long long)o->max_num_batched_tokens);
    if (o->block_size < 1 || o->block_size > 256)
        return hr_fail(HR_INVALID_ARGUMENT, "--block-size must be 1..256, not %lld",
                       (long long)o->block_size);
    HR_TRY(check_not_negative(o));
    if (longest > 0 && o->max_model_len > longest)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "--max-model-len %lld is above the model's %lld positions; lower it",
                       (long long)o->max_model_len, (long long)longest);
    e->max_model_len = o->max_model_len > 0 ? o->max_model_len : longest;
    if (e->max_model_len < 2)
        return hr_fail(HR_INVALID_ARGUMENT, "--max-model-len must be at least 2, not %lld",
                       (long long)e->max_model_len);
    /* a step never holds more requests than tokens */
    if (o->max_num_seqs > o->max_num_batched_tokens) o->max_num_seqs = o->max_num_batched_tokens;
    e->shapes.build.block_size = o->block_size;
    e->shapes.build.table_width = (e->max_model_len + o->block_size - 1) / o->block_size;
    e->shapes.build.longest = e->max_model_len;
    return HR_OK;
}

static hr_status resolve_speculation(hr_engine *e)
{
    const headrace_options *o = &e->options;
    if (!o->speculative_config_json) return HR_OK;
    if (o->n_logits_processors)
        return hr_fail(
            HR_INVALID_ARGUMENT,
            "--speculative-config: a logits processor sees each token once, in order, so "
            "that nothing could be drafted: leave out --logits-processor or this");
    return hr_speculation_parse(hr_str_c(o->speculative_config_json), &e->shapes.speculation);
}

/* Most sampler rows of a step: a sequence's newest token and its drafts, each of them a token. */
static int64_t most_rows(const hr_engine *e)
{
    int64_t rows = e->options.max_num_seqs * (1 + e->shapes.speculation.tokens);
    int64_t tokens = e->options.max_num_batched_tokens;
    return rows < tokens ? rows : tokens;
}

static hr_status resolve_buckets(hr_engine *e)
{
    const headrace_options *o = &e->options;
    hr_shapes *s = &e->shapes;
    if (o->buckets_json) {
        HR_TRY(hr_buckets_parse(hr_str_c(o->buckets_json), o->max_num_batched_tokens, most_rows(e),
                                &s->tokens, &s->requests));
    } else {
        HR_TRY(hr_buckets_tokens(o->max_num_batched_tokens, o->bucket_padding_gap, &s->tokens));
        HR_TRY(hr_buckets_requests(most_rows(e), &s->requests));
    }
    int64_t most = hr_buckets_last(&s->requests), seqs = o->max_num_seqs > 8 ? o->max_num_seqs : 8;
    s->build.requests = s->speculation.tokens && seqs < most ? seqs : most;
    return HR_OK;
}

/* Requests start greedy then, and what a checkpoint's author likes to draw with was not read; what
 * the flag says must fit. */
static hr_status check_greedy(const hr_engine *e)
{
    const char *mode = e->options.logprobs_mode;
    headrace_sampling s;
    headrace_sampling_init(e, &s);
    if (e->options.n_logits_processors)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "--logits-processor %s: --sampler greedy has no bias and no mask that it "
                       "could act by",
                       e->options.logits_processors[0]);
    if (mode)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "--logprobs-mode %s: --sampler greedy computes no log-probabilities", mode);
    if (s.temperature > 0 && s.top_k != 1)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "--override-generation-config: temperature %g draws tokens, and --sampler "
                       "greedy only takes the likeliest",
                       s.temperature);
    if (s.repetition_penalty == 1) return HR_OK;
    return hr_fail(HR_INVALID_ARGUMENT,
                   "--override-generation-config: repetition_penalty %g is nothing that --sampler "
                   "greedy applies",
                   s.repetition_penalty);
}

static hr_status resolve_sampler(hr_engine *e)
{
    const headrace_options *o = &e->options;
    hr_logprobs_mode mode = HR_LOGPROBS_RAW;
    if (o->logprobs_mode) HR_TRY(hr_logprobs_mode_parse(hr_str_c(o->logprobs_mode), &mode));
    if (o->max_logprobs < 0 || o->max_logprobs > 1024)
        return hr_fail(HR_INVALID_ARGUMENT, "--max-logprobs must be 0..1024, not %d",
                       o->max_logprobs);
    /* ids past the tokenizer's last are padding of the checkpoint's matrices */
    int64_t vocab = hr_model_config(e->model)->vocab;
    int64_t used = e->tokenizer ? (int64_t)hr_tokenizer_size(e->tokenizer) : vocab;
    e->shapes.sampler = (hr_sampler_options){ .kind = e->sampler,
                                              .vocab = vocab,
                                              .used_vocab = used < vocab ? used : vocab,
                                              .slots = o->max_num_seqs + 1,
                                              .max_logprobs = o->max_logprobs,
                                              .mode = mode,
                                              .drafts = e->shapes.speculation.tokens > 0 };
    return e->sampler == HR_SAMPLER_GREEDY ? check_greedy(e) : HR_OK;
}

static hr_status resolve_eos(hr_engine *e)
{
    const hr_config *c = hr_model_config(e->model);
    e->eos = hr_arena_array(&e->arena, c->n_eos, sizeof *e->eos);
    if (!e->eos) return hr_fail(HR_RESOURCE_EXHAUSTED, "EOS ids");
    for (size_t i = 0; i < c->n_eos; i++)
        if (c->eos[i] >= 0 && c->eos[i] < c->vocab) e->eos[e->n_eos++] = c->eos[i];
    return HR_OK;
}

static hr_status resolve_policy(hr_engine *e)
{
    const char *policy = e->options.scheduling_policy ? e->options.scheduling_policy : "fcfs";
    if (!strcmp(policy, "fcfs")) e->policy = HR_POLICY_FCFS;
    else if (!strcmp(policy, "priority")) e->policy = HR_POLICY_PRIORITY;
    else
        return hr_fail(HR_INVALID_ARGUMENT, "--scheduling-policy %s: it is fcfs or priority",
                       policy);
    return HR_OK;
}

hr_status hr_engine_resolve(hr_engine *e)
{
    const headrace_options *o = &e->options;
    if (o->enforce_eager && o->check_recompilation)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "--enforce-eager compiles on demand, which --check-recompilation forbids: "
                       "leave one of them out");
    e->shapes.late = o->enforce_eager         ? HR_LATE_EAGER
                     : o->check_recompilation ? HR_LATE_FATAL
                                              : HR_LATE_COUNT;
    HR_TRY(check_device(e));
    HR_TRY(resolve_compile_cache(e));
    HR_TRY(resolve_policy(e));
    HR_TRY(resolve_lengths(e));
    HR_TRY(resolve_speculation(e));
    HR_TRY(resolve_buckets(e));
    HR_TRY(resolve_dtype(e));
    HR_TRY(resolve_sampler(e));
    return resolve_eos(e);
}

size_t hr_engine_block_bytes(const hr_engine *e)
{
    const hr_kv_spec *specs;
    hr_kv_plane plane[HR_KV_MAX_PLANES];
    hr_build_options one = e->shapes.build;
    size_t layers, bytes = 0;
    one.blocks = 1;
    hr_model_kv_specs(e->model, &specs, &layers);
    for (size_t l = 0; l < layers; l++)
        for (int i = hr_model_kv_planes(&specs[l], &one, plane) - 1; i >= 0; i--)
            bytes += (size_t)hr_shape_count(plane[i].shape) * hr_dtype_size(plane[i].dtype);
    return bytes;
}

/* --max-model-len auto: the longest context that the cache holds. */
static void shorten(hr_engine *e)
{
    hr_build_options *b = &e->shapes.build;
    if (b->blocks * b->block_size < 2) return;
    b->table_width = b->blocks;
    e->max_model_len = b->longest = b->blocks * b->block_size;
    hr_log(HR_LOG_INFO, "engine: --max-model-len auto: %lld tokens", (long long)e->max_model_len);
}

/* A size that was asked for is trusted to be wanted, not to be there. */
static hr_status check_asked_size(const hr_engine *e)
{
    const hr_memory *m = &e->memory;
    size_t cache = (size_t)e->shapes.build.blocks * hr_engine_block_bytes(e);
    size_t taken = m->weights + m->buffers + m->peak;
    if (!e->options.kv_cache_memory_bytes ||
        (taken < m->available && cache <= m->available - taken))
        return HR_OK;
    return hr_fail(HR_RESOURCE_EXHAUSTED,
                   "--kv-cache-memory-bytes: a KV cache of %zu MiB is more than there is: of %zu "
                   "MiB available, weights take %zu, buffers %zu, the largest program %zu",
                   cache / MIB, m->available / MIB, m->weights / MIB, m->buffers / MIB,
                   m->peak / MIB);
}

/* The number of blocks is part of every program of fixed shapes. What memory there is varies from
 * start to start; it had better not vary the programs with it, which are kept compiled. */
static int64_t steady(int64_t blocks)
{
    int64_t step = 1;
    while (step * 16 <= blocks) step *= 2;
    return blocks - blocks % step;
}

hr_status hr_engine_size_cache(hr_engine *e)
{
    const headrace_options *o = &e->options;
    hr_build_options *b = &e->shapes.build;
    const hr_memory *m = &e->memory;
    size_t one = hr_engine_block_bytes(e), limit = (size_t)o->kv_cache_memory_bytes;
    int64_t want = o->max_num_seqs * b->table_width;
    if (limit == 0) {
        size_t usable = m->available / 10 * 9, taken = m->weights + m->buffers + m->peak;
        limit = usable > taken ? usable - taken : 0;
    } else want = INT32_MAX / b->block_size;
    int64_t fit = (int64_t)(limit / one);
    if (fit < want && !o->kv_cache_memory_bytes && e->device.kind == HR_DEVICE_PJRT)
        fit = steady(fit);
    b->blocks = want < fit ? want : fit;
    if (b->blocks > INT32_MAX / b->block_size) b->blocks = INT32_MAX / b->block_size;
    if (o->max_model_len == -1 && b->blocks < b->table_width) shorten(e);
    if (b->blocks < b->table_width)
        return hr_fail(
            HR_RESOURCE_EXHAUSTED,
            "the KV cache may take %zu MiB and so holds %lld tokens; one request of "
            "--max-model-len %lld needs %zu MiB: %s or lower --max-model-len (of %zu MiB "
            "available, weights take %zu, buffers %zu, the largest program %zu)",
            limit / MIB, (long long)(b->blocks * b->block_size), (long long)e->max_model_len,
            (size_t)b->table_width * one / MIB + 1,
            o->kv_cache_memory_bytes ? "raise --kv-cache-memory-bytes" : "free memory",
            m->available / MIB, m->weights / MIB, m->buffers / MIB, m->peak / MIB);
    HR_TRY(check_asked_size(e));
    hr_log(HR_LOG_INFO, "engine: KV cache of %lld blocks of %lld tokens, %.0f MiB, taken as used",
           (long long)b->blocks, (long long)b->block_size,
           (double)((size_t)b->blocks * one) / (double)MIB);
    return HR_OK;
}
