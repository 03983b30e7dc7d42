/* "..." % values and "...".format(values): Python's two ways to fill in text.
 *
 * Both come down to one layout of a value: sign, digits, alignment, width. Padding is the
 * template's; what a value prints keeps the value's marks. Widths and precisions are bounded. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/utf8.h"
#include "text/jinja/jinja_int.h"

#define MAX_WIDTH     100000
#define MAX_PRECISION 300

/* How a value is laid out. */
typedef struct layout {
    hr_str fill; /* one character */
    char align;  /* '<', '>', '^', '=' or 0 */
    char sign;   /* '+', ' ' or 0 */
    bool alternate;
    char group;               /* ',' or '_' or 0 */
    int64_t width, precision; /* precision -1 = none */
    char type;                /* 0 = none */
} layout;

static const layout plain = { .fill = { " ", 1 }, .precision = -1 };

/* Puts `text`, whose first `prefix` bytes (sign, 0x) stay left of zeros, into its width. */
static void put_aligned(hr_jbuilder *b, const layout *l, const hr_jstr *text, size_t prefix,
                        char align)
{
    size_t pad = l->width > (int64_t)text->chars ? (size_t)l->width - text->chars : 0;
    size_t left = align == '>' || align == '=' ? pad : align == '^' ? pad / 2 : 0;
    if (align == '=') hr_jinja_put_slice(b, text, 0, prefix);
    for (size_t i = 0; i < left; i++) hr_jinja_put(b, l->fill, false);
    hr_jinja_put_slice(b, text, align == '=' ? prefix : 0, text->n);
    for (size_t i = left; i < pad; i++) hr_jinja_put(b, l->fill, false);
}

static hr_status put_text(hr_jbuilder *b, const layout *l, hr_jval text)
{
    if (l->precision >= 0 && (int64_t)text.as.s->chars > l->precision)
        HR_TRY(hr_jinja_substring(b->it, text.as.s, 0,
                                  hr_jinja_offset(text.as.s, (size_t)l->precision), &text));
    put_aligned(b, l, text.as.s, 0, l->align ? l->align : '<');
    return b->status;
}

/* Thousands between the digits of text[from, to). */
static void put_grouped(hr_jbuilder *b, hr_str digits, char group, size_t every, bool data)
{
    for (size_t i = 0; i < digits.n; i++) {
        if (i && (digits.n - i) % every == 0) hr_jinja_put(b, (hr_str){ &group, 1 }, data);
        hr_jinja_put(b, hr_str_slice(digits, i, i + 1), data);
    }
}

/* A number's digits (sign apart) with sign, prefix and groups, into its width. */
static hr_status put_number(hr_jbuilder *b, const layout *l, bool negative, const char *prefix,
                            const char *digits, bool data)
{
    hr_jbuilder text = { .it = b->it };
    hr_jval whole;
    const char *sign = negative ? "-" : l->sign == '+' ? "+" : l->sign == ' ' ? " " : "";
    hr_str s = hr_str_c(digits);
    size_t n = strspn(digits, "0123456789abcdefABCDEF");
    hr_jinja_put(&text, hr_str_c(sign), data);
    hr_jinja_put_c(&text, prefix);
    size_t head = text.n;
    if (l->group) {
        bool bits = l->type == 'x' || l->type == 'X' || l->type == 'o' || l->type == 'b';
        put_grouped(&text, hr_str_slice(s, 0, n), l->group, bits ? 4 : 3, data);
        hr_jinja_put(&text, hr_str_slice(s, n, s.n), data);
    } else {
        hr_jinja_put(&text, s, data);
    }
    HR_TRY(hr_jinja_finish(&text, &whole));
    put_aligned(b, l, whole.as.s, head, l->align ? l->align : '>');
    return b->status;
}

static void to_binary(uint64_t v, char out[72])
{
    char reversed[72];
    size_t n = 0;
    do reversed[n++] = (char)('0' + (v & 1));
    while (v >>= 1);
    for (size_t i = 0; i < n; i++) out[i] = reversed[n - 1 - i];
    out[n] = '\0';
}

