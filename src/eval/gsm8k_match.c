/* What an answer to a GSM8K question says, and whether that is right: the filters of
 * lm-evaluation-harness's gsm8k task, by hand.
 *
 *   strict    group 1 of the first match of  #### (\-?[0-9\.\,]+)
 *   flexible  the last match of  (-?[$0-9.,]{2,})|(-?[0-9]+)
 *   equal     but for , and $ anywhere and a . at the end */
#include "eval/eval_int.h"

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool in_number(char c)
{
    return is_digit(c) || c == '.' || c == ',';
}

hr_str hr_eval_strict_number(hr_str answer)
{
    const hr_str mark = HR_STR("#### ");
    for (size_t at = 0; (at = hr_str_find(answer, mark, at)) != SIZE_MAX; at++) {
        size_t from = at + mark.n, end = from;
        if (end < answer.n && answer.p[end] == '-') end++;
        size_t digits = end;
        while (end < answer.n && in_number(answer.p[end])) end++;
        if (end > digits) return hr_str_slice(answer, from, end);
    }
    return (hr_str){ 0 };
}

/* The end of a match that begins at `at`, or `at` itself. */
static size_t flexible_end(hr_str s, size_t at)
{
    size_t from = at + (s.p[at] == '-'), end = from;
    while (end < s.n && (in_number(s.p[end]) || s.p[end] == '$')) end++;
    if (end - from >= 2) return end;
    for (end = from; end < s.n && is_digit(s.p[end]);) end++;
    return end > from ? end : at;
}

hr_str hr_eval_flexible_number(hr_str answer)
{
    hr_str last = { 0 };
    for (size_t at = 0; at < answer.n;) {
        size_t end = flexible_end(answer, at);
        if (end > at) last = hr_str_slice(answer, at, end);
        at = end > at ? end : at + 1;
    }
    return last;
}

/* The next character that counts, from *at on; -1 at the end. */
static int next(hr_str s, size_t *at)
{
    while (*at < s.n && (s.p[*at] == ',' || s.p[*at] == '$')) ++*at;
    return *at < s.n ? (unsigned char)s.p[(*at)++] : -1;
}

bool hr_eval_same_number(hr_str a, hr_str b)
{
    if (a.n && a.p[a.n - 1] == '.') a.n--;
    if (b.n && b.p[b.n - 1] == '.') b.n--;
    size_t i = 0, j = 0;
    for (;;) {
        int x = next(a, &i), y = next(b, &j);
        if (x != y) return false;
        if (x < 0) return a.n > 0 && b.n > 0;
    }
}
