/* W3C Trace Context: whether a traceparent header is one.
 *
 * Any thread. 00-<32 hex>-<16 hex>-<2 hex>, lower case, ids not all zero; a later version may be
 * longer behind another '-', version ff is none. The header is passed on as it came: headrace makes
 * no spans of its own. */
#include "server/http.h"

/* `n` lower-case hexadecimal digits at `p`; *any: one of them is not 0. */
static bool is_hex(const char *p, size_t n, bool *any)
{
    *any = false;
    for (size_t i = 0; i < n; i++) {
        if (!((p[i] >= '0' && p[i] <= '9') || (p[i] >= 'a' && p[i] <= 'f'))) return false;
        *any |= p[i] != '0';
    }
    return true;
}

hr_str hr_traceparent(hr_str v)
{
    static const struct {
        size_t at, n;
        bool zero; /* may be */
    } parts[] = { { 0, 2, true },
                  { HR_TRACE_ID_AT, HR_TRACE_ID_BYTES, false },
                  { 36, 16, false },
                  { 53, 2, true } };
    static const hr_str none = { 0 };
    bool any;
    if (v.n < 55 || v.n > 512) return none;
    for (size_t i = 0; i < 4; i++) {
        if (!is_hex(v.p + parts[i].at, parts[i].n, &any) || !(any || parts[i].zero)) return none;
        if (i && v.p[parts[i].at - 1] != '-') return none;
    }
    if (v.p[0] == 'f' && v.p[1] == 'f') return none;
    bool first = v.p[0] == '0' && v.p[1] == '0';
    if (v.n > 55 && (first || v.p[55] != '-')) return none;
    for (size_t i = 55; i < v.n; i++)
        if (v.p[i] <= ' ' || v.p[i] > '~') return none;
    return v;
}
