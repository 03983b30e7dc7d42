/* Filters on text. What is no string is printed first where jinja2 does so (soft_str).
 *
 * Provenance, filter by filter: trim, upper, lower, capitalize, title, replace, indent, center,
 * truncate, string, safe keep each byte's mark, and what they add (padding, indentation, "...") is
 * marked as the argument that brought it, or template when the filter itself did; escape and
 * urlencode mark an escape sequence as the character it stands for; format as its operands;
 * wordcount gives a number of the template's own. */
#include <stdio.h>

#include "base/utf8.h"
#include "text/jinja/jinja_int.h"

/* ---- shared with str's methods -------------------------------------------------------------- */

static hr_status filter_trim(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    HR_TRY(hr_jinja_to_str(it, self, &self));
    return hr_jinja_str_strip(it, self, args, out);
}

static hr_status filter_upper(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    HR_TRY(hr_jinja_to_str(it, self, &self));
    return hr_jinja_str_upper(it, self, args, out);
}

static hr_status filter_lower(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    HR_TRY(hr_jinja_to_str(it, self, &self));
    return hr_jinja_str_lower(it, self, args, out);
}

static hr_status filter_capitalize(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    HR_TRY(hr_jinja_to_str(it, self, &self));
    return hr_jinja_str_capitalize(it, self, args, out);
}

static hr_status filter_string(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)args;
    return hr_jinja_to_str(it, self, out);
}

static hr_status filter_center(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    hr_jval bound[2] = { args->pos[0].kind ? args->pos[0] : hr_jinja_int(80), { 0 } };
    HR_TRY(hr_jinja_to_str(it, self, &self));
    return hr_jinja_str_center(it, self, &(hr_jargs){ .pos = bound, .n = 2 }, out);
}

static hr_status filter_replace(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    hr_jval bound[3] = { args->pos[0], args->pos[1], args->pos[2] };
    HR_TRY(hr_jinja_to_str(it, self, &self));
    for (size_t i = 0; i < 2; i++) HR_TRY(hr_jinja_to_str(it, bound[i], &bound[i]));
    if (bound[2].kind == HR_J_NONE) bound[2].kind = HR_J_MISSING;
    return hr_jinja_str_replace(it, self, &(hr_jargs){ .pos = bound, .n = 3 }, out);
}

/* ---- title ---------------------------------------------------------------------------------- */

/* Words begin after these, unlike in str.title(). */
static bool separates(uint32_t c)
{
    return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || hr_jinja_is_space(c);
}

static hr_status filter_title(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    hr_jbuilder b = { .it = it };
    (void)args;
    HR_TRY(hr_jinja_to_str(it, self, &self));
    const hr_jstr *s = self.as.s;
    size_t word = 0, len;
    for (size_t at = 0; at <= s->n; at += len) {
        uint32_t c = at < s->n ? hr_utf8_decode(hr_str_slice(hr_jinja_text(s), at, s->n), &len)
                               : (uint32_t)' ';
        if (at == s->n) len = 1;
        if (!separates(c)) continue;
        if (word < at) { /* cased as a string of its own: a final sigma sees no further */
            hr_jval part;
            size_t first = word + 1;
            while (first < at && ((unsigned char)s->p[first] & 0xC0) == 0x80) first++;
            HR_TRY(hr_jinja_substring(it, s, first, at, &part));
            hr_jinja_put_case(&b, s, word, first, HR_JCASE_UPPER);
            hr_jinja_put_case(&b, part.as.s, 0, part.as.s->n, HR_JCASE_LOWER);
        }
        if (at < s->n) hr_jinja_put_slice(&b, s, at, at + len);
        word = at + len;
    }
    return hr_jinja_finish(&b, out);
}

/* ---- indent, truncate ----------------------------------------------------------------------- */

static hr_status indentation(hr_jinterp *it, hr_jval width, hr_jval *out)
{
    int64_t n = 4;
    *out = width;
    if (width.kind == HR_J_STR) return HR_OK;
    if (width.kind && !hr_jinja_as_int(width, &n))
        return hr_jinja_fail(it, "indent: width must be a number or a string");
    HR_TRY(hr_jinja_string(it, HR_STR(""), false, out));
    return hr_jinja_pad(it, out->as.s, 0, n > 0 ? (size_t)n : 0, (hr_jval){ 0 }, out);
}

