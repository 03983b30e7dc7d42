/* The file of packed weights: read.
 *
 * Engine thread; checking runs on the pool. The file is mapped, so that any number of processes
 * share its memory, and no tensor of the checkpoint is read. It is trusted only when all of it is
 * what its writer left: magic, version, key, every length against the file's size, a digest of the
 * table, and the table's sum of each piece of the data. Adding those up also brings all pages in,
 * on all workers at once, where the first step would have done so one by one.
 *
 * A mapped file that another process cuts short is a SIGBUS, which the command reports; our own
 * writers never touch a file that has its name. */
#include "cpu/kept.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cache.h"
#include "base/log.h"
#include "base/sync.h"
#include "cpu/kept_file.h"

/* ---- opening --------------------------------------------------------------------------------- */

static hr_status make_key(const hr_kept_options *o, hr_digest *out)
{
    hr_buf text = { 0 };
    hr_buf_printf(&text, "packed weights %d for %s\n", HR_PACK_VERSION, o->isa);
    hr_buf_add_str(&text, o->id);
    hr_str whole = hr_buf_str(&text);
    hr_status st = hr_buf_status(&text);
    if (!st) st = hr_digest_of(&whole, 1, out);
    hr_buf_deinit(&text);
    return st;
}

static hr_status make_path(hr_kept *k, const hr_kept_options *o)
{
    char name[HR_DIGEST_TEXT];
    HR_TRY(hr_cache_make_folder(o->folder));
    HR_TRY(make_key(o, &k->key));
    hr_digest_text(&k->key, name);
    hr_buf_printf(&k->path, "%s/%s" HR_CACHE_WEIGHTS, o->folder, name);
    hr_buf_c(&k->path);
    HR_TRY(hr_buf_status(&k->path));
    k->folder = hr_alloc(strlen(o->folder) + 1);
    if (!k->folder) return hr_fail(HR_RESOURCE_EXHAUSTED, "path of packed weights");
    strcpy(k->folder, o->folder);
    return HR_OK;
}

/* ---- checking -------------------------------------------------------------------------------- */

static hr_status check_sizes(const hr_kept_trailer *t, uint64_t size)
{
    uint64_t pieces = hr_kept_pieces(t->data_bytes), left = size - sizeof *t;
    if (t->data_bytes > left || t->table_bytes != left - t->data_bytes || t->data_bytes % 64)
        return hr_fail(HR_DATA_LOSS, "its length is wrong");
    if (t->n > t->table_bytes / sizeof(hr_kept_entry) || pieces > t->table_bytes / 8 ||
        t->n * sizeof(hr_kept_entry) + pieces * 8 > t->table_bytes)
        return hr_fail(HR_DATA_LOSS, "its table is too short");
    return HR_OK;
}

static hr_status check_entries(const hr_kept *k, const hr_kept_trailer *t, uint64_t names_bytes)
{
    for (size_t i = 0; i < k->n; i++) {
        const hr_kept_entry *e = &k->entries[i];
        if (e->name_at > names_bytes || e->name_bytes > names_bytes - e->name_at ||
            e->at > t->data_bytes || e->bytes > t->data_bytes - e->at || e->at % 64)
            return hr_fail(HR_DATA_LOSS, "its table is damaged");
    }
    return HR_OK;
}

typedef struct sums_job {
    const uint8_t *data;
    const uint64_t *sums;
    uint64_t bytes;
    hr_flag differs;
} sums_job;

static void check_pieces(void *ctx, int worker, int64_t from, int64_t to)
{
    sums_job *j = ctx;
    (void)worker;
    for (int64_t i = from; i < to; i++) {
        uint64_t at = (uint64_t)i * HR_KEPT_PIECE, left = j->bytes - at;
        size_t n = left < HR_KEPT_PIECE ? (size_t)left : HR_KEPT_PIECE;
        if (hr_kept_sum(j->data + at, n) != j->sums[i]) hr_flag_set(&j->differs, 1);
    }
}

