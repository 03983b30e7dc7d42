/* Reading what was parsed: members by name, numbers, texts, each with its type checked.
 *
 * Runs on every thread; owns nothing. Integers are read from the lexeme, digit by digit, so that
 * 2^63 - 1 is exact, 1e3 and 16.0 are integers, and 1e400 is out of range rather than infinite. */
#include "base/json.h"

/* Longest number read as a double, characters; hr_str_to_f64 copies it. */
#define LONGEST_F64 500

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

const hr_json *hr_json_get(const hr_json *object, const char *key)
{
    if (!object || object->type != HR_JSON_OBJECT) return NULL;
    hr_str k = hr_str_c(key);
    for (size_t i = 0; i < object->count; i++)
        if (hr_str_eq(object->items[i].key, k)) return &object->items[i];
    return NULL;
}

hr_status hr_json_check_members(const hr_json *object, const char *const *known, size_t n)
{
    for (size_t i = 0; i < object->count; i++) {
        hr_str key = object->items[i].key;
        bool found = false;
        for (size_t k = 0; k < n; k++) found |= hr_str_eq_c(key, known[k]);
        if (!found) return hr_fail(HR_INVALID_ARGUMENT, "unknown member \"%.*s\"", HR_STR_ARG(key));
    }
    return HR_OK;
}

static hr_status wrong_type(const hr_json *v, const char *what, const char *wanted)
{
    static const char *const names[] = { "null",     "false",    "true",     "a number",
                                         "a string", "an array", "an object" };
    return hr_fail(HR_INVALID_ARGUMENT, "%s: must be %s, not %s", what, wanted,
                   v ? names[v->type] : "missing");
}

/* A decimal number taken apart: its significant digits (leading and trailing zeros dropped, the
 * point skipped) and the power of ten of the last one. */
typedef struct decimal {
    bool negative;
    hr_str digits; /* may contain one '.' */
    size_t count;  /* digits without the point */
    int64_t exponent;
} decimal;

static int64_t read_exponent(hr_str s)
{
    bool negative = s.n && s.p[0] == '-';
    int64_t e = 0;
    for (size_t i = s.n && !is_digit(s.p[0]); i < s.n; i++)
        if (e < INT64_C(1) << 50) e = e * 10 + (s.p[i] - '0'); /* saturates far from any use */
    return negative ? -e : e;
}

static decimal take_apart(hr_str s)
{
    decimal d = { .negative = s.n && s.p[0] == '-' };
    if (d.negative) s = hr_str_slice(s, 1, s.n);
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] != 'e' && s.p[i] != 'E') continue;
        d.exponent = read_exponent(hr_str_slice(s, i + 1, s.n));
        s.n = i;
    }
    size_t point = hr_str_find(s, HR_STR("."), 0);
    if (point < s.n) d.exponent -= (int64_t)(s.n - point - 1);
    while (s.n && (s.p[s.n - 1] == '0' || s.p[s.n - 1] == '.')) {
        d.exponent += s.p[s.n - 1] == '0';
        s.n--;
    }
    while (s.n && (s.p[0] == '0' || s.p[0] == '.')) s = hr_str_slice(s, 1, s.n);
    d.digits = s;
    for (size_t i = 0; i < s.n; i++) d.count += s.p[i] != '.';
    return d;
}

hr_status hr_json_to_i64(const hr_json *v, const char *what, int64_t *out)
{
    *out = 0;
    if (!v || v->type != HR_JSON_NUMBER) return wrong_type(v, what, "an integer");
    decimal d = take_apart(v->text);
    if (d.count == 0) return HR_OK;
    if (d.exponent < 0)
        return hr_fail(HR_INVALID_ARGUMENT, "%s: %.*s is not an integer", what,
                       HR_STR_ARG(v->text));
    uint64_t magnitude = 0;
    bool wraps = d.count > 19 || d.exponent > 19;
    for (size_t i = 0; i < d.digits.n && !wraps; i++)
        if (d.digits.p[i] != '.')
            magnitude = magnitude * 10 + (uint64_t)(d.digits.p[i] - '0'); /* ≤ 19 digits fit */
    for (int64_t i = 0; i < d.exponent && !wraps; i++)
        wraps = __builtin_mul_overflow(magnitude, (uint64_t)10, &magnitude);
    if (wraps || magnitude > (uint64_t)INT64_MAX + d.negative)
        return hr_fail(HR_OUT_OF_RANGE, "%s: %.*s is out of range", what, HR_STR_ARG(v->text));
    *out = d.negative ? (int64_t)(0 - magnitude) : (int64_t)magnitude;
    return HR_OK;
}

hr_status hr_json_to_f64(const hr_json *v, const char *what, double *out)
{
    *out = 0;
    if (!v || v->type != HR_JSON_NUMBER) return wrong_type(v, what, "a number");
    if (v->text.n > LONGEST_F64)
        return hr_fail(HR_INVALID_ARGUMENT, "%s: a number of %zu characters", what, v->text.n);
    hr_status st = hr_str_to_f64(v->text, out);
    return st ? hr_fail_prefix(st, "%s", what) : HR_OK;
}

hr_status hr_json_to_bool(const hr_json *v, const char *what, bool *out)
{
    *out = v && v->type == HR_JSON_TRUE;
    if (!v || (v->type != HR_JSON_TRUE && v->type != HR_JSON_FALSE))
        return wrong_type(v, what, "true or false");
    return HR_OK;
}

hr_status hr_json_to_str(const hr_json *v, const char *what, hr_str *out)
{
    *out = (hr_str){ 0 };
    if (!v || v->type != HR_JSON_STRING) return wrong_type(v, what, "a string");
    *out = v->text;
    return HR_OK;
}

bool hr_json_is_integer(const hr_json *v)
{
    if (!v || v->type != HR_JSON_NUMBER) return false;
    for (size_t i = 0; i < v->text.n; i++)
        if (v->text.p[i] == '.' || v->text.p[i] == 'e' || v->text.p[i] == 'E') return false;
    return true;
}
