/* The file of packed weights: written.
 *
 * Engine thread, at the end of the start that packed them. Data stream through one piece; the table
 * grows beside them and follows. Two starts at once write the same bytes under the same name, each
 * whole. */
#include "base/cache.h"
#include "base/log.h"
#include "base/sync.h"
#include "cpu/kept.h"
#include "cpu/kept_file.h"

/* ---- sums ------------------------------------------------------------------------------------ */

uint64_t hr_kept_sum(const uint8_t *data, size_t bytes)
{
    uint64_t lane[8] = { 1, 2, 3, 4, 5, 6, 7, 8 }, sum = bytes;
    for (size_t i = 0; i < bytes; i += 64) {
        uint64_t v[8];
        memcpy(v, data + i, sizeof v);
        for (int l = 0; l < 8; l++) {
            uint64_t x = (lane[l] ^ v[l]) * 0x9e3779b97f4a7c15u;
            lane[l] = x << 29 | x >> 35;
        }
    }
    for (int l = 0; l < 8; l++) sum = (sum ^ lane[l]) * 0xd6e8feb86659fd93u + (sum >> 32);
    return sum;
}

hr_status hr_kept_checksum(const hr_kept_trailer *t, hr_str table, hr_digest *out)
{
    hr_str parts[] = { { (const char *)t, offsetof(hr_kept_trailer, checksum) },
                       { (const char *)&t->version, sizeof t->version },
                       table };
    return hr_digest_of(parts, 3, out);
}

/* ---- data ------------------------------------------------------------------------------------ */

typedef struct saving {
    hr_file_writer file;
    uint8_t *piece; /* owned [HR_KEPT_PIECE] */
    size_t filled;
    hr_buf sums, names, entries;
    uint64_t written, total;
    double told; /* when progress was logged last */
} saving;

static hr_status flush(saving *s)
{
    if (!s->filled) return HR_OK;
    uint64_t sum = hr_kept_sum(s->piece, s->filled);
    hr_buf_add(&s->sums, &sum, sizeof sum);
    HR_TRY(hr_file_put(&s->file, (hr_str){ (const char *)s->piece, s->filled }));
    s->written += s->filled;
    s->filled = 0;
    if (hr_now_s() - s->told < 1) return HR_OK;
    s->told = hr_now_s();
    hr_log(HR_LOG_INFO, "cpu: %.0f of %.0f MiB of packed weights kept",
           (double)s->written / (1 << 20), (double)s->total / (1 << 20));
    return HR_OK;
}

static hr_status add_bytes(saving *s, const uint8_t *from, size_t n)
{
    while (n) {
        size_t room = HR_KEPT_PIECE - s->filled, part = n < room ? n : room;
        memcpy(s->piece + s->filled, from, part);
        s->filled += part;
        from += part;
        n -= part;
        if (s->filled == HR_KEPT_PIECE) HR_TRY(flush(s));
    }
    return HR_OK;
}

static hr_status add_weight(saving *s, const hr_kept_weight *w)
{
    static const uint8_t zeros[64];
    hr_kept_entry e = hr_kept_entry_of(w->weight, w->packed);
    e.name_at = s->names.n;
    e.at = s->written + s->filled;
    hr_buf_add(&s->entries, &e, sizeof e);
    hr_buf_add_c(&s->names, w->weight->name);
    HR_TRY(add_bytes(s, w->packed->data, w->packed->bytes));
    return add_bytes(s, zeros, -w->packed->bytes & 63);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static hr_status add_end(saving *s, const hr_digest *key, size_t n)
{
    hr_kept_trailer t = { .n = n, .data_bytes = s->written, .key = *key };
    hr_buf_add_str(&s->entries, hr_buf_str(&s->sums));
    hr_buf_add_str(&s->entries, hr_buf_str(&s->names));
    HR_TRY(hr_buf_status(&s->sums));
    HR_TRY(hr_buf_status(&s->names));
    HR_TRY(hr_buf_status(&s->entries));
    t.table_bytes = s->entries.n;
    t.version = HR_KEPT_VERSION;
    memcpy(t.magic, hr_kept_magic, sizeof t.magic);
    HR_TRY(hr_kept_checksum(&t, hr_buf_str(&s->entries), &t.checksum));
    HR_TRY(hr_file_put(&s->file, hr_buf_str(&s->entries)));
    return hr_file_put(&s->file, (hr_str){ (const char *)&t, sizeof t });
}

static hr_status write_all(saving *s, const hr_kept *k, const hr_kept_weight *weights, size_t n)
{
    s->piece = hr_alloc(HR_KEPT_PIECE);
    if (!s->piece) return hr_fail(HR_RESOURCE_EXHAUSTED, "a piece of packed weights");
    for (size_t i = 0; i < n; i++) HR_TRY(add_weight(s, &weights[i]));
    HR_TRY(flush(s));
    return add_end(s, &k->key, n);
}

void hr_kept_save(hr_kept *k, const hr_kept_weight *weights, size_t n)
{
    if (!k->folder || !k->lacks || !n) return;
    saving s = { .told = hr_now_s() };
    for (size_t i = 0; i < n; i++) {
        s.total += (weights[i].packed->bytes + 63) & ~(uint64_t)63;
        s.total += sizeof(hr_kept_entry) + strlen(weights[i].weight->name);
    }
    s.total += hr_kept_pieces(s.total) * 8 + sizeof(hr_kept_trailer);
    double begin = s.told;
    hr_status st = hr_cache_make_room(k->folder, k->limit, s.total, k->path.p);
    if (!st) st = hr_file_create(k->path.p, &s.file);
    if (!st) st = hr_file_finish(&s.file, write_all(&s, k, weights, n));
    if (st) hr_log(HR_LOG_WARNING, "compile cache: packed weights are not kept: %s", hr_message());
    else
        hr_log(HR_LOG_INFO, "cpu: %.1f MiB of packed weights kept in %s in %.2f s",
               (double)s.total / (1 << 20), k->path.p, hr_now_s() - begin);
    k->is_there = !st;
    hr_free(s.piece);
    hr_buf_deinit(&s.entries);
    hr_buf_deinit(&s.names);
    hr_buf_deinit(&s.sums);
}
