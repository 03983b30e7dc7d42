/* bench startup's compile cache: empty before a cold start, left to the warm one.
 *
 * Main thread. The folder is the benchmark's own, since emptying the user's would cost the user. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "bench/bench_int.h"
#include "engine/devices.h"

static bool wanted(const headrace_options *o)
{
    hr_device d;
    return !hr_device_parse(o->device, o->device_options, &d) && d.kind != HR_DEVICE_REF &&
           !(o->compile_cache && !*o->compile_cache);
}

static hr_status make_folder(hr_bench_kept *k)
{
    const char *base = getenv("TMPDIR");
    hr_buf_printf(&k->folder, "%s/headrace-startup-XXXXXX", base && *base ? base : "/tmp");
    hr_buf_c(&k->folder);
    HR_TRY(hr_buf_status(&k->folder));
    k->made = mkdtemp(k->folder.p) != NULL;
    return k->made ? HR_OK : hr_fail(HR_UNAVAILABLE, "%s: %s", k->folder.p, strerror(errno));
}

/* The last of a flag that is given twice counts. */
static hr_status add_flag(hr_bench_kept *k, char *const *argv)
{
    static char flag[] = "--compile-cache";
    size_t n = 0;
    while (argv[n]) n++;
    k->argv = hr_alloc_array0(n + 3, sizeof *k->argv);
    if (!k->argv) return hr_fail(HR_RESOURCE_EXHAUSTED, "arguments");
    for (size_t i = 0; i < n; i++) k->argv[i] = argv[i];
    k->argv[n] = flag;
    k->argv[n + 1] = k->folder.p;
    return HR_OK;
}

hr_status hr_bench_kept_open(const headrace_options *o, char *const *argv, hr_bench_kept *out)
{
    *out = (hr_bench_kept){ 0 };
    if (!wanted(o)) return HR_OK;
    HR_TRY(make_folder(out));
    return add_flag(out, argv);
}

void hr_bench_kept_empty(const hr_bench_kept *k)
{
    DIR *d = k->made ? opendir(k->folder.p) : NULL;
    if (!d) return;
    for (struct dirent *e; (e = readdir(d));)
        (void)!unlinkat(dirfd(d), e->d_name, 0); /* "." and ".." are no files */
    closedir(d);
}

void hr_bench_kept_close(hr_bench_kept *k)
{
    hr_bench_kept_empty(k);
    if (k->made) (void)!rmdir(k->folder.p);
    hr_free(k->argv);
    hr_buf_deinit(&k->folder);
}
