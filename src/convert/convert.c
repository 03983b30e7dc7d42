/* headrace quantize, from the checkpoint's name to the report. Runs on one thread. */
#include "convert/convert.h"

#include "base/file.h"
#include "base/sync.h"
#include "convert/convert_int.h"

/* As transformers cuts checkpoints. */
#define SHARD_BYTES UINT64_C(5000000000)

static hr_status check(const hr_convert_options *o, const char *path)
{
    hr_quantize scheme;
    if (!o->scheme || !hr_quantize_parse(o->scheme, &scheme) ||
        (scheme != HR_QUANTIZE_W8A8 && scheme != HR_QUANTIZE_W4A8))
        return hr_fail(HR_INVALID_ARGUMENT, "--scheme %s: it is w8a8 or w4a8",
                       o->scheme ? o->scheme : "is missing");
    if (!hr_path_is_dir(path))
        return hr_fail(HR_UNIMPLEMENTED,
                       "%s is no folder: a GGUF file has no config.json and tokenizer.json to go "
                       "along. --quantization %s quantises it while it is loaded",
                       path, o->scheme);
    return HR_OK;
}

/* ---- the report ------------------------------------------------------------------------------ */

static void put_loss(const hr_entry *e, hr_buf *text, hr_json_writer *w)
{
    double rms = hr_loss_rms(&e->loss), cosine = hr_loss_cosine(&e->loss);
    hr_buf_printf(text, "%-48s %10.3e %9.4f %% %10.8f\n", e->name, e->loss.most, 100 * rms, cosine);
    hr_json_begin_object(w);
    hr_json_add_str(w, "name", e->name);
    hr_json_add_f64(w, "max_error", e->loss.most);
    hr_json_add_f64(w, "rms_error", rms);
    hr_json_add_f64(w, "cosine", cosine);
    hr_json_end_object(w);
}

static void report(const hr_entries *all, const hr_convert_options *o, double seconds, hr_buf *text,
                   hr_buf *json)
{
    size_t quantised = 0;
    hr_json_writer w = { .out = json };
    hr_json_begin_object(&w);
    hr_json_add_str(&w, "scheme", o->scheme);
    hr_json_key(&w, HR_STR("layers"));
    hr_json_begin_array(&w);
    hr_buf_printf(text, "%-48s %10s %11s %10s\n", "weight", "max error", "rms error", "cosine");
    for (size_t i = 0; i < all->n; i++) {
        if (!all->at[i].loss.n) continue;
        put_loss(&all->at[i], text, &w);
        quantised++;
    }
    hr_json_end_array(&w);
    hr_json_add_i64(&w, "tensors", (int64_t)all->n);
    hr_json_add_i64(&w, "bytes", (int64_t)all->bytes);
    hr_json_add_f64(&w, "seconds", seconds);
    hr_json_end_object(&w);
    hr_buf_printf(text, "%zu matrices quantised; %s: %.1f MiB in %.1f s\n", quantised, o->out,
                  (double)all->bytes / 1048576, seconds);
}

/* ---- the work -------------------------------------------------------------------------------- */

static hr_status fill(const hr_convert_options *o, const hr_model *m, hr_entries *all,
                      const hr_new_folder *to)
{
    const char *from = hr_model_path(m);
    HR_TRY(hr_folder_copy_texts(from, to));
    HR_TRY(hr_folder_write_config(from, o, hr_quantize_columns(m), to));
    HR_TRY(hr_entries_make(m, SHARD_BYTES, all));
    return hr_shards_write(all, to, o);
}

static hr_status write_folder(const hr_convert_options *o, const hr_model *m, hr_entries *all)
{
    hr_new_folder to;
    hr_status st = hr_new_folder_begin(o->out, &to);
    if (!st) st = fill(o, m, all, &to);
    if (!st) st = hr_new_folder_finish(&to);
    hr_new_folder_deinit(&to);
    return st;
}

static hr_status open_model(const hr_convert_options *o, hr_model **out)
{
    hr_model_options mo = { .group_columns = o->group_size,
                            .ignore = o->ignore,
                            .n_ignore = o->n_ignore };
    hr_buf path = { 0 };
    hr_status st = hr_model_locate(o->model, &path);
    if (!st) st = check(o, hr_buf_c(&path));
    if (!st) hr_quantize_parse(o->scheme, &mo.quantize);
    if (!st) st = hr_model_load(hr_buf_c(&path), &mo, out);
    hr_buf_deinit(&path);
    return st;
}

hr_status hr_convert(const hr_convert_options *o, hr_buf *text, hr_buf *json)
{
    hr_model *m = NULL;
    hr_entries all = { 0 };
    double started = hr_now_s();
    hr_status st = open_model(o, &m);
    if (!st) st = write_folder(o, m, &all);
    if (!st) report(&all, o, hr_now_s() - started, text, json);
    hr_entries_deinit(&all);
    hr_model_release(m);
    if (!st) st = hr_buf_status(text);
    return st ? st : hr_buf_status(json);
}
