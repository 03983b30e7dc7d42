/* Making and ending an engine.
 *
 * Runs on the caller's threads. It starts three threads and owns the queues between them; each
 * thread ends when its queue is closed and empty, from the input to the output. */
#include "engine/engine.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/log.h"
#include "engine/engine_int.h"

/* Tokens of a step. */
static const double iteration_bounds[13] = { 1,   8,    16,   32,   64,   128,  256,
                                             512, 1024, 2048, 4096, 8192, 16384 };

/* ---- start ----------------------------------------------------------------------------------- */

/* A copy of an option's text, so that the caller may free its own. */
static hr_status keep(hr_engine *e, const char **text)
{
    if (!*text) return HR_OK;
    *text = hr_arena_copy(&e->arena, *text, strlen(*text));
    return *text ? HR_OK : hr_fail(HR_RESOURCE_EXHAUSTED, "options");
}

static hr_status keep_processors(hr_engine *e)
{
    size_t n = e->options.n_logits_processors;
    const char **names = hr_arena_array(&e->arena, n, sizeof *names);
    if (!names) return hr_fail(HR_RESOURCE_EXHAUSTED, "options");
    for (size_t i = 0; i < n; i++) {
        names[i] = e->options.logits_processors[i];
        if (!names[i]) return hr_fail(HR_INVALID_ARGUMENT, "logits_processors[%zu] is NULL", i);
        HR_TRY(keep(e, &names[i]));
    }
    e->options.logits_processors = names;
    return HR_OK;
}

static hr_status keep_options(hr_engine *e, const headrace_options *o)
{
    if (o->size != sizeof *o)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "headrace_options: size %zu, expected %zu: call "
                       "headrace_options_init",
                       o->size, sizeof *o);
    e->options = *o;
    const char **texts[] = { &e->options.model,
                             &e->options.device,
                             &e->options.dtype,
                             &e->options.load_format,
                             &e->options.isa,
                             &e->options.logprobs_mode,
                             &e->options.sampler,
                             &e->options.buckets_json,
                             &e->options.scheduling_policy,
                             &e->options.chat_template,
                             &e->options.override_generation_config_json,
                             &e->options.speculative_config_json,
                             &e->options.device_options,
                             &e->options.attention_custom_call,
                             &e->options.compile_cache,
                             &e->options.kv_cache_dtype,
                             &e->options.quantization };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) HR_TRY(keep(e, texts[i]));
    HR_TRY(keep_processors(e));
    if (!e->options.model) return hr_fail(HR_INVALID_ARGUMENT, "no model was named");
    if (e->options.sampler)
        HR_TRY(hr_sampler_kind_parse(hr_str_c(e->options.sampler), &e->sampler));
    return hr_device_parse(e->options.device, e->options.device_options, &e->device);
}

static hr_status check_devices(const hr_engine *e)
{
    int n = e->options.tensor_parallel_size;
    if (n < 0 || n > 127)
        return hr_fail(HR_INVALID_ARGUMENT, "--tensor-parallel-size must be 1..127, not %d", n);
    if (n <= 1 || e->device.kind == HR_DEVICE_PJRT) return HR_OK;
    return hr_fail(
        HR_INVALID_ARGUMENT,
        "--tensor-parallel-size %d: the %s backend is one device; a PJRT plugin may have "
        "more",
        n, e->device.kind == HR_DEVICE_REF ? "ref" : "cpu");
}

static hr_status load_model(hr_engine *e)
{
    hr_model_options o = { .load_format = HR_LOAD_AUTO,
                           .ignore_generation_defaults = !e->options.use_generation_config,
                           .greedy = e->sampler == HR_SAMPLER_GREEDY,
                           .devices = e->options.tensor_parallel_size,
                           .override_generation =
                               hr_str_c(e->options.override_generation_config_json) };
    const char *format = e->options.load_format ? e->options.load_format : "auto";
    if (!strcmp(format, "dummy")) o.load_format = HR_LOAD_DUMMY;
    else if (strcmp(format, "auto"))
        return hr_fail(HR_INVALID_ARGUMENT, "--load-format %s: it is auto or dummy", format);
    const char *scheme = e->options.quantization;
    if (scheme && strcmp(scheme, "auto") && !hr_quantize_parse(scheme, &o.quantize))
        return hr_fail(HR_INVALID_ARGUMENT, "--quantization %s: it is auto, " HR_QUANTIZE_NAMES,
                       scheme);
    HR_TRY(check_devices(e));
    return hr_model_open(e->options.model, &o, &e->model);
}

hr_status hr_engine_load_tokenizer(const hr_model *m, hr_tokenizer **out)
{
    *out = NULL;
    const hr_model_vocab *v = hr_model_vocab_get(m);
    if (v->tokenizer_json.n) return hr_tokenizer_load_json(v->tokenizer_json, out);
    if (!v->gguf_model) return HR_OK;
    hr_vocab_spec spec = { .model = v->gguf_model,
                           .pre = v->gguf_pre,
                           .tokens = v->tokens,
                           .scores = v->scores,
                           .types = v->types,
                           .n_tokens = v->n_tokens,
                           .merges = v->merges,
                           .n_merges = v->n_merges,
                           .bos = v->bos,
                           .eos = v->eos,
                           .unk = v->unk,
                           .add_bos = v->add_bos,
                           .add_eos = v->add_eos,
                           .add_space_prefix = v->add_space_prefix };
    return hr_tokenizer_create(&spec, out);
}

