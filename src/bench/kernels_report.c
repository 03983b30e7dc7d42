/* The table of the benchmark of kernels, for 100 columns, and its JSON. */
#include <stdio.h>

#include "bench/kernels_int.h"

enum { LABEL = 20, PER_LINE = 10, CELL = 8 }; /* columns of text, row counts, columns of text */

/* Three digits and more, in seven columns. */
static void add_number(hr_buf *out, double v)
{
    int digits = v < 0.1 ? 5 : v < 1 ? 4 : v < 10 ? 3 : v < 100 ? 2 : v < 1000 ? 1 : 0;
    hr_buf_printf(out, "%*.*f", CELL, digits, v);
}

static void describe(const hr_bench_kernel *k, char *to, size_t size)
{
    switch (k->op) {
    case HR_BENCH_OP_LINEAR:
        snprintf(to, size, "linear %lldx%lld", (long long)k->k, (long long)k->n);
        return;
    case HR_BENCH_OP_DECODE:
    case HR_BENCH_OP_PREFILL:
        snprintf(to, size, "%s, heads %lld/%lldx%lld, keys in %s: %s", hr_bench_op_names[k->op],
                 (long long)k->heads.query, (long long)k->heads.kv, (long long)k->heads.dim,
                 hr_dtype_name(k->cache),
                 k->op == HR_BENCH_OP_DECODE ? "a query a request" : "queries of one request");
        return;
    case HR_BENCH_OP_NORM:
    case HR_BENCH_OP_GATED:
    case HR_BENCH_OP_QUANTISE:
        snprintf(to, size, "%s, %lld columns", hr_bench_op_names[k->op], (long long)k->k);
        return;
    case HR_BENCH_OP_ROPE:
        snprintf(to, size, "rope, %lld heads of %lld", (long long)(k->heads.query + k->heads.kv),
                 (long long)k->heads.dim);
        return;
    case HR_BENCH_OP_COUNT: break;
    }
    if (size) *to = '\0';
}

/* What tells kernels under one heading apart; up to three short lines. */
static void label(const hr_bench_kernel *k, char to[3][LABEL])
{
    to[0][0] = to[1][0] = to[2][0] = '\0';
    if (k->op == HR_BENCH_OP_LINEAR) {
        snprintf(to[0], LABEL, "%s", hr_format_name(k->format));
        if (!k->copies) return;
        snprintf(to[1], LABEL, "%.3g MB", (double)k->weight_bytes / (double)k->copies / 1e6);
        snprintf(to[2], LABEL, "x %zu", k->copies);
    } else if (k->context) snprintf(to[0], LABEL, "%lld keys", (long long)k->context);
    else if (k->group)
        snprintf(to[0], LABEL, k->group == k->k ? "row" : "by %lld", (long long)k->group);
}

typedef enum cell { MS, GB_S, GOP_S, PERCENT, CELLS } cell;
static const char *const cell_names[CELLS] = { "ms", "GB/s", "Gop/s", "% peak" };

static void add_cell(const hr_bench_figure *f, cell c, int best, hr_buf *out)
{
    char percent[16];
    double seconds = best ? f->best : f->seconds;
    if (!f->measured) {
        hr_buf_printf(out, "%*s", CELL, "-");
        return;
    }
    switch (c) {
    case MS: add_number(out, seconds * 1e3); return;
    case GB_S: add_number(out, f->bytes / seconds / 1e9); return;
    case GOP_S: add_number(out, f->ops / seconds / 1e9); return;
    case PERCENT:
        snprintf(percent, sizeof percent, "%.0f%c", 100 * f->limit_s / seconds,
                 f->by_ops ? 'a' : 'm');
        hr_buf_printf(out, "%*s", CELL, percent);
        return;
    case CELLS: return;
    }
}

static bool any_measured(const hr_bench_kernel *k, size_t from, size_t to)
{
    bool any = false;
    for (size_t i = from; i < to; i++) any = any || k->at[i].measured;
    return any;
}

static void add_kernel(const hr_bench_kernel *k, size_t from, size_t to, int best, hr_buf *out)
{
    char names[3][LABEL];
    int line = 0;
    label(k, names);
    for (int c = 0; c < CELLS; c++) {
        if (c > MS && !any_measured(k, from, to)) break;
        if (c == GOP_S && k->op > HR_BENCH_OP_PREFILL) continue;
        hr_buf_printf(out, "  %-11s%-7s", line < 3 ? names[line] : "", cell_names[c]);
        for (size_t i = from; i < to; i++) add_cell(&k->at[i], (cell)c, best, out);
        hr_buf_add_byte(out, '\n');
        line++;
    }
}

static void add_heading(const hr_bench_kernels_result *r, const char *title, size_t from, size_t to,
                        hr_buf *out)
{
    hr_buf_printf(out, "\n%s\n%-*s", title, LABEL, "  rows");
    for (size_t i = from; i < to; i++) hr_buf_printf(out, "%*lld", CELL, (long long)r->rows[i]);
    hr_buf_add_byte(out, '\n');
}

static void add_kernels(const hr_bench_kernels_result *r, size_t from, size_t to, hr_buf *out)
{
    char title[128], before[128] = "";
    for (size_t i = 0; i < r->n; i++) {
        describe(&r->at[i], title, sizeof title);
        if (strcmp(title, before) != 0) add_heading(r, title, from, to, out);
        snprintf(before, sizeof before, "%s", title);
        add_kernel(&r->at[i], from, to, r->best, out);
    }
}

