/* A mixture of experts: which tensors it has, and what a row does with them.
 *
 * Runs at start-up; owns nothing. A row is sent to its k best experts, one rank after the other:
 * for each rank every row meets one expert's matrices (linear's groups), so that a row's numbers
 * depend on its own experts alone, in the order of their ranks. Files hold a matrix for each expert
 * or all in one; graphs know the latter, [E,N,K], whose rows are read from wherever they lie. */
#include <inttypes.h>
#include <stdio.h>

#include "model/model_int.h"

/* ---- tensors -------------------------------------------------------------------------------- */

/* Rows of a stack seen as [E*N,K]: each from its own expert's tensor. */
static hr_status read_stack(const hr_weight *w, int64_t first, int64_t count, void *to)
{
    const hr_tensor *t = w->source;
    int64_t n = w->shape.dim[1];
    size_t row = hr_format_row_bytes(w->format, w->shape.dim[2]);
    while (count > 0) {
        int64_t at = first % n, some = n - at < count ? n - at : count;
        const hr_weight *one = t->stack[first / n];
        HR_TRY(one->read_rows(one, at, some, to));
        to = (char *)to + (size_t)some * row;
        first += some;
        count -= some;
    }
    return HR_OK;
}

/* One tensor for the matrices of all experts, each [N,K] under a name of its own. */
static hr_status stack(hr_model *m, int64_t l, const char *name, hr_shape s, const hr_weight **out)
{
    const hr_weight **all = hr_arena_array(&m->arena, (size_t)s.dim[0], sizeof *all);
    if (!all) return hr_fail(HR_RESOURCE_EXHAUSTED, "list of experts");
    hr_tensor t = { .used = true };
    for (int64_t e = 0; e < s.dim[0]; e++) {
        char full[160];
        snprintf(full, sizeof full, "model.layers.%" PRId64 ".%s.experts.%" PRId64 ".%s.weight", l,
                 m->config.expert_module, e, name);
        HR_TRY(hr_model_take(m, &all[e], HR_SHAPE(s.dim[1], s.dim[2]), "%s", full));
        hr_tensor *own = hr_checkpoint_find(&m->checkpoint, hr_str_c(full));
        own->is_part = true;
        if (e == 0) t.file = own->file, t.in_file = own->in_file;
        if (all[e]->scale || all[e]->rows != HR_WEIGHT_ROWS_ANY || all[e]->format != all[0]->format)
            return hr_fail(
                HR_UNIMPLEMENTED,
                "%s: tensor '%s' is %s: experts of a quantised checkpoint, or of more than one "
                "format, are not supported",
                own->file->path, own->in_file, hr_format_name(all[e]->format));
    }
    char joined[160];
    snprintf(joined, sizeof joined, "model.layers.%" PRId64 ".%s.experts.%s.weight", l,
             m->config.expert_module, name);
    t.stack = all;
    t.weight = (hr_weight){ .shape = s, .format = all[0]->format, .read_rows = read_stack };
    HR_TRY(hr_checkpoint_add(&m->checkpoint, &t, hr_str_c(joined)));
    *out = &m->checkpoint.tensors[m->checkpoint.n - 1]->weight;
    return HR_OK;
}

/* GGUF, and dummy weights, have them in one tensor. */
static hr_status take_experts(hr_model *m, int64_t l, const char *name, const char *joined,
                              hr_shape s, const hr_weight **out)
{
    if (!m->gguf.path && !m->dummy) return stack(m, l, name, s, out);
    return hr_model_take(m, out, s, "model.layers.%lld.mlp.experts.%s.weight", (long long)l,
                         joined);
}

bool hr_config_is_sparse(const hr_config *c, int64_t layer)
{
    return c->experts > 0 && (layer + 1) % c->sparse_step == 0;
}

hr_status hr_experts_take(hr_model *m, int64_t l, hr_layer *w)
{
    const hr_config *c = &m->config;
    int64_t E = c->experts, I = c->expert_intermediate, H = c->hidden;
    bool one = m->gguf.path || m->dummy; /* names of the canonical kind */
    bool mixtral = !strcmp(c->expert_module, "block_sparse_moe");
    HR_TRY(hr_model_take(m, &w->router, HR_SHAPE(E, H), "model.layers.%lld.%s.gate.weight",
                         (long long)l, one ? "mlp" : c->expert_module));
    HR_TRY(
        take_experts(m, l, mixtral ? "w1" : "gate_proj", "gate_proj", HR_SHAPE(E, I, H), &w->gate));
    HR_TRY(take_experts(m, l, mixtral ? "w3" : "up_proj", "up_proj", HR_SHAPE(E, I, H), &w->up));
    return take_experts(m, l, mixtral ? "w2" : "down_proj", "down_proj", HR_SHAPE(E, H, I),
                        &w->down);
}

/* ---- the graph ------------------------------------------------------------------------------ */

hr_value *hr_block_experts(hr_backbone *b, hr_value *x, const hr_layer *w)
{
    const hr_config *c = b->c;
    hr_dtype dtype = b->opt->activation;
    hr_value *scores = hr_block_linear(b, x, w->router, NULL, HR_DTYPE_F32); /* [T,E] */
    int32_t group = c->expert_norm ? (int32_t)c->experts_used : 0;
    hr_value *sum = NULL, *share;
    for (int32_t rank = 0; rank < c->experts_used; rank++) {
        hr_value *expert = hr_op_route(b->g, scores, rank, group, &share); /* [T] */
        hr_value *gate = hr_block_grouped(b, x, w->gate, expert, dtype);   /* [T,I] */
        hr_value *up = hr_block_grouped(b, x, w->up, expert, dtype);       /* [T,I] */
        hr_value *y = hr_op_gated(b->g, gate, up, c->act);
        y = hr_block_grouped(b, y, w->down, expert, dtype); /* [T,H] */
        y = hr_op_mul_rows(b->g, y, share);
        sum = rank ? hr_op_add(b->g, sum, y) : y;
    }
    return sum;
}

/* ---- configuration -------------------------------------------------------------------------- */

hr_status hr_experts_check(const hr_config *c)
{
    if (c->experts >= 1 && c->experts <= 4096 && c->experts_used >= 1 &&
        c->experts_used <= c->experts && c->experts_used <= 64 && c->sparse_step >= 1 &&
        c->expert_intermediate >= 1 && c->expert_intermediate <= 1 << 22)
        return HR_OK;
    return hr_fail(
        HR_INVALID_ARGUMENT,
        "%s: %" PRId64 " of %" PRId64 " experts of %" PRId64 " columns in every layer of %" PRId64,
        c->architecture, c->experts_used, c->experts, c->expert_intermediate, c->sparse_step);
}
