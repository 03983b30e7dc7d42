/* Strings with provenance, and the builder that makes them.
 *
 * Whatever a filter or method does to text, it does through a builder: bytes are put with a mark
 * or copied out of a string with theirs, so no operation can lose provenance by forgetting it.
 * Lengths are charged as steps: sixteen bytes are one. Everything lives in the rendering's arena.
 */
#include <stdarg.h>
#include <stdio.h>

#include "base/utf8.h"
#include "text/jinja/jinja_int.h"

/* ---- what every file of the interpreter uses ------------------------------------------------ */

hr_status hr_jinja_refuse(hr_template_place *failed, hr_template_place at, hr_status code,
                          const char *fmt, ...)
{
    char text[HR_MESSAGE_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (failed) *failed = at;
    return hr_fail(code, "chat template line %u column %u: %s", at.line, at.column, text);
}

hr_status hr_jinja_fail(hr_jinterp *it, const char *fmt, ...)
{
    char text[HR_MESSAGE_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return hr_jinja_refuse(it->options->failed, it->at, HR_INVALID_ARGUMENT, "%s", text);
}

hr_status hr_jinja_exhausted(hr_jinterp *it, const char *what)
{
    return hr_jinja_refuse(it->options->failed, it->at, HR_RESOURCE_EXHAUSTED, "%s", what);
}

hr_status hr_jinja_alloc(hr_jinterp *it, size_t n, size_t item, void *out)
{
    void *p = hr_arena_array(&it->arena, n ? n : 1, item);
    memcpy(out, &p, sizeof p);
    if (!p) return hr_jinja_exhausted(it, "the template takes too much memory");
    return hr_jinja_step(it, n * item / 64);
}

/* ---- the builder ---------------------------------------------------------------------------- */

static bool make_room(hr_jbuilder *b, size_t n)
{
    if (b->status) return false;
    if (b->n + n > b->it->max_output) {
        b->status = hr_jinja_exhausted(b->it, "a text of the template becomes too long");
        return false;
    }
    if (b->n + n <= b->capacity) return true;
    size_t bigger = b->capacity ? b->capacity * 2 : b == b->it->out ? 4096 : 64;
    while (bigger < b->n + n) bigger *= 2;
    char *p = hr_arena_raw(&b->it->arena, bigger);
    if (!p) {
        b->status = hr_jinja_exhausted(b->it, "the template takes too much memory");
        return false;
    }
    b->status = hr_jinja_step(b->it, bigger / 64);
    if (b->status) return false;
    if (b->n) memcpy(p, b->p, b->n);
    b->p = p;
    b->capacity = bigger;
    return true;
}

/* Bytes [from, to) of the builder are data; joins the last mark when they touch. */
static void mark(hr_jbuilder *b, size_t from, size_t to)
{
    if (b->status || from == to) return;
    if (b->n_marks && b->marks[b->n_marks - 1].to == from) {
        b->marks[b->n_marks - 1].to = to;
        return;
    }
    if (b->n_marks == b->marks_capacity) {
        size_t bigger = b->marks_capacity ? b->marks_capacity * 2 : 4;
        hr_jmark *m;
        b->status = hr_jinja_alloc(b->it, bigger, sizeof *m, &m);
        if (b->status) return;
        if (b->n_marks) memcpy(m, b->marks, b->n_marks * sizeof *m);
        b->marks = m;
        b->marks_capacity = bigger;
    }
    b->marks[b->n_marks++] = (hr_jmark){ from, to };
}

/* In runs that fit a byte's counter, which compilers turn into vectors. */
static size_t count_chars(hr_str s)
{
    size_t n = 0;
    for (size_t at = 0; at < s.n;) {
        size_t end = s.n - at < 192 ? s.n : at + 192;
        uint8_t run = 0;
        for (; at < end; at++) run = (uint8_t)(run + ((signed char)s.p[at] >= -64));
        n += run;
    }
    return n;
}

/* `chars` code points of text. */
static void put(hr_jbuilder *b, hr_str text, size_t chars)
{
    if (!text.n || !make_room(b, text.n)) return;
    b->status = hr_jinja_step(b->it, text.n / 16);
    memcpy(b->p + b->n, text.p, text.n);
    b->n += text.n;
    b->chars += chars;
}

void hr_jinja_put(hr_jbuilder *b, hr_str text, bool data)
{
    size_t from = b->n;
    put(b, text, count_chars(text));
    if (data) mark(b, from, b->n);
}

void hr_jinja_put_c(hr_jbuilder *b, const char *text)
{
    hr_jinja_put(b, hr_str_c(text), false);
}

void hr_jinja_put_char(hr_jbuilder *b, uint32_t c, bool data)
{
    char text[4];
    hr_jinja_put(b, (hr_str){ text, hr_utf8_encode(c, text) }, data);
}

void hr_jinja_put_slice(hr_jbuilder *b, const hr_jstr *s, size_t from, size_t to)
{
    size_t at = b->n;
    hr_str text = hr_str_slice(hr_jinja_text(s), from, to);
    bool known = s->chars == s->n || text.n == s->n;
    put(b, text, !known ? count_chars(text) : text.n == s->n ? s->chars : text.n);
    if (b->status) return;
    for (size_t i = 0; i < s->n_marks && s->marks[i].from < to; i++) {
        hr_jmark m = s->marks[i];
        if (m.to <= from) continue;
        mark(b, at + (m.from > from ? m.from - from : 0), at + (m.to < to ? m.to : to) - from);
    }
}

void hr_jinja_put_str(hr_jbuilder *b, const hr_jstr *s)
{
    hr_jinja_put_slice(b, s, 0, s->n);
}

static void set_marks(hr_jstr *s, const hr_jmark *marks, size_t n)
{
    s->n_marks = n;
    s->marks = marks;
    if (n == 1) {
        s->one = marks[0];
        s->marks = &s->one;
    }
}

hr_status hr_jinja_finish(hr_jbuilder *b, hr_jval *out)
{
    hr_jstr *s;
    HR_TRY(b->status);
    HR_TRY(hr_jinja_alloc(b->it, 1, sizeof *s, &s));
    *s = (hr_jstr){ .p = b->p, .n = b->n, .chars = b->chars, .markup = b->markup };
    set_marks(s, b->marks, b->n_marks);
    *out = (hr_jval){ .kind = HR_J_STR, .as.s = s };
    return HR_OK;
}

/* ---- strings -------------------------------------------------------------------------------- */

/* `text` stays where it is and must outlive the rendering. */
hr_status hr_jinja_string(hr_jinterp *it, hr_str text, bool data, hr_jval *out)
{
    hr_jstr *s;
    HR_TRY(hr_jinja_alloc(it, 1, sizeof *s, &s));
    *s = (hr_jstr){ .p = text.p, .n = text.n, .chars = count_chars(text) };
    if (data && text.n) {
        s->one = (hr_jmark){ 0, text.n };
        s->marks = &s->one;
        s->n_marks = 1;
    }
    *out = (hr_jval){ .kind = HR_J_STR, .as.s = s };
    return HR_OK;
}

/* Shares the bytes; copies marks only when there are several. */
hr_status hr_jinja_substring(hr_jinterp *it, const hr_jstr *s, size_t from, size_t to, hr_jval *out)
{
    if (s->n_marks > 1) {
        hr_jbuilder b = { .it = it };
        hr_jinja_put_slice(&b, s, from, to);
        return hr_jinja_finish(&b, out);
    }
    HR_TRY(hr_jinja_step(it, (to - from) / 16));
    HR_TRY(hr_jinja_string(it, hr_str_slice(hr_jinja_text(s), from, to), false, out));
    if (!s->n_marks || s->one.to <= from || s->one.from >= to) return HR_OK;
    hr_jstr *cut;
    HR_TRY(hr_jinja_alloc(it, 1, sizeof *cut, &cut));
    *cut = *out->as.s;
    hr_jmark m = { s->one.from > from ? s->one.from - from : 0,
                   (s->one.to < to ? s->one.to : to) - from };
    set_marks(cut, &m, 1);
    out->as.s = cut;
    return HR_OK;
}

bool hr_jinja_is_data(const hr_jstr *s, size_t from, size_t to)
{
    for (size_t i = 0; i < s->n_marks && s->marks[i].from < to; i++)
        if (s->marks[i].to > from) return true;
    return false;
}

size_t hr_jinja_offset(const hr_jstr *s, size_t index)
{
    if (s->chars == s->n) return index;
    if (index >= s->chars) return s->n;
    size_t at = 0;
    for (; index; index--) do
            at++;
        while (at < s->n && ((unsigned char)s->p[at] & 0xC0) == 0x80);
    return at;
}
