/* How 4-bit numbers lie on a device: packed, where its plugin can do that, else a byte each.
 *
 * Engine thread. Plugins differ in what they take of i4 and ui4, and one that takes them may still
 * compute something else. So it is tried, once, before the first program that has such weights:
 * rows of both kinds are looked up and multiplied by unit vectors, and the numbers must be those of
 * the format's definition, to the bit. */
#include "base/log.h"
#include "pjrt/pjrt_int.h"

enum { ROWS = 16, COLUMNS = 32, LOOKED_UP = 4 };

/* Scales of 1, minima of -2, and every nibble in turn. */
static hr_status read_rows(const hr_weight *w, int64_t first, int64_t count, void *to)
{
    static const uint8_t head[] = { 0x00, 0x3c, 0x00, 0xc0 };
    size_t bytes = hr_format_block_bytes(w->format), n_head = bytes - COLUMNS / 2;
    for (int64_t r = first; r < first + count; r++) {
        uint8_t *block = (uint8_t *)to + (size_t)(r - first) * bytes;
        memcpy(block, head, n_head);
        for (size_t i = n_head; i < bytes; i++) block[i] = (uint8_t)(r * 37 + (int64_t)i * 29);
    }
    return HR_OK;
}

static const hr_weight samples[] = {
    { .name = "i4",
      .shape = { 2, { ROWS, COLUMNS } },
      .format = HR_FORMAT_Q4_0,
      .read_rows = read_rows },
    { .name = "ui4",
      .shape = { 2, { ROWS, COLUMNS } },
      .format = HR_FORMAT_Q4_1,
      .read_rows = read_rows },
};
enum { SAMPLES = sizeof samples / sizeof samples[0] };

/* Per sample: rows [LOOKED_UP,COLUMNS], and products [COLUMNS,ROWS] with unit vectors. */
typedef struct trial {
    hr_graph *graph;
    hr_program *program;
    hr_buffer *ids, *units, *out[SAMPLES * 2];
} trial;

static hr_status make_graph(trial *t)
{
    static const char *const names[SAMPLES][2] = { { "rows", "products" },
                                                   { "urows", "uproducts" } };
    HR_TRY(hr_graph_create("int4 trial", &t->graph));
    hr_graph *g = t->graph;
    hr_value *ids = hr_graph_input(g, "ids", HR_DTYPE_I32, HR_SHAPE(LOOKED_UP), HR_LIVE_ALL);
    hr_value *units =
        hr_graph_input(g, "units", HR_DTYPE_F32, HR_SHAPE(COLUMNS, COLUMNS), HR_LIVE_ALL);
    for (int i = 0; i < SAMPLES; i++) {
        hr_value *w = hr_graph_weight(g, &samples[i]);
        hr_graph_output(g, names[i][0], hr_op_embed(g, ids, w, HR_DTYPE_F32));
        hr_graph_output(g, names[i][1], hr_op_linear(g, units, w, NULL, HR_DTYPE_F32));
    }
    return hr_graph_finish(g);
}

static hr_status make_buffer(hr_pjrt *b, const hr_value *v, const void *data, hr_buffer **out)
{
    hr_tensor_desc d = { v->dtype, v->shape };
    HR_TRY(hr_pjrt_buffer_create(&b->base, &d, out));
    if (!data) return HR_OK;
    return hr_pjrt_buffer_put(*out, data,
                              (size_t)hr_shape_count(v->shape) * hr_dtype_size(v->dtype));
}

static hr_status run(hr_pjrt *b, trial *t, const int32_t *ids)
{
    float units[COLUMNS * COLUMNS] = { 0 };
    for (int i = 0; i < COLUMNS; i++) units[i * COLUMNS + i] = 1;
    HR_TRY(make_buffer(b, t->graph->inputs[0], ids, &t->ids));
    HR_TRY(make_buffer(b, t->graph->inputs[1], units, &t->units));
    for (int i = 0; i < SAMPLES * 2; i++)
        HR_TRY(make_buffer(b, t->graph->outputs[i].value, NULL, &t->out[i]));
    hr_buffer *in[] = { t->ids, t->units };
    hr_execute_args args = { .inputs = in, .outputs = t->out };
    hr_event done = { .backend = &b->base };
    HR_TRY(hr_pjrt_execute(t->program, &args, &done));
    return done.pending ? hr_pjrt_event_await(&done) : done.status;
}

static hr_status compare(const trial *t, int i, const int32_t *ids)
{
    uint8_t raw[ROWS * COLUMNS];
    float want[ROWS * COLUMNS], rows[LOOKED_UP * COLUMNS], products[COLUMNS * ROWS];
    HR_TRY(read_rows(&samples[i], 0, ROWS, raw));
    hr_format_dequantise(samples[i].format, raw, ROWS, want);
    HR_TRY(hr_pjrt_buffer_get(t->out[i * 2], rows, sizeof rows));
    HR_TRY(hr_pjrt_buffer_get(t->out[i * 2 + 1], products, sizeof products));
    bool same = true;
    for (int r = 0; r < LOOKED_UP; r++)
        same &= !memcmp(rows + r * COLUMNS, want + ids[r] * COLUMNS, COLUMNS * sizeof *want);
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++) same &= products[c * ROWS + r] == want[r * COLUMNS + c];
    return same ? HR_OK : hr_fail(HR_DATA_LOSS, "pjrt: %s numbers come out wrong", samples[i].name);
}

static hr_status attempt(hr_pjrt *b, trial *t)
{
    static const int32_t ids[LOOKED_UP] = { 0, 5, 10, ROWS - 1 };
    HR_TRY(make_graph(t));
    HR_TRY(hr_pjrt_compile(&b->base, t->graph, &t->program));
    HR_TRY(hr_pjrt_program_await(t->program));
    HR_TRY(run(b, t, ids));
    for (int i = 0; i < SAMPLES; i++) HR_TRY(compare(t, i, ids));
    return HR_OK;
}

static bool has_4_bit_weights(const hr_graph *g)
{
    for (size_t i = 0; i < g->n_values; i++)
        if (g->values[i]->kind == HR_VALUE_WEIGHT &&
            hr_hlo_format_is_4_bit(g->values[i]->weight->format))
            return true;
    return false;
}

void hr_pjrt_choose_storage(hr_pjrt *b, const hr_graph *g)
{
    trial t = { 0 };
    size_t n_weights = b->n_weights;
    if (b->storage_chosen || !has_4_bit_weights(g)) return;
    b->storage_chosen = b->hlo.int4 = true;
    hr_status st = attempt(b, &t);
    b->hlo.int4 = !st;
    hr_log(HR_LOG_INFO, "pjrt: 4-bit weights are stored %s%s%s", st ? "in 8 bits: " : "in 4 bits",
           st ? hr_message() : "", st ? "" : " (i4, ui4)");
    hr_pjrt_program_destroy(t.program);
    hr_pjrt_buffer_destroy(t.ids);
    hr_pjrt_buffer_destroy(t.units);
    for (int i = 0; i < SAMPLES * 2; i++) hr_pjrt_buffer_destroy(t.out[i]);
    hr_graph_destroy(t.graph);
    hr_pjrt_weights_cut(b, n_weights); /* the samples */
}