static hr_status put_int(hr_jbuilder *b, const layout *l, int64_t v, bool data)
{
    char digits[400], body[72];
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    const char *prefix = "";
    if (l->type == 'x') snprintf(body, sizeof body, "%" PRIx64, u);
    else if (l->type == 'X') snprintf(body, sizeof body, "%" PRIX64, u);
    else if (l->type == 'o') snprintf(body, sizeof body, "%" PRIo64, u);
    else if (l->type == 'b') to_binary(u, body);
    else snprintf(body, sizeof body, "%" PRIu64, u);
    if (l->alternate)
        prefix = l->type == 'x'   ? "0x"
                 : l->type == 'X' ? "0X"
                 : l->type == 'o' ? "0o"
                 : l->type == 'b' ? "0b"
                                  : "";
    size_t zeros = l->precision > (int64_t)strlen(body) ? (size_t)l->precision - strlen(body) : 0;
    memset(digits, '0', zeros); /* %.5d; precision is at most MAX_PRECISION */
    strcpy(digits + zeros, body);
    return put_number(b, l, v < 0, prefix, digits, data);
}

/* repr(f), or "%.*g" that shows it is a float, when no type is given. */
static void float_digits(const layout *l, double f, char out[700])
{
    char type = l->type == 'F' ? 'f' : l->type;
    int precision = l->precision >= 0 ? (int)l->precision : 6;
    if (type == '%') {
        snprintf(out, 700, "%.*f%%", precision, f * 100);
    } else if (type == 0 && l->precision < 0) {
        out[hr_json_format_f64(f, out)] = '\0';
    } else if (type == 0) {
        snprintf(out, 700, "%.*g", precision ? precision : 1, f);
        if (!strpbrk(out, ".e")) strcat(out, ".0");
    } else {
        if (type == 'n') type = 'g';
        if (type == 'e') snprintf(out, 700, l->alternate ? "%#.*e" : "%.*e", precision, f);
        else if (type == 'E') snprintf(out, 700, l->alternate ? "%#.*E" : "%.*E", precision, f);
        else if (type == 'f') snprintf(out, 700, l->alternate ? "%#.*f" : "%.*f", precision, f);
        else if (type == 'G') snprintf(out, 700, l->alternate ? "%#.*G" : "%.*G", precision, f);
        else snprintf(out, 700, l->alternate ? "%#.*g" : "%.*g", precision, f);
    }
}

static hr_status put_float(hr_jbuilder *b, const layout *l, double f, bool data)
{
    char digits[700];
    bool capital = l->type == 'E' || l->type == 'F' || l->type == 'G';
    bool negative = signbit(f) && !isnan(f);
    if (isnan(f) || isinf(f)) {
        const char *name = isnan(f) ? (capital ? "NAN" : "nan") : (capital ? "INF" : "inf");
        snprintf(digits, sizeof digits, "%s%s", name, l->type == '%' ? "%" : "");
    } else {
        float_digits(l, fabs(f), digits);
    }
    return put_number(b, l, negative, "", digits, data);
}

/* ---- the % operator ------------------------------------------------------------------------- */

typedef struct percent {
    hr_jinterp *it;
    hr_jbuilder *b;
    const hr_jstr *f;
    size_t at;
    hr_jval values;
    size_t next; /* of a tuple, or 1 once a single value was used */
    bool markup; /* values are escaped */
} percent;

static hr_status next_value(percent *p, hr_jval *out)
{
    bool tuple = p->values.kind == HR_J_TUPLE;
    size_t n = tuple ? p->values.as.l->n : 1;
    if (p->next >= n) return hr_jinja_fail(p->it, "not enough arguments for format string");
    *out = tuple ? p->values.as.l->items[p->next] : p->values;
    p->next++;
    return HR_OK;
}

static char peek(const percent *p)
{
    return p->at < p->f->n ? p->f->p[p->at] : '\0';
}

/* "(name)": the value of that key. */
static hr_status keyed_value(percent *p, hr_jval *out)
{
    hr_jval key;
    const hr_jval *found;
    size_t from = ++p->at, depth = 1;
    for (; p->at < p->f->n && depth; p->at++)
        depth = depth + (p->f->p[p->at] == '(') - (p->f->p[p->at] == ')');
    if (depth) return hr_jinja_fail(p->it, "incomplete format key");
    if (p->values.kind != HR_J_DICT) return hr_jinja_fail(p->it, "format requires a mapping");
    HR_TRY(hr_jinja_substring(p->it, p->f, from, p->at - 1, &key));
    HR_TRY(hr_jinja_dict_get(p->it, p->values.as.d, key, &found));
    if (!found) return hr_jinja_fail(p->it, "the format names a key that is not there");
    *out = *found;
    p->next = 1;
    return HR_OK;
}

