/* Files: read with pread, so that a file that shrinks is a short read and a status, not SIGBUS. */
#ifndef HEADRACE_BASE_FILE_H
#define HEADRACE_BASE_FILE_H

#include <sys/types.h>

#include "base/str.h"

typedef struct hr_file {
    int fd;        /* owned; -1 when closed */
    uint64_t size; /* bytes, at open */
    uint64_t device, inode;
    int64_t mtime_ns;
    char *path; /* owned, for messages */
} hr_file;

#define HR_FILE_CLOSED ((hr_file){ .fd = -1 })

/* NOT_FOUND, PERMISSION_DENIED or INVALID_ARGUMENT (not a regular file), naming the path. */
HR_MUST_USE hr_status hr_file_open(const char *path, hr_file *out);
void hr_file_close(hr_file *f);
/* All n bytes at `offset`, or DATA_LOSS naming the file. Thread-safe. */
HR_MUST_USE hr_status hr_file_read(const hr_file *f, uint64_t offset, void *to, size_t n);
/* A whole file into *out (appended), refused above `limit` bytes. */
HR_MUST_USE hr_status hr_file_slurp(const char *path, size_t limit, hr_buf *out);
/* A file that appears at once and whole: written piece by piece beside its place (path.tmp.…, like
 * no other's), then fsync and rename. */
typedef struct hr_file_writer {
    int fd;           /* owned */
    const char *path; /* borrowed until the end */
    hr_buf name;      /* of the temporary file */
} hr_file_writer;
HR_MUST_USE hr_status hr_file_create(const char *path, hr_file_writer *out);
HR_MUST_USE hr_status hr_file_put(hr_file_writer *w, hr_str s);
/* Ends it either way and returns how: `so_far` is what the caller's writes came to; after a failure
 * nothing is left. */
HR_MUST_USE hr_status hr_file_finish(hr_file_writer *w, hr_status so_far);
/* All at once. */
HR_MUST_USE hr_status hr_file_write_atomic(const char *path, hr_str content);
/* "dir/name" into *out, terminated; refused when name holds '/' or is "..", so a hostile index
 * cannot leave the folder. */
HR_MUST_USE hr_status hr_path_join(const char *dir, hr_str name, hr_buf *out);
bool hr_path_is_dir(const char *path);
bool hr_path_exists(const char *path);

const char *hr_environment(const char *name); /* NULL when unset or empty */
/* $XDG_CACHE_HOME or ~/.cache, terminated. */
HR_MUST_USE hr_status hr_cache_root(hr_buf *out);
/* mkdir -p: parents that are made get 0755, the last folder `mode`. */
HR_MUST_USE hr_status hr_make_dirs(const char *path, mode_t mode);

#endif