/* The mapped file, of at least a trailer's size. */
static hr_status check(hr_kept *k, uint64_t size, hr_pool *pool)
{
    const uint8_t *file = k->map;
    hr_kept_trailer t;
    hr_digest sum;
    memcpy(&t, file + size - sizeof t, sizeof t);
    if (memcmp(t.magic, hr_kept_magic, sizeof t.magic))
        return hr_fail(HR_DATA_LOSS, "it is cut off, or no file of weights");
    if (t.version != HR_KEPT_VERSION)
        return hr_fail(HR_DATA_LOSS, "it has format %u, this build writes %u", t.version,
                       HR_KEPT_VERSION);
    if (memcmp(&t.key, &k->key, sizeof t.key)) return hr_fail(HR_DATA_LOSS, "it is another's");
    HR_TRY(check_sizes(&t, size));
    const char *table = (const char *)file + t.data_bytes;
    HR_TRY(hr_kept_checksum(&t, (hr_str){ table, (size_t)t.table_bytes }, &sum));
    if (memcmp(&sum, &t.checksum, sizeof sum)) return hr_fail(HR_DATA_LOSS, "its table is damaged");
    k->n = (size_t)t.n;
    k->entries = (const hr_kept_entry *)(const void *)table;
    sums_job j = { .data = file, .bytes = t.data_bytes };
    j.sums = (const uint64_t *)(const void *)(k->entries + k->n);
    uint64_t pieces = hr_kept_pieces(t.data_bytes);
    k->names = (const char *)(j.sums + pieces);
    HR_TRY(check_entries(k, &t, t.table_bytes - (uint64_t)(k->names - table)));
    hr_pool_run(pool, check_pieces, &j, (int64_t)pieces, 1);
    return hr_flag_get(&j.differs) ? hr_fail(HR_DATA_LOSS, "its data are damaged") : HR_OK;
}

/* ---- mapping --------------------------------------------------------------------------------- */

static void unmap(hr_kept *k)
{
    if (k->map) munmap(k->map, k->map_bytes);
    k->map = NULL;
    k->entries = NULL;
    k->n = 0;
}

static hr_status map(hr_kept *k, const hr_file *f)
{
    if (f->size < sizeof(hr_kept_trailer)) return hr_fail(HR_DATA_LOSS, "it is cut off");
    void *p = mmap(NULL, (size_t)f->size, PROT_READ, MAP_PRIVATE, f->fd, 0);
    if (p == MAP_FAILED)
        return hr_fail(HR_RESOURCE_EXHAUSTED, "%llu bytes of address space refused",
                       (unsigned long long)f->size);
    k->map = p;
    k->map_bytes = (size_t)f->size;
    (void)madvise(p, k->map_bytes, MADV_HUGEPAGE); /* a wish; else speed is lost */
    return HR_OK;
}

static void load(hr_kept *k, hr_pool *pool)
{
    hr_file f;
    hr_status st = hr_file_open(k->path.p, &f);
    if (st == HR_NOT_FOUND) return;
    if (!st) st = map(k, &f);
    if (!st) st = check(k, f.size, pool);
    hr_file_close(&f);
    if (!st) {
        k->is_there = true;
        hr_cache_used(k->path.p);
        hr_log(HR_LOG_INFO, "cpu: %.1f MiB of packed weights from %s",
               (double)k->map_bytes / (1 << 20), k->path.p);
        return;
    }
    hr_log(HR_LOG_WARNING, "compile cache: %s is not used: %s", k->path.p, hr_message());
    unmap(k);
}

void hr_kept_open(hr_kept *k, const hr_kept_options *o, hr_pool *pool)
{
    *k = (hr_kept){ .limit = o->limit };
    if (!o->folder || !*o->folder || !o->id.n) return;
    if (make_path(k, o)) {
        hr_log(HR_LOG_WARNING, "compile cache: %s; every start packs the weights", hr_message());
        hr_kept_close(k);
    } else load(k, pool);
}

void hr_kept_close(hr_kept *k)
{
    unmap(k);
    hr_free(k->folder);
    hr_buf_deinit(&k->path);
    *k = (hr_kept){ 0 };
}

/* ---- finding --------------------------------------------------------------------------------- */

static bool is(const hr_kept *k, const hr_kept_entry *e, const hr_weight *w, const hr_packed *p)
{
    hr_kept_entry wanted = hr_kept_entry_of(w, p);
    wanted.name_at = e->name_at;
    wanted.at = e->at;
    return !memcmp(&wanted, e, sizeof wanted) &&
           !memcmp(k->names + e->name_at, w->name, e->name_bytes);
}

bool hr_kept_find(hr_kept *k, const hr_weight *w, hr_packed *p)
{
    for (size_t i = 0; i < k->n; i++) {
        size_t at = (k->next + i) % k->n;
        if (!is(k, &k->entries[at], w, p)) continue;
        k->next = at + 1;
        /* const is cast away for packing's sake; what is mapped cannot be written */
        p->data = (uint8_t *)k->map + k->entries[at].at;
        return true;
    }
    k->lacks = true;
    k->is_there = false;
    return false;
}