static hr_status percent_number(percent *p, int64_t most, int64_t *out)
{
    hr_jval v;
    *out = 0;
    if (peek(p) == '*') {
        p->at++;
        HR_TRY(next_value(p, &v));
        if (!hr_jinja_as_int(v, out)) return hr_jinja_fail(p->it, "* wants int");
    }
    for (; peek(p) >= '0' && peek(p) <= '9' && *out <= most; p->at++)
        *out = *out * 10 + (peek(p) - '0');
    if (*out > most || *out < -most) return hr_jinja_fail(p->it, "format: too wide");
    return HR_OK;
}

static hr_status percent_layout(percent *p, layout *l)
{
    bool zero = false;
    *l = plain;
    for (;; p->at++) {
        char c = peek(p);
        if (c == '-') l->align = '<';
        else if (c == '+' || (c == ' ' && l->sign != '+')) l->sign = c;
        else if (c == '#') l->alternate = true;
        else if (c == '0') zero = true;
        else if (c != ' ') break;
    }
    HR_TRY(percent_number(p, MAX_WIDTH, &l->width));
    if (l->width < 0) {
        l->align = '<';
        l->width = -l->width;
    }
    if (peek(p) == '.') {
        p->at++;
        HR_TRY(percent_number(p, MAX_PRECISION, &l->precision));
        if (l->precision < 0) l->precision = 0;
    }
    while (peek(p) && strchr("hlL", peek(p))) p->at++;
    l->type = peek(p);
    p->at++;
    if (l->align == 0) l->align = '>';
    if (zero && l->align == '>' && l->type && strchr("diuxXoeEfFgG", l->type)) {
        l->align = '=';
        l->fill = HR_STR("0");
    }
    return HR_OK;
}

static hr_status percent_int(percent *p, const layout *l, hr_jval v)
{
    int64_t i;
    bool decimal = strchr("diu", l->type) != NULL;
    if (v.kind == HR_J_UNDEFINED) return hr_jinja_fail_undefined(p->it, v);
    if (v.kind == HR_J_FLOAT && decimal && fabs(v.as.f) < 9.2e18) i = (int64_t)v.as.f;
    else if (!hr_jinja_as_int(v, &i))
        return hr_jinja_fail(p->it, "%%%c format: %s is required, not %s", l->type,
                             decimal ? "a real number" : "an integer", hr_jinja_type_name(v));
    return put_int(p->b, l, i, v.data);
}

static hr_status percent_float(percent *p, const layout *l, hr_jval v)
{
    int64_t i;
    if (v.kind == HR_J_UNDEFINED) return hr_jinja_fail_undefined(p->it, v);
    if (v.kind == HR_J_FLOAT) return put_float(p->b, l, v.as.f, v.data);
    if (!hr_jinja_as_int(v, &i))
        return hr_jinja_fail(p->it, "must be real number, not %s", hr_jinja_type_name(v));
    return put_float(p->b, l, (double)i, v.data);
}

static hr_status percent_char(percent *p, const layout *l, hr_jval v)
{
    int64_t c;
    hr_jbuilder one = { .it = p->it };
    if (v.kind == HR_J_STR && v.as.s->chars == 1) return put_text(p->b, l, v);
    if (!hr_jinja_as_int(v, &c)) return hr_jinja_fail(p->it, "%%c requires int or char");
    if (c < 0 || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000))
        return hr_jinja_fail(p->it, "%%c arg not in range(0x110000)");
    hr_jinja_put_char(&one, (uint32_t)c, v.data);
    HR_TRY(hr_jinja_finish(&one, &v));
    return put_text(p->b, l, v);
}

static hr_status percent_text(percent *p, const layout *l, hr_jval v)
{
    hr_jbuilder text = { .it = p->it };
    text.markup = l->type == 's' && hr_jinja_is_markup(v);
    if (l->type == 's') HR_TRY(hr_jinja_print(&text, v));
    else HR_TRY(hr_jinja_repr(&text, v));
    HR_TRY(hr_jinja_finish(&text, &v));
    if (p->markup) HR_TRY(hr_jinja_escape(p->it, v, &v));
    return put_text(p->b, l, v);
}

