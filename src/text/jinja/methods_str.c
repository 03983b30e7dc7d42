/* The methods of Python's str that templates use. Positions count characters; arguments of the
 * wrong type are refused as Python refuses them. */
#include "base/utf8.h"
#include "text/jinja/jinja_int.h"

static hr_status need_str(hr_jinterp *it, hr_jval v, const char *what)
{
    if (v.kind == HR_J_STR) return HR_OK;
    return hr_jinja_fail(it, "%s must be str, not %s", what, hr_jinja_type_name(v));
}

static hr_status need_int(hr_jinterp *it, hr_jval v, int64_t missing, int64_t *out)
{
    *out = missing;
    if (v.kind == HR_J_MISSING || hr_jinja_as_int(v, out)) return HR_OK;
    return hr_jinja_fail(it, "'%s' object cannot be interpreted as an integer",
                         hr_jinja_type_name(v));
}

/* ---- stripping, case ------------------------------------------------------------------------ */

static hr_status method_lstrip(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    return hr_jinja_strip(it, self.as.s, args->pos[0], HR_JSIDE_LEFT, out);
}

static hr_status method_rstrip(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    return hr_jinja_strip(it, self.as.s, args->pos[0], HR_JSIDE_RIGHT, out);
}

static hr_status method_casefold(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)args;
    hr_jbuilder b = { .it = it };
    hr_jinja_put_case(&b, self.as.s, 0, self.as.s->n, HR_JCASE_FOLD);
    return hr_jinja_finish(&b, out);
}

/* Walks the characters and maps each by what it is and what came before. */
static hr_status map_case(hr_jinterp *it, const hr_jstr *s, bool title, hr_jval *out)
{
    hr_jbuilder b = { .it = it };
    bool in_word = false;
    size_t len;
    for (size_t at = 0; at < s->n; at += len) {
        uint32_t c = hr_utf8_decode(hr_str_slice(hr_jinja_text(s), at, s->n), &len);
        bool upper = hr_jinja_is(c, HR_JC_UPPER);
        hr_jcase to = title ? (in_word ? HR_JCASE_LOWER : HR_JCASE_TITLE)
                            : (upper ? HR_JCASE_LOWER : HR_JCASE_UPPER);
        if (hr_jinja_is(c, HR_JC_CASED)) hr_jinja_put_case(&b, s, at, at + len, to);
        else hr_jinja_put_slice(&b, s, at, at + len);
        in_word = hr_jinja_is(c, HR_JC_CASED);
    }
    return hr_jinja_finish(&b, out);
}

static hr_status method_title(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)args;
    return map_case(it, self.as.s, true, out);
}

static hr_status method_swapcase(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)args;
    return map_case(it, self.as.s, false, out);
}

/* ---- splitting ------------------------------------------------------------------------------ */

typedef struct parts {
    hr_jinterp *it;
    const hr_jstr *s;
    hr_jval *items;
    size_t n, capacity;
} parts;

static hr_status add_part(parts *p, size_t from, size_t to)
{
    if (p->n == p->capacity) {
        size_t bigger = p->capacity ? p->capacity * 2 : 8;
        hr_jval *items;
        HR_TRY(hr_jinja_alloc(p->it, bigger, sizeof *items, &items));
        if (p->n) memcpy(items, p->items, p->n * sizeof *items);
        p->items = items;
        p->capacity = bigger;
    }
    return hr_jinja_substring(p->it, p->s, from, to, &p->items[p->n++]);
}

static void reverse(hr_jval *items, size_t n)
{
    for (size_t i = 0; i < n / 2; i++) {
        hr_jval swap = items[i];
        items[i] = items[n - 1 - i];
        items[n - 1 - i] = swap;
    }
}

static hr_status split_on(parts *p, const hr_jstr *sep, int64_t most)
{
    size_t at = 0;
    for (; most != 0; most--) {
        size_t hit = hr_str_find(hr_jinja_text(p->s), hr_jinja_text(sep), at);
        if (hit == SIZE_MAX) break;
        HR_TRY(add_part(p, at, hit));
        at = hit + sep->n;
    }
    return add_part(p, at, p->s->n);
}

static size_t find_last(hr_str s, hr_str needle, size_t end)
{
    if (needle.n > end) return SIZE_MAX;
    for (size_t at = end - needle.n + 1; at-- > 0;)
        if (memcmp(s.p + at, needle.p, needle.n) == 0) return at;
    return SIZE_MAX;
}

