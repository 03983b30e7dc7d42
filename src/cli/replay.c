/* headrace replay: a recorded answer once more, token by token beside what was recorded.
 *
 * Main thread. The record brings model, prompt ids, parameters and seeds; what a start must be told
 * so that numbers agree is taken from it, too, unless a flag says otherwise. What differs about
 * model, build and numerics is told before anything is compared. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/build.h"
#include "cli/cli.h"
#include "cli/replay.h"
#include "engine/trace.h"

/* The first thing about a choice that is not as recorded. */
typedef struct choice_state {
    size_t n;      /* tokens compared */
    size_t more;   /* tokens beyond the recorded ones */
    hr_buf differ; /* owned, text; n 0 = nothing so far */
} choice_state;

typedef struct replay {
    hr_args *args;
    const char *file;
    headrace_engine *engine;
    hr_record record;
    uint64_t *ids;        /* owned [n_prompts]: the engine's requests */
    choice_state *states; /* owned [n_choices] */
    size_t compared;      /* tokens in all */
} replay;

/* ---- the engine ------------------------------------------------------------------------------ */

static void set_text(replay *r, const char **option, const char *object, const char *name)
{
    if (!*option) *option = hr_record_text(&r->record, &r->args->arena, object, name);
}

static hr_status recorded_i64(const replay *r, const char *name, int64_t *out)
{
    const hr_json *v = hr_json_get(hr_json_get(r->record.header, "options"), name);
    *out = 0;
    return v ? hr_json_to_i64(v, name, out) : HR_OK;
}

/* Flags first, then what was recorded. Rooms are made for this answer alone. */
static hr_status set_options(replay *r)
{
    headrace_options *o = &r->args->options;
    int64_t length, logprobs, choices = (int64_t)r->record.n_choices;
    o->model = r->args->model;
    set_text(r, &o->model, NULL, "model");
    if (!o->model)
        return hr_fail(HR_INVALID_ARGUMENT, "it names no model: give one after the file");
    set_text(r, &o->dtype, "options", "dtype");
    set_text(r, &o->kv_cache_dtype, "options", "kv_cache_dtype");
    set_text(r, &o->load_format, "options", "load_format");
    set_text(r, &o->quantization, "options", "quantization");
    set_text(r, &o->logprobs_mode, "options", "logprobs_mode");
    HR_TRY(recorded_i64(r, "max_model_len", &length));
    HR_TRY(recorded_i64(r, "max_logprobs", &logprobs));
    if (!o->max_model_len) o->max_model_len = length;
    if (logprobs > o->max_logprobs && logprobs <= 1024) o->max_logprobs = (int)logprobs;
    if (choices < o->max_num_seqs) o->max_num_seqs = choices;
    o->log = hr_cli_log;
    o->log_context = r->args;
    return HR_OK;
}

/* The instruction set of the record, where this machine has it and no other was asked for. */
static hr_status create_engine(replay *r)
{
    headrace_options *o = &r->args->options;
    const char *device = o->device ? o->device : "cpu";
    bool choose = !o->isa && !getenv("HEADRACE_ISA") && !strcmp(device, "cpu");
    if (choose) set_text(r, &o->isa, "numerics", "isa");
    choose = choose && o->isa;
    hr_status st = (hr_status)headrace_engine_create(o, &r->engine);
    if (!st || !choose || !strstr(hr_message(), o->isa)) return st;
    o->isa = NULL;
    return (hr_status)headrace_engine_create(o, &r->engine);
}

/* ---- what is not the same -------------------------------------------------------------------- */

static void add_value(hr_buf *out, const hr_json *v)
{
    hr_json_writer w = { .out = out };
    if (v) hr_json_value(&w, v);
    else hr_buf_add_c(out, "nothing");
}

/* "backend: recorded "cpu", here "pjrt"" */
static void warn_of_member(const hr_json *was, const hr_json *is)
{
    hr_buf path = { 0 };
    const hr_json *a, *b;
    hr_buf_add_str(&path, was->key);
    if (!is || hr_json_differs(was, is, &path, &a, &b)) {
        if (!is) a = was, b = NULL;
        hr_buf_add_c(&path, ": recorded ");
        add_value(&path, a);
        hr_buf_add_c(&path, ", here ");
        add_value(&path, b);
        fprintf(stderr, "headrace: numerics.%s: the answer may be another\n", hr_buf_c(&path));
    }
    hr_buf_deinit(&path);
}

