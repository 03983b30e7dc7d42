/* Packed weights kept between starts: one file in the compile cache, used by all processes that
 * load the same weights.
 *
 * Nothing in here fails a start: what cannot be used is packed anew, what cannot be written is not
 * kept, and the log says why. Engine thread. */
#ifndef HEADRACE_CPU_KEPT_H
#define HEADRACE_CPU_KEPT_H

#include "base/digest.h"
#include "cpu/pack.h"
#include "cpu/pool.h"

typedef struct hr_kept {
    char *folder; /* owned; NULL = nothing is kept */
    hr_buf path;  /* of the file */
    uint64_t limit;
    hr_digest key;
    void *map;        /* owned; the whole file, read-only; NULL = none was found */
    size_t map_bytes; /* of it */
    const struct hr_kept_entry *entries; /* [n] in the map: as its writer first used them */
    const char *names;
    size_t n, next; /* next: behind the entry found last */
    bool lacks;     /* a weight was packed that the file does not have */
    bool is_there;  /* the file is, and has all */
} hr_kept;

/* `id`: whatever tells apart all that these weights' rows can be; empty = nothing is kept. */
typedef struct hr_kept_options {
    const char *folder, *isa;
    uint64_t limit;
    hr_str id;
} hr_kept_options;

void hr_kept_open(hr_kept *k, const hr_kept_options *o, hr_pool *pool);
void hr_kept_close(hr_kept *k);
/* Points p->data, which hr_pack_measure has measured, at what is kept of w. False: nothing is. */
bool hr_kept_find(hr_kept *k, const hr_weight *w, hr_packed *p);

/* What a backend has packed, in the order of first use. */
typedef struct hr_kept_weight {
    const hr_weight *weight;
    const hr_packed *packed;
} hr_kept_weight;
/* Writes the file when it lacks any of them. */
void hr_kept_save(hr_kept *k, const hr_kept_weight *weights, size_t n);

#endif