static hr_status percent_one(percent *p)
{
    layout l;
    hr_jval v = { 0 };
    bool keyed = peek(p) == '(';
    if (keyed) HR_TRY(keyed_value(p, &v));
    HR_TRY(percent_layout(p, &l));
    if (l.type == '\0') return hr_jinja_fail(p->it, "incomplete format");
    if (l.type == '%') {
        hr_jinja_put_c(p->b, "%");
        return HR_OK;
    }
    if (!keyed) HR_TRY(next_value(p, &v));
    if (strchr("diuxXo", l.type)) return percent_int(p, &l, v);
    if (strchr("eEfFgG", l.type)) return percent_float(p, &l, v);
    if (l.type == 'c') return percent_char(p, &l, v);
    if (strchr("sr", l.type)) return percent_text(p, &l, v);
    return hr_jinja_fail(p->it, "unsupported format character");
}

hr_status hr_jinja_percent(hr_jinterp *it, const hr_jstr *format, hr_jval values, hr_jval *out)
{
    hr_jbuilder b = { .it = it, .markup = format->markup };
    percent p = { .it = it, .b = &b, .f = format, .values = values, .markup = format->markup };
    while (p.at < format->n) {
        const char *hit = memchr(format->p + p.at, '%', format->n - p.at);
        size_t end = hit ? (size_t)(hit - format->p) : format->n;
        hr_jinja_put_slice(&b, format, p.at, end);
        p.at = end + 1;
        if (hit) HR_TRY(percent_one(&p));
        HR_TRY(b.status);
    }
    bool mapping = values.kind == HR_J_DICT || values.kind == HR_J_LIST ||
                   values.kind == HR_J_UNDEFINED || values.kind == HR_J_RANGE;
    size_t n = values.kind == HR_J_TUPLE ? values.as.l->n : 1;
    if (p.next < n && !mapping)
        return hr_jinja_fail(it, "not all arguments converted during string formatting");
    return hr_jinja_finish(&b, out);
}

/* ---- str.format ----------------------------------------------------------------------------- */

typedef struct formatter {
    hr_jinterp *it;
    const hr_jargs *args;
    int64_t automatic; /* next {} ; -1 once fields were numbered by hand */
    size_t depth;
    bool markup; /* fields are escaped */
} formatter;

static hr_status format_into(formatter *f, const hr_jstr *s, size_t from, size_t to,
                             hr_jbuilder *b);

static bool all_digits(hr_str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] < '0' || s.p[i] > '9') return false;
    return s.n > 0;
}

/* The argument that a field begins with: a number, a name, or the next one. */
static hr_status field_start(formatter *f, hr_str name, hr_jval *out)
{
    int64_t i = -1;
    if (!name.n) {
        if (f->automatic < 0)
            return hr_jinja_fail(f->it, "cannot switch from manual field specification to "
                                        "automatic field numbering");
        i = f->automatic++;
    } else if (all_digits(name)) {
        if (f->automatic > 0)
            return hr_jinja_fail(f->it, "cannot switch from automatic field numbering to manual "
                                        "field specification");
        f->automatic = -1;
        if (hr_str_to_i64(name, &i)) i = INT64_MAX;
    }
    if (i >= 0) {
        if ((uint64_t)i >= f->args->n)
            return hr_jinja_fail(f->it, "Replacement index out of range for positional args tuple");
        *out = f->args->pos[i];
        return HR_OK;
    }
    for (size_t k = 0; k < f->args->n_kw; k++)
        if (hr_str_eq(f->args->names[k], name)) {
            *out = f->args->kw[k];
            return HR_OK;
        }
    return hr_jinja_fail(f->it, "format: no argument named '%.*s'", HR_STR_ARG(name));
}

