/* A request's fields, by the list.
 *
 * I/O thread; owns nothing, everything goes to the exchange's arena. The body is walked once and
 * each member looked up in the list, so a field is read, refused or known to be harmless, and only
 * a name that neither OpenAI nor vLLM know is passed over (and logged, once). Ranges that the
 * sampler checks are left to it: there is one rule per field. */
#include <stdio.h>

#include "base/log.h"
#include "server/generation.h"
#include "server/openai.h"

typedef enum field_kind {
    KIND_FLAG,
    KIND_INT,
    KIND_U32,
    KIND_I64,
    KIND_F64,
    KIND_TEXT,
    KIND_C_TEXT,
    KIND_C_TEXTS,
    KIND_IDS,
    KIND_CALL,
    KIND_REFUSED,
    KIND_ONLY_FALSE,
    KIND_ONLY_ONE,
    KIND_HARMLESS,
} field_kind;

typedef struct field {
    const char *name;
    field_kind kind;
    int endpoints;       /* bits of hr_openai_endpoint */
    size_t at, count_at; /* offsets in hr_openai: the value; a list's length */
    int64_t least, most; /* integers; most entries of a list */
    hr_status (*read)(hr_openai_parser *p, const hr_json *v);
} field;

#define HR_FIELD(name, kind, member, endpoints, least, most)                                       \
    { name, KIND_##kind, endpoints, offsetof(hr_openai, member), 0, least, most, NULL },
#define HR_FIELD_LIST(name, kind, member, count, endpoints, most)                                  \
    { name, KIND_##kind, endpoints, offsetof(hr_openai, member), offsetof(hr_openai, count),       \
      0,    most,        NULL },
#define HR_FIELD_CALL(name, suffix, endpoints)                                                     \
    { name, KIND_CALL, endpoints, 0, 0, 0, 0, hr_openai_read_##suffix },
#define HR_FIELD_REFUSED(name, endpoints) { name, KIND_REFUSED, endpoints, 0, 0, 0, 0, NULL },
#define HR_FIELD_ONLY(name, value, endpoints)                                                      \
    { name, KIND_ONLY_##value, endpoints, 0, 0, 0, 0, NULL },
#define HR_FIELD_HARMLESS(name, endpoints) { name, KIND_HARMLESS, endpoints, 0, 0, 0, 0, NULL },
static const field fields[] = {
#include "server/openai_fields.def"
};
#undef HR_FIELD
#undef HR_FIELD_LIST
#undef HR_FIELD_CALL
#undef HR_FIELD_REFUSED
#undef HR_FIELD_ONLY
#undef HR_FIELD_HARMLESS

static const field *find_field(hr_str name, hr_openai_endpoint endpoint)
{
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if ((fields[i].endpoints & (int)endpoint) && hr_str_eq_c(name, fields[i].name))
            return &fields[i];
    return NULL;
}

hr_status hr_openai_refuse(hr_openai_parser *p, const char *format, ...)
{
    char why[HR_MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    return hr_fail(HR_INVALID_ARGUMENT, "%s: %s", p->param, why);
}

/* ---- kinds ----------------------------------------------------------------------------------- */

static hr_status read_integer(hr_openai_parser *p, const field *f, const hr_json *v, int64_t *out)
{
    HR_TRY(hr_json_to_i64(v, f->name, out));
    if (*out >= f->least && *out <= f->most) return HR_OK;
    if (f->most == INT64_MAX)
        return hr_openai_refuse(p, "%lld is below %lld", (long long)*out, (long long)f->least);
    return hr_openai_refuse(p, "%lld is not in %lld to %lld", (long long)*out, (long long)f->least,
                            (long long)f->most);
}

static hr_status no_memory(hr_openai_parser *p)
{
    return hr_fail(HR_RESOURCE_EXHAUSTED, "%s: no memory", p->param);
}

hr_status hr_openai_check_list(hr_openai_parser *p, const hr_json *v)
{
    if (v->type != HR_JSON_ARRAY) return hr_openai_refuse(p, "must be a list");
    if (v->count <= HR_OPENAI_MAX_ENTRIES) return HR_OK;
    return hr_openai_refuse(p, "%zu entries, at most %d are taken", v->count,
                            HR_OPENAI_MAX_ENTRIES);
}

hr_status hr_openai_source(hr_openai_parser *p, const hr_json *v, const char **out)
{
    *out = hr_arena_copy(&p->x->arena, v->text.p, v->text.n);
    return *out ? HR_OK : no_memory(p);
}

hr_status hr_openai_c_string(hr_openai_parser *p, hr_str s, const char **out)
{
    *out = NULL;
    if (s.n && memchr(s.p, 0, s.n)) return hr_openai_refuse(p, "a text must not hold U+0000");
    *out = hr_arena_copy(&p->x->arena, s.p, s.n);
    return *out ? HR_OK : no_memory(p);
}

hr_status hr_openai_texts(hr_openai_parser *p, const hr_json *v, size_t most,
                          const char *const **out, size_t *n)
{
    bool one = v->type == HR_JSON_STRING;
    size_t count = one ? 1 : v->count;
    if (!one && v->type != HR_JSON_ARRAY)
        return hr_openai_refuse(p, "must be a string or a list of strings");
    if (count > most) return hr_openai_refuse(p, "%zu entries, at most %zu are taken", count, most);
    const char **list = hr_arena_array(&p->x->arena, count, sizeof *list);
    if (!list) return no_memory(p);
    for (size_t i = 0; i < count; i++) {
        const hr_json *item = one ? v : &v->items[i];
        if (item->type != HR_JSON_STRING)
            return hr_openai_refuse(p, "must be a string or a list of strings");
        HR_TRY(hr_openai_c_string(p, item->text, &list[i]));
    }
    *out = list;
    *n = count;
    return HR_OK;
}

/* Digits alone, as ids nearly always are: a long list must not hold up the loop. */
static bool quick_id(hr_str s, int64_t *out)
{
    int64_t value = 0;
    if (s.n == 0 || s.n > 18) return false;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9') return false;
        value = value * 10 + (s.p[i] - '0');
    }
    *out = value;
    return true;
}

hr_status hr_openai_ids(hr_openai_parser *p, const hr_json *v, size_t most, const int64_t **ids,
                        size_t *n)
{
    if (v->type != HR_JSON_ARRAY) return hr_openai_refuse(p, "must be a list of integers");
    if (v->count > most)
        return hr_openai_refuse(p, "%zu entries, at most %zu are taken", v->count, most);
    int64_t *list = hr_arena_array(&p->x->arena, v->count, sizeof *list);
    if (!list) return no_memory(p);
    for (size_t i = 0; i < v->count; i++) {
        const hr_json *item = &v->items[i];
        if (item->type != HR_JSON_NUMBER || !quick_id(item->text, &list[i]))
            HR_TRY(hr_json_to_i64(item, p->param, &list[i]));
    }
    *ids = list;
    *n = v->count;
    return HR_OK;
}

static hr_status read_only(hr_openai_parser *p, const field *f, const hr_json *v)
{
    double number = 0;
    bool is_it = f->kind == KIND_ONLY_FALSE ? v->type == HR_JSON_FALSE
                                            : !hr_json_to_f64(v, f->name, &number) && number == 1.0;
    if (is_it) return HR_OK;
    return hr_openai_refuse(p, "not supported; %s is the only value taken",
                            f->kind == KIND_ONLY_FALSE ? "false" : "1.0");
}

static hr_status read_field(hr_openai_parser *p, const field *f, const hr_json *v)
{
    char *at = (char *)p->out + f->at;
    size_t *count = (size_t *)(void *)((char *)p->out + f->count_at);
    int64_t integer = 0;
    bool flag;
    switch (f->kind) {
    case KIND_FLAG:
        HR_TRY(hr_json_to_bool(v, f->name, &flag));
        *(int *)(void *)at = flag;
        return HR_OK;
    case KIND_INT:
        HR_TRY(read_integer(p, f, v, &integer));
        *(int *)(void *)at = (int)integer;
        return HR_OK;
    case KIND_U32:
        HR_TRY(read_integer(p, f, v, &integer));
        *(uint32_t *)(void *)at = (uint32_t)integer;
        return HR_OK;
    case KIND_I64:
        HR_TRY(read_integer(p, f, v, &integer));
        *(int64_t *)(void *)at = integer;
        return HR_OK;
    case KIND_F64: return hr_json_to_f64(v, f->name, (double *)(void *)at);
    case KIND_TEXT: return hr_json_to_str(v, f->name, (hr_str *)(void *)at);
    case KIND_C_TEXT:
        if (v->type != HR_JSON_STRING) return hr_openai_refuse(p, "must be a string");
        return hr_openai_c_string(p, v->text, (const char **)(void *)at);
    case KIND_C_TEXTS:
        return hr_openai_texts(p, v, (size_t)f->most, (const char *const **)(void *)at, count);
    case KIND_IDS: return hr_openai_ids(p, v, (size_t)f->most, (const int64_t **)(void *)at, count);
    case KIND_CALL: return f->read(p, v);
    case KIND_REFUSED:
        return hr_fail(HR_UNIMPLEMENTED, "%s: not supported by this server", f->name);
    case KIND_ONLY_FALSE:
    case KIND_ONLY_ONE: return read_only(p, f, v);
    case KIND_HARMLESS: return HR_OK;
    }
    return HR_OK;
}

/* ---- fields common to the endpoints ---------------------------------------------------------- */

hr_status hr_openai_read_logit_bias(hr_openai_parser *p, const hr_json *v)
{
    headrace_sampling *s = &p->out->sampling;
    if (v->type != HR_JSON_OBJECT) return hr_openai_refuse(p, "must be an object of numbers");
    if (v->count > HR_SAMPLING_MAX_BIAS)
        return hr_openai_refuse(p, "%zu entries, at most %d are taken", v->count,
                                HR_SAMPLING_MAX_BIAS);
    int64_t *ids = hr_arena_array(&p->x->arena, v->count, sizeof *ids);
    double *values = hr_arena_array(&p->x->arena, v->count, sizeof *values);
    if (!ids || !values) return no_memory(p);
    for (size_t i = 0; i < v->count; i++) {
        const hr_json *item = &v->items[i];
        if (hr_str_to_i64(item->key, &ids[i]))
            return hr_openai_refuse(p, "'%.*s' is not a token id",
                                    (int)(item->key.n > 40 ? 40 : item->key.n), item->key.p);
        HR_TRY(hr_json_to_f64(item, p->param, &values[i]));
    }
    s->logit_bias_ids = ids;
    s->logit_bias_values = values;
    s->n_logit_bias = v->count;
    return HR_OK;
}

hr_status hr_openai_read_stream_options(hr_openai_parser *p, const hr_json *v)
{
    if (v->type != HR_JSON_OBJECT) return hr_openai_refuse(p, "must be an object");
    p->out->has_stream_options = 1;
    const struct {
        const char *name;
        int *out;
    } flags[] = { { "include_usage", &p->out->include_usage },
                  { "continuous_usage_stats", &p->out->continuous_usage } };
    for (size_t i = 0; i < v->count; i++) {
        const hr_json *item = &v->items[i];
        for (size_t k = 0; k < 2; k++) {
            bool flag;
            if (!hr_str_eq_c(item->key, flags[k].name) || item->type == HR_JSON_NULL) continue;
            HR_TRY(hr_json_to_bool(item, "stream_options", &flag));
            *flags[k].out = flag;
        }
    }
    return HR_OK;
}

hr_status hr_openai_read_response_format(hr_openai_parser *p, const hr_json *v)
{
    const hr_json *type = hr_json_get(v, "type");
    if (!type || type->type != HR_JSON_STRING)
        return hr_openai_refuse(p, "must be an object with a type");
    if (hr_str_eq_c(type->text, "text")) return HR_OK;
    return hr_fail(HR_UNIMPLEMENTED, "response_format: the type '%.*s' is not supported, only text",
                   (int)(type->text.n > 40 ? 40 : type->text.n), type->text.p);
}

hr_status hr_openai_read_modalities(hr_openai_parser *p, const hr_json *v)
{
    bool text = v->type == HR_JSON_ARRAY && v->count == 1 && v->items[0].type == HR_JSON_STRING &&
                hr_str_eq_c(v->items[0].text, "text");
    return text ? HR_OK : hr_openai_refuse(p, "not supported; [\"text\"] is the only value taken");
}

/* ---- the body -------------------------------------------------------------------------------- */

static void set_defaults(hr_openai_parser *p, hr_openai_endpoint endpoint)
{
    hr_openai *o = p->out;
    *o = (hr_openai){ .endpoint = endpoint,
                      .logprobs = -1,
                      .top_logprobs = -1,
                      .prompt_logprobs = -1,
                      .max_tokens = -1,
                      .max_completion_tokens = -1,
                      .generation_prompt = -1,
                      .parallel_tool_calls = 1,
                      .include_reasoning = 1 };
    headrace_request_init(&o->request);
    headrace_sampling_init(p->x->server->engine, &o->sampling);
}

static hr_status unknown(hr_openai_parser *p, hr_str name)
{
    int shown = (int)(name.n > 100 ? 100 : name.n);
    if (p->x->server->options.strict) {
        p->param = hr_arena_copy(&p->x->arena, name.p, (size_t)shown);
        return hr_fail(HR_INVALID_ARGUMENT, "%.*s: there is no such field", shown, name.p);
    }
    if (hr_generations_first_time(p->x->server->generations, name))
        hr_log(HR_LOG_WARNING, "server: requests hold the unknown field '%.*s': it is ignored",
               shown, name.p);
    return HR_OK;
}

static hr_status read_members(hr_openai_parser *p, const hr_json *body)
{
    if (body->count > HR_OPENAI_MAX_FIELDS)
        return hr_fail(HR_INVALID_ARGUMENT, "the body has %zu fields, at most %d are read",
                       body->count, HR_OPENAI_MAX_FIELDS);
    for (size_t i = 0; i < body->count; i++) {
        const hr_json *v = &body->items[i];
        const field *f = find_field(v->key, p->out->endpoint);
        p->param = f ? f->name : NULL;
        if (!f) HR_TRY(unknown(p, v->key));
        else if (v->type != HR_JSON_NULL) HR_TRY(read_field(p, f, v));
    }
    p->param = NULL;
    return HR_OK;
}

static hr_status settle(hr_openai_parser *p)
{
    switch (p->out->endpoint) {
    case HR_OPENAI_COMPLETIONS: return hr_openai_settle_completions(p);
    case HR_OPENAI_CHAT: return hr_openai_settle_chat(p);
    case HR_OPENAI_TOKENIZE: return hr_openai_settle_tokenize(p);
    case HR_OPENAI_DETOKENIZE: return hr_openai_settle_detokenize(p);
    }
    return HR_OK;
}

static hr_status check_common(hr_openai_parser *p)
{
    hr_openai *o = p->out;
    p->param = "model";
    HR_TRY(hr_openai_check_model(p->x->server, o->model));
    p->param = "request_id";
    if (o->request_id.n > HR_OPENAI_MAX_REQUEST_ID)
        return hr_openai_refuse(p, "longer than %d bytes", HR_OPENAI_MAX_REQUEST_ID);
    p->param = "stream_options";
    if (o->has_stream_options && !o->stream)
        return hr_openai_refuse(p, "only where stream is true");
    p->param = "prompt_logprobs";
    if (o->stream && o->prompt_logprobs >= 0)
        return hr_openai_refuse(p, "not where stream is true");
    p->param = NULL;
    return HR_OK;
}

/* ---- the door -------------------------------------------------------------------------------- */

const char *hr_openai_param_of(const char *message)
{
    size_t n = strspn(message, "abcdefghijklmnopqrstuvwxyz_0123456789");
    hr_str word = { message, n };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (hr_str_eq_c(word, fields[i].name)) return fields[i].name;
    return NULL;
}

hr_status hr_openai_parse(hr_exchange *x, hr_openai_endpoint endpoint, hr_openai *out,
                          const char **param)
{
    hr_openai_parser p = { .x = x, .out = out };
    *param = NULL;
    set_defaults(&p, endpoint);
    hr_status st = HR_OK;
    if (!x->json || x->json->type != HR_JSON_OBJECT)
        st = hr_fail(HR_INVALID_ARGUMENT, "the body must be a JSON object");
    if (!st) st = read_members(&p, x->json);
    if (!st) st = check_common(&p);
    if (!st) st = settle(&p);
    if (st) *param = p.param;
    return st;
}

void hr_openai_handle(hr_exchange *x, hr_openai_endpoint endpoint)
{
    static const hr_generation_kind kinds[] = { [HR_OPENAI_COMPLETIONS] = HR_GENERATION_ANSWER,
                                                [HR_OPENAI_CHAT] = HR_GENERATION_ANSWER,
                                                [HR_OPENAI_TOKENIZE] = HR_GENERATION_TOKENIZE,
                                                [HR_OPENAI_DETOKENIZE] = HR_GENERATION_DETOKENIZE };
    hr_openai o;
    const char *param = NULL;
    hr_status st = x->server->engine ? hr_openai_parse(x, endpoint, &o, &param)
                                     : hr_fail(HR_UNAVAILABLE, "the model is being loaded");
    if (st) hr_request_refuse(x, st, param);
    else if (o.sampling.sampling_trace && !x->server->model_hash[0]) hr_exchange_await_hash(x);
    else hr_generation_run(x, &o, kinds[endpoint]);
}