static hr_status rsplit_on(parts *p, const hr_jstr *sep, int64_t most)
{
    size_t end = p->s->n;
    for (; most != 0; most--) {
        size_t hit = find_last(hr_jinja_text(p->s), hr_jinja_text(sep), end);
        if (hit == SIZE_MAX) break;
        HR_TRY(add_part(p, hit + sep->n, end));
        end = hit;
    }
    HR_TRY(add_part(p, 0, end));
    reverse(p->items, p->n);
    return HR_OK;
}

static size_t word_end(hr_str s, size_t at)
{
    size_t len;
    while (at < s.n && !hr_jinja_is_space(hr_utf8_decode(hr_str_slice(s, at, s.n), &len)))
        at += len;
    return at;
}

static hr_status split_words(parts *p, int64_t most)
{
    hr_str s = hr_jinja_text(p->s);
    size_t at = hr_jinja_skip_space(s, 0);
    for (; at < s.n && most != 0; most--) {
        size_t end = word_end(s, at);
        HR_TRY(add_part(p, at, end));
        at = hr_jinja_skip_space(s, end);
    }
    return at < s.n ? add_part(p, at, hr_jinja_rstrip(s)) : HR_OK;
}

static hr_status rsplit_words(parts *p, int64_t most)
{
    hr_str s = hr_jinja_text(p->s);
    for (s.n = hr_jinja_rstrip(s); s.n && most != 0; most--) {
        size_t from = s.n, len;
        while (from) {
            size_t at = from - 1;
            while (at && ((unsigned char)s.p[at] & 0xC0) == 0x80) at--;
            if (hr_jinja_is_space(hr_utf8_decode(hr_str_slice(s, at, from), &len))) break;
            from = at;
        }
        HR_TRY(add_part(p, from, s.n));
        s.n = from;
        s.n = hr_jinja_rstrip(s);
    }
    if (s.n) HR_TRY(add_part(p, 0, s.n)); /* leading blanks stay, as in Python */
    reverse(p->items, p->n);
    return HR_OK;
}

static hr_status split(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jsides from,
                       hr_jval *out)
{
    parts p = { .it = it, .s = self.as.s };
    hr_jval sep = args->pos[0];
    int64_t most;
    bool left = from == HR_JSIDE_LEFT;
    HR_TRY(need_int(it, args->pos[1], -1, &most));
    HR_TRY(hr_jinja_step(it, self.as.s->n / 16));
    if (sep.kind == HR_J_MISSING || sep.kind == HR_J_NONE) {
        HR_TRY(left ? split_words(&p, most) : rsplit_words(&p, most));
    } else {
        HR_TRY(need_str(it, sep, "separator"));
        if (!sep.as.s->n) return hr_jinja_fail(it, "empty separator");
        HR_TRY(left ? split_on(&p, sep.as.s, most) : rsplit_on(&p, sep.as.s, most));
    }
    return hr_jinja_list(it, HR_J_LIST, p.items, p.n, out);
}

static hr_status method_split(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    return split(it, self, args, HR_JSIDE_LEFT, out);
}

static hr_status method_rsplit(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    return split(it, self, args, HR_JSIDE_RIGHT, out);
}

static hr_status method_splitlines(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    parts p = { .it = it, .s = self.as.s };
    bool keep;
    HR_TRY(hr_jinja_truth(it, args->pos[0], &keep));
    for (size_t at = 0, next; at < p.s->n; at = next) {
        size_t end = hr_jinja_line_end(p.s, at, &next);
        HR_TRY(add_part(&p, at, keep ? next : end));
    }
    return hr_jinja_list(it, HR_J_LIST, p.items, p.n, out);
}

static hr_status partition(hr_jinterp *it, hr_jval self, hr_jval sep, hr_jsides from, hr_jval *out)
{
    parts p = { .it = it, .s = self.as.s };
    HR_TRY(need_str(it, sep, "separator"));
    if (!sep.as.s->n) return hr_jinja_fail(it, "empty separator");
    hr_str s = hr_jinja_text(self.as.s), needle = hr_jinja_text(sep.as.s);
    bool left = from == HR_JSIDE_LEFT;
    size_t hit = left ? hr_str_find(s, needle, 0) : find_last(s, needle, s.n);
    size_t cut[4] = { 0, hit, hit + needle.n, s.n };
    if (hit == SIZE_MAX) {
        cut[1] = cut[2] = left ? s.n : 0;
    }
    for (size_t i = 0; i < 3; i++) HR_TRY(add_part(&p, cut[i], cut[i + 1]));
    return hr_jinja_list(it, HR_J_TUPLE, p.items, 3, out);
}

