/* Reading a recorded answer: a body, or the events of a stream.
 *
 * Main thread. The file may be anything, so every member is looked for and every length checked;
 * what is missing is named. */
#include <string.h>

#include "cli/replay.h"
#include "engine/trace.h"

enum { MOST_CHOICES = 1 << 20 };

/* ---- the header ------------------------------------------------------------------------------ */

static hr_status read_prompt(const hr_json *v, hr_arena *arena, hr_record_prompt *out)
{
    const hr_json *ids = hr_json_get(v, "token_ids"), *seed = hr_json_get(v, "seed"),
                  *most = hr_json_get(v, "max_tokens");
    if (!ids || ids->type != HR_JSON_ARRAY || !ids->count || !seed || !most)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "sampling_trace.prompts: token_ids, seed and max_tokens are expected");
    HR_TRY(hr_json_to_i64(seed, "sampling_trace.prompts: seed", &out->seed));
    HR_TRY(hr_json_to_i64(most, "sampling_trace.prompts: max_tokens", &out->max_tokens));
    int64_t *list = hr_arena_array(arena, ids->count, sizeof *list);
    if (!list) return hr_fail(HR_RESOURCE_EXHAUSTED, "prompt");
    for (size_t i = 0; i < ids->count; i++)
        HR_TRY(hr_json_to_i64(&ids->items[i], "sampling_trace.prompts: token_ids", &list[i]));
    out->ids = list;
    out->n = ids->count;
    return HR_OK;
}

static hr_status read_prompts(hr_record *r, hr_arena *arena)
{
    const hr_json *v = hr_json_get(r->header, "prompts");
    if (!v || v->type != HR_JSON_ARRAY || !v->count)
        return hr_fail(HR_INVALID_ARGUMENT, "sampling_trace.prompts: a list is expected");
    hr_record_prompt *list = hr_arena_array(arena, v->count, sizeof *list);
    if (!list) return hr_fail(HR_RESOURCE_EXHAUSTED, "prompts");
    for (size_t i = 0; i < v->count; i++) HR_TRY(read_prompt(&v->items[i], arena, &list[i]));
    r->prompts = list;
    r->n_prompts = v->count;
    return HR_OK;
}

static hr_status read_header(hr_record *r, hr_arena *arena)
{
    int64_t version = 0;
    const hr_json *v = hr_json_get(r->header, "version");
    if (v) HR_TRY(hr_json_to_i64(v, "sampling_trace.version", &version));
    if (version != HR_TRACE_VERSION)
        return hr_fail(HR_INVALID_ARGUMENT, "its trace has version %lld, this build reads %d",
                       (long long)version, HR_TRACE_VERSION);
    hr_status st = hr_sampling_read(hr_json_get(r->header, "parameters"), arena, &r->sampling);
    if (st) return hr_fail_prefix(st, "sampling_trace");
    HR_TRY(read_prompts(r, arena));
    r->n_choices = r->n_prompts * r->sampling.n;
    if (r->n_choices > MOST_CHOICES)
        return hr_fail(HR_INVALID_ARGUMENT, "it has %zu choices", r->n_choices);
    r->choices = hr_arena_array(arena, r->n_choices, sizeof *r->choices);
    return r->choices ? HR_OK : hr_fail(HR_RESOURCE_EXHAUSTED, "choices");
}

/* ---- choices --------------------------------------------------------------------------------- */

static hr_status add_tokens(hr_record_choice *c, const hr_json *list)
{
    for (size_t i = 0; i < list->count; i++) {
        HR_TRY(hr_grow((void **)&c->tokens, &c->capacity, c->n + 1, sizeof *c->tokens));
        c->tokens[c->n++] = &list->items[i];
    }
    return HR_OK;
}

/* What a body, or a chunk, tells of one choice. */
static hr_status add_choice(hr_record *r, const hr_json *v)
{
    const hr_json *index = hr_json_get(v, "index"), *finish = hr_json_get(v, "finish_reason");
    const hr_json *list = hr_json_get(hr_json_get(v, "sampling_trace"), "tokens");
    int64_t i = -1;
    if (index) HR_TRY(hr_json_to_i64(index, "choices: index", &i));
    if (i < 0 || (size_t)i >= r->n_choices)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "choices: %zu were asked for, and one has the index %lld", r->n_choices,
                       (long long)i);
    hr_record_choice *c = &r->choices[i];
    if (list && list->type == HR_JSON_ARRAY) HR_TRY(add_tokens(c, list));
    if (finish && finish->type == HR_JSON_STRING) c->finish_reason = finish->text;
    return HR_OK;
}

static hr_status add_choices(hr_record *r, const hr_json *answer)
{
    const hr_json *list = hr_json_get(answer, "choices");
    for (size_t i = 0; list && list->type == HR_JSON_ARRAY && i < list->count; i++)
        HR_TRY(add_choice(r, &list->items[i]));
    return HR_OK;
}

static hr_status check_whole(const hr_record *r)
{
    for (size_t i = 0; i < r->n_choices; i++)
        if (!r->choices[i].finish_reason.n)
            return hr_fail(HR_INVALID_ARGUMENT, "choice %zu does not end: the file is cut short",
                           i);
    return HR_OK;
}

/* ---- bodies and streams ---------------------------------------------------------------------- */

static hr_status no_trace(const hr_json *answer)
{
    hr_str why = { 0 };
    const hr_json *message = hr_json_get(hr_json_get(answer, "error"), "message");
    if (message && !hr_json_to_str(message, "message", &why))
        return hr_fail(HR_INVALID_ARGUMENT, "it is an error and no answer: %.*s", HR_STR_ARG(why));
    return hr_fail(HR_INVALID_ARGUMENT,
                   "it holds no sampling trace: ask for one with \"sampling_trace\": true");
}

