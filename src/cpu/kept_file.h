/* Inside the file of packed weights: what lies in it.
 *
 * Data first, so that they begin at a page's border and are written as they come; then the table:
 * entries [n], a sum for each piece of the data, names; then the trailer. In this machine's byte
 * order, which is part of what an instruction set is. */
#ifndef HEADRACE_CPU_KEPT_FILE_H
#define HEADRACE_CPU_KEPT_FILE_H

#include <string.h>

#include "base/digest.h"
#include "cpu/pack.h"

enum { HR_KEPT_VERSION = 1 };
/* Of data that have a sum of their own, and that are written at once: a huge page, for a page cache
 * that keeps files in large pieces makes them as large as what is written. */
#define HR_KEPT_PIECE ((size_t)2 << 20)

/* The line ends show a file that was copied as text. */
static const char hr_kept_magic[8] = { 'h', 'r', 'p', 'a', 'c', 'k', '\r', '\n' };

typedef struct hr_kept_trailer {
    uint64_t n, data_bytes, table_bytes;
    hr_digest key;
    hr_digest checksum; /* of all above, of version, and of the table */
    uint32_t version, reserved;
    char magic[8];
} hr_kept_trailer;

typedef struct hr_kept_entry {
    uint64_t name_at, name_bytes;
    uint64_t at, bytes; /* in the data */
    int64_t experts, n, k, panels;
    uint64_t panel_bytes;
    int32_t format, shard_axis, shard_rank, shard_count;
} hr_kept_entry;

/* Without name_at and at. */
static inline hr_kept_entry hr_kept_entry_of(const hr_weight *w, const hr_packed *p)
{
    return (hr_kept_entry){ .name_bytes = strlen(w->name),
                            .bytes = p->bytes,
                            .experts = p->experts,
                            .n = p->n,
                            .k = p->k,
                            .panels = p->panels,
                            .panel_bytes = p->panel_bytes,
                            .format = (int32_t)p->format,
                            .shard_axis = w->shard.axis,
                            .shard_rank = w->shard.rank,
                            .shard_count = w->shard.count };
}

static inline uint64_t hr_kept_pieces(uint64_t data_bytes)
{
    return data_bytes / HR_KEPT_PIECE + (data_bytes % HR_KEPT_PIECE != 0);
}

/* kept_save.c */
HR_MUST_USE hr_status hr_kept_checksum(const hr_kept_trailer *t, hr_str table, hr_digest *out);
/* Against damage, not against malice, which the folder's owner is asked for: eight chains, so that
 * it runs as fast as memory. A word that differs always shows. `bytes` is a multiple of 64. */
uint64_t hr_kept_sum(const uint8_t *data, size_t bytes);

#endif