static hr_status method_partition(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    return partition(it, self, args->pos[0], HR_JSIDE_LEFT, out);
}

static hr_status method_rpartition(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    return partition(it, self, args->pos[0], HR_JSIDE_RIGHT, out);
}

static hr_status method_join(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    const hr_jval *items;
    size_t n;
    if (args->pos[0].kind == HR_J_UNDEFINED) n = 0;
    HR_TRY(hr_jinja_collect(it, args->pos[0], &items, &n));
    for (size_t i = 0; i < n; i++)
        if (items[i].kind != HR_J_STR)
            return hr_jinja_fail(it, "sequence item %zu: expected str instance, %s found", i,
                                 hr_jinja_type_name(items[i]));
    return hr_jinja_join(it, self.as.s, items, n, out);
}

/* ---- looking -------------------------------------------------------------------------------- */

/* The bytes that self[start:end] covers, from the arguments after the first; false when start lies
 * behind the end, where Python finds not even an empty string. */
static hr_status window(hr_jinterp *it, const hr_jstr *s, const hr_jargs *args, size_t *from,
                        size_t *to, bool *inside)
{
    int64_t n = (int64_t)s->chars, a, b;
    hr_jval start = args->pos[1], end = args->pos[2];
    if (start.kind == HR_J_NONE) start.kind = HR_J_MISSING;
    if (end.kind == HR_J_NONE) end.kind = HR_J_MISSING;
    HR_TRY(need_int(it, start, 0, &a));
    HR_TRY(need_int(it, end, n, &b));
    if (a < 0) a = a + n < 0 ? 0 : a + n;
    if (b < 0) b = b + n < 0 ? 0 : b + n;
    if (b > n) b = n;
    *inside = a <= b;
    *from = hr_jinja_offset(s, (size_t)(a < n ? a : n));
    *to = *inside ? hr_jinja_offset(s, (size_t)b) : *from;
    return HR_OK;
}

static bool has_affix(hr_str s, hr_jval affix, hr_jsides side)
{
    hr_str a = hr_jinja_text(affix.as.s);
    return side == HR_JSIDE_LEFT ? hr_str_starts(s, a) : hr_str_ends(s, a);
}

static hr_status check_affix(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jsides side,
                             hr_jval *out)
{
    size_t from, to;
    bool inside, yes = false;
    hr_jval affix = args->pos[0];
    HR_TRY(window(it, self.as.s, args, &from, &to, &inside));
    hr_str s = hr_str_slice(hr_jinja_text(self.as.s), from, to);
    if (affix.kind == HR_J_TUPLE) {
        for (size_t i = 0; i < affix.as.l->n; i++) {
            HR_TRY(need_str(it, affix.as.l->items[i], "a tuple for startswith or endswith"));
            yes = yes || has_affix(s, affix.as.l->items[i], side);
        }
    } else {
        HR_TRY(need_str(it, affix, "startswith/endswith first arg"));
        yes = has_affix(s, affix, side);
    }
    *out = hr_jinja_bool(yes && inside);
    return HR_OK;
}

static hr_status method_startswith(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    return check_affix(it, self, args, HR_JSIDE_LEFT, out);
}

static hr_status method_endswith(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    return check_affix(it, self, args, HR_JSIDE_RIGHT, out);
}

/* The character where args[0] is found, or -1. */
static hr_status find(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jsides side,
                      int64_t *out)
{
    size_t from, to;
    bool inside;
    *out = -1;
    HR_TRY(need_str(it, args->pos[0], "the text to find"));
    HR_TRY(window(it, self.as.s, args, &from, &to, &inside));
    HR_TRY(hr_jinja_step(it, (to - from) / 16));
    hr_str s = hr_str_slice(hr_jinja_text(self.as.s), from, to);
    hr_str needle = hr_jinja_text(args->pos[0].as.s);
    size_t hit = !inside                 ? SIZE_MAX
                 : side == HR_JSIDE_LEFT ? hr_str_find(s, needle, 0)
                                         : find_last(s, needle, s.n);
    if (hit == SIZE_MAX) return HR_OK;
    *out = 0;
    for (size_t i = 0; i < from + hit; i++) *out += ((unsigned char)self.as.s->p[i] & 0xC0) != 0x80;
    return HR_OK;
}