/* Why figures are missing, each reason once. */
static void add_reasons(const hr_bench_kernels_result *r, hr_buf *out)
{
    const char *told[8];
    size_t n = 0;
    for (size_t i = 0; i < r->n * r->n_rows; i++) {
        const char *why = r->at[i / r->n_rows].at[i % r->n_rows].why;
        size_t k = 0;
        while (k < n && told[k] != why) k++;
        if (!why || k < n || n == sizeof told / sizeof *told) continue;
        told[n++] = why;
        hr_buf_printf(out, "%s %s\n", n == 1 ? "\n- where" : "- or", why);
    }
}

void hr_bench_kernels_table(const hr_bench_kernels_result *r, hr_buf *out)
{
    const hr_bench_machine *m = &r->machine;
    hr_buf_printf(
        out, "%s, %d threads, kernels of %s; caches %zu KiB a core, %zu MiB shared\n%s\n\n", m->cpu,
        r->peaks.threads, hr_isa_name(r->peaks.isa), m->l2 >> 10, m->l3 >> 20, m->date);
    hr_bench_peaks_table(&r->peaks, out);
    hr_buf_printf(out, "\n%s of the runs of each figure\n", r->best ? "The best" : "Medians");
    hr_buf_add_c(out, "% peak: of what reading the op's bytes (m: from memory, or from the caches "
                      "for ops between\nlinears) or its multiplications (a) would take at least\n");
    for (size_t from = 0; from < r->n_rows; from += PER_LINE)
        add_kernels(r, from, from + PER_LINE < r->n_rows ? from + PER_LINE : r->n_rows, out);
    add_reasons(r, out);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void add_json_shape(const hr_bench_kernel *k, hr_json_writer *w)
{
    hr_json_add_str(w, "op", hr_bench_op_names[k->op]);
    if (k->op == HR_BENCH_OP_LINEAR) {
        hr_json_add_str(w, "format", hr_format_name(k->format));
        hr_json_add_i64(w, "k", k->k);
        hr_json_add_i64(w, "n", k->n);
        hr_json_add_i64(w, "weight_bytes", (int64_t)(k->copies ? k->weight_bytes / k->copies : 0));
        hr_json_add_i64(w, "copies", (int64_t)k->copies);
    } else if (k->k) hr_json_add_i64(w, "columns", k->k);
    if (k->group) hr_json_add_i64(w, "group", k->group);
    if (k->heads.dim) {
        hr_json_add_i64(w, "query_heads", k->heads.query);
        hr_json_add_i64(w, "kv_heads", k->heads.kv);
        hr_json_add_i64(w, "head_dim", k->heads.dim);
    }
    if (!k->context) return;
    hr_json_add_i64(w, "context", k->context);
    hr_json_add_str(w, "kv", hr_dtype_name(k->cache));
}

static void add_json_figure(const hr_bench_kernel *k, int64_t rows, const hr_bench_figure *f,
                            hr_json_writer *w)
{
    hr_json_begin_object(w);
    add_json_shape(k, w);
    hr_json_add_i64(w, "rows", rows);
    if (f->measured) {
        hr_json_add_i64(w, "runs", (int64_t)f->runs);
        hr_json_add_f64(w, "ms", f->seconds * 1e3);
        hr_json_add_f64(w, "best_ms", f->best * 1e3);
        hr_json_add_f64(w, "bytes", f->bytes);
        hr_json_add_f64(w, "gb_s", f->bytes / f->seconds / 1e9);
        if (f->ops > 0) {
            hr_json_add_f64(w, "ops", f->ops);
            hr_json_add_f64(w, "gop_s", f->ops / f->seconds / 1e9);
        }
        hr_json_add_str(w, "bound", f->by_ops ? "arithmetic" : "memory");
        hr_json_add_f64(w, "limit_ms", f->limit_s * 1e3);
        hr_json_add_f64(w, "percent_of_peak", 100 * f->limit_s / f->seconds);
    } else hr_json_add_str(w, "left_out", f->why);
    hr_json_end_object(w);
}

void hr_bench_kernels_json(const hr_bench_kernels_result *r, hr_buf *out)
{
    hr_json_writer w = { .out = out };
    hr_json_begin_object(&w);
    hr_json_add_str(&w, "date", r->machine.date);
    hr_json_add_str(&w, "cpu", r->machine.cpu);
    hr_json_add_i64(&w, "threads", r->peaks.threads);
    hr_json_add_str(&w, "isa", hr_isa_name(r->peaks.isa));
    hr_json_add_i64(&w, "l2_bytes", (int64_t)r->machine.l2);
    hr_json_add_i64(&w, "l3_bytes", (int64_t)r->machine.l3);
    hr_json_key(&w, HR_STR("peaks"));
    hr_bench_peaks_json(&r->peaks, &w);
    hr_json_key(&w, HR_STR("figures"));
    hr_json_begin_array(&w);
    for (size_t i = 0; i < r->n; i++)
        for (size_t j = 0; j < r->n_rows; j++)
            add_json_figure(&r->at[i], r->rows[j], &r->at[i].at[j], &w);
    hr_json_end_array(&w);
    hr_json_end_object(&w);
}