static hr_status warn_of_numerics(replay *r)
{
    headrace_info info;
    headrace_info_get(r->engine, &info);
    const hr_json *was = hr_json_get(r->record.header, "numerics"), *is;
    HR_TRY(hr_json_parse(hr_str_c(info.numerics), NULL, &r->args->arena, &is));
    for (size_t i = 0; was && was->type == HR_JSON_OBJECT && i < was->count; i++) {
        const hr_json *here = NULL;
        for (size_t k = 0; k < is->count; k++)
            if (hr_str_eq(is->items[k].key, was->items[i].key)) here = &is->items[k];
        warn_of_member(&was->items[i], here);
    }
    return HR_OK;
}

static void warn_of_build(replay *r)
{
    char build[65];
    const char *version = hr_record_text(&r->record, &r->args->arena, NULL, "headrace");
    const char *id = hr_record_text(&r->record, &r->args->arena, NULL, "build");
    bool known = hr_build_id(build) && id;
    if (!version || strcmp(version, headrace_version()))
        fprintf(stderr, "headrace: recorded by version %s, this is %s: the answer may be another\n",
                version ? version : "(none)", headrace_version());
    else if (known && strcmp(id, build))
        fprintf(stderr,
                "headrace: recorded by build %.12s, this is %.12s: the answer may be "
                "another\n",
                id, build);
}

static hr_status check_model(replay *r)
{
    char hash[65];
    const char *was = hr_record_text(&r->record, &r->args->arena, NULL, "model_hash");
    HR_TRY((hr_status)headrace_model_hash(r->engine, hash));
    if (was && !strcmp(was, hash)) return HR_OK;
    hr_status st = hr_fail(HR_FAILED_PRECONDITION,
                           "%s is another model: its SHA-256 is %s, the recorded one %s",
                           r->args->options.model, hash, was ? was : "(none)");
    if (!r->args->own.force) return hr_fail(st, "%s; --force replays all the same", hr_message());
    fprintf(stderr, "headrace: %s\n", hr_message());
    return HR_OK;
}

/* ---- comparing ------------------------------------------------------------------------------- */

static void add_token_text(const replay *r, hr_buf *out, const hr_json *id)
{
    int64_t value = -1;
    char *text = NULL;
    size_t bytes = 0;
    add_value(out, id);
    if (!id || hr_json_to_i64(id, "token_id", &value) ||
        headrace_detokenize(r->engine, &value, 1, 0, &text, &bytes))
        return;
    hr_json_writer w = { .out = out };
    hr_buf_add_byte(out, ' ');
    hr_json_str(&w, (hr_str){ text, bytes });
    headrace_free(text);
}

static void add_side(const replay *r, hr_buf *out, const char *name, const hr_json *entry)
{
    hr_buf_printf(out, "\n  %-8s token ", name);
    add_token_text(r, out, hr_json_get(entry, "token_id"));
    hr_buf_add_c(out, "\n           ");
    add_value(out, entry);
}

static void note(const replay *r, choice_state *s, size_t choice, const char *what,
                 const hr_json *was, const hr_json *is)
{
    const hr_json *at = hr_json_get(was, "position");
    hr_buf_printf(&s->differ, "choice %zu, token %zu, position ", choice, s->n);
    add_value(&s->differ, at);
    hr_buf_printf(&s->differ, ": %s differs", what);
    add_side(r, &s->differ, "recorded", was);
    add_side(r, &s->differ, "now", is);
}

/* The ids first: what else differs of another token follows from it. */
static void compare_entry(replay *r, size_t choice, const hr_json *is)
{
    choice_state *s = &r->states[choice];
    const hr_json *was = r->record.choices[choice].tokens[s->n], *a, *b;
    const hr_json *id = hr_json_get(was, "token_id"), *now = hr_json_get(is, "token_id");
    hr_buf path = { 0 };
    if (!id || hr_json_differs(id, now, &path, &a, &b)) note(r, s, choice, "token_id", was, is);
    else if (hr_json_differs(was, is, &path, &a, &b))
        note(r, s, choice, path.n ? hr_buf_c(&path) : "the entry", was, is);
    hr_buf_deinit(&path);
    if (s->differ.n) return;
    s->n++;
    r->compared++;
}

static hr_status compare_token(replay *r, size_t choice, const headrace_token *t)
{
    choice_state *s = &r->states[choice];
    if (s->differ.n) return HR_OK;
    if (s->n == r->record.choices[choice].n) {
        s->more++;
        return HR_OK;
    }
    hr_arena arena = { 0 };
    hr_buf text = { 0 };
    const hr_json *is;
    hr_json_writer w = { .out = &text };
    hr_trace_write_token(&w, t, r->record.sampling.logprobs >= 0);
    hr_status st = hr_buf_status(&text);
    if (!st) st = hr_json_parse(hr_buf_str(&text), NULL, &arena, &is);
    if (!st) compare_entry(r, choice, is);
    hr_buf_deinit(&text);
    hr_arena_deinit(&arena);
    return st;
}

