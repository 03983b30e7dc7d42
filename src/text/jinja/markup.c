/* Text that counts as HTML already: markupsafe's Markup, which `safe` and `escape` give.
 *
 * Chat templates meet it by accident: `x | tojson | safe` is markup, and markup + text escapes the
 * text. Published templates do that, models were trained on what it prints, so it is reproduced:
 * operators, methods and the filters that keep the type. Printing, `~` and join treat markup as the
 * text that it is. Lives in the rendering's arena. */
#include "text/jinja/jinja_int.h"

static const char *html_escape(char c)
{
    static const char *const table[] = { "&&amp;", "<&lt;", ">&gt;", "'&#39;", "\"&#34;" };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i][0] == c) return table[i] + 1;
    return NULL;
}

/* An escape is data when the character that it stands for is. */
static void put_escaped(hr_jbuilder *b, const hr_jstr *s)
{
    for (size_t i = 0; i < s->n; i++) {
        const char *escaped = html_escape(s->p[i]);
        if (escaped) {
            hr_jinja_put(b, hr_str_c(escaped), hr_jinja_is_data(s, i, i + 1));
            continue;
        }
        size_t end = i + 1;
        while (end < s->n && !html_escape(s->p[end])) end++;
        hr_jinja_put_slice(b, s, i, end);
        i = end - 1;
    }
}

hr_status hr_jinja_force_escape(hr_jinterp *it, hr_jval v, hr_jval *out)
{
    hr_jbuilder b = { .it = it, .markup = true };
    HR_TRY(hr_jinja_to_str(it, v, &v));
    put_escaped(&b, v.as.s);
    return hr_jinja_finish(&b, out);
}

hr_status hr_jinja_escape(hr_jinterp *it, hr_jval v, hr_jval *out)
{
    *out = v;
    return hr_jinja_is_markup(v) ? HR_OK : hr_jinja_force_escape(it, v, out);
}

hr_status hr_jinja_as_markup(hr_jinterp *it, hr_jval v, hr_jval *out)
{
    hr_jbuilder b = { .it = it, .markup = true };
    *out = v;
    if (hr_jinja_is_markup(v)) return HR_OK;
    HR_TRY(hr_jinja_print(&b, v));
    return hr_jinja_finish(&b, out);
}

/* ---- calls ---------------------------------------------------------------------------------- */

static hr_status escape_items(hr_jinterp *it, hr_jval v, hr_jval *out)
{
    const hr_jval *items;
    hr_jval *escaped;
    size_t n;
    HR_TRY(hr_jinja_collect(it, v, &items, &n));
    HR_TRY(hr_jinja_alloc(it, n, sizeof *escaped, &escaped));
    for (size_t i = 0; i < n; i++) HR_TRY(hr_jinja_escape(it, items[i], &escaped[i]));
    return hr_jinja_list(it, HR_J_LIST, escaped, n, out);
}

/* The methods of str that give markup again, and which argument they escape. */
static const struct {
    const char *name;
    enum { NOTHING, ITEMS, SECOND } escapes;
} methods[] = { { "capitalize", NOTHING }, { "casefold", NOTHING }, { "center", SECOND },
                { "format", NOTHING },     { "join", ITEMS },       { "ljust", SECOND },
                { "lower", NOTHING },      { "lstrip", NOTHING },   { "partition", NOTHING },
                { "replace", SECOND },     { "rjust", SECOND },     { "removeprefix", NOTHING },
                { "rpartition", NOTHING }, { "rsplit", NOTHING },   { "removesuffix", NOTHING },
                { "rstrip", NOTHING },     { "split", NOTHING },    { "splitlines", NOTHING },
                { "strip", NOTHING },      { "swapcase", NOTHING }, { "title", NOTHING },
                { "upper", NOTHING },      { "zfill", NOTHING } };

/* Filters that hand their text to such a method, or cut it. */
static const char *const filters[] = { "capitalize", "center", "format",   "indent", "lower",
                                       "reverse",    "trim",   "truncate", "upper" };

static hr_status as_markup_all(hr_jinterp *it, hr_jval *result)
{
    hr_jval *items;
    if (result->kind == HR_J_STR) return hr_jinja_as_markup(it, *result, result);
    if (result->kind != HR_J_LIST && result->kind != HR_J_TUPLE) return HR_OK;
    size_t n = result->as.l->n; /* of split, partition and the like */
    HR_TRY(hr_jinja_alloc(it, n, sizeof *items, &items));
    for (size_t i = 0; i < n; i++)
        HR_TRY(hr_jinja_as_markup(it, result->as.l->items[i], &items[i]));
    return hr_jinja_list(it, (hr_jkind)result->kind, items, n, result);
}

hr_status hr_jinja_call_method(hr_jinterp *it, const hr_jbound *method, const hr_jargs *args,
                               hr_jval *out)
{
    size_t i = 0, n = sizeof methods / sizeof *methods;
    hr_jargs given = *args;
    hr_jval pos[3];
    if (!hr_jinja_is_markup(method->self))
        return hr_jinja_apply(it, method->function, method->self, args, out);
    while (i < n && strcmp(methods[i].name, method->function->name) != 0) i++;
    if (i == n) return hr_jinja_apply(it, method->function, method->self, args, out);
    size_t at = methods[i].escapes == SECOND ? 1 : 0;
    if (methods[i].escapes != NOTHING && given.n > at && given.n <= 3) {
        memcpy(pos, given.pos, given.n * sizeof *pos);
        given.pos = pos;
        HR_TRY(at ? hr_jinja_escape(it, pos[1], &pos[1]) : escape_items(it, pos[0], &pos[0]));
    }
    HR_TRY(hr_jinja_apply(it, method->function, method->self, &given, out));
    return as_markup_all(it, out);
}

hr_status hr_jinja_call_filter(hr_jinterp *it, const hr_jfilter *filter, hr_jval self,
                               const hr_jargs *args, hr_jval *out)
{
    HR_TRY(hr_jinja_apply(it, &filter->f, self, args, out));
    for (size_t i = 0; hr_jinja_is_markup(self) && i < sizeof filters / sizeof *filters; i++)
        if (strcmp(filters[i], filter->f.name) == 0 && out->kind == HR_J_STR)
            return hr_jinja_as_markup(it, *out, out);
    return HR_OK;
}
