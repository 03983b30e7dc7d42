/* Template text to tokens.
 *
 * Runs wherever a template is parsed; owns nothing, tokens go to the caller's arena. The white
 * space rules are the point: trim_blocks eats one newline after a block or comment, lstrip_blocks
 * eats blanks between the line's start and a block or comment, "-" eats all white space on its
 * side, "+" keeps it. The text is brought to "\n" line ends first and loses one final newline.
 * An end tag counts only outside brackets, so that {{ {'a': {}}}} is read as it looks. */
#include <stdio.h>

#include "base/utf8.h"
#include "text/jinja/jinja_int.h"

#define MAX_BRACKETS 256

typedef struct lexer {
    hr_str s; /* normalised */
    size_t at;
    size_t counted, line_start; /* newlines before `counted` are in `line` */
    uint32_t line;
    bool line_starting; /* what was read last ended in a newline */
    hr_arena *arena;
    hr_jtokens *out;
    hr_template_place *failed;
    char brackets[MAX_BRACKETS]; /* the closing ones that are due */
    size_t n_brackets;
} lexer;

static hr_status out_of_memory(void)
{
    return hr_fail(HR_RESOURCE_EXHAUSTED, "memory for a chat template");
}

static void count_lines(lexer *l, size_t to)
{
    for (; l->counted < to; l->counted++)
        if (l->s.p[l->counted] == '\n') {
            l->line++;
            l->line_start = l->counted + 1;
        }
}

static hr_status syntax(lexer *l, size_t at, const char *what)
{
    count_lines(l, at);
    hr_template_place place = { l->line, (uint32_t)(at - l->line_start + 1) };
    return hr_jinja_refuse(l->failed, place, HR_INVALID_ARGUMENT, "%s", what);
}

static hr_status emit(lexer *l, hr_jtoken_kind kind, size_t at, hr_str text)
{
    hr_jtokens *o = l->out;
    if (o->n == o->capacity) {
        size_t bigger = o->capacity ? o->capacity * 2 : 64;
        hr_jtoken *items = hr_arena_array(l->arena, bigger, sizeof *items);
        if (!items) return out_of_memory();
        if (o->n) memcpy(items, o->items, o->n * sizeof *items);
        o->items = items;
        o->capacity = bigger;
    }
    count_lines(l, at);
    o->items[o->n++] = (hr_jtoken){ kind, { l->line, (uint32_t)(at - l->line_start + 1) }, text };
    return HR_OK;
}

static bool here(const lexer *l, size_t at, const char *text)
{
    return hr_str_starts(hr_str_slice(l->s, at, l->s.n), hr_str_c(text));
}

/* "\r\n" and "\r" become "\n"; one newline at the end goes. */
static hr_status normalise(hr_str source, hr_arena *arena, hr_str *out)
{
    char *p = hr_arena_alloc(arena, source.n + 1);
    if (!p) return out_of_memory();
    size_t n = 0;
    for (size_t i = 0; i < source.n; i++) {
        char c = source.p[i];
        if (c == '\r') {
            if (i + 1 < source.n && source.p[i + 1] == '\n') i++;
            c = '\n';
        }
        p[n++] = c;
    }
    if (n && p[n - 1] == '\n') n--;
    *out = (hr_str){ p, n };
    return HR_OK;
}

/* ---- strings ------------------------------------------------------------------------------- */

static size_t read_digits(hr_str s, size_t at, size_t most, unsigned base, uint32_t *out)
{
    size_t n = 0;
    for (*out = 0; n < most && at + n < s.n; n++) {
        char c = s.p[at + n];
        unsigned d = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                     : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a' + 10)
                     : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A' + 10)
                                            : 99;
        if (d >= base) break;
        *out = *out * base + d;
    }
    return n;
}

/* A backslash before a character beyond ASCII: jinja2 spells the character as an escape first, so
 * that the backslash ends up escaping a backslash. Reproduced. */
