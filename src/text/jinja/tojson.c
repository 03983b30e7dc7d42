/* JSON in and out: the caller's variables to values, and the tojson filter.
 *
 * tojson is transformers', not jinja2's: json.dumps with ensure_ascii off, no sorting, ", " and
 * ": " between, nothing escaped for HTML. Text keeps its marks through the escaping; an escape
 * sequence is data when its character was. Lives in the rendering's arena. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "text/jinja/jinja_int.h"

/* ---- in ------------------------------------------------------------------------------------- */

/* Integers beyond 64 bits keep their digits; floats out of range are infinite, as in Python. */
static hr_status number_from_json(hr_jinterp *it, hr_str text, bool integer, bool data,
                                  hr_jval *out)
{
    int64_t i;
    if (integer && !hr_str_to_i64(text, &i)) {
        *out = hr_jinja_int(i);
    } else if (integer) {
        HR_TRY(hr_jinja_string(it, text, data, out));
        out->kind = HR_J_BIG;
    } else {
        char *copy;
        HR_TRY(hr_jinja_alloc(it, text.n + 1, 1, &copy));
        memcpy(copy, text.p, text.n);
        *out = hr_jinja_float(strtod(copy, NULL));
    }
    out->data = data;
    return HR_OK;
}

static hr_status list_from_json(hr_jinterp *it, const hr_json *j, bool data, hr_jval *out)
{
    hr_jval *items;
    HR_TRY(hr_jinja_alloc(it, j->count, sizeof *items, &items));
    for (size_t i = 0; i < j->count; i++)
        HR_TRY(hr_jinja_from_json(it, &j->items[i], data, &items[i]));
    return hr_jinja_list(it, HR_J_LIST, items, j->count, out);
}

static hr_status dict_from_json(hr_jinterp *it, const hr_json *j, bool data, hr_jval *out)
{
    hr_jdict *d;
    HR_TRY(hr_jinja_dict_new(it, j->count, &d));
    for (size_t i = 0; i < j->count; i++) {
        hr_jval key, value;
        HR_TRY(hr_jinja_string(it, j->items[i].key, data, &key));
        HR_TRY(hr_jinja_from_json(it, &j->items[i], data, &value));
        HR_TRY(hr_jinja_dict_add(it, d, key, value)); /* the reader refuses equal keys */
    }
    *out = (hr_jval){ .kind = HR_J_DICT, .as.d = d };
    return HR_OK;
}

static hr_status value_from_json(hr_jinterp *it, const hr_json *j, bool data, hr_jval *out)
{
    switch (j->type) {
    case HR_JSON_NULL: *out = (hr_jval){ .kind = HR_J_NONE, .data = data }; return HR_OK;
    case HR_JSON_FALSE:
    case HR_JSON_TRUE:
        *out = hr_jinja_bool(j->type == HR_JSON_TRUE);
        out->data = data;
        return HR_OK;
    case HR_JSON_NUMBER: return number_from_json(it, j->text, hr_json_is_integer(j), data, out);
    case HR_JSON_STRING: return hr_jinja_string(it, j->text, data, out);
    case HR_JSON_ARRAY: return list_from_json(it, j, data, out);
    case HR_JSON_OBJECT: return dict_from_json(it, j, data, out);
    }
    return HR_OK;
}

hr_status hr_jinja_from_json(hr_jinterp *it, const hr_json *j, bool data, hr_jval *out)
{
    HR_TRY(hr_jinja_enter(it));
    hr_status st = value_from_json(it, j, data, out);
    hr_jinja_leave(it);
    return st;
}

/* ---- out ------------------------------------------------------------------------------------ */

typedef struct dumper {
    hr_jinterp *it;
    hr_jbuilder *b;
    const hr_jstr *item_sep, *key_sep;
    const hr_jstr *indent; /* NULL = one line */
    size_t level;
    bool ascii, sort_keys;
} dumper;

static hr_status dump(dumper *d, hr_jval v);

