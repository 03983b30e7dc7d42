/* Fields against their tables. A field that is not in its table, or that says something else,
 * changes the mathematics in a way that nobody here implements, and is refused by name.
 *
 * Runs on the thread that loads; owns nothing. */
#include "model/quantization_fields.h"

#include <stdio.h>
#include <string.h>

hr_str hr_quant_text(const hr_json *v)
{
    switch (v->type) {
    case HR_JSON_NULL: return HR_STR("null");
    case HR_JSON_FALSE: return HR_STR("false");
    case HR_JSON_TRUE: return HR_STR("true");
    case HR_JSON_NUMBER:
    case HR_JSON_STRING:
    case HR_JSON_ARRAY:
    case HR_JSON_OBJECT: return v->text;
    }
    return HR_STR("");
}

hr_status hr_quant_refuse(const char *where, hr_str key, hr_str text, const char *const *choices)
{
    char wanted[160] = "";
    size_t n = 0;
    for (int i = 0; choices && i < HR_QUANT_MOST_CHOICES && choices[i]; i++)
        n += (size_t)snprintf(wanted + n, sizeof wanted - n, "%s%s", i ? " or " : "; ", choices[i]);
    return hr_fail(HR_UNIMPLEMENTED, "config.json: %s.%.*s %.*s is not supported%s%s", where,
                   HR_STR_ARG(key), (int)(text.n > 80 ? 80 : text.n), text.p, wanted,
                   n ? " is" : "");
}

static hr_status check_field(const char *where, const hr_quant_field *f, const hr_json *v)
{
    hr_str text = v ? hr_quant_text(v) : hr_str_c(f->absent);
    if (!f->choices[0]) return HR_OK;
    for (int i = 0; i < HR_QUANT_MOST_CHOICES && f->choices[i]; i++)
        if (hr_str_eq_c(text, f->choices[i])) return HR_OK;
    return hr_quant_refuse(where, hr_str_c(f->key), v ? text : HR_STR("(absent)"), f->choices);
}

static bool is_known(const hr_quant_fields *t, hr_str key)
{
    for (size_t i = 0; i < t->n; i++)
        if (hr_str_eq_c(key, t->fields[i].key)) return true;
    return false;
}

hr_status hr_quant_check(const char *where, hr_quant_fields t, const hr_json *o)
{
    if (!o || o->type != HR_JSON_OBJECT)
        return hr_fail(HR_UNIMPLEMENTED, "config.json: %s %.*s is not supported; an object is",
                       where, HR_STR_ARG(o ? hr_quant_text(o) : HR_STR("(absent)")));
    for (size_t i = 0; i < t.n; i++)
        HR_TRY(check_field(where, &t.fields[i], hr_json_get(o, t.fields[i].key)));
    for (size_t i = 0; i < o->count; i++)
        if (o->items[i].type != HR_JSON_NULL && !is_known(&t, o->items[i].key))
            return hr_quant_refuse(where, o->items[i].key, hr_quant_text(&o->items[i]), NULL);
    return HR_OK;
}
