/* safetensors files: a header that tells every tensor's place, then their bytes. */
#include <errno.h>
#include <unistd.h>

#include "base/file.h"
#include "base/sync.h"
#include "convert/convert_int.h"

static void shard_name(const hr_entries *e, size_t shard, char out[64])
{
    if (e->shards == 1) snprintf(out, 64, "model.safetensors");
    else snprintf(out, 64, "model-%05zu-of-%05zu.safetensors", shard + 1, e->shards);
}

static void put_entry(hr_json_writer *w, const hr_entry *e)
{
    hr_json_key(w, hr_str_c(e->name));
    hr_json_begin_object(w);
    hr_json_add_str(w, "dtype", e->dtype);
    hr_json_key(w, HR_STR("shape"));
    hr_json_begin_array(w);
    for (int r = 0; r < e->rank; r++) hr_json_i64(w, e->shape[r]);
    hr_json_end_array(w);
    hr_json_key(w, HR_STR("data_offsets"));
    hr_json_begin_array(w);
    hr_json_u64(w, e->offset);
    hr_json_u64(w, e->offset + e->bytes);
    hr_json_end_array(w);
    hr_json_end_object(w);
}

/* Length and JSON, filled up with blanks so that the data is aligned to 8 bytes. */
static hr_status make_header(const hr_entries *all, size_t shard, hr_buf *out)
{
    uint64_t n = 0;
    hr_buf_add(out, &n, sizeof n);
    hr_json_writer w = { .out = out };
    hr_json_begin_object(&w);
    hr_json_key(&w, HR_STR("__metadata__"));
    hr_json_begin_object(&w);
    hr_json_add_str(&w, "format", "pt"); /* what transformers asks for */
    hr_json_end_object(&w);
    for (size_t i = 0; i < all->n; i++)
        if (all->at[i].shard == shard) put_entry(&w, &all->at[i]);
    hr_json_end_object(&w);
    while (out->n % 8) hr_buf_add_byte(out, ' ');
    HR_TRY(hr_buf_status(out));
    n = out->n - sizeof n;
    memcpy(out->p, &n, sizeof n); /* little-endian, as every machine we run on is */
    return HR_OK;
}

typedef struct writing {
    hr_entries *all;
    const hr_convert_options *o;
    size_t done;
    double started;
} writing;

static void tell(const writing *w)
{
    if (!w->o->progress) return;
    hr_convert_progress p = { w->done, w->all->n, hr_now_s() - w->started };
    w->o->progress(w->o->context, &p);
}

static hr_status fault(const char *path)
{
    return hr_fail(errno == ENOSPC ? HR_RESOURCE_EXHAUSTED : HR_UNAVAILABLE, "%s: %s", path,
                   strerror(errno));
}

static hr_status write_data(writing *w, size_t shard, const hr_buf *header, FILE *file,
                            const char *path)
{
    if (fwrite(header->p, 1, header->n, file) != header->n) return fault(path);
    for (size_t i = 0; i < w->all->n; i++) {
        if (w->all->at[i].shard != shard) continue;
        HR_TRY(hr_entry_write(w->all, i, file, path));
        w->done++;
        tell(w);
    }
    return fflush(file) || fsync(fileno(file)) ? fault(path) : HR_OK;
}

static hr_status write_shard(writing *w, size_t shard, const char *path)
{
    hr_buf header = { 0 };
    hr_status st = make_header(w->all, shard, &header);
    FILE *file = st ? NULL : fopen(path, "wbe");
    if (!st && !file) st = fault(path);
    if (!st) st = write_data(w, shard, &header, file, path);
    if (file && fclose(file) && !st) st = fault(path);
    hr_buf_deinit(&header);
    return st;
}

static hr_status write_index(const hr_entries *e, const char *path)
{
    hr_buf text = { 0 };
    char name[64];
    hr_json_writer w = { .out = &text, .indent = 2 };
    hr_json_begin_object(&w);
    hr_json_key(&w, HR_STR("metadata"));
    hr_json_begin_object(&w);
    hr_json_add_i64(&w, "total_size", (int64_t)e->bytes);
    hr_json_end_object(&w);
    hr_json_key(&w, HR_STR("weight_map"));
    hr_json_begin_object(&w);
    for (size_t i = 0; i < e->n; i++) {
        shard_name(e, e->at[i].shard, name);
        hr_json_add_str(&w, e->at[i].name, name);
    }
    hr_json_end_object(&w);
    hr_json_end_object(&w);
    hr_buf_add_byte(&text, '\n');
    hr_status st = hr_buf_status(&text);
    if (!st) st = hr_file_write_atomic(path, hr_buf_str(&text));
    hr_buf_deinit(&text);
    return st;
}

hr_status hr_shards_write(hr_entries *e, const hr_new_folder *to, const hr_convert_options *o)
{
    writing w = { .all = e, .o = o, .started = hr_now_s() };
    hr_buf path = { 0 };
    char name[64];
    hr_status st = HR_OK;
    for (size_t i = 0; !st && i < e->shards; i++) {
        shard_name(e, i, name);
        st = hr_new_folder_path(to, name, &path);
        if (!st) st = write_shard(&w, i, path.p);
    }
    if (!st && e->shards > 1) {
        st = hr_new_folder_path(to, "model.safetensors.index.json", &path);
        if (!st) st = write_index(e, path.p);
    }
    hr_buf_deinit(&path);
    return st;
}