/* "0.name[key]": looked up as the template would. */
static hr_status field_value(formatter *f, hr_str field, hr_jval *out)
{
    size_t at = 0;
    while (at < field.n && field.p[at] != '.' && field.p[at] != '[') at++;
    HR_TRY(field_start(f, hr_str_slice(field, 0, at), out));
    while (at < field.n) {
        bool item = field.p[at] == '[';
        size_t from = ++at;
        while (at < field.n &&
               (item ? field.p[at] != ']' : field.p[at] != '.' && field.p[at] != '['))
            at++;
        hr_str name = hr_str_slice(field, from, at);
        if (!name.n) return hr_jinja_fail(f->it, "Empty attribute in format string");
        if (!item) {
            HR_TRY(hr_jinja_getattr(f->it, *out, name, out));
            continue;
        }
        hr_jval key;
        int64_t i;
        if (at == field.n) return hr_jinja_fail(f->it, "Missing ']' in format string");
        at++;
        if (all_digits(name) && !hr_str_to_i64(name, &i)) key = hr_jinja_int(i);
        else HR_TRY(hr_jinja_string(f->it, name, false, &key));
        HR_TRY(hr_jinja_getitem(f->it, *out, key, out));
    }
    return HR_OK;
}

static hr_status spec_number(hr_jinterp *it, hr_str s, size_t *at, int64_t most, int64_t *out)
{
    for (*out = 0; *at < s.n && s.p[*at] >= '0' && s.p[*at] <= '9'; ++*at) {
        *out = *out * 10 + (s.p[*at] - '0');
        if (*out > most) return hr_jinja_fail(it, "format: too wide");
    }
    return HR_OK;
}

static bool is_align(char c)
{
    return c == '<' || c == '>' || c == '^' || c == '=';
}

static hr_status parse_spec(hr_jinterp *it, hr_str s, layout *l)
{
    size_t at = 0, len = 0;
    *l = plain;
    if (s.n) hr_utf8_decode(s, &len);
    if (len && len < s.n && is_align(s.p[len])) {
        l->fill = hr_str_slice(s, 0, len);
        l->align = s.p[len];
        at = len + 1;
    } else if (s.n && is_align(s.p[0])) {
        l->align = s.p[at++];
    }
    if (at < s.n && strchr("+- ", s.p[at]) && s.p[at]) l->sign = s.p[at++];
    if (at < s.n && s.p[at] == '#') {
        l->alternate = true;
        at++;
    }
    if (at < s.n && s.p[at] == '0') {
        at++;
        if (!l->align) {
            l->align = '=';
            l->fill = HR_STR("0");
        }
    }
    HR_TRY(spec_number(it, s, &at, MAX_WIDTH, &l->width));
    if (at < s.n && (s.p[at] == ',' || s.p[at] == '_')) l->group = s.p[at++];
    if (at < s.n && s.p[at] == '.') {
        size_t digits = ++at;
        HR_TRY(spec_number(it, s, &at, MAX_PRECISION, &l->precision));
        if (at == digits) return hr_jinja_fail(it, "Format specifier missing precision");
    }
    if (at < s.n) l->type = s.p[at++];
    return at == s.n ? HR_OK : hr_jinja_fail(it, "Invalid format specifier");
}

static hr_status unknown_code(hr_jinterp *it, char type, hr_jval v)
{
    return hr_jinja_fail(it, "Unknown format code '%c' for object of type '%s'",
                         type > ' ' && type < 127 ? type : '?', hr_jinja_type_name(v));
}

static hr_status format_value(hr_jinterp *it, hr_jval v, hr_str spec, hr_jbuilder *b)
{
    layout l;
    int64_t i;
    if (!spec.n) return hr_jinja_print(b, v);
    HR_TRY(parse_spec(it, spec, &l));
    if (v.kind == HR_J_STR) {
        if (l.type && l.type != 's') return unknown_code(it, l.type, v);
        if (l.align == '=' && !hr_str_eq_c(l.fill, "0"))
            return hr_jinja_fail(it, "'=' alignment not allowed in string format specifier");
        if (l.sign || l.group || l.alternate)
            return hr_jinja_fail(it, "the format specifier does not suit a string");
        if (l.align == '=') l.align = '<';
        return put_text(b, &l, v);
    }
    if (hr_jinja_as_int(v, &i) && (!l.type || strchr("dbnoxX", l.type))) {
        if (l.precision >= 0)
            return hr_jinja_fail(it, "Precision not allowed in integer format specifier");
        return put_int(b, &l, i, v.data);
    }
    if (hr_jinja_as_int(v, &i) && l.type == 'c')
        return percent_char(&(percent){ .it = it, .b = b }, &l, v);
    if (v.kind == HR_J_FLOAT || hr_jinja_as_int(v, &i)) {
        if (l.type && !strchr("eEfFgGn%", l.type)) return unknown_code(it, l.type, v);
        return put_float(b, &l, v.kind == HR_J_FLOAT ? v.as.f : (double)i, v.data);
    }
    if (v.kind == HR_J_UNDEFINED) return hr_jinja_fail_undefined(it, v);
    return hr_jinja_fail(it, "unsupported format string passed to %s.__format__",
                         hr_jinja_type_name(v));
}

