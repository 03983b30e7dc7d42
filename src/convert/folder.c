/* The new folder: made beside its place under another name, filled, renamed. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "convert/convert_int.h"

#define MAX_TEXT ((size_t)1 << 28)

/* ---- the folder ------------------------------------------------------------------------------ */

static bool is_entry(const struct dirent *e)
{
    return strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
}

static hr_status check_place(const char *out)
{
    DIR *d = opendir(out);
    if (!d) {
        if (errno == ENOENT) return HR_OK;
        return hr_fail(HR_ALREADY_EXISTS, "%s is there already: give a folder that is not", out);
    }
    int files = 0;
    for (struct dirent *e; (e = readdir(d));) files += is_entry(e);
    closedir(d);
    if (!files) return HR_OK;
    return hr_fail(HR_ALREADY_EXISTS, "%s is there already, and not empty: give another folder",
                   out);
}

hr_status hr_new_folder_begin(const char *out, hr_new_folder *f)
{
    size_t n = strlen(out);
    *f = (hr_new_folder){ .out = out };
    HR_TRY(check_place(out));
    while (n > 1 && out[n - 1] == '/') n--;
    hr_buf_add(&f->path, out, n);
    hr_buf_add_c(&f->path, ".tmp.XXXXXX");
    (void)hr_buf_c(&f->path);
    HR_TRY(hr_buf_status(&f->path));
    if (mkdtemp(f->path.p) && !chmod(f->path.p, 0755)) return HR_OK;
    hr_status st = hr_fail(HR_UNAVAILABLE, "%s: %s", out, strerror(errno));
    hr_buf_deinit(&f->path);
    return st;
}

hr_status hr_new_folder_path(const hr_new_folder *f, const char *name, hr_buf *path)
{
    return hr_path_join(f->path.p, hr_str_c(name), path);
}

hr_status hr_new_folder_finish(hr_new_folder *f)
{
    if (rename(f->path.p, f->out))
        return hr_fail(HR_UNAVAILABLE, "%s: %s", f->out, strerror(errno));
    hr_buf_deinit(&f->path);
    return HR_OK;
}

static void remove_files(const char *folder)
{
    hr_buf path = { 0 };
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));)
        if (is_entry(e) && !hr_path_join(folder, hr_str_c(e->d_name), &path)) unlink(path.p);
    if (d) closedir(d);
    hr_buf_deinit(&path);
}

void hr_new_folder_deinit(hr_new_folder *f)
{
    if (!f->path.n) return;
    remove_files(f->path.p);
    rmdir(f->path.p);
    hr_buf_deinit(&f->path);
}

/* ---- what goes along ------------------------------------------------------------------------- */

/* A tokenizer's files, templates, generation defaults, licences; weights and config.json are made
 * anew. */
static bool goes_along(hr_str name)
{
    static const char *const tails[] = { ".json", ".jinja", ".txt", ".model", ".md", ".tiktoken" };
    static const char *const not [] = { "config.json", "model.safetensors.index.json" };
    for (size_t i = 0; i < sizeof not / sizeof *not ; i++)
        if (hr_str_eq_c(name, not [i])) return false;
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++)
        if (hr_str_ends(name, hr_str_c(tails[i]))) return true;
    return hr_str_starts(name, HR_STR("LICENSE")) || hr_str_starts(name, HR_STR("NOTICE"));
}

static hr_status copy_file(const char *from, const char *to)
{
    hr_buf text = { 0 };
    hr_status st = hr_file_slurp(from, MAX_TEXT, &text);
    if (!st) st = hr_file_write_atomic(to, hr_buf_str(&text));
    hr_buf_deinit(&text);
    return st;
}

hr_status hr_folder_copy_texts(const char *from, const hr_new_folder *to)
{
    hr_buf a = { 0 }, b = { 0 };
    hr_status st = HR_OK;
    DIR *d = opendir(from);
    if (!d) return hr_fail(HR_NOT_FOUND, "%s: %s", from, strerror(errno));
    for (struct dirent *e; !st && (e = readdir(d));) {
        struct stat s;
        if (!goes_along(hr_str_c(e->d_name)) || hr_path_join(from, hr_str_c(e->d_name), &a))
            continue;
        if (stat(a.p, &s) || !S_ISREG(s.st_mode)) continue;
        st = hr_new_folder_path(to, e->d_name, &b);
        if (!st) st = copy_file(a.p, b.p);
    }
    closedir(d);
    hr_buf_deinit(&a);
    hr_buf_deinit(&b);
    return st;
}

/* ---- config.json ----------------------------------------------------------------------------- */

