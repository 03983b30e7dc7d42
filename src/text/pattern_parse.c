/* From a pre-tokenizer's regular expression to a program whose every atom is a set of characters.
 *
 * Pure; runs while a tokenizer is loaded. A recursive descent over Oniguruma's Ruby syntax, the
 * one Hugging Face reads, which writes PCRE2 syntax. Its clever idea: nothing that depends on
 * Unicode or on case is left to the engine. \s, \p{L}, "." and (?i:s) all become sets here, and
 * what this file does not understand exactly is refused by name, never passed through. */
#include "text/pattern.h"

#include "base/utf8.h"

#define MAX_DEPTH  32
#define MAX_REPEAT 1000

typedef struct parser {
    hr_str src; /* valid UTF-8 */
    size_t at;
    bool fold; /* (?i) is in force */
    int depth;
    bool is_literal;       /* the atom just parsed is one character */
    uint32_t last_literal; /* in lower case, the literal just before `at`, 0 = none */
    hr_program *out;
} parser;

static hr_status parse_alternatives(parser *p);

static hr_status unsupported(const parser *p, const char *what)
{
    return hr_fail(HR_UNIMPLEMENTED, "pattern: %s at byte %zu is not supported", what, p->at);
}

static hr_status broken(const parser *p, const char *what)
{
    return hr_fail(HR_INVALID_ARGUMENT, "pattern: %s at byte %zu", what, p->at);
}

static bool more(const parser *p)
{
    return p->at < p->src.n;
}

static char peek(const parser *p)
{
    return more(p) ? p->src.p[p->at] : '\0';
}

static bool accept(parser *p, const char *literal)
{
    hr_str rest = hr_str_slice(p->src, p->at, p->src.n);
    if (!hr_str_starts(rest, hr_str_c(literal))) return false;
    p->at += strlen(literal);
    return true;
}

static uint32_t next_char(parser *p)
{
    size_t len;
    uint32_t c = hr_utf8_decode(hr_str_slice(p->src, p->at, p->src.n), &len);
    p->at += len;
    return c;
}

static void emit(parser *p, const char *text)
{
    hr_buf_add_c(&p->out->text, text);
}

/* ---- sets ----------------------------------------------------------------------------------- */

/* Takes the set over. */
static hr_status emit_set(parser *p, hr_charset *set)
{
    hr_program *g = p->out;
    size_t i = 0;
    while (i < g->n_sets && !hr_charset_equal(&g->sets[i], set)) i++;
    hr_status st = HR_OK;
    if (i < g->n_sets) hr_charset_deinit(set);
    else if (g->n_sets == HR_PATTERN_MAX_SETS)
        st = hr_fail(HR_UNIMPLEMENTED, "pattern: more than %d different sets", HR_PATTERN_MAX_SETS);
    else st = hr_grow((void **)&g->sets, &g->capacity, g->n_sets + 1, sizeof *g->sets);
    if (st) {
        hr_charset_deinit(set);
        return st;
    }
    if (i == g->n_sets) g->sets[g->n_sets++] = *set;
    hr_buf_add_byte(&g->text, HR_PATTERN_SET);
    hr_buf_add_byte(&g->text, (char)i);
    return HR_OK;
}

/* Sorts, folds where (?i) holds, negates: in that order, as [^a-z] must not match A under (?i). */
static hr_status finish_set(const parser *p, hr_charset *set, bool negate)
{
    hr_charset_sort(set);
    if (p->fold) HR_TRY(hr_charset_fold(set));
    return negate ? hr_charset_negate(set) : HR_OK;
}

static hr_status emit_range(parser *p, uint32_t lo, uint32_t hi, bool negate)
{
    hr_charset set = { 0 };
    hr_status st = hr_charset_add(&set, lo, hi);
    if (!st) st = finish_set(p, &set, negate);
    if (!st) return emit_set(p, &set);
    hr_charset_deinit(&set);
    return st;
}

/* ---- escapes -------------------------------------------------------------------------------- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* \xHH, \x{H…}, \uHHHH, after the letter. */
static hr_status parse_hex(parser *p, char letter, uint32_t *out)
{
    bool braces = letter == 'x' && accept(p, "{");
    size_t most = braces ? 8 : letter == 'u' ? 4 : 2, n = 0;
    uint32_t c = 0;
    for (; n < most && more(p) && hex_digit(peek(p)) >= 0; n++, p->at++)
        c = c << 4 | (uint32_t)hex_digit(peek(p));
    if (n == 0 || (letter == 'u' && n != 4) || (braces && !accept(p, "}")))
        return broken(p, "hexadecimal escape");
    if (c > HR_UNICODE_LAST) return broken(p, "character above U+10FFFF");
    *out = c;
    return HR_OK;
}

