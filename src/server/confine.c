/* The sandbox of `headrace serve`: which files, and when.
 *
 * I/O thread. Files first, while this is the only thread: Landlock binds no thread that runs
 * already. A rule is about what a path leads to when it is made, so files that are replaced later
 * are allowed by their folder. A device's plugin is foreign code that compiles, logs and opens
 * devices: it keeps reading and the network, and what it may write is narrow. */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/sandbox.h"
#include "engine/devices.h"
#include "model/model.h"
#include "server/confine.h"

/* What the C library and we read of the machine. */
static const char *const machine[] = { "/proc/self",    "/proc/meminfo", "/proc/cpuinfo",
                                       "/proc/stat",    "/proc/sys/vm",  "/proc/sys/kernel",
                                       "/dev/urandom",  "/dev/null",     "/sys/devices/system",
                                       "/sys/fs/cgroup" };
/* Where a logits processor's libraries lie. */
static const char *const libraries[] = { "/lib",       "/lib64",         "/usr/lib",
                                         "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache" };

static hr_status allow_all(hr_landlock *l, const char *const *paths, size_t n, unsigned use)
{
    for (size_t i = 0; i < n; i++) HR_TRY(hr_landlock_allow(l, paths[i], use));
    return HR_OK;
}

static hr_status allow_parent(hr_landlock *l, const char *path, unsigned use)
{
    char folder[PATH_MAX];
    if (!path) return HR_OK;
    const char *slash = strrchr(path, '/');
    if (slash && (size_t)(slash - path) >= sizeof folder) return HR_OK; /* nothing has that name */
    if (!slash) strcpy(folder, ".");
    else snprintf(folder, sizeof folder, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    return hr_landlock_allow(l, folder, use);
}

/* What a folder's links lead to: a Hugging Face snapshot is nothing but links. */
static hr_status allow_links(hr_landlock *l, const char *folder)
{
    DIR *d = opendir(folder);
    hr_buf path = { 0 };
    hr_status st = HR_OK;
    for (const struct dirent *e; d && !st && (e = readdir(d));) {
        if (e->d_type != DT_LNK && e->d_type != DT_UNKNOWN) continue;
        hr_buf_clear(&path);
        hr_buf_printf(&path, "%s/%s", folder, e->d_name);
        const char *p = hr_buf_c(&path);
        st = hr_buf_status(&path);
        if (!st && !hr_path_is_dir(p)) st = hr_landlock_allow(l, p, HR_LANDLOCK_READ);
    }
    hr_buf_deinit(&path);
    if (d) closedir(d);
    return st;
}

/* A name that leads nowhere is told by the engine. */
static hr_status allow_model(hr_landlock *l, const char *name)
{
    hr_buf path = { 0 };
    hr_status st = HR_OK;
    if (name && !hr_model_locate(name, &path)) {
        const char *p = hr_buf_c(&path);
        st = hr_landlock_allow(l, p, HR_LANDLOCK_READ);
        if (!st && hr_path_is_dir(p)) st = allow_links(l, p);
        /* snapshots/REVISION: the name is looked up once more, in refs */
        if (!st) hr_buf_add_c(&path, "/../../refs");
        if (!st && strstr(p, "/snapshots/"))
            st = hr_landlock_allow(l, hr_buf_c(&path), HR_LANDLOCK_READ);
    }
    hr_buf_deinit(&path);
    return st;
}

/* A folder below the user's cache, made now, for what is to be made in it later. */
static hr_status allow_cache(hr_landlock *l, const char *folder, const char *below)
{
    hr_buf path = { 0 };
    if (folder) hr_buf_add_c(&path, folder);
    else if (!hr_cache_root(&path)) hr_buf_add_c(&path, below);
    const char *p = hr_buf_c(&path);
    hr_status st = hr_buf_status(&path);
    if (!st && *p && !hr_make_dirs(p, 0700)) /* else the engine says what is wrong with it */
        st = hr_landlock_allow(l, p, HR_LANDLOCK_READ | HR_LANDLOCK_WRITE);
    hr_buf_deinit(&path);
    return st;
}

static hr_status allow_flags(hr_landlock *l, const hr_server_options *o,
                             const headrace_options *engine)
{
    HR_TRY(allow_parent(l, o->manifest, HR_LANDLOCK_READ | HR_LANDLOCK_WRITE));
    HR_TRY(allow_parent(l, o->uds, HR_LANDLOCK_REMOVE));
    /* what SIGHUP reads again: a new file under the old name */
    const char *const again[] = { o->api_key_file, o->ssl_certfile, o->ssl_keyfile };
    for (size_t i = 0; i < 3; i++) HR_TRY(allow_parent(l, again[i], HR_LANDLOCK_READ));
    for (size_t i = 0; i < engine->n_logits_processors; i++) {
        char file[PATH_MAX];
        const char *flag = engine->logits_processors[i];
        snprintf(file, sizeof file, "%.*s", (int)strcspn(flag, "="), flag);
        HR_TRY(hr_landlock_allow(l, file, HR_LANDLOCK_READ));
    }
    if (!engine->n_logits_processors) return HR_OK;
    return allow_all(l, libraries, sizeof libraries / sizeof *libraries, HR_LANDLOCK_READ);
}

/* Devices, and what vendors' libraries write: lock files, logs, shared memory. */
static hr_status allow_plugin(hr_landlock *l)
{
    const char *tmp = hr_environment("TMPDIR");
    const char *const folders[] = { "/dev", "/proc/self", "/tmp", "/var/tmp", tmp ? tmp : "/tmp" };
    return allow_all(l, folders, 5, HR_LANDLOCK_WRITE);
}

static hr_status allow(hr_landlock *l, const hr_server_options *o, const headrace_options *engine)
{
    bool ref = engine->device && !strcmp(engine->device, "ref");
    HR_TRY(allow_all(l, machine, sizeof machine / sizeof *machine, HR_LANDLOCK_READ));
    HR_TRY(hr_landlock_allow(l, "/dev/null", HR_LANDLOCK_DEVICES));
    HR_TRY(allow_model(l, engine->model));
    HR_TRY(allow_flags(l, o, engine));
    HR_TRY(allow_cache(l, NULL, "/headrace/hashes"));
    return ref ? HR_OK : allow_cache(l, engine->compile_cache, "/headrace/compile");
}

/* Whether a plugin will be opened; looks for one and logs nothing. */
static bool needs_plugin(const char *device)
{
    char path[HR_DEVICE_PATH];
    const char *what;
    if (!device || !strcmp(device, "cpu") || !strcmp(device, "ref")) return false;
    return strcmp(device, "auto") || !hr_plugin_find(HR_PLUGIN_TPU, "", path, &what) ||
           !hr_plugin_find(HR_PLUGIN_GPU, "", path, &what);
}

hr_status hr_confine_files(const hr_server_options *o, const headrace_options *engine,
                           hr_confinement *out)
{
    const char *instrumented = hr_sandbox_instrumented();
    *out = (hr_confinement){ .plugin = needs_plugin(engine->device) };
    out->off = !o->sandbox || instrumented;
    if (out->off) {
        if (o->sandbox)
            hr_log(HR_LOG_WARNING, "server: sandbox: off in a build with %s", instrumented);
        return HR_OK;
    }
    hr_landlock l;
    HR_TRY(hr_landlock_create(out->plugin ? HR_LANDLOCK_WRITES : HR_LANDLOCK_ALL, &l));
    out->landlock = l.abi;
    hr_status st = allow(&l, o, engine);
    if (!st && out->plugin) st = allow_plugin(&l);
    if (!st) st = hr_landlock_enter(&l);
    hr_landlock_deinit(&l);
    if (st) return hr_fail_prefix(st, "sandbox (--no-sandbox serves without)");
    if (!l.abi)
        hr_log(HR_LOG_WARNING,
               "server: sandbox: this kernel has no Landlock: files are not restricted");
    return HR_OK;
}

hr_status hr_confine_calls(const hr_confinement *c)
{
    if (c->off) return HR_OK;
    hr_status st = hr_seccomp_enter(c->plugin ? HR_SECCOMP_PLUGIN : HR_SECCOMP_SERVING);
    if (st == HR_UNIMPLEMENTED)
        hr_log(HR_LOG_WARNING, "server: sandbox: system calls are not restricted: %s",
               hr_message());
    else if (st) return st;
    hr_log(HR_LOG_INFO, "server: sandbox: %s, files %s, system calls %s",
           c->plugin ? "for a plugin" : "for the native backend",
           c->landlock ? (c->plugin ? "read only but for caches" : "restricted") : "not restricted",
           st ? "not restricted" : "restricted");
    return HR_OK;
}
