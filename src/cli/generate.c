/* headrace generate: prompts in, answers out, no server.
 *
 * Main thread; everything else runs on the engine's. A single answer is shown as it comes; several
 * are shown one after the other as they end, in the order of the prompts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "cli/answer.h"
#include "cli/cli.h"

typedef struct generation {
    hr_args *args;
    headrace_engine *engine;
    headrace_sampling sampling;
    hr_answer *answers; /* owned [n] */
    size_t n;
    int streams;       /* one plain answer: text is printed as it comes */
    int with_logprobs; /* were asked for, of the likeliest or of named ids */
    char model_hash[65];
} generation;

/* ---- requests -------------------------------------------------------------------------------- */

/* [{"role": "system", …}, {"role": "user", …}] of --system and the prompt. */
static const char *chat_messages(hr_args *a, hr_str prompt)
{
    hr_buf json = { 0 };
    hr_json_writer w = { .out = &json };
    const char *roles[] = { "system", "user" };
    hr_str contents[] = { hr_str_c(a->own.system), prompt };
    hr_json_begin_array(&w);
    for (int i = a->own.system ? 0 : 1; i < 2; i++) {
        hr_json_begin_object(&w);
        hr_json_key(&w, HR_STR("role"));
        hr_json_str(&w, hr_str_c(roles[i]));
        hr_json_key(&w, HR_STR("content"));
        hr_json_str(&w, contents[i]);
        hr_json_end_object(&w);
    }
    hr_json_end_array(&w);
    const char *copy = hr_buf_status(&json) ? NULL : hr_arena_copy(&a->arena, json.p, json.n);
    hr_buf_deinit(&json);
    return copy;
}

static hr_status submit(generation *g, const headrace_request *r)
{
    hr_answer *next = &g->answers[g->n];
    HR_TRY(hr_answer_init(next, g->sampling.n));
    g->n++;
    return (hr_status)headrace_submit(g->engine, r, &next->id);
}

static hr_status submit_text(generation *g, hr_str text)
{
    headrace_request r;
    headrace_request_init(&r);
    r.sampling = &g->sampling;
    if (g->args->own.chat) {
        r.messages_json = chat_messages(g->args, text);
        if (!r.messages_json) return hr_fail(HR_RESOURCE_EXHAUSTED, "messages");
    } else {
        r.add_special_tokens = !g->args->own.no_special;
        r.prompt = text.p;
        r.prompt_bytes = text.n;
    }
    return submit(g, &r);
}

static hr_status submit_messages(generation *g)
{
    hr_cli_command *c = &g->args->own;
    headrace_request r;
    headrace_request_init(&r);
    r.sampling = &g->sampling;
    hr_str messages, tools = { 0 };
    HR_TRY(hr_args_slurp(&g->args->arena, c->messages, &messages));
    if (c->tools) HR_TRY(hr_args_slurp(&g->args->arena, c->tools, &tools));
    r.messages_json = messages.p;
    r.tools_json = tools.p;
    return submit(g, &r);
}

static hr_status submit_ids(generation *g)
{
    headrace_request r;
    headrace_request_init(&r);
    r.sampling = &g->sampling;
    r.prompt_ids = g->args->own.prompt_ids.at;
    r.n_prompt_ids = g->args->own.prompt_ids.n;
    return submit(g, &r);
}

static hr_status submit_all(generation *g)
{
    hr_cli_command *c = &g->args->own;
    size_t most = c->prompts.n + 3;
    g->answers = hr_alloc_array0(most, sizeof *g->answers);
    if (!g->answers) return hr_fail(HR_RESOURCE_EXHAUSTED, "answers");
    const char *const *prompts = c->prompts.at;
    for (size_t i = 0; i < c->prompts.n; i++) HR_TRY(submit_text(g, hr_str_c(prompts[i])));
    if (c->prompt_file) {
        hr_str text;
        HR_TRY(hr_args_slurp(&g->args->arena, c->prompt_file, &text));
        HR_TRY(submit_text(g, text));
    }
    if (c->prompt_ids.n) HR_TRY(submit_ids(g));
    if (c->messages) HR_TRY(submit_messages(g));
    g->streams = g->n == 1 && g->sampling.n == 1 && !c->json;
    return HR_OK;
}

/* ---- answers --------------------------------------------------------------------------------- */

static hr_answer *find_answer(generation *g, uint64_t id)
{
    for (size_t i = 0; i < g->n; i++)
        if (g->answers[i].id == id) return &g->answers[i];
    return NULL;
}

static void print_json(const generation *g, const hr_answer *a)
{
    headrace_info info;
    headrace_info_get(g->engine, &info);
    hr_buf out = { 0 };
    hr_answer_style style = { .with_logprobs = g->with_logprobs,
                              .engine = g->engine,
                              .sampling = &g->sampling,
                              .model_hash = g->sampling.sampling_trace ? g->model_hash : NULL };
    hr_answer_json(a, &info, &style, &out);
    fwrite(out.p, 1, out.n, stdout);
    hr_buf_deinit(&out);
}

static void print_text(const generation *g, const hr_answer *a)
{
    for (int64_t i = 0; i < a->n; i++) {
        if (g->n > 1 || a->n > 1)
            printf("--- prompt %zu choice %lld\n", (size_t)(a - g->answers) + 1, (long long)i);
        fwrite(a->choices[i].text.p, 1, a->choices[i].text.n, stdout);
        putchar('\n');
    }
}

