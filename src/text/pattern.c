/* Pre-tokenizer patterns at work: PCRE2 with JIT over bytes that name kinds of characters.
 *
 * Compiled once and shared; what a search writes to is the caller's hr_matcher. The clever idea:
 * a pattern tells only a few kinds of characters apart (a letter, a digit, the s of 's …), so each
 * character of a text becomes one byte, the number of its kind, and every set of the pattern a
 * bitmap of kinds. PCRE2 then needs no UTF-8, no Unicode tables and no lists of 700 ranges, and a
 * Chinese letter costs what an English one does. */
#include "text/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "text/charmap.h"

#define MAX_CLASSES 256
#define SET_WORDS   ((HR_PATTERN_MAX_SETS + 63) / 64)
#define STACK_MIN   (32 * 1024)
#define STACK_MAX   (1024 * 1024)
/* Most steps of one search: far more than any sane pattern needs on the longest text. */
#define STEPS_BASE     10000000u
#define STEPS_PER_BYTE 16u

struct hr_pattern {
    pcre2_code *code;  /* owned */
    hr_char_map kinds; /* of characters */
};

/* Characters from `lo` up to the next interval's, all in the same sets. */
typedef struct interval {
    uint32_t lo;
    uint8_t kind;
    uint64_t in[SET_WORDS]; /* bit s: inside set s */
} interval;

typedef struct partition {
    interval *intervals; /* owned, ascending, the first at 0 */
    size_t n;
    size_t n_kinds;
    uint64_t in[MAX_CLASSES][SET_WORDS]; /* the sets that a kind is in */
} partition;

static void *pcre2_alloc(size_t bytes, void *unused)
{
    (void)unused;
    return hr_alloc(bytes);
}

static void pcre2_release(void *p, void *unused)
{
    (void)unused;
    hr_free(p);
}

static hr_status pcre2_failed(const char *what, int code)
{
    if (code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAP_FAILED)
        return hr_fail(HR_RESOURCE_EXHAUSTED, "pattern: memory");
    PCRE2_UCHAR text[128];
    pcre2_get_error_message(code, text, sizeof text);
    return hr_fail(HR_UNIMPLEMENTED, "pattern: %s: %s", what, (const char *)text);
}

/* ---- kinds of characters ----------------------------------------------------------------------
 */

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Every place where some set begins or ends, once, ascending, the first 0. */
static hr_status find_bounds(const hr_program *g, uint32_t **out, size_t *count)
{
    size_t most = 1, n = 0;
    for (size_t s = 0; s < g->n_sets; s++) most += 2 * g->sets[s].n;
    uint32_t *bounds = hr_alloc_array0(most, sizeof *bounds);
    if (!bounds) return hr_fail(HR_RESOURCE_EXHAUSTED, "pattern: memory for its sets");
    bounds[n++] = 0;
    for (size_t s = 0; s < g->n_sets; s++) {
        for (size_t i = 0; i < g->sets[s].n; i++) {
            bounds[n++] = g->sets[s].ranges[i].lo;
            if (g->sets[s].ranges[i].hi < HR_UNICODE_LAST)
                bounds[n++] = g->sets[s].ranges[i].hi + 1;
        }
    }
    qsort(bounds, n, sizeof *bounds, by_number);
    *count = 1;
    for (size_t i = 1; i < n; i++)
        if (bounds[i] != bounds[*count - 1]) bounds[(*count)++] = bounds[i];
    *out = bounds;
    return HR_OK;
}

static void mark_sets(const hr_program *g, partition *p)
{
    for (size_t s = 0; s < g->n_sets; s++) {
        const hr_charset *set = &g->sets[s];
        for (size_t i = 0, r = 0; i < p->n && r < set->n; i++) {
            while (r < set->n && set->ranges[r].hi < p->intervals[i].lo) r++;
            if (r < set->n && set->ranges[r].lo <= p->intervals[i].lo)
                p->intervals[i].in[s / 64] |= (uint64_t)1 << s % 64;
        }
    }
}