/* Where the field that begins at `at` (after its brace) ends; braces inside a spec nest. */
static hr_status field_end(formatter *f, const hr_jstr *s, size_t at, size_t to, size_t *out)
{
    for (size_t depth = 1; at < to; at++) {
        depth = depth + (s->p[at] == '{') - (s->p[at] == '}');
        if (depth) continue;
        *out = at;
        return HR_OK;
    }
    return hr_jinja_fail(f->it, "expected '}' before end of string");
}

/* A field of a format string that is markup. */
static hr_status format_escaped(hr_jinterp *it, hr_jval v, hr_str spec, hr_jbuilder *b)
{
    hr_jbuilder text = { .it = it, .markup = hr_jinja_is_markup(v) };
    if (text.markup && spec.n)
        return hr_jinja_fail(it, "Unsupported format specification for Markup.");
    HR_TRY(format_value(it, v, spec, &text));
    HR_TRY(hr_jinja_finish(&text, &v));
    HR_TRY(hr_jinja_escape(it, v, &v));
    hr_jinja_put_str(b, v.as.s);
    return b->status;
}

static hr_status format_field(formatter *f, const hr_jstr *s, size_t from, size_t to,
                              hr_jbuilder *b)
{
    hr_jbuilder spec = { .it = f->it };
    hr_jval v, text;
    size_t end = from, colon;
    char conversion = 0;
    bool in_item = false;
    for (; end < to && (in_item || (s->p[end] != '!' && s->p[end] != ':')); end++)
        in_item = s->p[end] == '[' || (in_item && s->p[end] != ']');
    colon = end;
    if (end < to && s->p[end] == '!') {
        if (end + 1 >= to || (end + 2 < to && s->p[end + 2] != ':'))
            return hr_jinja_fail(f->it, "expected ':' after conversion specifier");
        conversion = s->p[end + 1];
        colon = end + 2;
    }
    HR_TRY(field_value(f, hr_str_slice(hr_jinja_text(s), from, end), &v));
    if (conversion) {
        hr_jbuilder converted = { .it = f->it };
        if (conversion != 's' && conversion != 'r')
            return hr_jinja_fail(f->it, "Unknown conversion specifier");
        HR_TRY(conversion == 's' ? hr_jinja_print(&converted, v) : hr_jinja_repr(&converted, v));
        HR_TRY(hr_jinja_finish(&converted, &v));
    }
    if (colon < to) HR_TRY(format_into(f, s, colon + 1, to, &spec));
    HR_TRY(hr_jinja_finish(&spec, &text));
    if (f->markup) return format_escaped(f->it, v, hr_jinja_text(text.as.s), b);
    return format_value(f->it, v, hr_jinja_text(text.as.s), b);
}

static hr_status format_into(formatter *f, const hr_jstr *s, size_t from, size_t to, hr_jbuilder *b)
{
    if (++f->depth > 2) return hr_jinja_fail(f->it, "Max string recursion exceeded");
    for (size_t at = from, end; at < to; at = end + 1) {
        for (end = at; end < to && s->p[end] != '{' && s->p[end] != '}';) end++;
        hr_jinja_put_slice(b, s, at, end);
        if (end == to) break;
        if (end + 1 < to && s->p[end + 1] == s->p[end]) {
            hr_jinja_put_slice(b, s, end, end + 1);
            end++;
            continue;
        }
        if (s->p[end] == '}')
            return hr_jinja_fail(f->it, "Single '}' encountered in format string");
        size_t field = end + 1;
        HR_TRY(field_end(f, s, field, to, &end));
        HR_TRY(format_field(f, s, field, end, b));
    }
    f->depth--;
    return b->status;
}

hr_status hr_jinja_method_format(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    hr_jbuilder b = { .it = it };
    formatter f = { .it = it, .args = args, .markup = self.as.s->markup };
    HR_TRY(format_into(&f, self.as.s, 0, self.as.s->n, &b));
    return hr_jinja_finish(&b, out);
}