static int print_answer(const generation *g, const hr_answer *a)
{
    if (a->status) {
        fprintf(stderr, "headrace: %s\n", a->message);
        return 1;
    }
    if (g->args->own.json) print_json(g, a);
    else if (g->streams) putchar('\n');
    else print_text(g, a);
    fflush(stdout);
    return 0;
}

/* Until the engine has nothing more to say; answers in the order of the prompts. */
static hr_status collect(generation *g, int *exit_status)
{
    size_t printed = 0;
    while (printed < g->n) {
        headrace_event v;
        HR_TRY((hr_status)headrace_poll(g->engine, &v, -1));
        hr_answer *a = find_answer(g, v.id);
        if (!a) continue;
        hr_answer_add(a, &v, g->with_logprobs);
        if (g->streams && v.kind == HEADRACE_EVENT_TOKENS) {
            fwrite(v.text, 1, v.text_bytes, stdout);
            fflush(stdout);
        }
        for (; printed < g->n && g->answers[printed].done; printed++)
            *exit_status |= print_answer(g, &g->answers[printed]);
    }
    return HR_OK;
}

/* ---- the command ----------------------------------------------------------------------------- */

static void print_stats(const generation *g)
{
    headrace_info i;
    headrace_info_get(g->engine, &i);
    char cached[48] = "", drafts[64] = "", kept[48] = "";
    if (i.weight_bytes_cached)
        snprintf(kept, sizeof kept, ", %.1f from the cache",
                 (double)i.weight_bytes_cached / 1048576.0);
    if (i.compile_cache)
        snprintf(cached, sizeof cached, ", %lld from the cache", (long long)i.programs_cached);
    if (i.draft_tokens)
        snprintf(drafts, sizeof drafts, ", %llu of %llu drafts accepted",
                 (unsigned long long)i.accepted_tokens, (unsigned long long)i.draft_tokens);
    fprintf(stderr,
            "load     %.3f s (%.1f MiB of weights%s)\n"
            "compile  %.3f s (%lld programs%s; %llu compiled late)\n"
            "prefill  %.1f tok/s (%llu tokens)\n"
            "decode   %.1f tok/s (%llu tokens)\n"
            "steps    %llu (%llu preemptions%s)\n"
            "memory   %.1f MiB working, %lld KV blocks of %lld tokens\n"
            "numerics %s\n",
            i.load_s, (double)i.weight_bytes / 1048576.0, kept, i.compile_s, (long long)i.programs,
            cached, (unsigned long long)i.late_compilations,
            i.prefill_s > 0 ? (double)i.prefill_tokens / i.prefill_s : 0,
            (unsigned long long)i.prefill_tokens,
            i.decode_s > 0 ? (double)i.decode_tokens / i.decode_s : 0,
            (unsigned long long)i.decode_tokens, (unsigned long long)i.steps,
            (unsigned long long)i.preemptions, drafts, (double)i.peak_bytes / 1048576.0,
            (long long)i.kv_blocks, (long long)i.block_size, i.numerics);
}

static hr_status write_manifest(const generation *g)
{
    char *text = headrace_manifest(g->engine, 1);
    if (!text) return hr_fail(HR_RESOURCE_EXHAUSTED, "manifest");
    hr_status st = hr_file_write_atomic(g->args->own.manifest, hr_str_c(text));
    headrace_free(text);
    return st;
}

static hr_status run(generation *g, int *exit_status)
{
    hr_args *a = g->args;
    a->options.model = a->model;
    a->options.log = hr_cli_log;
    a->options.log_context = a;
    bool terminal = isatty(STDERR_FILENO) && a->log_level < HR_LOG_INFO;
    if (terminal) fprintf(stderr, "headrace: loading %s …\n", a->model);
    HR_TRY((hr_status)headrace_engine_create(&a->options, &g->engine));
    headrace_info info;
    headrace_info_get(g->engine, &info);
    if (terminal)
        fprintf(stderr, "headrace: loaded in %.2f s, %lld programs compiled%s in %.2f s\n",
                info.load_s, (long long)info.programs,
                info.programs_cached ? " or found in the cache" : "", info.compile_s);
    headrace_sampling_init(g->engine, &g->sampling);
    HR_TRY(hr_args_sampling(a, &g->sampling));
    g->with_logprobs = g->sampling.logprobs >= 0 || g->sampling.n_logprob_token_ids;
    if (g->sampling.n < 1 || g->sampling.n > 1024)
        return hr_fail(HR_INVALID_ARGUMENT, "n must be 1 to 1024, not %lld",
                       (long long)g->sampling.n);
    if (g->sampling.sampling_trace)
        HR_TRY((hr_status)headrace_model_hash(g->engine, g->model_hash));
    HR_TRY(submit_all(g));
    HR_TRY(collect(g, exit_status));
    if (a->own.stats) print_stats(g);
    return a->own.manifest ? write_manifest(g) : HR_OK;
}

int hr_cli_generate(hr_args *args)
{
    generation g = { .args = args };
    int exit_status = 0;
    if (run(&g, &exit_status)) exit_status = hr_cli_complain();
    headrace_engine_destroy(g.engine);
    for (size_t i = 0; i < g.n; i++) hr_answer_deinit(&g.answers[i]);
    hr_free(g.answers);
    return exit_status;
}