/* Arguments: width, first, blank. */
static hr_status filter_indent(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    hr_jbuilder b = { .it = it };
    hr_jval indent;
    bool first, blank;
    if (self.kind == HR_J_UNDEFINED) return hr_jinja_fail_undefined(it, self);
    if (self.kind != HR_J_STR) return hr_jinja_fail(it, "indent: the value must be a string");
    HR_TRY(indentation(it, args->pos[0], &indent));
    HR_TRY(hr_jinja_truth(it, args->pos[1], &first));
    HR_TRY(hr_jinja_truth(it, args->pos[2], &blank));
    const hr_jstr *s = self.as.s;
    if (first) hr_jinja_put_str(&b, indent.as.s);
    for (size_t at = 0, next, line = 0;; at = next, line++) {
        size_t end = hr_jinja_line_end(s, at, &next);
        if (line) hr_jinja_put_c(&b, "\n");
        if (line && (blank || end > at)) hr_jinja_put_str(&b, indent.as.s);
        hr_jinja_put_slice(&b, s, at, end);
        if (end == s->n) break; /* a final newline leaves one more, empty line */
    }
    return hr_jinja_finish(&b, out);
}

static size_t last_blank(const hr_jstr *s, size_t end)
{
    const char *hit = end ? memrchr(s->p, ' ', end) : NULL;
    return hit ? (size_t)(hit - s->p) : end;
}

/* Arguments: length, killwords, end, leeway. */
static hr_status filter_truncate(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    int64_t length = 255, leeway = 5;
    size_t chars;
    bool kill;
    hr_jval end = args->pos[2];
    hr_jbuilder b = { .it = it };
    if (args->pos[0].kind && !hr_jinja_as_int(args->pos[0], &length))
        return hr_jinja_fail(it, "truncate: length must be a number");
    if (args->pos[3].kind > HR_J_NONE && !hr_jinja_as_int(args->pos[3], &leeway))
        return hr_jinja_fail(it, "truncate: leeway must be a number");
    HR_TRY(hr_jinja_truth(it, args->pos[1], &kill));
    if (!end.kind) HR_TRY(hr_jinja_string(it, HR_STR("..."), false, &end));
    if (end.kind != HR_J_STR) return hr_jinja_fail(it, "truncate: end must be a string");
    if (length < (int64_t)end.as.s->chars || leeway < 0)
        return hr_jinja_fail(it, "truncate: length is shorter than end, or leeway negative");
    *out = self; /* whatever it is, when it is short */
    if (!hr_jinja_length(self, &chars))
        return hr_jinja_fail(it, "object of type '%s' has no len()", hr_jinja_type_name(self));
    if ((int64_t)chars <= length + leeway) return HR_OK;
    if (self.kind != HR_J_STR) return hr_jinja_fail(it, "truncate: the value must be a string");
    size_t cut = hr_jinja_offset(self.as.s, (size_t)length - end.as.s->chars);
    if (hr_jinja_is_markup(self)) HR_TRY(hr_jinja_escape(it, end, &end));
    if (!kill) cut = last_blank(self.as.s, cut);
    hr_jinja_put_slice(&b, self.as.s, 0, cut);
    hr_jinja_put_str(&b, end.as.s);
    return hr_jinja_finish(&b, out);
}

/* ---- escapes -------------------------------------------------------------------------------- */

static hr_status filter_escape(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)args;
    return hr_jinja_escape(it, self, out);
}

static hr_status filter_forceescape(hr_jinterp *it, hr_jval self, const hr_jargs *args,
                                    hr_jval *out)
{
    (void)args;
    return hr_jinja_force_escape(it, self, out);
}

static hr_status filter_safe(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)args;
    return hr_jinja_as_markup(it, self, out);
}

static void put_quoted(hr_jbuilder *b, const hr_jstr *s, bool query)
{
    for (size_t i = 0; i < s->n; i++) {
        char c = s->p[i], text[4];
        bool plain = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') ||
                     (c && strchr("_.-~", c)) || (c == '/' && !query);
        if (plain) hr_jinja_put_slice(b, s, i, i + 1);
        else if (c == ' ' && query) hr_jinja_put(b, HR_STR("+"), hr_jinja_is_data(s, i, i + 1));
        else
            hr_jinja_put(b, (hr_str){ text, (size_t)sprintf(text, "%%%02X", (unsigned char)c) },
                         hr_jinja_is_data(s, i, i + 1));
    }
}