static const char rows_scheme[] =
    "{\"num_bits\":8,\"type\":\"int\",\"symmetric\":true,\"strategy\":\"token\",\"dynamic\":true,"
    "\"group_size\":null,\"block_structure\":null,\"actorder\":null,\"observer\":null,"
    "\"observer_kwargs\":{}}";

/* int8 numbers either way: that is the layout in which vLLM takes 4 bits beside rows in 8. */
static void weights_scheme(const hr_convert_options *o, int64_t columns, char out[320])
{
    bool four = !strcmp(o->scheme, "w4a8");
    char group[24] = "null";
    if (four) snprintf(group, sizeof group, "%lld", (long long)columns);
    snprintf(out, 320,
             "{\"num_bits\":%d,\"type\":\"int\",\"symmetric\":true,\"strategy\":\"%s\","
             "\"dynamic\":false,\"group_size\":%s,\"block_structure\":null,\"actorder\":null,"
             "\"observer\":\"minmax\",\"observer_kwargs\":{}}",
             four ? 4 : 8, four ? "group" : "channel", group);
}

static hr_status put_raw(hr_json_writer *w, const char *key, const char *json)
{
    hr_arena arena = { 0 };
    const hr_json *v;
    hr_json_key(w, hr_str_c(key));
    hr_status st = hr_json_parse(hr_str_c(json), NULL, &arena, &v);
    if (!st) hr_json_value(w, v); /* indented as the rest */
    hr_arena_deinit(&arena);
    return st;
}

static hr_status put_group(hr_json_writer *w, const hr_convert_options *o, int64_t columns)
{
    char weights[320];
    weights_scheme(o, columns, weights);
    hr_json_key(w, HR_STR("group_0"));
    hr_json_begin_object(w);
    HR_TRY(put_raw(w, "targets", "[\"Linear\"]"));
    HR_TRY(put_raw(w, "weights", weights));
    HR_TRY(put_raw(w, "input_activations", rows_scheme));
    HR_TRY(put_raw(w, "output_activations", "null"));
    hr_json_end_object(w);
    return HR_OK;
}

static hr_status put_quantization(hr_json_writer *w, const hr_convert_options *o, int64_t columns)
{
    hr_json_key(w, HR_STR("quantization_config"));
    hr_json_begin_object(w);
    hr_json_key(w, HR_STR("config_groups"));
    hr_json_begin_object(w);
    HR_TRY(put_group(w, o, columns));
    hr_json_end_object(w);
    hr_json_add_str(w, "format", "int-quantized");
    hr_json_key(w, HR_STR("ignore"));
    hr_json_begin_array(w);
    hr_json_str(w, HR_STR("lm_head"));
    for (size_t i = 0; i < o->n_ignore; i++) hr_json_str(w, hr_str_c(o->ignore[i]));
    hr_json_end_array(w);
    HR_TRY(put_raw(w, "kv_cache_scheme", "null"));
    hr_json_add_str(w, "quant_method", "compressed-tensors");
    hr_json_add_str(w, "quantization_status", "compressed");
    hr_json_end_object(w);
    return HR_OK;
}

static hr_status rewrite(hr_str config, const hr_convert_options *o, int64_t columns, hr_buf *out)
{
    hr_arena arena = { 0 };
    const hr_json *v;
    hr_json_writer w = { .out = out, .indent = 2 };
    hr_status st = hr_json_parse(config, NULL, &arena, &v);
    if (!st) {
        hr_json_begin_object(&w);
        for (size_t i = 0; i < v->count; i++) {
            hr_json_key(&w, v->items[i].key);
            hr_json_value(&w, &v->items[i]);
        }
        st = put_quantization(&w, o, columns);
        hr_json_end_object(&w);
        hr_buf_add_byte(out, '\n');
    }
    hr_arena_deinit(&arena);
    return st ? st : hr_buf_status(out);
}

hr_status hr_folder_write_config(const char *from, const hr_convert_options *o, int64_t columns,
                                 const hr_new_folder *to)
{
    hr_buf path = { 0 }, old = { 0 }, new = { 0 };
    hr_status st = hr_path_join(from, HR_STR("config.json"), &path);
    if (!st) st = hr_file_slurp(path.p, MAX_TEXT, &old);
    if (!st) st = rewrite(hr_buf_str(&old), o, columns, &new);
    if (!st) st = hr_new_folder_path(to, "config.json", &path);
    if (!st) st = hr_file_write_atomic(path.p, hr_buf_str(&new));
    hr_buf_deinit(&path);
    hr_buf_deinit(&old);
    hr_buf_deinit(&new);
    return st;
}
