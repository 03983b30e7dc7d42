/* Values to text: Python's str() and repr().
 *
 * What a container prints around its items is the template's; the text of the items keeps its
 * marks, and numbers that came in as data print as data. Lives in the rendering's arena. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/utf8.h"
#include "text/jinja/jinja_int.h"

static void put_float(hr_jbuilder *b, double f, bool data)
{
    char text[32];
    size_t n;
    if (isnan(f)) n = (size_t)sprintf(text, "nan");
    else if (isinf(f)) n = (size_t)sprintf(text, f < 0 ? "-inf" : "inf");
    else n = hr_json_format_f64(f, text);
    hr_jinja_put(b, (hr_str){ text, n }, data);
}

/* One character of a repr: escaped when it would not show. */
static void put_repr_char(hr_jbuilder *b, uint32_t c, char quote, bool data)
{
    char text[12];
    int n;
    if (c == (unsigned char)quote || c == '\\') n = sprintf(text, "\\%c", (char)c);
    else if (c == '\n' || c == '\r' || c == '\t')
        n = sprintf(text, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
    else if (hr_jinja_is_printable(c)) n = (int)hr_utf8_encode(c, text);
    else n = sprintf(text, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
    hr_jinja_put(b, (hr_str){ text, (size_t)n }, data);
}

static void put_repr_str(hr_jbuilder *b, const hr_jstr *s)
{
    bool single = s->n && memchr(s->p, '\'', s->n), twice = s->n && memchr(s->p, '"', s->n);
    char quote[2] = { single && !twice ? '"' : '\'', '\0' };
    size_t len;
    hr_jinja_put_c(b, quote);
    for (size_t at = 0; at < s->n; at += len) {
        uint32_t c = hr_utf8_decode(hr_str_slice(hr_jinja_text(s), at, s->n), &len);
        put_repr_char(b, c, *quote, hr_jinja_is_data(s, at, at + len));
    }
    hr_jinja_put_c(b, quote);
}

static hr_status put_items(hr_jbuilder *b, const hr_jval *items, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (i) hr_jinja_put_c(b, ", ");
        HR_TRY(hr_jinja_repr(b, items[i]));
    }
    return HR_OK;
}

static hr_status put_list(hr_jbuilder *b, hr_jval v)
{
    bool tuple = v.kind == HR_J_TUPLE;
    hr_jinja_put_c(b, tuple ? "(" : "[");
    HR_TRY(put_items(b, v.as.l->items, v.as.l->n));
    hr_jinja_put_c(b, !tuple ? "]" : v.as.l->n == 1 ? ",)" : ")");
    return HR_OK;
}

static hr_status put_dict(hr_jbuilder *b, const hr_jdict *d)
{
    hr_jinja_put_c(b, "{");
    for (size_t i = 0; i < d->n; i++) {
        if (i) hr_jinja_put_c(b, ", ");
        HR_TRY(hr_jinja_repr(b, d->entries[i].key));
        hr_jinja_put_c(b, ": ");
        HR_TRY(hr_jinja_repr(b, d->entries[i].value));
    }
    hr_jinja_put_c(b, "}");
    return HR_OK;
}

static hr_status put_view(hr_jbuilder *b, hr_jval v)
{
    const hr_jval *items;
    size_t n;
    HR_TRY(hr_jinja_collect(b->it, v, &items, &n));
    hr_jinja_put_c(b, hr_jinja_type_name(v));
    hr_jinja_put_c(b, "([");
    HR_TRY(put_items(b, items, n));
    hr_jinja_put_c(b, "])");
    return HR_OK;
}

static hr_status put_range(hr_jbuilder *b, const hr_jrange *r)
{
    char text[80];
    int n = r->step == 1 ? sprintf(text, "range(%" PRId64 ", %" PRId64 ")", r->start, r->stop)
                         : sprintf(text, "range(%" PRId64 ", %" PRId64 ", %" PRId64 ")", r->start,
                                   r->stop, r->step);
    hr_jinja_put(b, (hr_str){ text, (size_t)n }, false);
    return HR_OK;
}

static hr_status put_namespace(hr_jbuilder *b, const hr_jdict *d)
{
    hr_jinja_put_c(b, "<Namespace ");
    HR_TRY(put_dict(b, d));
    hr_jinja_put_c(b, ">");
    return HR_OK;
}

static hr_status put_macro(hr_jbuilder *b, const hr_jmacro *m)
{
    if (!m->node->name.n) {
        hr_jinja_put_c(b, "<Macro anonymous>");
        return HR_OK;
    }
    hr_jinja_put_c(b, "<Macro '");
    hr_jinja_put(b, m->node->name, false);
    hr_jinja_put_c(b, "'>");
    return HR_OK;
}

static hr_status put_loop(hr_jbuilder *b, hr_jloop *l)
{
    hr_jval length;
    char text[64];
    HR_TRY(hr_jinja_loop_attr(b->it, l, HR_STR("length"), &length));
    int n = sprintf(text, "<LoopContext %" PRId64 "/%" PRId64 ">", l->index0 + 1, length.as.i);
    hr_jinja_put(b, (hr_str){ text, (size_t)n }, false);
    return HR_OK;
}

/* Objects without a spelling of their own: Python shows an address here, which is nobody's
 * business. */
static hr_status put_object(hr_jbuilder *b, hr_jval v)
{
    char text[96];
    int n = v.kind == HR_J_FUNCTION
                ? snprintf(text, sizeof text, "<function %s>", v.as.fn->function->name)
                : snprintf(text, sizeof text, "<%s object>", hr_jinja_type_name(v));
    hr_jinja_put(b, (hr_str){ text, (size_t)n }, false);
    return HR_OK;
}

static hr_status put_value(hr_jbuilder *b, hr_jval v)
{
    char text[32];
    switch ((hr_jkind)v.kind) {
    case HR_J_MISSING: break;
    case HR_J_UNDEFINED: hr_jinja_put_c(b, "Undefined"); break;
    case HR_J_NONE: hr_jinja_put(b, HR_STR("None"), v.data); break;
    case HR_J_BOOL: hr_jinja_put(b, v.as.b ? HR_STR("True") : HR_STR("False"), v.data); break;
    case HR_J_INT:
        hr_jinja_put(b, (hr_str){ text, (size_t)sprintf(text, "%" PRId64, v.as.i) }, v.data);
        break;
    case HR_J_BIG: hr_jinja_put_str(b, v.as.s); break;
    case HR_J_FLOAT: put_float(b, v.as.f, v.data); break;
    case HR_J_STR:
        if (v.as.s->markup) hr_jinja_put_c(b, "Markup(");
        put_repr_str(b, v.as.s);
        if (v.as.s->markup) hr_jinja_put_c(b, ")");
        break;
    case HR_J_LIST:
    case HR_J_TUPLE: return put_list(b, v);
    case HR_J_DICT: return put_dict(b, v.as.d);
    case HR_J_RANGE: return put_range(b, v.as.r);
    case HR_J_VIEW: return put_view(b, v);
    case HR_J_NAMESPACE: return put_namespace(b, v.as.d);
    case HR_J_MACRO: return put_macro(b, v.as.macro);
    case HR_J_LOOP: return put_loop(b, v.as.loop);
    case HR_J_GENERATOR:
    case HR_J_FUNCTION:
    case HR_J_CYCLER:
    case HR_J_JOINER: return put_object(b, v);
    }
    return HR_OK;
}

hr_status hr_jinja_repr(hr_jbuilder *b, hr_jval v)
{
    HR_TRY(hr_jinja_step(b->it, 1));
    HR_TRY(hr_jinja_enter(b->it));
    hr_status st = put_value(b, v);
    hr_jinja_leave(b->it);
    return st ? st : b->status;
}

hr_status hr_jinja_print(hr_jbuilder *b, hr_jval v)
{
    if (v.kind == HR_J_UNDEFINED) return b->status;
    if (v.kind == HR_J_STR) {
        hr_jinja_put_str(b, v.as.s);
        return b->status;
    }
    return hr_jinja_repr(b, v);
}

hr_status hr_jinja_to_str(hr_jinterp *it, hr_jval v, hr_jval *out)
{
    *out = v;
    if (v.kind == HR_J_STR) return HR_OK;
    hr_jbuilder b = { .it = it };
    HR_TRY(hr_jinja_print(&b, v));
    return hr_jinja_finish(&b, out);
}
