/* Where things that survive a process are kept, as the XDG base directory specification says.
 *
 * Runs on the thread that loads. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "model/model_int.h"

const char *hr_model_environment(const char *name)
{
    const char *v = getenv(name);
    return v && *v ? v : NULL;
}

hr_status hr_model_cache_root(hr_buf *out)
{
    const char *xdg = hr_model_environment("XDG_CACHE_HOME"), *home = hr_model_environment("HOME");
    hr_buf_clear(out);
    if (xdg && *xdg == '/') hr_buf_add_c(out, xdg);
    else if (home) hr_buf_printf(out, "%s/.cache", home);
    else return hr_fail(HR_FAILED_PRECONDITION, "neither XDG_CACHE_HOME nor HOME is set");
    hr_buf_c(out);
    return hr_buf_status(out);
}

hr_status hr_model_make_dirs(const char *path)
{
    hr_buf part = { 0 };
    hr_status st = HR_OK;
    for (const char *p = path; *p && !st; p++) {
        if (p[1] != '/' && p[1] != '\0') continue;
        hr_buf_clear(&part);
        hr_buf_add(&part, path, (size_t)(p - path) + 1);
        const char *dir = hr_buf_c(&part);
        st = hr_buf_status(&part);
        if (!st && mkdir(dir, 0755) && errno != EEXIST)
            st = hr_fail(HR_UNAVAILABLE, "%s: %s", dir, strerror(errno));
    }
    hr_buf_deinit(&part);
    return st;
}
