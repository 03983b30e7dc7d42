/* Ops between the replicas of a program: each device runs the same text, on its own part of the
 * weights.
 *
 * Pure functions over a text buffer, in MLIR's generic form. A group of one needs no device but its
 * own. The sum is made of f32 numbers, whatever the activations are. */
#include "pjrt/hlo_int.h"

/* "replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>" */
static void add_group(hr_hlo *h, int32_t group)
{
    hr_buf_add_c(h->text, "replica_groups = dense<[[");
    for (int32_t i = 0; i < group; i++) hr_buf_printf(h->text, "%s%d", i ? ", " : "", i);
    hr_buf_printf(h->text, "]]> : tensor<1x%dxi64>", group);
}

/* " : (tensor<…>) -> tensor<…>" */
static void add_signature(hr_hlo *h, const hr_hlo_shape *from, const hr_hlo_shape *to)
{
    hr_buf_add_c(h->text, " : (");
    hr_hlo_add_type(h->text, from);
    hr_buf_add_c(h->text, ") -> ");
    hr_hlo_add_type(h->text, to);
    hr_buf_add_byte(h->text, '\n');
}

static hr_hlo_value sum(hr_hlo *h, hr_hlo_value x, int32_t group)
{
    hr_hlo_value y = { .id = h->next, .shape = x.shape };
    if (group == 1) return x;
    hr_buf_printf(h->text,
                  "%%v%d = \"stablehlo.all_reduce\"(%%v%d) ({\n"
                  "^bb0(%%v%d: tensor<f32>, %%v%d: tensor<f32>):\n"
                  "%%v%d = stablehlo.add %%v%d, %%v%d : tensor<f32>\n"
                  "\"stablehlo.return\"(%%v%d) : (tensor<f32>) -> ()\n}) {",
                  y.id, x.id, y.id + 1, y.id + 2, y.id + 3, y.id + 1, y.id + 2, y.id + 3);
    add_group(h, group);
    hr_buf_add_byte(h->text, '}');
    add_signature(h, &x.shape, &y.shape);
    h->next += 4;
    return y;
}

static hr_hlo_value gather(hr_hlo *h, hr_hlo_value x, int32_t group)
{
    hr_hlo_value y = { .id = h->next, .shape = x.shape };
    if (group == 1) return x;
    y.shape.dim[1] *= group;
    hr_buf_printf(h->text, "%%v%d = \"stablehlo.all_gather\"(%%v%d) {all_gather_dim = 1 : i64, ",
                  y.id, x.id);
    add_group(h, group);
    hr_buf_add_byte(h->text, '}');
    add_signature(h, &x.shape, &y.shape);
    h->next++;
    return y;
}

hr_status hr_hlo_emit_all_reduce(hr_hlo_emit *e)
{
    hr_hlo *h = e->h;
    hr_dtype dtype = e->node->out[0]->dtype;
    hr_hlo_value y = hr_hlo_round_to(e, sum(h, hr_hlo_f32(e, 0), e->node->attrs.group));
    e->out[0] = y;
    if (e->in[1].id < 0) return HR_OK;
    hr_hlo_value bias = hr_hlo_widen(h, hr_hlo_round_to(e, e->in[1]), dtype);
    y = hr_hlo_widen(h, y, dtype);
    e->out[0] = hr_hlo_round_to(e, hr_hlo_binary(h, "add", y, hr_hlo_along(h, bias, y.shape, 1)));
    return HR_OK;
}

hr_status hr_hlo_emit_all_gather(hr_hlo_emit *e)
{
    hr_hlo_value y = gather(e->h, e->in[0], e->node->attrs.group);
    e->out[0] = hr_hlo_slice(e->h, y, 1, 0, e->node->out[0]->shape.dim[1]);
    return HR_OK;
}