/* \p{Name}, \P{Name}, \p{^Name}, after the letter. */
static hr_status parse_property(parser *p, bool negate, hr_charset *set)
{
    if (!accept(p, "{")) return broken(p, "\\p without {");
    if (accept(p, "^")) negate = !negate;
    size_t end = hr_str_find(p->src, HR_STR("}"), p->at);
    if (end == SIZE_MAX) return broken(p, "\\p{ without }");
    hr_str name = hr_str_slice(p->src, p->at, end);
    p->at = end + 1;
    HR_TRY(hr_charset_add_property(set, name));
    hr_charset_sort(set);
    return negate ? hr_charset_negate(set) : HR_OK;
}

/* The class that an escape letter names: *known is false for letters that name none. */
static hr_status parse_class_escape(parser *p, char letter, hr_charset *set, bool *known)
{
    *known = true;
    switch (letter) {
    case 's':
    case 'S': HR_TRY(hr_charset_add_space(set)); break;
    case 'd':
    case 'D': HR_TRY(hr_charset_add_categories(set, 1u << HR_ND)); break;
    case 'w':
    case 'W': HR_TRY(hr_charset_add_word(set)); break;
    case 'p':
    case 'P': return parse_property(p, letter == 'P', set);
    default: *known = false; return HR_OK;
    }
    hr_charset_sort(set);
    return letter < 'a' ? hr_charset_negate(set) : HR_OK;
}