static hr_status load_text(hr_engine *e)
{
    const hr_model_vocab *v = hr_model_vocab_get(e->model);
    if (e->options.chat_template) e->chat_template = hr_str_c(e->options.chat_template);
    else if (v->n_templates) e->chat_template = v->templates[0].text;
    HR_TRY(hr_engine_load_tokenizer(e->model, &e->tokenizer));
    int32_t size = e->tokenizer ? (int32_t)hr_tokenizer_size(e->tokenizer) : 0;
    for (int32_t id = 0; id < size; id++) {
        size_t n = hr_tokenizer_token_bytes(e->tokenizer, id).n;
        if (n > e->longest_token) e->longest_token = n;
    }
    return HR_OK;
}

static hr_status init_queues(hr_engine *e)
{
    e->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (e->wake_fd < 0) return hr_fail(HR_RESOURCE_EXHAUSTED, "eventfd: %s", strerror(errno));
    HR_TRY(hr_queue_init(&e->to_engine, -1));
    HR_TRY(hr_queue_init(&e->to_input, -1));
    HR_TRY(hr_queue_init(&e->to_output, -1));
    HR_TRY(hr_queue_init(&e->free_steps, -1));
    HR_TRY(hr_queue_init(&e->ready, -1));
    return hr_queue_init(&e->to_caller, e->wake_fd);
}

/* Waits for the engine thread to have warmed up, or to have failed. */
static hr_status await_ready(hr_engine *e)
{
    hr_fatal *f = (hr_fatal *)hr_queue_pop(&e->ready, -1);
    if (!f) return hr_fail(HR_RESOURCE_EXHAUSTED, "the engine thread could not report");
    hr_status st = f->code ? hr_fail(f->code, "%s", f->message) : HR_OK;
    hr_free(f);
    return st;
}

static hr_status load_processors(hr_engine *e)
{
    hr_processor_limits l = { .vocab = e->shapes.sampler.vocab,
                              .max_model_len = e->max_model_len,
                              .rows = e->options.max_num_seqs,
                              .eos = e->eos,
                              .n_eos = e->n_eos };
    return hr_processor_chain_load(&e->options, &l, &e->processors);
}

hr_status hr_engine_open(hr_engine *e, const headrace_options *o)
{
    HR_TRY(keep_options(e, o));
    HR_TRY(load_model(e));
    HR_TRY(load_text(e));
    HR_TRY(hr_engine_resolve(e));
    return load_processors(e);
}

static hr_status start(hr_engine *e, const headrace_options *o)
{
    double begin = hr_now_s();
    hr_status st = init_queues(e);
    if (!st) st = hr_histogram_init(&e->stats.iteration_tokens, iteration_bounds, 13);
    if (!st) st = hr_engine_open(e, o);
    if (!st) st = hr_reader_create(e, &e->reader);
    if (!st) st = hr_writer_create(e, &e->writer);
    e->load_s = hr_now_s() - begin;
    if (!st) st = hr_thread_start(&e->output_thread, "hr-output", hr_writer_loop, e);
    if (!st) st = hr_thread_start(&e->input_thread, "hr-input", hr_reader_loop, e);
    if (!st) st = hr_thread_start(&e->engine_thread, "hr-engine", hr_engine_loop, e);
    return st ? st : await_ready(e);
}

hr_status hr_engine_create(const headrace_options *o, hr_engine **out)
{
    *out = NULL;
    hr_engine *e = hr_new0(hr_engine);
    if (!e) return hr_fail(HR_RESOURCE_EXHAUSTED, "engine");
    e->wake_fd = -1;
    if (o->log) hr_log_set((hr_log_sink)o->log, o->log_context, HR_LOG_DEBUG);
    hr_status st = start(e, o);
    if (st) {
        char message[HR_MESSAGE_MAX];
        memcpy(message, hr_message(), sizeof message);
        hr_engine_destroy(e);
        return hr_fail(st, "%s", message);
    }
    *out = e;
    return HR_OK;
}

/* ---- end ------------------------------------------------------------------------------------- */

static void drain(hr_queue *q)
{
    for (hr_queue_node *n; (n = hr_queue_try_pop(q));) hr_free(n);
}

static void destroy_queues(hr_engine *e)
{
    if (e->wake_fd < 0) return;
    for (hr_queue_node *n; (n = hr_queue_try_pop(&e->to_caller));)
        hr_engine_event_destroy((hr_engine_event *)n);
    drain(&e->ready);
    hr_queue_deinit(&e->to_caller);
    hr_queue_deinit(&e->to_input);
    hr_queue_deinit(&e->to_output);
    hr_queue_deinit(&e->to_engine);
    hr_queue_deinit(&e->free_steps);
    hr_queue_deinit(&e->ready);
    close(e->wake_fd);
}

void hr_engine_destroy(hr_engine *e)
{
    if (!e) return;
    hr_flag_set(&e->stop, 1);
    bool queues = e->wake_fd >= 0;
    if (queues) hr_queue_close(&e->to_input);
    hr_thread_join(&e->input_thread);
    if (queues) hr_queue_close(&e->to_engine);
    hr_thread_join(&e->engine_thread);
    if (queues) hr_queue_close(&e->to_output);
    hr_thread_join(&e->output_thread);
    hr_reader_destroy(e->reader);
    hr_writer_destroy(e->writer);
    hr_processor_chain_destroy(e->processors); /* no sequence is left */
    destroy_queues(e);
    hr_ledger_deinit(&e->ledger);
    hr_histogram_deinit(&e->stats.iteration_tokens);
    hr_tokenizer_destroy(e->tokenizer);
    hr_model_release(e->model);
    hr_buf_deinit(&e->numerics);
    hr_arena_deinit(&e->arena);
    hr_free(e);
}