static hr_status number_kinds(partition *p)
{
    for (size_t i = 0; i < p->n; i++) {
        interval *v = &p->intervals[i];
        size_t k = 0;
        while (k < p->n_kinds && memcmp(p->in[k], v->in, sizeof v->in) != 0) k++;
        if (k == MAX_CLASSES)
            return hr_fail(HR_UNIMPLEMENTED, "pattern: more than %d kinds of characters",
                           MAX_CLASSES);
        if (k == p->n_kinds) memcpy(p->in[p->n_kinds++], v->in, sizeof v->in);
        v->kind = (uint8_t)k;
    }
    return HR_OK;
}

static hr_status make_partition(const hr_program *g, partition *p)
{
    uint32_t *bounds = NULL;
    HR_TRY(find_bounds(g, &bounds, &p->n));
    p->intervals = hr_alloc_array0(p->n, sizeof *p->intervals);
    hr_status st = HR_OK;
    if (!p->intervals) st = hr_fail(HR_RESOURCE_EXHAUSTED, "pattern: memory for its sets");
    for (size_t i = 0; !st && i < p->n; i++) p->intervals[i].lo = bounds[i];
    hr_free(bounds);
    if (st) return st;
    mark_sets(g, p);
    return number_kinds(p);
}

static hr_status fill_map(hr_pattern *p, const partition *part)
{
    hr_char_run *runs = hr_alloc_array0(part->n, sizeof *runs);
    if (!runs) return hr_fail(HR_RESOURCE_EXHAUSTED, "pattern: memory for its sets");
    for (size_t i = 0; i < part->n; i++)
        runs[i] = (hr_char_run){ part->intervals[i].lo, part->intervals[i].kind };
    hr_status st = hr_char_map_fill(&p->kinds, runs, part->n);
    hr_free(runs);
    return st;
}

/* ---- compiling --------------------------------------------------------------------------------
 */

/* The class of the kinds that lie in set s; one that nothing matches when there is none. */
static void write_set(const partition *p, size_t s, hr_buf *out)
{
    hr_buf_add_c(out, "[");
    size_t from = out->n;
    for (size_t k = 0; k < p->n_kinds; k++)
        if (p->in[k][s / 64] >> s % 64 & 1) hr_buf_printf(out, "\\x{%02zx}", k);
    if (out->n == from) hr_buf_add_c(out, "^\\x{00}-\\x{ff}");
    hr_buf_add_c(out, "]");
}

static hr_status compile_code(const hr_program *g, const partition *part, hr_pattern *p)
{
    hr_buf text = { 0 };
    for (size_t i = 0; i < g->text.n; i++) {
        if (g->text.p[i] == HR_PATTERN_SET) write_set(part, (unsigned char)g->text.p[++i], &text);
        else hr_buf_add_byte(&text, g->text.p[i]);
    }
    hr_status st = hr_buf_status(&text);
    pcre2_general_context *general = pcre2_general_context_create(pcre2_alloc, pcre2_release, NULL);
    pcre2_compile_context *context = general ? pcre2_compile_context_create(general) : NULL;
    if (!st && !context) st = hr_fail(HR_RESOURCE_EXHAUSTED, "pattern: memory");
    int code = 0;
    PCRE2_SIZE at;
    if (!st) {
        p->code = pcre2_compile((PCRE2_SPTR)(text.p ? text.p : ""), text.n,
                                PCRE2_NEVER_UTF | PCRE2_NEVER_UCP | PCRE2_NEVER_BACKSLASH_C, &code,
                                &at, context);
        if (!p->code) st = pcre2_failed("cannot be compiled", code);
    }
    if (!st) pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE); /* where there is none: interpreted */
    if (context) pcre2_compile_context_free(context);
    if (general) pcre2_general_context_free(general);
    hr_buf_deinit(&text);
    return st;
}

