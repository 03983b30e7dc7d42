/* Plugins that could be named: looked for, not opened.
 *
 * Main thread. A plugin is named by the environment, or came with a Python package: those lie in
 * folders that the packages agree on. Opening a device's library may take the device, so a list
 * says only what a path says. */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "engine/devices.h"

/* What the vendors call their plugins, and what shows that there is something for one to drive: a
 * device file, or for TPUs a PCI device. The first whose part a path holds is the one. */
static const struct known {
    const char *part, *what;
    hr_plugin_kind kind;
    const char *files; /* pattern, below the root */
} known[] = {
    { "libtpu", "Google TPU", HR_PLUGIN_TPU, NULL },
    { "cuda", "NVIDIA GPU", HR_PLUGIN_GPU, "/dev/nvidia[0-9]*" },
    { "rocm", "AMD GPU", HR_PLUGIN_GPU, "/dev/kfd" },
    { "oneapi", "Intel GPU", HR_PLUGIN_GPU, "/dev/dri/renderD*" },
    { "xpu", "Intel GPU", HR_PLUGIN_GPU, "/dev/dri/renderD*" },
    { "openxla", "Intel GPU", HR_PLUGIN_GPU, "/dev/dri/renderD*" },
    { "neuron", "AWS Trainium", HR_PLUGIN_OTHER, NULL },
    { "metal", "Apple GPU", HR_PLUGIN_OTHER, NULL },
    { "cpu", "XLA on this CPU", HR_PLUGIN_OTHER, NULL },
};

static const struct known *what_it_is(const char *path)
{
    static const struct known other = { "", "a plugin", HR_PLUGIN_OTHER, NULL };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strstr(path, known[i].part)) return &known[i];
    return &other;
}

/* A package may bring other libraries beside its plugin. */
static bool is_plugin(const char *path)
{
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
    return strstr(file, "pjrt") || strstr(file, "plugin") || !strcmp(file, "libtpu.so");
}

/* What is done with each plugin's path, in the order in which they are preferred. */
typedef struct visitor {
    void (*visit)(struct visitor *v, const char *path);
    hr_buf *out;         /* listing: lines */
    hr_plugin_kind kind; /* finding: of this kind */
    const char *root;
    char *path;       /* the first that has a device; [HR_DEVICE_PATH], "" = none so far */
    const char *what; /* of it, or of the last without a device */
} visitor;

static void add_line(visitor *v, const char *path)
{
    hr_buf_printf(v->out, "pjrt:%s: %s%s\n", path, what_it_is(path)->what,
                  access(path, R_OK) ? ", but there is no such file" : "");
}

static void list_named(visitor *v)
{
    hr_str rest = hr_str_c(getenv("HEADRACE_PJRT_PLUGINS"));
    while (rest.n) {
        size_t colon = hr_str_find(rest, HR_STR(":"), 0);
        hr_buf path = { 0 };
        hr_buf_add_str(&path, hr_str_slice(rest, 0, colon == SIZE_MAX ? rest.n : colon));
        rest = colon == SIZE_MAX ? (hr_str){ 0 } : hr_str_slice(rest, colon + 1, rest.n);
        const char *p = hr_buf_c(&path);
        if (*p) v->visit(v, p);
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

static void list_below(const char *prefix, const char *packages, visitor *v)
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
            if (is_plugin(found.gl_pathv[k])) v->visit(v, found.gl_pathv[k]);
        if (!none) globfree(&found);
        hr_buf_deinit(&pattern);
    }
}

static void list_installed(visitor *v)
{
    const char *virtual = getenv("VIRTUAL_ENV"), *home = getenv("HOME");
    hr_buf local = { 0 };
    if (virtual && *virtual) list_below(virtual, "site-packages", v);
    if (home && *home) hr_buf_printf(&local, "%s/.local", home);
    if (local.n) list_below(hr_buf_c(&local), "site-packages", v);
    hr_buf_deinit(&local);
    list_below("/usr/local", "dist-packages", v);
    list_below("/usr/local", "site-packages", v);
    list_below("/usr", "dist-packages", v);
    list_below("/usr", "site-packages", v);
}