static size_t odd_escape(hr_str s, size_t at, char *p)
{
    size_t len;
    uint32_t c = hr_utf8_decode(hr_str_slice(s, at, s.n), &len);
    return (size_t)sprintf(p, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
}

static const char *simple_escape(char c)
{
    static const char table[] = "\\\\''\"\"a\ab\bf\fn\nr\rt\tv\v";
    for (const char *t = table; *t; t += 2)
        if (*t == c) return t + 1;
    return NULL;
}

/* The escape after the backslash at `*at`; writes at most 10 bytes. */
static hr_status unescape_one(lexer *l, size_t token, hr_str s, size_t *at, char *p, size_t *n)
{
    size_t i = *at + 1, taken;
    char c = s.p[i];
    const char *simple = simple_escape(c);
    uint32_t code = 0;
    *n = 0;
    *at = i + 1;
    if (simple) {
        p[(*n)++] = *simple;
        return HR_OK;
    }
    if (c == '\n') return HR_OK;
    if (c >= '0' && c <= '7') {
        taken = read_digits(s, i, 3, 8, &code);
        *at = i + taken;
    } else if (c == 'x' || c == 'u' || c == 'U') {
        size_t want = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        taken = read_digits(s, i + 1, want, 16, &code);
        if (taken < want) return syntax(l, token, "truncated escape in a string");
        if (code > 0x10FFFF) return syntax(l, token, "illegal Unicode character in a string");
        if (code >= 0xD800 && code < 0xE000)
            return syntax(l, token, "a surrogate in a string is not text");
        *at = i + 1 + want;
    } else if (c == 'N') {
        return syntax(l, token, "\\N{...} is not supported: write the character or \\u");
    } else if ((unsigned char)c >= 0x80) {
        size_t len;
        hr_utf8_decode(hr_str_slice(s, i, s.n), &len);
        *n = odd_escape(s, i, p);
        *at = i + len;
        return HR_OK;
    } else {
        p[(*n)++] = '\\';
        p[(*n)++] = c;
        return HR_OK;
    }
    *n = hr_utf8_encode(code, p);
    return HR_OK;
}

/* The text between the quotes to its value. */
static hr_status unescape(lexer *l, size_t token, hr_str s, hr_str *out)
{
    *out = s;
    if (!s.n || !memchr(s.p, '\\', s.n)) return HR_OK;
    char *p = hr_arena_alloc(l->arena, s.n * 5 + 16); /* \é is the worst: 3 bytes to 10 */
    if (!p) return out_of_memory();
    size_t n = 0;
    for (size_t i = 0; i < s.n;) {
        if (s.p[i] != '\\') {
            p[n++] = s.p[i++];
            continue;
        }
        size_t wrote;
        HR_TRY(unescape_one(l, token, s, &i, p + n, &wrote));
        n += wrote;
    }
    *out = (hr_str){ p, n };
    return HR_OK;
}

static hr_status lex_string(lexer *l)
{
    size_t start = l->at, i = start + 1;
    char quote = l->s.p[start];
    while (i < l->s.n && l->s.p[i] != quote) i += l->s.p[i] == '\\' ? 2 : 1;
    if (i >= l->s.n) return syntax(l, start, "a string does not end");
    hr_str value;
    HR_TRY(unescape(l, start, hr_str_slice(l->s, start + 1, i), &value));
    l->at = i + 1;
    return emit(l, HR_JT_STRING, start, value);
}

/* ---- numbers, names, operators -------------------------------------------------------------- */

static bool is_digit(const lexer *l, size_t at, unsigned base)
{
    uint32_t ignored;
    return read_digits(l->s, at, 1, base, &ignored) == 1;
}

/* Digits with single underscores between; returns where they end. */
static size_t digits(const lexer *l, size_t at, unsigned base)
{
    while (is_digit(l, at, base) || (at < l->s.n && l->s.p[at] == '_' && is_digit(l, at + 1, base)))
        at++;
    return at;
}

/* Where a float ends that starts here, or 0 when it is none. */
static size_t float_end(const lexer *l)
{
    if (l->at && l->s.p[l->at - 1] == '.') return 0;
    size_t i = digits(l, l->at, 10), end = 0;
    if (i < l->s.n && l->s.p[i] == '.' && is_digit(l, i + 1, 10)) end = i = digits(l, i + 1, 10);
    if (i < l->s.n && (l->s.p[i] | 32) == 'e') {
        size_t e = i + 1;
        if (e < l->s.n && (l->s.p[e] == '+' || l->s.p[e] == '-')) e++;
        if (is_digit(l, e, 10)) end = digits(l, e, 10);
    }
    return end;
}

static size_t integer_end(const lexer *l)
{
    size_t at = l->at;
    if (l->s.p[at] != '0') return digits(l, at, 10);
    char x = at + 1 < l->s.n ? (char)(l->s.p[at + 1] | 32) : ' ';
    unsigned base = x == 'b' ? 2 : x == 'o' ? 8 : x == 'x' ? 16 : 0;
    if (base && (is_digit(l, at + 2, base) ||
                 (at + 2 < l->s.n && l->s.p[at + 2] == '_' && is_digit(l, at + 3, base))))
        return digits(l, at + 2, base);
    return digits(l, at, 1); /* zeros only: 007 is 00 and 7, as jinja2 has it */
}

static hr_status lex_number(lexer *l)
{
    size_t start = l->at, end = float_end(l);
    hr_jtoken_kind kind = end ? HR_JT_FLOAT : HR_JT_INTEGER;
    if (!end) end = integer_end(l);
    char *p = hr_arena_alloc(l->arena, end - start + 1);
    if (!p) return out_of_memory();
    size_t n = 0;
    for (size_t i = start; i < end; i++)
        if (l->s.p[i] != '_') p[n++] = l->s.p[i];
    l->at = end;
    return emit(l, kind, start, (hr_str){ p, n });
}

static size_t name_end(const lexer *l)
{
    size_t at = l->at, len;
    while (at < l->s.n && hr_jinja_is_word(hr_utf8_decode(hr_str_slice(l->s, at, l->s.n), &len)))
        at += len;
    return at;
}

static hr_status bracket(lexer *l, char c)
{
    static const char pairs[] = "(){}[]";
    const char *place = strchr(pairs, c);
    if (!place) return HR_OK;
    if ((place - pairs) % 2 == 0) {
        if (l->n_brackets == MAX_BRACKETS) return syntax(l, l->at, "brackets nest too deeply");
        l->brackets[l->n_brackets++] = place[1];
        return HR_OK;
    }
    if (l->n_brackets == 0 || l->brackets[--l->n_brackets] != c)
        return syntax(l, l->at, "this bracket does not close the last that was opened");
    return HR_OK;
}

static hr_status lex_operator(lexer *l)
{
    static const char *const two[] = { "//", "**", "==", "!=", ">=", "<=" };
    size_t start = l->at, n = 0;
    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        if (here(l, start, two[i])) n = 2;
    if (!n && strchr("+-/*%~[](){}><=.:|,;", l->s.p[start]) && l->s.p[start]) n = 1;
    if (!n) return syntax(l, start, "unexpected character");
    HR_TRY(bracket(l, l->s.p[start]));
    l->at = start + n;
    return emit(l, HR_JT_OPERATOR, start, hr_str_slice(l->s, start, start + n));
}

static hr_status lex_token(lexer *l)
{
    char c = l->s.p[l->at];
    if (c >= '0' && c <= '9') return lex_number(l);
    if (c == '\'' || c == '"') return lex_string(l);
    size_t end = name_end(l);
    if (end == l->at) return lex_operator(l);
    size_t start = l->at;
    l->at = end;
    return emit(l, HR_JT_NAME, start, hr_str_slice(l->s, start, end));
}

/* ---- tags ----------------------------------------------------------------------------------- */

/* Eats an end tag of `close` ("%}", "}}", "#}") with its sign and what follows of white space. */
static bool end_tag(lexer *l, const char *close)
{
    bool variable = *close == '}';
    char sign = l->at < l->s.n ? l->s.p[l->at] : ' ';
    size_t skip = sign == '-' || (sign == '+' && !variable) ? 1 : 0;
    if (!here(l, l->at + skip, close)) return false;
    l->at += skip + 2;
    if (skip && sign == '-') l->at = hr_jinja_skip_space(l->s, l->at);
    else if (!skip && !variable && here(l, l->at, "\n")) l->at++;
    l->line_starting = l->s.p[l->at - 1] == '\n';
    return true;
}

/* Tokens up to the end tag. */
static hr_status lex_inside(lexer *l, const char *close, hr_jtoken_kind kind)
{
    for (;;) {
        l->at = hr_jinja_skip_space(l->s, l->at);
        if (l->at >= l->s.n) return syntax(l, l->s.n, "the template ends inside a tag");
        size_t at = l->at;
        if (l->n_brackets == 0 && end_tag(l, close)) return emit(l, kind, at, HR_STR(""));
        HR_TRY(lex_token(l));
    }
}

/* Text before a tag with `sign`, white space cut as the sign and the line say. */
static hr_status emit_text(lexer *l, size_t from, size_t to, char sign, bool variable)
{
    hr_str text = hr_str_slice(l->s, from, to);
    if (sign == '-') {
        text.n = hr_jinja_rstrip(text);
    } else if (sign != '+' && !variable) {
        const char *newline = text.n ? memrchr(text.p, '\n', text.n) : NULL;
        size_t line = newline ? (size_t)(newline - text.p) + 1 : 0;
        if ((line || l->line_starting) && hr_jinja_skip_space(text, line) == text.n) text.n = line;
    }
    return text.n ? emit(l, HR_JT_DATA, from, text) : HR_OK;
}

static char sign_at(const lexer *l, size_t at)
{
    char c = at < l->s.n ? l->s.p[at] : ' ';
    return c == '-' || c == '+' ? c : ' ';
}

/* True when `{%` at `at` opens the tag `word`; *end is then after the word and white space. */
static bool tag_is(const lexer *l, size_t at, const char *word, size_t *end)
{
    at += 2;
    if (sign_at(l, at) != ' ') at++;
    at = hr_jinja_skip_space(l->s, at);
    if (!here(l, at, word)) return false;
    *end = hr_jinja_skip_space(l->s, at + strlen(word));
    return true;
}

static bool opens_raw(const lexer *l, size_t at, size_t *end)
{
    size_t i;
    if (!here(l, at, "{%") || !tag_is(l, at, "raw", &i)) return false;
    if (here(l, i, "%}")) {
        *end = i + 2;
        return true;
    }
    if (!here(l, i, "-%}")) return false;
    *end = hr_jinja_skip_space(l->s, i + 3);
    return true;
}

static hr_status lex_raw(lexer *l, size_t tag)
{
    size_t from = l->at, end;
    if (from == l->s.n) return HR_OK; /* nothing follows: jinja2 does not mind */
    for (size_t at = from; at < l->s.n; at++) {
        if (!here(l, at, "{%") || !tag_is(l, at, "endraw", &end)) continue;
        l->at = end;
        bool starting = l->line_starting;
        if (!end_tag(l, "%}")) continue;
        bool after = l->line_starting;
        l->line_starting = starting;
        HR_TRY(emit_text(l, from, at, sign_at(l, at + 2), false));
        l->line_starting = after;
        return HR_OK;
    }
    return syntax(l, tag, "raw has no endraw");
}

static hr_status lex_comment(lexer *l, size_t tag)
{
    for (l->at = tag + 2 + (sign_at(l, tag + 2) != ' '); l->at < l->s.n; l->at++)
        if (end_tag(l, "#}")) return HR_OK;
    if (tag + 2 + (sign_at(l, tag + 2) != ' ') >= l->s.n) return HR_OK; /* as for raw */
    return syntax(l, tag, "a comment does not end");
}

/* Where the next tag begins, or the end of the text. */
static size_t next_tag(const lexer *l, size_t at)
{
    for (; at + 1 < l->s.n; at++)
        if (l->s.p[at] == '{' && strchr("{%#", l->s.p[at + 1]) && l->s.p[at + 1]) return at;
    return l->s.n;
}

static hr_status lex_tag(lexer *l, size_t tag)
{
    size_t end;
    char what = l->s.p[tag + 1];
    HR_TRY(emit_text(l, l->at, tag, sign_at(l, tag + 2), what == '{'));
    if (opens_raw(l, tag, &end)) {
        l->at = end;
        l->line_starting = l->s.p[end - 1] == '\n';
        return lex_raw(l, tag);
    }
    if (what == '#') return lex_comment(l, tag);
    l->at = tag + 2 + (sign_at(l, tag + 2) != ' ');
    if (what == '{') {
        HR_TRY(emit(l, HR_JT_VARIABLE_BEGIN, tag, HR_STR("{{")));
        return lex_inside(l, "}}", HR_JT_VARIABLE_END);
    }
    HR_TRY(emit(l, HR_JT_BLOCK_BEGIN, tag, HR_STR("{%")));
    return lex_inside(l, "%}", HR_JT_BLOCK_END);
}

hr_status hr_jinja_lex(hr_str source, hr_arena *arena, hr_template_place *failed, hr_jtokens *out)
{
    *out = (hr_jtokens){ 0 };
    lexer l = { .line = 1, .line_starting = true, .arena = arena, .out = out, .failed = failed };
    HR_TRY(normalise(source, arena, &l.s));
    while (l.at < l.s.n) {
        size_t tag = next_tag(&l, l.at);
        if (tag == l.s.n) {
            HR_TRY(emit(&l, HR_JT_DATA, l.at, hr_str_slice(l.s, l.at, l.s.n)));
            break;
        }
        HR_TRY(lex_tag(&l, tag));
    }
    return emit(&l, HR_JT_EOF, l.s.n, HR_STR(""));
}