static hr_status take_header(hr_record *r, const hr_json *answer, hr_arena *arena)
{
    const hr_json *v = hr_json_get(answer, "sampling_trace");
    if (!v || v->type != HR_JSON_OBJECT || r->header) return HR_OK;
    r->header = v;
    return read_header(r, arena);
}

static hr_status read_body(hr_str text, hr_arena *arena, hr_record *r)
{
    const hr_json *answer;
    hr_status st = hr_json_parse(text, NULL, arena, &answer);
    if (st) return hr_fail_prefix(st, "it is no answer's JSON, or not all of it");
    HR_TRY(take_header(r, answer, arena));
    return r->header ? add_choices(r, answer) : no_trace(answer);
}

typedef struct events {
    const hr_json **at; /* owned [n] */
    size_t n, capacity;
} events;

/* Every "data: {…}" line, parsed. */
static hr_status read_events(hr_str text, hr_arena *arena, events *e)
{
    for (size_t at = 0; at < text.n;) {
        size_t end = hr_str_find(text, HR_STR("\n"), at);
        if (end == SIZE_MAX) end = text.n;
        hr_str line = hr_str_trim(hr_str_slice(text, at, end));
        at = end + 1;
        if (!hr_str_starts(line, HR_STR("data:"))) continue;
        line = hr_str_trim(hr_str_slice(line, 5, line.n));
        if (hr_str_eq(line, HR_STR("[DONE]"))) continue;
        HR_TRY(hr_grow((void **)&e->at, &e->capacity, e->n + 1, sizeof *e->at));
        hr_status st = hr_json_parse(line, NULL, arena, &e->at[e->n]);
        if (st) return hr_fail_prefix(st, "event %zu of its stream", e->n + 1);
        e->n++;
    }
    return HR_OK;
}

/* The header comes with the end of the first choice, so events are gone through twice. */
static hr_status read_stream(hr_str text, hr_arena *arena, hr_record *r)
{
    events e = { 0 };
    hr_status st = read_events(text, arena, &e);
    for (size_t i = 0; i < e.n && !st; i++) st = take_header(r, e.at[i], arena);
    if (!st && !r->header) st = no_trace(e.n ? e.at[e.n - 1] : NULL);
    for (size_t i = 0; i < e.n && !st; i++) st = add_choices(r, e.at[i]);
    hr_free(e.at);
    return st;
}

hr_status hr_record_read(hr_str text, hr_arena *arena, hr_record *out)
{
    *out = (hr_record){ 0 };
    text = hr_str_trim(text);
    if (!text.n) return hr_fail(HR_INVALID_ARGUMENT, "it is empty");
    if (hr_str_starts(text, HR_STR("data:")) || hr_str_starts(text, HR_STR(":")))
        HR_TRY(read_stream(text, arena, out));
    else HR_TRY(read_body(text, arena, out));
    return check_whole(out);
}

void hr_record_deinit(hr_record *r)
{
    for (size_t i = 0; r->choices && i < r->n_choices; i++) hr_free(r->choices[i].tokens);
    *r = (hr_record){ 0 };
}

const char *hr_record_text(const hr_record *r, hr_arena *arena, const char *object,
                           const char *name)
{
    const hr_json *in = object ? hr_json_get(r->header, object) : r->header;
    const hr_json *v = hr_json_get(in, name);
    if (!v || v->type != HR_JSON_STRING || memchr(v->text.p, 0, v->text.n)) return NULL;
    return hr_arena_copy(arena, v->text.p, v->text.n);
}

/* ---- comparing ------------------------------------------------------------------------------- */

static bool scalars_differ(const hr_json *a, const hr_json *b)
{
    double x, y;
    if (a->type == HR_JSON_NUMBER && !hr_str_eq(a->text, b->text))
        return hr_json_to_f64(a, "", &x) || hr_json_to_f64(b, "", &y) || x != y;
    return a->type == HR_JSON_STRING && !hr_str_eq(a->text, b->text);
}

static bool lists_differ(const hr_json *a, const hr_json *b, hr_buf *path, const hr_json **in_a,
                         const hr_json **in_b)
{
    for (size_t i = 0; i < a->count && i < b->count; i++)
        if (hr_json_differs(&a->items[i], &b->items[i], path, in_a, in_b)) return true;
    *in_a = a, *in_b = b;
    return a->count != b->count;
}

/* Members of `a`, wherever they stand in `b`; what only `b` has makes a difference, too. */
static bool objects_differ(const hr_json *a, const hr_json *b, hr_buf *path, const hr_json **in_a,
                           const hr_json **in_b)
{
    for (size_t i = 0; i < a->count; i++) {
        const hr_json *x = &a->items[i], *y = NULL;
        for (size_t k = 0; k < b->count && !y; k++)
            if (hr_str_eq(b->items[k].key, x->key)) y = &b->items[k];
        size_t before = path->n;
        if (path->n) hr_buf_add_byte(path, '.');
        hr_buf_add_str(path, x->key);
        if (!y || hr_json_differs(x, y, path, in_a, in_b)) {
            if (!y) *in_a = x, *in_b = NULL;
            return true;
        }
        path->n = before;
    }
    *in_a = a, *in_b = b;
    return a->count != b->count;
}

bool hr_json_differs(const hr_json *a, const hr_json *b, hr_buf *path, const hr_json **in_a,
                     const hr_json **in_b)
{
    *in_a = a, *in_b = b;
    if (a->type != b->type) return true;
    bool differ = a->type == HR_JSON_OBJECT  ? objects_differ(a, b, path, in_a, in_b)
                  : a->type == HR_JSON_ARRAY ? lists_differ(a, b, path, in_a, in_b)
                                             : scalars_differ(a, b);
    return differ;
}