static hr_status put_pair(hr_jbuilder *b, hr_jval pair)
{
    const hr_jval *items;
    hr_jval text;
    size_t n;
    HR_TRY(hr_jinja_collect(b->it, pair, &items, &n));
    if (n != 2) return hr_jinja_fail(b->it, "urlencode: pairs are expected");
    for (size_t i = 0; i < 2; i++) {
        HR_TRY(hr_jinja_to_str(b->it, items[i], &text));
        if (i) hr_jinja_put_c(b, "=");
        put_quoted(b, text.as.s, true);
    }
    return HR_OK;
}

static hr_status filter_urlencode(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    hr_jbuilder b = { .it = it };
    const hr_jval *items;
    size_t n;
    (void)args;
    if (self.kind == HR_J_STR || !hr_jinja_iterable(self)) {
        HR_TRY(hr_jinja_to_str(it, self, &self));
        put_quoted(&b, self.as.s, false);
        return hr_jinja_finish(&b, out);
    }
    hr_jview view = { self.kind == HR_J_DICT ? self.as.d : NULL, HR_JVIEW_ITEMS };
    if (view.dict) self = (hr_jval){ .kind = HR_J_VIEW, .as.v = &view };
    HR_TRY(hr_jinja_collect(it, self, &items, &n));
    for (size_t i = 0; i < n; i++) {
        if (i) hr_jinja_put_c(&b, "&");
        HR_TRY(put_pair(&b, items[i]));
    }
    return hr_jinja_finish(&b, out);
}

/* ---- the rest ------------------------------------------------------------------------------- */

static hr_status filter_wordcount(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    int64_t words = 0;
    size_t len;
    bool in_word = false;
    (void)args;
    HR_TRY(hr_jinja_to_str(it, self, &self));
    const hr_jstr *s = self.as.s;
    for (size_t at = 0; at < s->n; at += len) {
        uint32_t c = hr_utf8_decode(hr_str_slice(hr_jinja_text(s), at, s->n), &len);
        bool word = c == '_' || hr_jinja_is(c, HR_JC_ALNUM);
        words += word && !in_word;
        in_word = word;
    }
    *out = hr_jinja_int(words);
    return HR_OK;
}

static hr_status filter_format(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    hr_jval values;
    HR_TRY(hr_jinja_to_str(it, self, &self));
    if (args->n && args->n_kw)
        return hr_jinja_fail(it, "can't handle positional and keyword arguments at the same time");
    if (!args->n_kw) {
        HR_TRY(hr_jinja_list(it, HR_J_TUPLE, args->pos, args->n, &values));
        return hr_jinja_percent(it, self.as.s, values, out);
    }
    hr_jdict *d;
    HR_TRY(hr_jinja_dict_new(it, args->n_kw, &d));
    for (size_t i = 0; i < args->n_kw; i++) {
        hr_jval key;
        HR_TRY(hr_jinja_string(it, args->names[i], false, &key));
        HR_TRY(hr_jinja_dict_set(it, d, key, args->kw[i]));
    }
    values = (hr_jval){ .kind = HR_J_DICT, .as.d = d };
    return hr_jinja_percent(it, self.as.s, values, out);
}

const hr_jfilter hr_jinja_text_filters[] = {
    { { "capitalize", "", 0, filter_capitalize } },
    { { "center", "width", 0, filter_center } },
    { { "e", "", 0, filter_escape } },
    { { "escape", "", 0, filter_escape } },
    { { "forceescape", "", 0, filter_forceescape } },
    { { "format", "*", 0, filter_format } },
    { { "indent", "width first blank", 0, filter_indent } },
    { { "lower", "", 0, filter_lower } },
    { { "replace", "old new count", 2, filter_replace } },
    { { "safe", "", 0, filter_safe } },
    { { "string", "", 0, filter_string } },
    { { "title", "", 0, filter_title } },
    { { "tojson", "ensure_ascii indent separators sort_keys", 0, hr_jinja_filter_tojson } },
    { { "trim", "chars", 0, filter_trim } },
    { { "truncate", "length killwords end leeway", 0, filter_truncate } },
    { { "upper", "", 0, filter_upper } },
    { { "urlencode", "", 0, filter_urlencode } },
    { { "wordcount", "", 0, filter_wordcount } },
    { { 0 } },
};
