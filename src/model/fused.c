/* Tensors that hold several linears' rows one after another, as Phi-3's files do.
 *
 * Runs on the thread that loads, before anything takes a tensor; owns nothing. Rows of one linear
 * lie together, whatever their format, so a part is a tensor like any other: the same file, another
 * offset. Graphs and all that follows know separate linears only. */
#include <inttypes.h>
#include <stdio.h>

#include "model/model_int.h"

typedef struct part {
    const char *name;
    int64_t rows;
} part;

typedef struct fusion {
    const char *name; /* of the module, after "model.layers.N." */
    part parts[3];
    int n;
} fusion;

static int64_t rows_of(const fusion *f)
{
    int64_t rows = 0;
    for (int i = 0; i < f->n; i++) rows += f->parts[i].rows;
    return rows;
}

/* The tensor's rows [first, first + rows), as module `name`. One number is all parts' own. */
static hr_status add_part(hr_model *m, const hr_tensor *t, hr_str head, const part *p, hr_str tail,
                          int64_t first)
{
    hr_tensor piece = *t;
    hr_buf name = { 0 };
    bool one = hr_shape_count(t->weight.shape) == 1;
    if (!one) {
        uint64_t row = t->bytes / (uint64_t)t->weight.shape.dim[0];
        piece.offset += (uint64_t)first * row;
        piece.bytes = (uint64_t)p->rows * row;
        piece.weight.shape.dim[0] = p->rows;
    }
    hr_buf_printf(&name, "%.*s%s%.*s", HR_STR_ARG(head), p->name, HR_STR_ARG(tail));
    hr_status st = hr_buf_status(&name);
    if (!st) st = hr_checkpoint_add(&m->checkpoint, &piece, hr_buf_str(&name));
    hr_buf_deinit(&name);
    return st;
}

static hr_status split(hr_model *m, hr_tensor *t, const fusion *f, size_t at)
{
    char is[96];
    hr_str name = hr_str_c(t->weight.name);
    hr_str head = hr_str_slice(name, 0, at),
           tail = hr_str_slice(name, at + strlen(f->name), name.n);
    hr_shape s = t->weight.shape;
    t->used = t->is_part = true;
    if (hr_str_eq_c(tail, "weight_shape")) return HR_OK; /* of the whole; parts have their own */
    if (hr_shape_count(s) != 1 && (s.rank < 1 || s.dim[0] != rows_of(f)))
        return hr_fail(HR_INVALID_ARGUMENT,
                       "%s: tensor '%s' is %s, the config makes its rows %" PRId64, t->file->path,
                       t->in_file, hr_model_shape_text(s, is), rows_of(f));
    int64_t first = 0;
    for (int i = 0; i < f->n; i++) {
        HR_TRY(add_part(m, t, head, &f->parts[i], tail, first));
        first += f->parts[i].rows;
    }
    return HR_OK;
}

hr_status hr_fused_split(hr_model *m)
{
    const hr_config *c = &m->config;
    const fusion fusions[] = {
        { "self_attn.qkv_proj.",
          { { "self_attn.q_proj.", c->heads * c->head_dim },
            { "self_attn.k_proj.", c->kv_heads * c->head_dim },
            { "self_attn.v_proj.", c->kv_heads * c->head_dim } },
          3 },
        { "mlp.gate_up_proj.",
          { { "mlp.gate_proj.", c->intermediate }, { "mlp.up_proj.", c->intermediate } },
          2 },
    };
    size_t n = m->checkpoint.n;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < sizeof fusions / sizeof *fusions; k++) {
            hr_tensor *t = m->checkpoint.tensors[i];
            hr_str name = hr_str_c(t->weight.name);
            size_t at = hr_str_find(name, hr_str_c(fusions[k].name), 0);
            if (at < name.n) HR_TRY(split(m, t, &fusions[k], at));
        }
    return m->checkpoint.n > n ? hr_checkpoint_index(&m->checkpoint) : HR_OK;
}
