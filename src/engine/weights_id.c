/* What the packed form of a model's weights is kept under.
 *
 * Engine thread, at a start. The checkpoint's hash says what its bytes are; the list says what this
 * build and these options read them as. The hash reads the whole checkpoint the first time and is
 * remembered then. */
#include "base/log.h"
#include "engine/engine_int.h"

/* Less is packed faster than a file is found. */
#define KEPT_FROM ((size_t)8 << 20)

static bool worth_keeping(const hr_weight *const *w, size_t n)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n && bytes < KEPT_FROM; i++) {
        int64_t k = w[i]->shape.rank ? w[i]->shape.dim[w[i]->shape.rank - 1] : 1;
        int64_t rows = k > 0 ? hr_shape_count(w[i]->shape) / k : 0;
        bytes += (size_t)rows * hr_format_row_bytes(w[i]->format, k);
    }
    return bytes >= KEPT_FROM;
}

static void add_weight(const hr_weight *w, hr_buf *out)
{
    hr_buf_printf(out, "%s %s", w->name, hr_format_name(w->format));
    for (int i = 0; i < w->shape.rank; i++) hr_buf_printf(out, " %lld", (long long)w->shape.dim[i]);
    hr_buf_add_byte(out, '\n');
}

void hr_engine_weights_id(const hr_engine *e, hr_buf *out)
{
    size_t n;
    char hash[65];
    const hr_weight *const *w = hr_model_weights(e->model, &n);
    const char *format = e->options.load_format, *folder = e->options.compile_cache;
    bool made_up = format && !strcmp(format, "dummy");
    if (e->device.kind != HR_DEVICE_CPU || !folder || !*folder || made_up) return;
    if (!worth_keeping(w, n)) return;
    hr_status st = hr_model_hash(e->model, hash);
    if (!st) {
        hr_buf_printf(out, "%s\n", hash);
        for (size_t i = 0; i < n; i++) add_weight(w[i], out);
        st = hr_buf_status(out);
    }
    if (!st) return;
    hr_log(HR_LOG_WARNING, "compile cache: %s; packed weights are not kept", hr_message());
    hr_buf_deinit(out);
}
