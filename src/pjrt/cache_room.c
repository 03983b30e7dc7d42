/* Room in the folder of compiled programs.
 *
 * Any thread, several at once, several processes: a file that is gone before its turn was removed
 * by another, which is as good. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/str.h"
#include "pjrt/cache_int.h"

/* No write takes that long: its writer is gone. */
enum { LEFT_BEHIND_S = 3600 };

typedef struct kept {
    const char *path; /* arena */
    uint64_t bytes;
    struct timespec used;
} kept;

typedef struct listing {
    hr_arena arena;
    kept *files; /* owned [n] */
    size_t n, capacity;
    uint64_t bytes; /* of all */
} listing;

static hr_status add_entry(listing *l, const char *path, const struct stat *s)
{
    HR_TRY(hr_grow((void **)&l->files, &l->capacity, l->n + 1, sizeof *l->files));
    const char *copy = hr_arena_copy(&l->arena, path, strlen(path));
    if (!copy) return hr_fail(HR_RESOURCE_EXHAUSTED, "list of a folder");
    l->files[l->n++] = (kept){ copy, (uint64_t)s->st_size, s->st_mtim };
    l->bytes += (uint64_t)s->st_size;
    return HR_OK;
}

static hr_status look_at(listing *l, const char *folder, const char *name, const char *but)
{
    static const char ending[] = HR_PJRT_ENTRY_ENDING;
    const char *end = strstr(name, ending);
    struct stat s;
    if (!end) return HR_OK;
    hr_buf path = { 0 };
    hr_buf_printf(&path, "%s/%s", folder, name);
    const char *p = hr_buf_c(&path);
    hr_status st = hr_buf_status(&path);
    bool whole = !end[sizeof ending - 1];
    if (!st && strcmp(p, but) && !lstat(p, &s) && S_ISREG(s.st_mode)) {
        if (whole) st = add_entry(l, p, &s);
        else if (s.st_mtim.tv_sec + LEFT_BEHIND_S < time(NULL)) (void)!unlink(p);
    }
    hr_buf_deinit(&path);
    return st;
}

static hr_status list(listing *l, const char *folder, const char *but)
{
    DIR *d = opendir(folder);
    hr_status st = HR_OK;
    if (!d) return hr_fail(HR_UNAVAILABLE, "%s: %s", folder, strerror(errno));
    for (struct dirent *e; !st && (e = readdir(d));) st = look_at(l, folder, e->d_name, but);
    closedir(d);
    return st;
}

static int by_use(const void *a, const void *b)
{
    const struct timespec *x = &((const kept *)a)->used, *y = &((const kept *)b)->used;
    if (x->tv_sec != y->tv_sec) return x->tv_sec < y->tv_sec ? -1 : 1;
    return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

static hr_status remove_oldest(const listing *l, uint64_t most)
{
    uint64_t bytes = l->bytes;
    if (l->n) qsort(l->files, l->n, sizeof *l->files, by_use);
    for (size_t i = 0; i < l->n && bytes > most; i++) {
        if (unlink(l->files[i].path) && errno != ENOENT)
            return hr_fail(HR_UNAVAILABLE, "%s: %s", l->files[i].path, strerror(errno));
        hr_log(HR_LOG_DEBUG, "compile cache: %s made room", l->files[i].path);
        bytes -= l->files[i].bytes;
    }
    return HR_OK;
}

hr_status hr_pjrt_cache_make_room(const char *folder, uint64_t most, const char *but)
{
    listing l = { 0 };
    hr_status st = list(&l, folder, but);
    if (!st) st = remove_oldest(&l, most);
    hr_free(l.files);
    hr_arena_deinit(&l.arena);
    return st;
}
