/* Sampling parameters as JSON and back, by one list.
 *
 * Any thread; owns nothing. Numbers are all written, lists where there are any: what is written is
 * what counted, whatever the defaults of another model or build may be. */
#include <string.h>

#include "engine/engine_int.h"
#include "engine/trace.h"

typedef enum kind { KIND_U32, KIND_I64, KIND_INT, KIND_F64, KIND_FLAG, KIND_IDS, KIND_TEXTS } kind;

typedef struct field {
    const char *name;
    kind kind;
    size_t at, count_at; /* offsets: the value; a list's length */
} field;

#define FIELD(member, kind)                                                                        \
    {                                                                                              \
#member, KIND_##kind, offsetof(headrace_sampling, member), 0                               \
    }
#define LIST(member, kind)                                                                         \
    {                                                                                              \
#member, KIND_##kind, offsetof(headrace_sampling, member),                                 \
            offsetof(headrace_sampling, n_##member)                                                \
    }
static const field fields[] = {
    FIELD(n, U32),
    FIELD(temperature, F64),
    FIELD(top_k, I64),
    FIELD(top_p, F64),
    FIELD(min_p, F64),
    FIELD(presence_penalty, F64),
    FIELD(frequency_penalty, F64),
    FIELD(repetition_penalty, F64),
    FIELD(seed, I64),
    FIELD(max_tokens, I64),
    FIELD(min_tokens, I64),
    FIELD(ignore_eos, FLAG),
    FIELD(include_stop_str_in_output, FLAG),
    FIELD(skip_special_tokens, FLAG),
    FIELD(logprobs, INT),
    FIELD(prompt_logprobs, INT),
    LIST(stop, TEXTS),
    LIST(stop_token_ids, IDS),
    LIST(allowed_token_ids, IDS),
    LIST(bad_words, TEXTS),
    LIST(logprob_token_ids, IDS),
    LIST(choice, TEXTS),
};
#define N_FIELDS (sizeof fields / sizeof *fields)

/* ---- writing --------------------------------------------------------------------------------- */

static void write_list(hr_json_writer *w, const field *f, const void *at, size_t n)
{
    hr_json_begin_array(w);
    for (size_t i = 0; i < n; i++) {
        if (f->kind == KIND_IDS) hr_json_i64(w, (*(const int64_t *const *)at)[i]);
        else hr_json_str(w, hr_str_c((*(const char *const *const *)at)[i]));
    }
    hr_json_end_array(w);
}

static void write_field(hr_json_writer *w, const headrace_sampling *s, const field *f)
{
    const void *at = (const char *)s + f->at;
    size_t n = 0;
    if (f->count_at) memcpy(&n, (const char *)s + f->count_at, sizeof n);
    if (f->count_at && !n) return;
    hr_json_key(w, hr_str_c(f->name));
    switch (f->kind) {
    case KIND_U32: hr_json_u64(w, *(const uint32_t *)at); return;
    case KIND_I64: hr_json_i64(w, *(const int64_t *)at); return;
    case KIND_INT: hr_json_i64(w, *(const int *)at); return;
    case KIND_F64: hr_json_f64(w, *(const double *)at); return;
    case KIND_FLAG: hr_json_bool(w, *(const int *)at != 0); return;
    case KIND_IDS:
    case KIND_TEXTS: write_list(w, f, at, n); return;
    }
}

void hr_sampling_write(hr_json_writer *w, const headrace_sampling *s)
{
    hr_json_begin_object(w);
    for (size_t i = 0; i < N_FIELDS; i++) write_field(w, s, &fields[i]);
    if (s->n_logit_bias) {
        hr_json_key(w, HR_STR("logit_bias"));
        hr_json_begin_array(w); /* pairs keep their order */
        for (size_t i = 0; i < s->n_logit_bias; i++) {
            hr_json_begin_array(w);
            hr_json_i64(w, s->logit_bias_ids[i]);
            hr_json_f64(w, s->logit_bias_values[i]);
            hr_json_end_array(w);
        }
        hr_json_end_array(w);
    }
    hr_json_end_object(w);
}

/* ---- reading --------------------------------------------------------------------------------- */

static hr_status refuse(const hr_json *v, const char *why)
{
    return hr_fail(HR_INVALID_ARGUMENT, "parameters: %.*s %s",
                   (int)(v->key.n > 100 ? 100 : v->key.n), v->key.p, why);
}

static hr_status check_list(const hr_json *v)
{
    return v->type == HR_JSON_ARRAY ? HR_OK : refuse(v, "is no list");
}

static hr_status out_of_memory(void)
{
    return hr_fail(HR_RESOURCE_EXHAUSTED, "parameters");
}

static hr_status read_ids(const hr_json *v, hr_arena *arena, const int64_t **out, size_t *n)
{
    HR_TRY(check_list(v));
    int64_t *list = hr_arena_array(arena, v->count + 1, sizeof *list);
    if (!list) return out_of_memory();
    for (size_t i = 0; i < v->count; i++) HR_TRY(hr_json_to_i64(&v->items[i], "ids", &list[i]));
    *out = list;
    *n = v->count;
    return HR_OK;
}

static hr_status read_texts(const hr_json *v, hr_arena *arena, const char *const **out, size_t *n)
{
    HR_TRY(check_list(v));
    const char **list = hr_arena_array(arena, v->count + 1, sizeof *list);
    if (!list) return out_of_memory();
    for (size_t i = 0; i < v->count; i++) {
        hr_str text;
        HR_TRY(hr_json_to_str(&v->items[i], "texts", &text));
        if (text.n && memchr(text.p, 0, text.n)) return refuse(v, "holds U+0000");
        list[i] = hr_arena_copy(arena, text.p, text.n);
        if (!list[i]) return out_of_memory();
    }
    *out = list;
    *n = v->count;
    return HR_OK;
}

static hr_status read_bias(const hr_json *v, hr_arena *arena, headrace_sampling *s)
{
    HR_TRY(check_list(v));
    int64_t *ids = hr_arena_array(arena, v->count + 1, sizeof *ids);
    double *values = hr_arena_array(arena, v->count + 1, sizeof *values);
    if (!ids || !values) return out_of_memory();
    for (size_t i = 0; i < v->count; i++) {
        const hr_json *pair = &v->items[i];
        if (pair->type != HR_JSON_ARRAY || pair->count != 2) return refuse(v, "has no pairs");
        HR_TRY(hr_json_to_i64(&pair->items[0], "logit_bias", &ids[i]));
        HR_TRY(hr_json_to_f64(&pair->items[1], "logit_bias", &values[i]));
    }
    s->logit_bias_ids = ids;
    s->logit_bias_values = values;
    s->n_logit_bias = v->count;
    return HR_OK;
}

static hr_status read_integer(const field *f, const hr_json *v, int64_t least, int64_t most,
                              int64_t *out)
{
    HR_TRY(hr_json_to_i64(v, f->name, out));
    return *out >= least && *out <= most ? HR_OK : refuse(v, "is out of range");
}

static hr_status read_field(const field *f, const hr_json *v, hr_arena *arena, headrace_sampling *s)
{
    void *at = (char *)s + f->at;
    size_t *n = (size_t *)(void *)((char *)s + f->count_at);
    int64_t integer;
    bool flag;
    switch (f->kind) {
    case KIND_U32:
        HR_TRY(read_integer(f, v, 1, HR_SAMPLING_MAX_N, &integer));
        *(uint32_t *)at = (uint32_t)integer;
        return HR_OK;
    case KIND_I64: return hr_json_to_i64(v, f->name, at);
    case KIND_INT:
        HR_TRY(read_integer(f, v, -1, INT32_MAX, &integer));
        *(int *)at = (int)integer;
        return HR_OK;
    case KIND_F64: return hr_json_to_f64(v, f->name, at);
    case KIND_FLAG:
        HR_TRY(hr_json_to_bool(v, f->name, &flag));
        *(int *)at = flag;
        return HR_OK;
    case KIND_IDS: return read_ids(v, arena, at, n);
    case KIND_TEXTS: return read_texts(v, arena, at, n);
    }
    return HR_OK;
}

hr_status hr_sampling_read(const hr_json *v, hr_arena *arena, headrace_sampling *s)
{
    headrace_sampling_init(NULL, s);
    if (!v || v->type != HR_JSON_OBJECT)
        return hr_fail(HR_INVALID_ARGUMENT, "parameters: an object is expected");
    for (size_t i = 0; i < v->count; i++) {
        const hr_json *member = &v->items[i];
        size_t k = 0;
        while (k < N_FIELDS && !hr_str_eq_c(member->key, fields[k].name)) k++;
        if (k < N_FIELDS) HR_TRY(read_field(&fields[k], member, arena, s));
        else if (hr_str_eq_c(member->key, "logit_bias")) HR_TRY(read_bias(member, arena, s));
        else return refuse(member, "is nothing that this build knows");
    }
    return HR_OK;
}