static int escape_char(uint32_t c, bool ascii, char text[16])
{
    static const char names[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    for (const char *p = names; *p; p += 2)
        if (c == (unsigned char)*p) return sprintf(text, "\\%c", p[1]);
    if (c < 0x20 || (ascii && c >= 0x7F && c < 0x10000)) return sprintf(text, "\\u%04x", c);
    if (!ascii || c < 0x7F) return (int)hr_utf8_encode(c, text);
    uint32_t pair = c - 0x10000;
    return sprintf(text, "\\u%04x\\u%04x", 0xD800 + (pair >> 10), 0xDC00 + (pair & 0x3FF));
}

static void dump_str(dumper *d, const hr_jstr *s)
{
    size_t len;
    hr_jinja_put_c(d->b, "\"");
    for (size_t at = 0; at < s->n; at += len) {
        char text[16];
        uint32_t c = hr_utf8_decode(hr_str_slice(hr_jinja_text(s), at, s->n), &len);
        int n = escape_char(c, d->ascii, text);
        hr_jinja_put(d->b, (hr_str){ text, (size_t)n }, hr_jinja_is_data(s, at, at + len));
    }
    hr_jinja_put_c(d->b, "\"");
}

static hr_status dump_float(dumper *d, hr_jval v)
{
    if (isnan(v.as.f) || isinf(v.as.f)) {
        const char *text = isnan(v.as.f) ? "NaN" : v.as.f < 0 ? "-Infinity" : "Infinity";
        hr_jinja_put(d->b, hr_str_c(text), v.data);
        return HR_OK;
    }
    return hr_jinja_repr(d->b, v);
}

static void new_line(dumper *d)
{
    if (!d->indent) return;
    hr_jinja_put_c(d->b, "\n");
    for (size_t i = 0; i < d->level; i++) hr_jinja_put_str(d->b, d->indent);
}

/* Before item i of a container. */
static void before_item(dumper *d, size_t i)
{
    if (i) hr_jinja_put_str(d->b, d->item_sep);
    else d->level++;
    new_line(d);
}

static void after_items(dumper *d, const char *close)
{
    d->level--;
    new_line(d);
    hr_jinja_put_c(d->b, close);
}

static hr_status dump_list(dumper *d, const hr_jlist *l)
{
    if (!l->n) {
        hr_jinja_put_c(d->b, "[]");
        return HR_OK;
    }
    hr_jinja_put_c(d->b, "[");
    for (size_t i = 0; i < l->n; i++) {
        before_item(d, i);
        HR_TRY(dump(d, l->items[i]));
    }
    after_items(d, "]");
    return HR_OK;
}

/* Keys that are no strings are spelt as their value would be, between quotes. */
static hr_status dump_key(dumper *d, hr_jval key)
{
    if (key.kind == HR_J_STR) {
        dump_str(d, key.as.s);
        return HR_OK;
    }
    if (key.kind == HR_J_TUPLE || key.kind > HR_J_STR || key.kind < HR_J_NONE)
        return hr_jinja_fail(d->it, "keys must be str, int, float, bool or None, not %s",
                             hr_jinja_type_name(key));
    hr_jinja_put_c(d->b, "\"");
    HR_TRY(dump(d, key));
    hr_jinja_put_c(d->b, "\"");
    return HR_OK;
}

static hr_status sort_entries(dumper *d, const hr_jdict *dict, size_t *order)
{
    hr_jval *keys;
    HR_TRY(hr_jinja_alloc(d->it, dict->n, sizeof *keys, &keys));
    for (size_t i = 0; i < dict->n; i++) keys[i] = dict->entries[i].key;
    return hr_jinja_sort(d->it, keys, dict->n, HR_JSORT_UP, order);
}

static hr_status dump_dict(dumper *d, const hr_jdict *dict)
{
    size_t *order;
    if (!dict->n) {
        hr_jinja_put_c(d->b, "{}");
        return HR_OK;
    }
    HR_TRY(hr_jinja_alloc(d->it, dict->n, sizeof *order, &order));
    for (size_t i = 0; i < dict->n; i++) order[i] = i;
    if (d->sort_keys) HR_TRY(sort_entries(d, dict, order));
    hr_jinja_put_c(d->b, "{");
    for (size_t i = 0; i < dict->n; i++) {
        before_item(d, i);
        HR_TRY(dump_key(d, dict->entries[order[i]].key));
        hr_jinja_put_str(d->b, d->key_sep);
        HR_TRY(dump(d, dict->entries[order[i]].value));
    }
    after_items(d, "}");
    return HR_OK;
}

static hr_status dump_value(dumper *d, hr_jval v)
{
    switch ((hr_jkind)v.kind) {
    case HR_J_NONE: hr_jinja_put(d->b, HR_STR("null"), v.data); return HR_OK;
    case HR_J_BOOL:
        hr_jinja_put(d->b, v.as.b ? HR_STR("true") : HR_STR("false"), v.data);
        return HR_OK;
    case HR_J_INT:
    case HR_J_BIG: return hr_jinja_repr(d->b, v);
    case HR_J_FLOAT: return dump_float(d, v);
    case HR_J_STR: dump_str(d, v.as.s); return HR_OK;
    case HR_J_LIST:
    case HR_J_TUPLE: return dump_list(d, v.as.l);
    case HR_J_DICT: return dump_dict(d, v.as.d);
    case HR_J_MISSING:
    case HR_J_UNDEFINED:
    case HR_J_RANGE:
    case HR_J_GENERATOR:
    case HR_J_VIEW:
    case HR_J_FUNCTION:
    case HR_J_MACRO:
    case HR_J_NAMESPACE:
    case HR_J_LOOP:
    case HR_J_CYCLER:
    case HR_J_JOINER: break;
    }
    return hr_jinja_fail(d->it, "Object of type %s is not JSON serializable",
                         hr_jinja_type_name(v));
}

static hr_status dump(dumper *d, hr_jval v)
{
    HR_TRY(hr_jinja_step(d->it, 1));
    HR_TRY(hr_jinja_enter(d->it));
    hr_status st = dump_value(d, v);
    hr_jinja_leave(d->it);
    return st ? st : d->b->status;
}

static hr_status set_indent(dumper *d, hr_jval v)
{
    int64_t n;
    hr_jval text;
    if (v.kind == HR_J_MISSING || v.kind == HR_J_NONE) return HR_OK;
    if (v.kind == HR_J_STR) {
        d->indent = v.as.s;
        return HR_OK;
    }
    if (!hr_jinja_as_int(v, &n)) return hr_jinja_fail(d->it, "tojson: indent must be a number");
    hr_jbuilder b = { .it = d->it };
    for (int64_t i = 0; i < n && !b.status; i++) hr_jinja_put_c(&b, " ");
    HR_TRY(hr_jinja_finish(&b, &text));
    d->indent = text.as.s;
    return HR_OK;
}

static hr_status set_separators(dumper *d, hr_jval v)
{
    static const hr_jstr comma = { .p = ",", .n = 1, .chars = 1 };
    static const hr_jstr comma_blank = { .p = ", ", .n = 2, .chars = 2 };
    static const hr_jstr colon = { .p = ": ", .n = 2, .chars = 2 };
    d->item_sep = d->indent ? &comma : &comma_blank;
    d->key_sep = &colon;
    if (v.kind == HR_J_MISSING || v.kind == HR_J_NONE) return HR_OK;
    if ((v.kind != HR_J_LIST && v.kind != HR_J_TUPLE) || v.as.l->n != 2 ||
        v.as.l->items[0].kind != HR_J_STR || v.as.l->items[1].kind != HR_J_STR)
        return hr_jinja_fail(d->it, "tojson: separators must be two strings");
    d->item_sep = v.as.l->items[0].as.s;
    d->key_sep = v.as.l->items[1].as.s;
    return HR_OK;
}

/* Arguments: ensure_ascii, indent, separators, sort_keys. */
hr_status hr_jinja_filter_tojson(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    hr_jbuilder b = { .it = it };
    dumper d = { .it = it, .b = &b };
    HR_TRY(hr_jinja_truth(it, args->pos[0], &d.ascii));
    HR_TRY(hr_jinja_truth(it, args->pos[3], &d.sort_keys));
    HR_TRY(set_indent(&d, args->pos[1]));
    HR_TRY(set_separators(&d, args->pos[2]));
    HR_TRY(dump(&d, self));
    return hr_jinja_finish(&b, out);
}