/* An answer that was broken off is as long as it is. */
static void compare_end(replay *r, size_t choice, const char *finish)
{
    choice_state *s = &r->states[choice];
    const hr_record_choice *c = &r->record.choices[choice];
    bool whole = !hr_str_eq_c(c->finish_reason, "abort");
    if (s->differ.n) return;
    if (s->n < c->n || (whole && s->more))
        hr_buf_printf(&s->differ, "choice %zu: recorded %zu tokens, now %zu", choice, c->n,
                      s->n + s->more);
    else if (whole && !hr_str_eq_c(c->finish_reason, finish))
        hr_buf_printf(&s->differ, "choice %zu: finish_reason was %.*s, now %s", choice,
                      HR_STR_ARG(c->finish_reason), finish);
}

/* ---- the answer ------------------------------------------------------------------------------ */

static hr_status submit(replay *r, size_t i)
{
    const hr_record_prompt *p = &r->record.prompts[i];
    headrace_sampling s = r->record.sampling;
    headrace_request q;
    headrace_request_init(&q);
    s.sampling_trace = 1;
    s.seed = p->seed;
    if (s.max_tokens) s.max_tokens = p->max_tokens;
    q.sampling = &s;
    q.prompt_ids = p->ids;
    q.n_prompt_ids = p->n;
    return (hr_status)headrace_submit(r->engine, &q, &r->ids[i]);
}

static hr_status take(replay *r, size_t prompt, const headrace_event *v)
{
    size_t choice = prompt * r->record.sampling.n + v->choice;
    if (v->kind == HEADRACE_EVENT_FAILED) return hr_fail((hr_status)v->status, "%s", v->message);
    if (v->kind == HEADRACE_EVENT_FINISHED) compare_end(r, choice, v->finish_reason);
    for (size_t i = 0; v->kind == HEADRACE_EVENT_TOKENS && i < v->n_tokens; i++)
        HR_TRY(compare_token(r, choice, &v->tokens[i]));
    return HR_OK;
}

static hr_status run(replay *r)
{
    size_t n = r->record.n_prompts, done = 0;
    r->ids = hr_alloc_array0(n, sizeof *r->ids);
    r->states = hr_alloc_array0(r->record.n_choices, sizeof *r->states);
    if (!r->ids || !r->states) return hr_fail(HR_RESOURCE_EXHAUSTED, "answers");
    for (size_t i = 0; i < n; i++) HR_TRY(submit(r, i));
    while (done < n) {
        headrace_event v;
        size_t prompt = 0;
        HR_TRY((hr_status)headrace_poll(r->engine, &v, -1));
        while (prompt < n && r->ids[prompt] != v.id) prompt++;
        if (prompt == n) continue;
        HR_TRY(take(r, prompt, &v));
        done += v.kind == HEADRACE_EVENT_DONE;
    }
    return HR_OK;
}

/* The first difference is that of the first choice that has one. */
static int report(const replay *r)
{
    size_t recorded = 0, first = 0;
    for (size_t i = 0; i < r->record.n_choices; i++) recorded += r->record.choices[i].n;
    while (first < r->record.n_choices && !r->states[first].differ.n) first++;
    if (first == r->record.n_choices) {
        printf("replayed %zu tokens: equal\n", r->compared);
        return 0;
    }
    printf("replayed %zu of %zu tokens: different\n%s\n", r->compared, recorded,
           hr_buf_c(&r->states[first].differ));
    return 1;
}

static hr_status prepare(replay *r)
{
    hr_str text;
    HR_TRY(hr_args_slurp(&r->args->arena, r->file, &text));
    hr_status st = hr_record_read(text, &r->args->arena, &r->record);
    if (!st) st = set_options(r);
    if (st) return hr_fail_prefix(st, "%s", strcmp(r->file, "-") ? r->file : "standard input");
    HR_TRY(create_engine(r));
    HR_TRY(check_model(r));
    warn_of_build(r);
    return warn_of_numerics(r);
}

int hr_cli_replay(hr_args *args)
{
    replay r = { .args = args, .file = args->own.replay_file };
    hr_status st = prepare(&r);
    if (!st) st = run(&r);
    int exit_status = st ? hr_cli_complain() : report(&r);
    headrace_engine_destroy(r.engine);
    for (size_t i = 0; r.states && i < r.record.n_choices; i++) hr_buf_deinit(&r.states[i].differ);
    hr_free(r.states);
    hr_free(r.ids);
    hr_record_deinit(&r.record);
    return exit_status;
}
