/* The StableHLO writer's words with more to them: sums, products, rows by index, control.
 *
 * Pure functions over a text buffer. Operations that carry regions or dimension numbers are written
 * in MLIR's generic form, which has been the same for longer than the pretty ones. */
#include <math.h>

#include "pjrt/hlo_int.h"

/* "%v7, %v8 = " for n results whose ids are taken here. */
static int begin(hr_hlo *h, int n)
{
    int first = h->next;
    h->next += n;
    for (int i = 0; i < n; i++) hr_buf_printf(h->text, "%s%%v%d", i ? ", " : "", first + i);
    hr_buf_add_c(h->text, " = ");
    return first;
}

static void add_names(hr_hlo *h, const hr_hlo_value *x, int n)
{
    for (int i = 0; i < n; i++) hr_buf_printf(h->text, "%s%%v%d", i ? ", " : "", x[i].id);
}

static void add_types(hr_hlo *h, const hr_hlo_value *x, int n)
{
    for (int i = 0; i < n; i++) {
        if (i) hr_buf_add_c(h->text, ", ");
        hr_hlo_add_type(h->text, &x[i].shape);
    }
}

/* " : (tensor<…>, tensor<…>) -> tensor<…>" */
static void add_signature(hr_hlo *h, const hr_hlo_value *in, int n, const hr_hlo_shape *out)
{
    hr_buf_add_c(h->text, " : (");
    add_types(h, in, n);
    hr_buf_add_c(h->text, ") -> ");
    hr_hlo_add_type(h->text, out);
    hr_buf_add_byte(h->text, '\n');
}

/* "[2, 3, 4]" of `from` up to `to` */
static void add_range(hr_hlo *h, int from, int to)
{
    hr_buf_add_byte(h->text, '[');
    for (int i = from; i < to; i++) hr_buf_printf(h->text, "%s%d", i > from ? ", " : "", i);
    hr_buf_add_byte(h->text, ']');
}

/* ---- sums and products ---------------------------------------------------------------------- */

static int64_t integer_limit(hr_hlo_type t, bool largest)
{
    switch (t) {
    case HR_HLO_I1: return largest;
    case HR_HLO_I4: return largest ? 7 : -8;
    case HR_HLO_UI4: return largest ? 15 : 0;
    case HR_HLO_I8: return largest ? INT8_MAX : INT8_MIN;
    case HR_HLO_UI8: return largest ? UINT8_MAX : 0;
    case HR_HLO_UI16: return largest ? UINT16_MAX : 0;
    case HR_HLO_I32: return largest ? INT32_MAX : INT32_MIN;
    case HR_HLO_UI32: return largest ? UINT32_MAX : 0;
    case HR_HLO_I64: return largest ? INT64_MAX : INT64_MIN;
    case HR_HLO_UI64: return largest ? -1 : 0; /* all ones */
    case HR_HLO_F32:
    case HR_HLO_BF16:
    case HR_HLO_F16:
    case HR_HLO_F64: return 0;
    }
    return 0;
}

/* What leaves every other operand as it is. */
static hr_hlo_value neutral(hr_hlo *h, const char *name, hr_hlo_type type)
{
    bool least = strcmp(name, "maximum") == 0, most = strcmp(name, "minimum") == 0;
    if (hr_hlo_type_is_float(type))
        return hr_hlo_splat_f(h, hr_hlo_scalar(type),
                              least  ? (double)-INFINITY
                              : most ? (double)INFINITY
                                     : 0);
    int64_t x = 0;
    if (least || most) x = integer_limit(type, most);
    if (strcmp(name, "and") == 0) x = type == HR_HLO_I1 ? 1 : -1;
    return hr_hlo_splat_i(h, hr_hlo_scalar(type), x);
}

hr_hlo_value hr_hlo_reduce(hr_hlo *h, const char *name, hr_hlo_value x, int dim)
{
    hr_hlo_value in[] = { x, neutral(h, name, x.shape.type) };
    hr_hlo_value v = { .shape = { .type = x.shape.type } };
    for (int i = 0; i < x.shape.rank; i++)
        if (i != dim) v.shape.dim[v.shape.rank++] = x.shape.dim[i];
    v.id = begin(h, 1);
    hr_buf_printf(h->text,
                  "stablehlo.reduce(%%v%d init: %%v%d) applies stablehlo.%s across dimensions = "
                  "[%d]",
                  x.id, in[1].id, name, dim);
    add_signature(h, in, 2, &v.shape);
    return v;
}

hr_hlo_value hr_hlo_top(hr_hlo *h, hr_hlo_value x, int64_t n)
{
    int64_t rows = x.shape.dim[0];
    int first = begin(h, 2); /* values and, unused, where they stand */
    hr_buf_printf(h->text,
                  "chlo.top_k(%%v%d, k = %lld) : tensor<%lldx%lldxf32> -> (tensor<%lldx%lldxf32>, "
                  "tensor<%lldx%lldxi32>)\n",
                  x.id, (long long)n, (long long)rows, (long long)x.shape.dim[1], (long long)rows,
                  (long long)n, (long long)rows, (long long)n);
    return (hr_hlo_value){ first, HR_HLO_SHAPE(F32, rows, n) };
}