static hr_status found(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jsides side,
                       bool must, hr_jval *out)
{
    int64_t at;
    HR_TRY(find(it, self, args, side, &at));
    if (must && at < 0) return hr_jinja_fail(it, "substring not found");
    *out = hr_jinja_int(at);
    return HR_OK;
}

static hr_status method_find(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    return found(it, self, args, HR_JSIDE_LEFT, false, out);
}

static hr_status method_rfind(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    return found(it, self, args, HR_JSIDE_RIGHT, false, out);
}

static hr_status method_index(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    return found(it, self, args, HR_JSIDE_LEFT, true, out);
}

static hr_status method_rindex(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    return found(it, self, args, HR_JSIDE_RIGHT, true, out);
}

static hr_status method_count(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    size_t from, to;
    bool inside;
    int64_t n = 0;
    HR_TRY(need_str(it, args->pos[0], "the text to count"));
    HR_TRY(window(it, self.as.s, args, &from, &to, &inside));
    HR_TRY(hr_jinja_step(it, (to - from) / 16));
    hr_str s = hr_str_slice(hr_jinja_text(self.as.s), from, to);
    hr_str needle = hr_jinja_text(args->pos[0].as.s);
    if (!needle.n) {
        for (size_t i = 0; i < s.n; i++) n += ((unsigned char)s.p[i] & 0xC0) != 0x80;
        n += inside;
    } else {
        for (size_t at = 0; (at = hr_str_find(s, needle, at)) != SIZE_MAX; at += needle.n) n++;
    }
    *out = hr_jinja_int(n);
    return HR_OK;
}

/* ---- padding, prefixes ---------------------------------------------------------------------- */

static hr_status justify(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jsides pad,
                         hr_jval *out)
{
    int64_t width;
    HR_TRY(need_int(it, args->pos[0], 0, &width));
    size_t n =
        width > 0 && (uint64_t)width > self.as.s->chars ? (size_t)width - self.as.s->chars : 0;
    return hr_jinja_pad(it, self.as.s, pad == HR_JSIDE_LEFT ? n : 0, pad == HR_JSIDE_LEFT ? 0 : n,
                        args->pos[1], out);
}

static hr_status method_ljust(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    return justify(it, self, args, HR_JSIDE_RIGHT, out);
}

static hr_status method_rjust(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    return justify(it, self, args, HR_JSIDE_LEFT, out);
}

static hr_status method_zfill(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    int64_t width;
    const hr_jstr *s = self.as.s;
    hr_jbuilder b = { .it = it };
    HR_TRY(need_int(it, args->pos[0], 0, &width));
    size_t sign = s->n && (s->p[0] == '-' || s->p[0] == '+');
    hr_jinja_put_slice(&b, s, 0, sign);
    for (int64_t i = (int64_t)s->chars; i < width && !b.status; i++) hr_jinja_put_c(&b, "0");
    hr_jinja_put_slice(&b, s, sign, s->n);
    return hr_jinja_finish(&b, out);
}

static hr_status method_removeprefix(hr_jinterp *it, hr_jval self, const hr_jargs *args,
                                     hr_jval *out)
{
    HR_TRY(need_str(it, args->pos[0], "removeprefix() argument"));
    bool there = has_affix(hr_jinja_text(self.as.s), args->pos[0], HR_JSIDE_LEFT);
    size_t n = there ? args->pos[0].as.s->n : 0;
    return hr_jinja_substring(it, self.as.s, n, self.as.s->n, out);
}

static hr_status method_removesuffix(hr_jinterp *it, hr_jval self, const hr_jargs *args,
                                     hr_jval *out)
{
    HR_TRY(need_str(it, args->pos[0], "removesuffix() argument"));
    bool there = has_affix(hr_jinja_text(self.as.s), args->pos[0], HR_JSIDE_RIGHT);
    size_t n = there ? args->pos[0].as.s->n : 0;
    return hr_jinja_substring(it, self.as.s, 0, self.as.s->n - n, out);
}

