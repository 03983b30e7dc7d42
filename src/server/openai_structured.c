/* Structured outputs: which texts a request's answer may be.
 *
 * I/O thread; lists go to the exchange's arena. What an answer may be is given one way, and only as
 * a choice among texts; other grammars are refused by their name. */
#include "server/openai.h"
#include "text/choices.h"

static hr_status read_choice(hr_openai_parser *p, const hr_json *v)
{
    headrace_sampling *s = &p->out->sampling;
    if (s->n_choice) return hr_openai_refuse(p, "the request has a choice already");
    if (v->type != HR_JSON_ARRAY) return hr_openai_refuse(p, "choice must be a list of strings");
    if (!v->count) return hr_openai_refuse(p, "choice: the list is empty");
    return hr_openai_texts(p, v, HR_CHOICES_MAX, &s->choice, &s->n_choice);
}

hr_status hr_openai_read_guided_choice(hr_openai_parser *p, const hr_json *v)
{
    return read_choice(p, v);
}

/* Members that change nothing where the answer is a choice. */
static bool is_harmless(hr_str key)
{
    static const char *const names[] = { "disable_any_whitespace", "disable_fallback",
                                         "disable_additional_properties", "whitespace_pattern" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (hr_str_eq_c(key, names[i])) return true;
    return false;
}

hr_status hr_openai_read_structured_outputs(hr_openai_parser *p, const hr_json *v)
{
    if (v->type != HR_JSON_OBJECT)
        return hr_openai_refuse(p, "must be an object such as {\"choice\": [\"yes\", \"no\"]}");
    bool given = false;
    for (size_t i = 0; i < v->count; i++) {
        const hr_json *item = &v->items[i];
        if (item->type == HR_JSON_NULL || is_harmless(item->key)) continue;
        if (!hr_str_eq_c(item->key, "choice"))
            return hr_fail(
                HR_UNIMPLEMENTED,
                "structured_outputs: '%.*s' is not supported by this server, only choice",
                (int)(item->key.n > 40 ? 40 : item->key.n), item->key.p);
        HR_TRY(read_choice(p, item));
        given = true;
    }
    return given ? HR_OK : hr_openai_refuse(p, "choice is missing");
}