/* One escaped character, after the backslash and its letter. */
static hr_status parse_char_escape(parser *p, char letter, uint32_t *out)
{
    static const char from[] = "trnfvae", to[] = "\t\r\n\f\v\a\x1B";
    const char *hit = letter ? strchr(from, letter) : NULL;
    if (hit) {
        *out = (unsigned char)to[hit - from];
        return HR_OK;
    }
    if (letter == 'x' || letter == 'u') return parse_hex(p, letter, out);
    bool word = (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') ||
                (letter >= 'A' && letter <= 'Z');
    if (word) return unsupported(p, "this escape");
    p->at--; /* the escaped character, which may be longer than a byte */
    *out = next_char(p);
    return HR_OK;
}

/* ---- classes -------------------------------------------------------------------------------- */

static hr_status parse_bracket(parser *p, hr_charset *set);

/* After "[", a class inside another. */
static hr_status parse_inner(parser *p, hr_charset *set)
{
    if (peek(p) == ':') return unsupported(p, "a POSIX class");
    if (++p->depth > MAX_DEPTH) return unsupported(p, "nesting this deep");
    hr_charset own = { 0 };
    hr_status st = parse_bracket(p, &own);
    if (!st) st = hr_charset_add_set(set, &own);
    hr_charset_deinit(&own);
    p->depth--;
    return st;
}

/* One item of a bracket: a class into `set`, or a character into *c. */
static hr_status parse_item(parser *p, hr_charset *set, uint32_t *c, bool *is_class)
{
    *is_class = false;
    if (accept(p, "[")) {
        *is_class = true;
        return parse_inner(p, set);
    }
    if (!accept(p, "\\")) {
        *c = next_char(p);
        return HR_OK;
    }
    if (!more(p)) return broken(p, "the end after a backslash");
    char letter = p->src.p[p->at++];
    hr_charset own = { 0 };
    hr_status st = parse_class_escape(p, letter, &own, is_class);
    if (!st && *is_class) st = hr_charset_add_set(set, &own);
    if (!st && !*is_class) st = parse_char_escape(p, letter, c);
    hr_charset_deinit(&own);
    return st;
}

static hr_status parse_items(parser *p, hr_charset *set)
{
    while (more(p) && peek(p) != ']') {
        hr_str here = hr_str_slice(p->src, p->at, p->src.n);
        if (hr_str_starts(here, HR_STR("&&"))) return HR_OK;
        uint32_t lo = 0, hi;
        bool is_class;
        HR_TRY(parse_item(p, set, &lo, &is_class));
        if (is_class) continue;
        hi = lo;
        hr_str rest = hr_str_slice(p->src, p->at, p->src.n);
        if (rest.n >= 2 && rest.p[0] == '-' && rest.p[1] != ']') {
            p->at++;
            HR_TRY(parse_item(p, set, &hi, &is_class));
            if (is_class || hi < lo) return broken(p, "range in a class");
        }
        HR_TRY(hr_charset_add(set, lo, hi));
    }
    return HR_OK;
}

/* What comes behind each && is kept of the set. */
static hr_status parse_operands(parser *p, hr_charset *set)
{
    HR_TRY(parse_items(p, set));
    HR_TRY(finish_set(p, set, false));
    while (accept(p, "&&")) {
        hr_charset other = { 0 };
        hr_status st = parse_items(p, &other);
        if (!st) st = finish_set(p, &other, false);
        if (!st) st = hr_charset_intersect(set, &other);
        hr_charset_deinit(&other);
        HR_TRY(st);
    }
    return accept(p, "]") ? HR_OK : broken(p, "class without ]");
}

/* After "[": the set of a class, folded and negated as it says. */
static hr_status parse_bracket(parser *p, hr_charset *set)
{
    bool negate = accept(p, "^");
    if (peek(p) == ']') return unsupported(p, "a class that starts with ]");
    HR_TRY(parse_operands(p, set));
    return negate ? hr_charset_negate(set) : HR_OK;
}

/* After "[". */
static hr_status parse_class(parser *p)
{
    hr_charset set = { 0 };
    hr_status st = parse_bracket(p, &set);
    if (!st) return emit_set(p, &set);
    hr_charset_deinit(&set);
    return st;
}

/* ---- atoms ---------------------------------------------------------------------------------- */

/* Under (?i) some letter pairs equal one character (ss and U+00DF, st and U+FB06). */
static hr_status check_pair(const parser *p, uint32_t c)
{
    static const char *const pairs[] = { "ff", "fi", "fl", "ss", "st" };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if (p->last_literal == (uint32_t)pairs[i][0] && c == (uint32_t)pairs[i][1])
            return unsupported(p, "a letter pair with a ligature under (?i)");
    return HR_OK;
}

static hr_status emit_literal(parser *p, uint32_t c)
{
    uint32_t low = c >= 'A' && c <= 'Z' ? c + 32 : c;
    if (p->fold) HR_TRY(check_pair(p, low));
    HR_TRY(emit_range(p, c, c, false));
    p->last_literal = low;
    p->is_literal = true;
    return HR_OK;
}

/* After "\" outside a class. */
static hr_status parse_escape(parser *p)
{
    if (!more(p)) return broken(p, "the end after a backslash");
    char letter = p->src.p[p->at++];
    if (letter == 'A' || letter == 'z') {
        emit(p, letter == 'A' ? "\\A" : "\\z");
        return HR_OK;
    }
    hr_charset set = { 0 };
    bool is_class;
    hr_status st = parse_class_escape(p, letter, &set, &is_class);
    if (!st && is_class) st = finish_set(p, &set, false);
    if (!st && is_class) return emit_set(p, &set);
    hr_charset_deinit(&set);
    if (st) return st;
    uint32_t c = 0;
    HR_TRY(parse_char_escape(p, letter, &c));
    return emit_literal(p, c);
}

/* After "(". Captures are dropped: nothing reads them. */
static hr_status parse_group(parser *p)
{
    static const char *const openers[] = { "?:", "?=", "?!", "?<=", "?<!", "?>" };
    bool outer = p->fold;
    if (++p->depth > MAX_DEPTH) return unsupported(p, "nesting this deep");
    size_t i = 0, n = sizeof openers / sizeof openers[0];
    while (i < n && !accept(p, openers[i])) i++;
    if (i == n && accept(p, "?i)")) { /* for the rest of the group around it */
        p->fold = true;
        p->depth--;
        return HR_OK;
    }
    if (i == n && accept(p, "?i:")) {
        p->fold = true;
    } else if (i == n && accept(p, "?-i:")) {
        p->fold = false;
    } else if (i == n && peek(p) == '?') {
        return unsupported(p, "this kind of group");
    }
    emit(p, "(");
    emit(p, i < n ? openers[i] : "?:");
    HR_TRY(parse_alternatives(p));
    if (!accept(p, ")")) return broken(p, "group without )");
    emit(p, ")");
    p->fold = outer;
    p->depth--;
    return HR_OK;
}

static hr_status parse_atom(parser *p)
{
    if (accept(p, "(")) return parse_group(p);
    if (accept(p, "[")) return parse_class(p);
    if (accept(p, "\\")) return parse_escape(p);
    if (accept(p, ".")) return emit_range(p, '\n', '\n', true);
    if (accept(p, "^")) { /* a line's beginning, but not after the last line's end */
        emit(p, "(?:\\A|(?<=");
        HR_TRY(emit_range(p, '\n', '\n', false));
        emit(p, ")(?!\\z))");
        return HR_OK;
    }
    if (accept(p, "$")) {
        emit(p, "(?=\\z|");
        HR_TRY(emit_range(p, '\n', '\n', false));
        emit(p, ")");
        return HR_OK;
    }
    if (peek(p) == '*' || peek(p) == '+' || peek(p) == '?') return broken(p, "nothing to repeat");
    return emit_literal(p, next_char(p));
}

/* ---- quantifiers ---------------------------------------------------------------------------- */

static bool parse_number(parser *p, uint32_t *out)
{
    size_t from = p->at;
    for (*out = 0; peek(p) >= '0' && peek(p) <= '9' && p->at - from < 6; p->at++)
        *out = *out * 10 + (uint32_t)(peek(p) - '0');
    return p->at > from;
}

/* {n}, {n,}, {n,m}, {,m}; false and nothing consumed when it is none of them. */
static bool parse_interval(parser *p, uint32_t *low, uint32_t *high, bool *exact)
{
    size_t from = p->at;
    if (!accept(p, "{")) return false;
    bool has_low = parse_number(p, low);
    *exact = !accept(p, ",");
    *high = *exact ? *low : UINT32_MAX;
    uint32_t n;
    bool has_high = !*exact && parse_number(p, &n);
    if (has_high) *high = n;
    if ((has_low || has_high) && accept(p, "}")) return true;
    p->at = from;
    return false;
}

static hr_status emit_interval(parser *p, size_t atom, uint32_t low, uint32_t high, bool exact)
{
    if (low > MAX_REPEAT || (high != UINT32_MAX && (high > MAX_REPEAT || high < low)))
        return unsupported(p, "this repeat count");
    hr_buf *out = &p->out->text;
    if (peek(p) == '+') { /* Ruby: not possessive but repeated again */
        char *room = hr_buf_reserve(out, 3);
        if (!room) return hr_buf_status(out);
        memmove(out->p + atom + 3, out->p + atom, out->n - atom);
        memcpy(out->p + atom, "(?:", 3);
        out->n += 3;
    }
    if (high == UINT32_MAX) hr_buf_printf(out, "{%u,}", low);
    else hr_buf_printf(out, "{%u,%u}", low, high);
    if (accept(p, "+")) emit(p, ")+");
    if (exact && peek(p) == '?') return unsupported(p, "{n}?");
    if (accept(p, "?")) emit(p, "?");
    return HR_OK;
}

/* What may follow the atom that starts at out[atom]. */
static hr_status parse_quantifier(parser *p, size_t atom)
{
    uint32_t low, high;
    bool exact, some = true;
    if (parse_interval(p, &low, &high, &exact)) {
        HR_TRY(emit_interval(p, atom, low, high, exact));
    } else if (peek(p) == '*' || peek(p) == '+' || peek(p) == '?') {
        hr_buf_add_byte(&p->out->text, p->src.p[p->at++]);
        const char *kind = accept(p, "?") ? "?" : accept(p, "+") ? "+" : "";
        emit(p, kind);
    } else {
        some = false;
    }
    if (!some) return HR_OK;
    p->last_literal = 0;
    if (peek(p) == '*' || peek(p) == '+' || peek(p) == '?' ||
        parse_interval(p, &low, &high, &exact))
        return unsupported(p, "a repeated repeat");
    return HR_OK;
}

static hr_status parse_alternatives(parser *p)
{
    p->last_literal = 0;
    while (more(p) && peek(p) != ')') {
        if (accept(p, "|")) {
            emit(p, "|");
            p->last_literal = 0;
            continue;
        }
        size_t atom = p->out->text.n;
        p->is_literal = false;
        HR_TRY(parse_atom(p));
        if (!p->is_literal) p->last_literal = 0;
        if (p->out->text.n > atom) HR_TRY(parse_quantifier(p, atom)); /* (?i) is nothing */
    }
    p->last_literal = 0;
    return HR_OK;
}

hr_status hr_program_parse(hr_str regex, hr_program *out)
{
    *out = (hr_program){ 0 };
    if (!hr_utf8_valid(regex)) return hr_fail(HR_INVALID_ARGUMENT, "pattern: not UTF-8");
    parser p = { .src = regex, .out = out };
    hr_status st = parse_alternatives(&p);
    if (!st && more(&p)) st = broken(&p, ") without (");
    if (!st) st = hr_buf_status(&out->text);
    if (st) hr_program_deinit(out);
    return st;
}

void hr_program_deinit(hr_program *p)
{
    for (size_t i = 0; i < p->n_sets; i++) hr_charset_deinit(&p->sets[i]);
    hr_free(p->sets);
    hr_buf_deinit(&p->text);
    *p = (hr_program){ 0 };
}
