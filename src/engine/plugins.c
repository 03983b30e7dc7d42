/* Plugins that could be named: looked for, not opened.
 *
 * Main thread. A plugin is named by the environment, or came with a Python package: those lie in
 * folders that the packages agree on. Opening a device's library may take the device, so a list
 * says only what a path says. */
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "engine/devices.h"

/* What the vendors call their plugins; the first that a path holds is the one. */
static const struct {
    const char *part, *what;
} known[] = {
    { "libtpu", "Google TPU" },   { "cuda", "NVIDIA GPU" }, { "rocm", "AMD GPU" },
    { "oneapi", "Intel GPU" },    { "xpu", "Intel GPU" },   { "openxla", "Intel GPU" },
    { "neuron", "AWS Trainium" }, { "metal", "Apple GPU" }, { "cpu", "XLA on this CPU" },
};

static const char *what_it_is(const char *path)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strstr(path, known[i].part)) return known[i].what;
    return "a plugin";
}

/* A package may bring other libraries beside its plugin. */
static bool is_plugin(const char *path)
{
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
    return strstr(file, "pjrt") || strstr(file, "plugin") || !strcmp(file, "libtpu.so");
}

static void add_line(const char *path, const char *why, hr_buf *out)
{
    hr_buf_printf(out, "pjrt:%s: %s%s\n", path, what_it_is(path), why);
}

static void list_named(hr_buf *out)
{
    hr_str rest = hr_str_c(getenv("HEADRACE_PJRT_PLUGINS"));
    while (rest.n) {
        size_t colon = hr_str_find(rest, HR_STR(":"), 0);
        hr_buf path = { 0 };
        hr_buf_add_str(&path, hr_str_slice(rest, 0, colon == SIZE_MAX ? rest.n : colon));
        rest = colon == SIZE_MAX ? (hr_str){ 0 } : hr_str_slice(rest, colon + 1, rest.n);
        const char *p = hr_buf_c(&path);
        if (*p) add_line(p, access(p, R_OK) ? ", but there is no such file" : "", out);
        hr_buf_deinit(&path);
    }
}

/* A folder's name is not a pattern. */
static void add_escaped(hr_buf *pattern, const char *folder)
{
    for (; *folder; folder++) {
        if (strchr("*?[\\", *folder)) hr_buf_add_byte(pattern, '\\');
        hr_buf_add_byte(pattern, *folder);
    }
}

static void list_below(const char *prefix, const char *packages, hr_buf *out)
{
    static const char *const places[] = { "/libtpu/libtpu.so", "/jax_plugins/*/*.so",
                                          "/xla_plugins/*/*.so" };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        hr_buf pattern = { 0 };
        glob_t found;
        add_escaped(&pattern, prefix);
        hr_buf_printf(&pattern, "/lib/python3*/%s%s", packages, places[i]);
        int none = glob(hr_buf_c(&pattern), 0, NULL, &found);
        for (size_t k = 0; !none && k < found.gl_pathc; k++)
            if (is_plugin(found.gl_pathv[k])) add_line(found.gl_pathv[k], "", out);
        if (!none) globfree(&found);
        hr_buf_deinit(&pattern);
    }
}

static void list_installed(hr_buf *out)
{
    const char *virtual = getenv("VIRTUAL_ENV"), *home = getenv("HOME");
    hr_buf local = { 0 };
    if (virtual && *virtual) list_below(virtual, "site-packages", out);
    if (home && *home) hr_buf_printf(&local, "%s/.local", home);
    if (local.n) list_below(hr_buf_c(&local), "site-packages", out);
    hr_buf_deinit(&local);
    list_below("/usr/local", "dist-packages", out);
    list_below("/usr/local", "site-packages", out);
    list_below("/usr", "dist-packages", out);
    list_below("/usr", "site-packages", out);
}

hr_status hr_devices_list(hr_buf *out)
{
    static const hr_device cpu = { .kind = HR_DEVICE_CPU }, ref = { .kind = HR_DEVICE_REF };
    HR_TRY(hr_device_describe(&cpu, out));
    HR_TRY(hr_device_describe(&ref, out));
    list_named(out);
    list_installed(out);
#ifndef HR_HAVE_PJRT
    hr_buf_add_c(out, "this build has no PJRT backend; run tools/setup.sh pjrt and build again\n");
#endif
    return hr_buf_status(out);
}
