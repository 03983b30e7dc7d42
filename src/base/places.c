/* Where things that survive a process are kept, as the XDG base directory specification says.
 *
 * Runs on the thread that asks; owns nothing. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/file.h"

const char *hr_environment(const char *name)
{
    const char *v = getenv(name);
    return v && *v ? v : NULL;
}

hr_status hr_cache_root(hr_buf *out)
{
    const char *xdg = hr_environment("XDG_CACHE_HOME"), *home = hr_environment("HOME");
    hr_buf_clear(out);
    if (xdg && *xdg == '/') hr_buf_add_c(out, xdg);
    else if (home) hr_buf_printf(out, "%s/.cache", home);
    else return hr_fail(HR_FAILED_PRECONDITION, "neither XDG_CACHE_HOME nor HOME is set");
    hr_buf_c(out);
    return hr_buf_status(out);
}

static hr_status make_dir(const char *path, mode_t mode)
{
    if (!mkdir(path, mode) || errno == EEXIST) return HR_OK;
    return hr_fail(HR_UNAVAILABLE, "%s: %s", path, strerror(errno));
}

hr_status hr_make_dirs(const char *path, mode_t mode)
{
    hr_buf part = { 0 };
    hr_status st = HR_OK;
    for (const char *p = path; *p && !st; p++) {
        if (p[1] != '/' && p[1] != '\0') continue;
        hr_buf_clear(&part);
        hr_buf_add(&part, path, (size_t)(p - path) + 1);
        const char *dir = hr_buf_c(&part);
        st = hr_buf_status(&part);
        if (!st) st = make_dir(dir, p[1] ? 0755 : mode);
    }
    hr_buf_deinit(&part);
    return st;
}