/* ---- what is there to drive ----------------------------------------------------------------- */

static bool file_says(const char *path, const char *start)
{
    char text[16] = { 0 };
    FILE *f = fopen(path, "re");
    if (!f) return false;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    return n && !strncmp(text, start, strlen(start));
}

/* A PCI device of Google's that is no disk (class 01) and no network card (02), which their virtual
 * machines have too. */
static bool has_tpu(const char *root)
{
    hr_buf pattern = { 0 };
    glob_t found;
    bool any = false;
    add_escaped(&pattern, root);
    hr_buf_add_c(&pattern, "/sys/bus/pci/devices/*");
    int none = glob(hr_buf_c(&pattern), 0, NULL, &found);
    for (size_t i = 0; !none && i < found.gl_pathc; i++) {
        hr_buf vendor = { 0 }, class = { 0 };
        hr_buf_printf(&vendor, "%s/vendor", found.gl_pathv[i]);
        hr_buf_printf(&class, "%s/class", found.gl_pathv[i]);
        any |= file_says(hr_buf_c(&vendor), "0x1ae0") && !file_says(hr_buf_c(&class), "0x01") &&
               !file_says(hr_buf_c(&class), "0x02");
        hr_buf_deinit(&vendor);
        hr_buf_deinit(&class);
    }
    if (!none) globfree(&found);
    hr_buf_deinit(&pattern);
    return any;
}

static bool has_device(const struct known *k, const char *root)
{
    if (k->kind == HR_PLUGIN_TPU) return has_tpu(root);
    hr_buf pattern = { 0 };
    glob_t found;
    add_escaped(&pattern, root);
    hr_buf_add_c(&pattern, k->files);
    int none = glob(hr_buf_c(&pattern), 0, NULL, &found);
    if (!none) globfree(&found);
    hr_buf_deinit(&pattern);
    return !none;
}

static void take(visitor *v, const char *path)
{
    const struct known *k = what_it_is(path);
    if (*v->path || k->kind != v->kind || access(path, R_OK) || strlen(path) >= HR_DEVICE_PATH)
        return;
    v->what = k->what;
    if (has_device(k, v->root)) memcpy(v->path, path, strlen(path) + 1);
}

/* ---- doors ---------------------------------------------------------------------------------- */

hr_status hr_plugin_find(hr_plugin_kind kind, const char *root, char path[HR_DEVICE_PATH],
                         const char **what)
{
    visitor v = { .visit = take, .kind = kind, .root = root, .path = path };
    *path = 0;
    list_named(&v);
    list_installed(&v);
    *what = v.what;
    if (*path) return HR_OK;
    if (v.what)
        return hr_fail(HR_UNAVAILABLE,
                       "a plugin for a %s is installed, but this machine has none; pjrt:PATH opens "
                       "a plugin all the same",
                       v.what);
    return hr_fail(
        HR_NOT_FOUND,
        "no plugin for it is installed: %s brings one, or HEADRACE_PJRT_PLUGINS names one",
        kind == HR_PLUGIN_TPU ? "pip install libtpu"
                              : "pip install jax-cuda13-pjrt (NVIDIA), jax-rocm7-pjrt "
                                "(AMD) or jax-oneapi-pjrt (Intel)");
}

hr_status hr_devices_list(hr_buf *out)
{
    static const hr_device cpu = { .kind = HR_DEVICE_CPU }, ref = { .kind = HR_DEVICE_REF };
    hr_device chosen;
    HR_TRY(hr_device_describe(&cpu, out));
    HR_TRY(hr_device_describe(&ref, out));
    visitor v = { .visit = add_line, .out = out };
    list_named(&v);
    list_installed(&v);
    HR_TRY(hr_device_parse("auto", NULL, &chosen));
    hr_buf_printf(out, "auto: %s%s\n", chosen.kind == HR_DEVICE_PJRT ? "pjrt:" : "cpu",
                  chosen.plugin);
#ifndef HR_HAVE_PJRT
    hr_buf_add_c(out, "this build has no PJRT backend; run tools/setup.sh pjrt and build again\n");
#endif
    return hr_buf_status(out);
}
