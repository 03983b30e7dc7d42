/* Compiled programs kept between starts: a folder with one file each. Knows nothing of plugins.
 *
 * Nothing in here fails a start: what cannot be read is compiled, what cannot be written is not
 * kept, and the log says why. Reading and writing may be done by several threads at once. */
#ifndef HEADRACE_PJRT_CACHE_H
#define HEADRACE_PJRT_CACHE_H

#include "base/digest.h"
#include "base/sync.h"

typedef struct hr_pjrt_cache {
    char *folder;          /* owned; NULL = nothing is kept */
    uint64_t limit;        /* most bytes of all entries together */
    hr_digest common;      /* of what all programs of this process share */
    hr_counter complaints; /* about the folder: the first is a warning */
} hr_pjrt_cache;

/* A program as the plugin wrote it, and what the ledger says of it. */
typedef struct hr_pjrt_entry {
    hr_str blob;
    uint64_t peak_bytes, code_bytes;
} hr_pjrt_entry;

/* `common`: whatever decides whether a program runs here, beside its text and options: plugin,
 * devices, processor. The folder is made for its owner alone; one that others may write to is not
 * used, for what comes out of it is run. */
void hr_pjrt_cache_open(hr_pjrt_cache *c, const char *folder, uint64_t limit, hr_str common);
void hr_pjrt_cache_close(hr_pjrt_cache *c);
/* The entry's name: a program's text and options, on this machine. */
HR_MUST_USE hr_status hr_pjrt_cache_key(const hr_pjrt_cache *c, hr_str options, hr_str text,
                                        hr_digest *out);
/* False: there is none, or none that is whole and its own, which is warned of. `out` points into
 * `file`, which the caller deinits. A read is a use. */
bool hr_pjrt_cache_read(hr_pjrt_cache *c, const hr_digest *key, hr_buf *file, hr_pjrt_entry *out);
/* Appears at once and whole. The oldest by use make room. */
void hr_pjrt_cache_write(hr_pjrt_cache *c, const hr_digest *key, const hr_pjrt_entry *e);
/* This thread's message is why a program is not kept: a warning the first time. */
void hr_pjrt_cache_complain(hr_pjrt_cache *c);
/* Warns that the entry is not used, with its name and this thread's message. */
void hr_pjrt_cache_refuse(const hr_pjrt_cache *c, const hr_digest *key);

#endif
