/* Opening, reading and atomically writing files.
 *
 * Runs on any thread; an hr_file may be read by many threads at once (pread keeps no position). */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sync.h"

static hr_status errno_status(void)
{
    switch (errno) {
    case ENOENT:
    case ENOTDIR: return HR_NOT_FOUND;
    case EACCES:
    case EPERM: return HR_PERMISSION_DENIED;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOSPC: return HR_RESOURCE_EXHAUSTED;
    default: return HR_UNKNOWN;
    }
}

hr_status hr_file_open(const char *path, hr_file *out)
{
    *out = HR_FILE_CLOSED;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return hr_fail(errno_status(), "%s: %s", path, strerror(errno));
    struct stat st;
    hr_status status = HR_OK;
    if (fstat(fd, &st)) status = hr_fail(errno_status(), "%s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        status = hr_fail(HR_INVALID_ARGUMENT, "%s: not a regular file", path);
    char *copy = status ? NULL : hr_alloc(strlen(path) + 1);
    if (!status && !copy) status = hr_fail(HR_RESOURCE_EXHAUSTED, "%s: path", path);
    if (status) {
        close(fd);
        return status;
    }
    strcpy(copy, path);
    *out = (hr_file){ .fd = fd,
                      .size = (uint64_t)st.st_size,
                      .device = (uint64_t)st.st_dev,
                      .inode = (uint64_t)st.st_ino,
                      .mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec,
                      .path = copy };
    return HR_OK;
}

void hr_file_close(hr_file *f)
{
    if (f->fd >= 0) close(f->fd);
    hr_free(f->path);
    *f = HR_FILE_CLOSED;
}

hr_status hr_file_read(const hr_file *f, uint64_t offset, void *to, size_t n)
{
    char *p = to;
    while (n) {
        ssize_t got = pread(f->fd, p, n, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return hr_fail(HR_DATA_LOSS, "%s: %s", f->path, strerror(errno));
        if (got == 0)
            return hr_fail(HR_DATA_LOSS, "%s: ends %zu bytes early at offset %llu", f->path, n,
                           (unsigned long long)offset);
        p += got;
        n -= (size_t)got;
        offset += (uint64_t)got;
    }
    return HR_OK;
}

hr_status hr_file_slurp(const char *path, size_t limit, hr_buf *out)
{
    hr_file f;
    HR_TRY(hr_file_open(path, &f));
    hr_status st = HR_OK;
    if (f.size > limit)
        st = hr_fail(HR_INVALID_ARGUMENT, "%s: %llu bytes, more than the %zu expected at most",
                     path, (unsigned long long)f.size, limit);
    char *to = st ? NULL : hr_buf_reserve(out, (size_t)f.size);
    if (!st && !to) st = hr_buf_status(out);
    if (!st) st = hr_file_read(&f, 0, to, (size_t)f.size);
    if (!st) out->n += (size_t)f.size;
    hr_file_close(&f);
    return st;
}

/* A file that nobody else has: processes in two containers may share a folder and a process id. */
static hr_status create_beside(const char *path, hr_buf *name, int *fd)
{
    static hr_counter serial;
    int tries = 100;
    do {
        hr_buf_clear(name);
        hr_buf_printf(name, "%s.tmp.%ld.%llu", path, (long)getpid(),
                      (unsigned long long)hr_counter_next(&serial));
        const char *c = hr_buf_c(name);
        HR_TRY(hr_buf_status(name));
        *fd = open(c, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    } while (*fd < 0 && errno == EEXIST && --tries);
    return *fd < 0 ? hr_fail(errno_status(), "%s: %s", name->p, strerror(errno)) : HR_OK;
}

hr_status hr_file_create(const char *path, hr_file_writer *out)
{
    *out = (hr_file_writer){ .fd = -1, .path = path };
    hr_status st = create_beside(path, &out->name, &out->fd);
    if (st) hr_buf_deinit(&out->name);
    return st;
}

hr_status hr_file_put(hr_file_writer *w, hr_str s)
{
    while (s.n) {
        ssize_t n = write(w->fd, s.p, s.n);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return hr_fail(errno_status(), "%s: %s", w->path, strerror(errno));
        s = hr_str_slice(s, (size_t)n, s.n);
    }
    return HR_OK;
}

hr_status hr_file_finish(hr_file_writer *w, hr_status so_far)
{
    hr_status st = so_far;
    if (!st && (fsync(w->fd) || rename(w->name.p, w->path)))
        st = hr_fail(errno_status(), "%s: %s", w->path, strerror(errno));
    if (st) unlink(w->name.p);
    close(w->fd);
    hr_buf_deinit(&w->name);
    return st;
}

hr_status hr_file_write_atomic(const char *path, hr_str content)
{
    hr_file_writer w;
    HR_TRY(hr_file_create(path, &w));
    return hr_file_finish(&w, hr_file_put(&w, content));
}

hr_status hr_path_join(const char *dir, hr_str name, hr_buf *out)
{
    if (name.n == 0 || memchr(name.p, '/', name.n) || memchr(name.p, '\0', name.n) ||
        hr_str_eq_c(name, "..") || hr_str_eq_c(name, "."))
        return hr_fail(HR_INVALID_ARGUMENT, "'%.*s' is not a plain file name", HR_STR_ARG(name));
    hr_buf_clear(out);
    hr_buf_printf(out, "%s/", dir);
    hr_buf_add_str(out, name);
    hr_buf_c(out);
    return hr_buf_status(out);
}

bool hr_path_is_dir(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

bool hr_path_exists(const char *path)
{
    struct stat st;
    return !stat(path, &st);
}