/* ---- classes -------------------------------------------------------------------------------- */

static hr_status method_isalpha(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)it;
    (void)args;
    *out = hr_jinja_bool(hr_jinja_all(self.as.s, HR_JC_ALPHA));
    return HR_OK;
}

static hr_status method_isdecimal(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)it;
    (void)args;
    *out = hr_jinja_bool(hr_jinja_all(self.as.s, HR_JC_DECIMAL));
    return HR_OK;
}

static hr_status method_isdigit(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)it;
    (void)args;
    *out = hr_jinja_bool(hr_jinja_all(self.as.s, HR_JC_DIGIT));
    return HR_OK;
}

static hr_status method_isnumeric(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)it;
    (void)args;
    *out = hr_jinja_bool(hr_jinja_all(self.as.s, HR_JC_NUMERIC));
    return HR_OK;
}

static hr_status method_isalnum(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)it;
    (void)args;
    *out = hr_jinja_bool(hr_jinja_all(self.as.s, HR_JC_ALNUM));
    return HR_OK;
}

static hr_status method_islower(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)it;
    (void)args;
    *out = hr_jinja_bool(hr_jinja_all_cased(self.as.s, HR_JC_LOWER));
    return HR_OK;
}

static hr_status method_isupper(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)it;
    (void)args;
    *out = hr_jinja_bool(hr_jinja_all_cased(self.as.s, HR_JC_UPPER));
    return HR_OK;
}

static hr_status method_isspace(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)it;
    (void)args;
    *out = hr_jinja_bool(self.as.s->n &&
                         hr_jinja_skip_space(hr_jinja_text(self.as.s), 0) == self.as.s->n);
    return HR_OK;
}

static hr_status method_isascii(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)it;
    (void)args;
    *out = hr_jinja_bool(self.as.s->n == self.as.s->chars);
    return HR_OK;
}

static const hr_jfunction methods[] = {
    { "capitalize", "", 0, hr_jinja_str_capitalize },
    { "casefold", "", 0, method_casefold },
    { "center", "$ $", 1, hr_jinja_str_center },
    { "count", "$ $ $", 1, method_count },
    { "endswith", "$ $ $", 1, method_endswith },
    { "find", "$ $ $", 1, method_find },
    { "format", "*", 0, hr_jinja_method_format },
    { "index", "$ $ $", 1, method_index },
    { "isalnum", "", 0, method_isalnum },
    { "isalpha", "", 0, method_isalpha },
    { "isascii", "", 0, method_isascii },
    { "isdecimal", "", 0, method_isdecimal },
    { "isdigit", "", 0, method_isdigit },
    { "islower", "", 0, method_islower },
    { "isnumeric", "", 0, method_isnumeric },
    { "isspace", "", 0, method_isspace },
    { "isupper", "", 0, method_isupper },
    { "join", "$", 1, method_join },
    { "ljust", "$ $", 1, method_ljust },
    { "lower", "", 0, hr_jinja_str_lower },
    { "lstrip", "$", 0, method_lstrip },
    { "partition", "$", 1, method_partition },
    { "removeprefix", "$", 1, method_removeprefix },
    { "removesuffix", "$", 1, method_removesuffix },
    { "replace", "$ $ $", 2, hr_jinja_str_replace },
    { "rfind", "$ $ $", 1, method_rfind },
    { "rindex", "$ $ $", 1, method_rindex },
    { "rjust", "$ $", 1, method_rjust },
    { "rpartition", "$", 1, method_rpartition },
    { "rsplit", "sep maxsplit", 0, method_rsplit },
    { "rstrip", "$", 0, method_rstrip },
    { "split", "sep maxsplit", 0, method_split },
    { "splitlines", "keepends", 0, method_splitlines },
    { "startswith", "$ $ $", 1, method_startswith },
    { "strip", "$", 0, hr_jinja_str_strip },
    { "swapcase", "", 0, method_swapcase },
    { "title", "", 0, method_title },
    { "upper", "", 0, hr_jinja_str_upper },
    { "zfill", "$", 1, method_zfill },
};

const hr_jfunction *hr_jinja_find_str_method(hr_str name)
{
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (hr_str_eq_c(name, methods[i].name)) return &methods[i];
    return NULL;
}