hr_status hr_pattern_compile(hr_str regex, hr_pattern **out)
{
    *out = NULL;
    hr_program program = { 0 };
    HR_TRY(hr_program_parse(regex, &program));
    hr_pattern *p = hr_new0(hr_pattern);
    partition *part = hr_new0(partition);
    hr_status st = HR_OK;
    if (!p || !part) st = hr_fail(HR_RESOURCE_EXHAUSTED, "pattern: memory");
    if (!st) st = make_partition(&program, part);
    if (!st) st = fill_map(p, part);
    if (!st) st = compile_code(&program, part, p);
    if (part) hr_free(part->intervals);
    hr_free(part);
    hr_program_deinit(&program);
    if (st) {
        hr_pattern_destroy(p);
        return st;
    }
    *out = p;
    return HR_OK;
}

void hr_pattern_destroy(hr_pattern *p)
{
    if (!p) return;
    if (p->code) pcre2_code_free(p->code);
    hr_char_map_deinit(&p->kinds);
    hr_free(p);
}

/* ---- matching ---------------------------------------------------------------------------------
 */

hr_status hr_matcher_init(hr_matcher *m)
{
    *m = (hr_matcher){ 0 };
    pcre2_general_context *general = pcre2_general_context_create(pcre2_alloc, pcre2_release, NULL);
    if (general) {
        m->data = pcre2_match_data_create(1, general);
        m->context = pcre2_match_context_create(general);
        m->stack = pcre2_jit_stack_create(STACK_MIN, STACK_MAX, general);
        pcre2_general_context_free(general);
    }
    /* without a JIT there is no stack, and none is needed */
    if (!m->data || !m->context) {
        hr_matcher_deinit(m);
        return hr_fail(HR_RESOURCE_EXHAUSTED, "pattern: memory for matching");
    }
    if (m->stack) pcre2_jit_stack_assign(m->context, NULL, m->stack);
    return HR_OK;
}

void hr_matcher_deinit(hr_matcher *m)
{
    if (m->stack) pcre2_jit_stack_free(m->stack);
    if (m->context) pcre2_match_context_free(m->context);
    if (m->data) pcre2_match_data_free(m->data);
    *m = (hr_matcher){ 0 };
}

hr_status hr_pattern_classify(const hr_pattern *p, hr_str text, hr_buf *classes)
{
    hr_buf_clear(classes);
    char *out = hr_buf_reserve(classes, text.n);
    if (!out) return hr_buf_status(classes);
    const uint8_t *ascii = hr_char_map_ascii(&p->kinds);
    for (size_t i = 0, len; i < text.n; i += len) {
        unsigned char b = (unsigned char)text.p[i];
        len = 1;
        if (b < 0x80) {
            *out++ = (char)ascii[b];
            continue;
        }
        uint32_t c = hr_utf8_decode(hr_str_slice(text, i, text.n), &len);
        *out++ = (char)hr_char_map_get(&p->kinds, c);
    }
    classes->n = (size_t)(out - classes->p);
    return HR_OK;
}

hr_status hr_pattern_find(const hr_pattern *p, hr_str classes, size_t from, hr_matcher *m,
                          size_t *start, size_t *end)
{
    *start = *end = SIZE_MAX;
    size_t left = classes.n - from;
    uint32_t steps = left > (UINT32_MAX - STEPS_BASE) / STEPS_PER_BYTE
                         ? UINT32_MAX
                         : STEPS_BASE + STEPS_PER_BYTE * (uint32_t)left;
    pcre2_set_match_limit(m->context, steps);
    int rc = pcre2_match(p->code, (PCRE2_SPTR)classes.p, classes.n, from, 0, m->data, m->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(p->code, (PCRE2_SPTR)classes.p, classes.n, from, PCRE2_NO_JIT, m->data,
                         m->context);
    if (rc == PCRE2_ERROR_NOMATCH) return HR_OK;
    if (rc == PCRE2_ERROR_MATCHLIMIT || rc == PCRE2_ERROR_HEAPLIMIT ||
        rc == PCRE2_ERROR_DEPTHLIMIT || rc == PCRE2_ERROR_NOMEMORY)
        return hr_fail(HR_RESOURCE_EXHAUSTED,
                       "pattern: too much backtracking in a text of %zu characters", classes.n);
    if (rc < 0) return pcre2_failed("matching", rc);
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(m->data);
    *start = at[0];
    *end = at[1];
    return HR_OK;
}