static bool is_among(int dim, const int *dims, int n)
{
    for (int i = 0; i < n; i++)
        if (dims[i] == dim) return true;
    return false;
}

/* Appends to the result's dims those of x that are neither batch nor contracted. */
static void append_free_dims(hr_hlo_shape *s, const hr_hlo_shape *x, const int *batch, int n,
                             int contract)
{
    for (int i = 0; i < x->rank; i++)
        if (i != contract && !is_among(i, batch, n)) s->dim[s->rank++] = x->dim[i];
}

hr_hlo_value hr_hlo_dot(hr_hlo *h, hr_hlo_value a, hr_hlo_value b, hr_hlo_dot_dims d,
                        hr_hlo_type type)
{
    hr_hlo_value in[] = { a, b }, v = { .shape = { .type = type } };
    for (int i = 0; i < d.n_batch; i++) v.shape.dim[v.shape.rank++] = a.shape.dim[d.batch_a[i]];
    append_free_dims(&v.shape, &a.shape, d.batch_a, d.n_batch, d.contract_a);
    append_free_dims(&v.shape, &b.shape, d.batch_b, d.n_batch, d.contract_b);
    v.id = begin(h, 1);
    hr_buf_printf(h->text, "stablehlo.dot_general %%v%d, %%v%d", a.id, b.id);
    if (d.n_batch == 1)
        hr_buf_printf(h->text, ", batching_dims = [%d] x [%d]", d.batch_a[0], d.batch_b[0]);
    if (d.n_batch == 2)
        hr_buf_printf(h->text, ", batching_dims = [%d, %d] x [%d, %d]", d.batch_a[0], d.batch_a[1],
                      d.batch_b[0], d.batch_b[1]);
    hr_buf_printf(h->text, ", contracting_dims = [%d] x [%d]", d.contract_a, d.contract_b);
    if (hr_hlo_type_is_float(a.shape.type)) /* f32 means f32 on every device */
        hr_buf_add_c(h->text, ", precision = [HIGHEST, HIGHEST]");
    add_signature(h, in, 2, &v.shape);
    return v;
}

/* ---- rows by index -------------------------------------------------------------------------- */

static int indexed_dims(const hr_hlo_value *at)
{
    return at->shape.rank == 1 ? 1 : (int)at->shape.dim[1];
}

hr_hlo_value hr_hlo_gather(hr_hlo *h, hr_hlo_value x, hr_hlo_value at)
{
    int k = indexed_dims(&at), rest = x.shape.rank - k;
    hr_hlo_value in[] = { x, at };
    hr_hlo_value v = { .shape = { .type = x.shape.type, .rank = 1 + rest } };
    v.shape.dim[0] = at.shape.dim[0];
    for (int i = 0; i < rest; i++) v.shape.dim[1 + i] = x.shape.dim[k + i];
    v.id = begin(h, 1);
    hr_buf_printf(h->text,
                  "\"stablehlo.gather\"(%%v%d, %%v%d) <{dimension_numbers = "
                  "#stablehlo.gather<offset_dims = ",
                  x.id, at.id);
    add_range(h, 1, 1 + rest);
    hr_buf_add_c(h->text, ", collapsed_slice_dims = ");
    add_range(h, 0, k);
    hr_buf_add_c(h->text, ", start_index_map = ");
    add_range(h, 0, k);
    hr_buf_add_c(h->text, ", index_vector_dim = 1>, slice_sizes = array<i64");
    for (int i = 0; i < x.shape.rank; i++)
        hr_buf_printf(h->text, "%s%lld", i ? ", " : ": ", i < k ? 1ll : (long long)x.shape.dim[i]);
    hr_buf_add_c(h->text, ">, indices_are_sorted = false}>");
    add_signature(h, in, 2, &v.shape);
    return v;
}

static const char *scatter_operation(hr_hlo_scatter_mode mode)
{
    switch (mode) {
    case HR_HLO_SCATTER_SET: return NULL;
    case HR_HLO_SCATTER_ADD: return "add";
    case HR_HLO_SCATTER_AND: return "and";
    case HR_HLO_SCATTER_OR: return "or";
    case HR_HLO_SCATTER_MAX: return "maximum";
    case HR_HLO_SCATTER_MIN: return "minimum";
    }
    return NULL;
}

