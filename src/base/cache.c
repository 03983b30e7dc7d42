/* The folder of what is kept between starts: whose it is, and room in it.
 *
 * Any thread, several at once, several processes: a file that is gone before its turn was removed
 * by another, which is as good. A file's modification time is that of its last use. */
#include "base/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"

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

/* What a name has behind a kept file's ending: "" for one that is whole; NULL for no such name. */
static const char *behind_ending(const char *name)
{
    static const char *const endings[] = { HR_CACHE_PROGRAM, HR_CACHE_WEIGHTS };
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        const char *at = strstr(name, endings[i]);
        if (at) return at + strlen(endings[i]);
    }
    return NULL;
}

static hr_status look_at(listing *l, const char *folder, const char *name, const char *but)
{
    const char *behind = behind_ending(name);
    struct stat s;
    if (!behind) return HR_OK;
    hr_buf path = { 0 };
    hr_buf_printf(&path, "%s/%s", folder, name);
    const char *p = hr_buf_c(&path);
    hr_status st = hr_buf_status(&path);
    if (!st && strcmp(p, but) && !lstat(p, &s) && S_ISREG(s.st_mode)) {
        if (!*behind) st = add_entry(l, p, &s);
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

hr_status hr_cache_make_room(const char *folder, uint64_t limit, uint64_t bytes, const char *but)
{
    listing l = { 0 };
    if (bytes > limit)
        return hr_fail(HR_RESOURCE_EXHAUSTED,
                       "its %llu bytes are more than --compile-cache-size %llu",
                       (unsigned long long)bytes, (unsigned long long)limit);
    hr_status st = list(&l, folder, but);
    if (!st) st = remove_oldest(&l, limit - bytes);
    hr_free(l.files);
    hr_arena_deinit(&l.arena);
    return st;
}

static hr_status check_owner(const char *folder)
{
    struct stat s;
    if (stat(folder, &s)) return hr_fail(HR_UNAVAILABLE, "%s: %s", folder, strerror(errno));
    if (!S_ISDIR(s.st_mode)) return hr_fail(HR_UNAVAILABLE, "%s is no folder", folder);
    if ((s.st_uid == geteuid() || s.st_uid == 0) && !(s.st_mode & (S_IWGRP | S_IWOTH)))
        return HR_OK;
    return hr_fail(HR_PERMISSION_DENIED, "%s: others may write to it", folder);
}

hr_status hr_cache_make_folder(const char *folder)
{
    HR_TRY(hr_make_dirs(folder, 0700));
    return check_owner(folder);
}

void hr_cache_used(const char *path)
{
    (void)!utimensat(AT_FDCWD, path, NULL, 0); /* a folder that may only be read is fine */
}