/* The region that joins what is there (a) and what comes (b). */
static void add_scatter_region(hr_hlo *h, hr_hlo_type type, hr_hlo_scatter_mode mode)
{
    hr_hlo_value a = { h->next++, hr_hlo_scalar(type) }, b = { h->next++, a.shape }, result = b;
    hr_buf_printf(h->text, " ({\n^bb0(%%v%d: ", a.id);
    hr_hlo_add_type(h->text, &a.shape);
    hr_buf_printf(h->text, ", %%v%d: ", b.id);
    hr_hlo_add_type(h->text, &b.shape);
    hr_buf_add_c(h->text, "):\n");
    if (scatter_operation(mode)) result = hr_hlo_binary(h, scatter_operation(mode), a, b);
    hr_buf_printf(h->text, "stablehlo.return %%v%d : ", result.id);
    hr_hlo_add_type(h->text, &result.shape);
    hr_buf_add_c(h->text, "\n})");
}

hr_hlo_value hr_hlo_scatter(hr_hlo *h, hr_hlo_value x, hr_hlo_value at, hr_hlo_value rows,
                            hr_hlo_scatter_mode mode)
{
    int k = indexed_dims(&at);
    hr_hlo_value in[] = { x, at, rows }, v = { .id = begin(h, 1), .shape = x.shape };
    hr_buf_add_c(h->text, "\"stablehlo.scatter\"(");
    add_names(h, in, 3);
    hr_buf_add_c(h->text, ") <{scatter_dimension_numbers = #stablehlo.scatter<"
                          "update_window_dims = ");
    add_range(h, 1, rows.shape.rank);
    hr_buf_add_c(h->text, ", inserted_window_dims = ");
    add_range(h, 0, k);
    hr_buf_add_c(h->text, ", scatter_dims_to_operand_dims = ");
    add_range(h, 0, k);
    hr_buf_add_c(h->text, ", index_vector_dim = 1>, indices_are_sorted = false, unique_indices = "
                          "false}>");
    add_scatter_region(h, x.shape.type, mode);
    add_signature(h, in, 3, &v.shape);
    return v;
}

/* ---- control -------------------------------------------------------------------------------- */

/* "^bb0(%v8: tensor<…>, …):", naming the values of one turn. */
static void add_block(hr_hlo *h, const hr_hlo_value *like, int n, hr_hlo_value *arguments)
{
    hr_buf_add_c(h->text, "^bb0(");
    for (int i = 0; i < n; i++) {
        arguments[i] = (hr_hlo_value){ h->next++, like[i].shape };
        hr_buf_printf(h->text, "%s%%v%d: ", i ? ", " : "", arguments[i].id);
        hr_hlo_add_type(h->text, &like[i].shape);
    }
    hr_buf_add_c(h->text, "):\n");
}

static void add_return(hr_hlo *h, const hr_hlo_value *x, int n)
{
    hr_buf_add_c(h->text, "stablehlo.return ");
    add_names(h, x, n);
    hr_buf_add_c(h->text, " : ");
    add_types(h, x, n);
    hr_buf_add_byte(h->text, '\n');
}

/* " : (…) -> (…)" */
static void add_signatures(hr_hlo *h, const hr_hlo_value *in, int n_in, const hr_hlo_value *out,
                           int n_out)
{
    hr_buf_add_c(h->text, " : (");
    add_types(h, in, n_in);
    hr_buf_add_c(h->text, ") -> (");
    add_types(h, out, n_out);
    hr_buf_add_c(h->text, ")\n");
}

void hr_hlo_while(hr_hlo *h, hr_hlo_value *carried, int n, hr_hlo_cond_fn cond, hr_hlo_body_fn body,
                  void *ctx)
{
    hr_hlo_value turn[HR_HLO_MAX_CARRIED];
    int first = begin(h, n);
    hr_buf_add_c(h->text, "\"stablehlo.while\"(");
    add_names(h, carried, n);
    hr_buf_add_c(h->text, ") ({\n");
    add_block(h, carried, n, turn);
    hr_hlo_value more = cond(h, ctx, turn);
    add_return(h, &more, 1);
    hr_buf_add_c(h->text, "}, {\n");
    add_block(h, carried, n, turn);
    body(h, ctx, turn);
    add_return(h, turn, n);
    hr_buf_add_c(h->text, "})");
    add_signatures(h, carried, n, carried, n);
    for (int i = 0; i < n; i++) carried[i].id = first + i;
}

void hr_hlo_if(hr_hlo *h, hr_hlo_value p, hr_hlo_branch_fn then, hr_hlo_branch_fn otherwise,
               void *ctx, hr_hlo_value *results, int n)
{
    int first = begin(h, n);
    hr_buf_printf(h->text, "\"stablehlo.if\"(%%v%d) ({\n", p.id);
    then(h, ctx, results);
    add_return(h, results, n);
    hr_buf_add_c(h->text, "}, {\n");
    otherwise(h, ctx, results);
    add_return(h, results, n);
    hr_buf_add_c(h->text, "})");
    add_signatures(h, &p, 1, results, n);
    for (int i = 0; i < n; i++) results[i].id = first + i;
}
