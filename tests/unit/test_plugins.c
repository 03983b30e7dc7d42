/* Finding a plugin and something for it to drive, below a root of the test's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/devices.h"

static char root[64];

static void shell(const char *format, ...)
{
    char command[512] = "cd ";
    size_t n = strlen(strcat(strcat(command, root), " && "));
    va_list args;
    va_start(args, format);
    vsnprintf(command + n, sizeof command - n, format, args);
    va_end(args);
    if (system(command)) fail_msg("%s", command);
}

static void install(const char *path)
{
    shell("mkdir -p $(dirname venv/lib/python3.11/site-packages/%s)", path);
    shell("touch venv/lib/python3.11/site-packages/%s", path);
}

static void pci(const char *slot, const char *vendor, const char *class)
{
    shell("mkdir -p sys/bus/pci/devices/%s", slot);
    shell("echo %s > sys/bus/pci/devices/%s/vendor", vendor, slot);
    shell("echo %s > sys/bus/pci/devices/%s/class", class, slot);
}

static int set_up(void **state)
{
    (void)state;
    char venv[80];
    strcpy(root, "/tmp/headrace-plugins-XXXXXX");
    if (!mkdtemp(root)) return 1;
    snprintf(venv, sizeof venv, "%s/venv", root);
    setenv("VIRTUAL_ENV", venv, 1);
    setenv("HOME", "/nonexistent", 1);
    unsetenv("HEADRACE_PJRT_PLUGINS");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    shell("rm -rf %s", root);
    return 0;
}

static void expect(hr_plugin_kind kind, hr_status want, const char *part)
{
    char path[HR_DEVICE_PATH];
    const char *what;
    assert_int_equal(hr_plugin_find(kind, root, path, &what), want);
    const char *text = want ? hr_message() : path;
    if (!strstr(text, part)) fail_msg("'%s' says nothing of '%s'", text, part);
    if (want) assert_string_equal(path, "");
    else assert_true(what && *what);
}

static void test_tpu(void **state)
{
    (void)state;
    expect(HR_PLUGIN_TPU, HR_NOT_FOUND, "pip install libtpu");
    install("libtpu/libtpu.so");
    expect(HR_PLUGIN_TPU, HR_UNAVAILABLE, "Google TPU");
    pci("0000:00:03.0", "0x1ae0", "0x020000"); /* gVNIC */
    pci("0000:00:04.0", "0x1ae0", "0x010802"); /* a disk */
    pci("0000:00:05.0", "0x8086", "0xff0000");
    expect(HR_PLUGIN_TPU, HR_UNAVAILABLE, "Google TPU");
    pci("0000:00:06.0", "0x1ae0", "0xff0000");
    expect(HR_PLUGIN_TPU, HR_OK, "/venv/lib/python3.11/site-packages/libtpu/libtpu.so");
    expect(HR_PLUGIN_GPU, HR_NOT_FOUND, "jax-rocm7-pjrt");
}

static void test_gpu(void **state)
{
    (void)state;
    install("jax_plugins/xla_cuda13/xla_cuda_plugin.so");
    install("jax_plugins/xla_rocm7/xla_rocm_plugin.so");
    expect(HR_PLUGIN_GPU, HR_UNAVAILABLE, "GPU is installed");
    shell("mkdir dev && touch dev/kfd");
    expect(HR_PLUGIN_GPU, HR_OK, "xla_rocm_plugin.so");
    shell("touch dev/nvidia0");
    expect(HR_PLUGIN_GPU, HR_OK, "xla_cuda_plugin.so");
}

static void test_the_environment_goes_first(void **state)
{
    (void)state;
    char list[256];
    install("libtpu/libtpu.so");
    pci("0000:00:06.0", "0x1ae0", "0xff0000");
    shell("mkdir own && touch own/libtpu.so");
    snprintf(list, sizeof list, "/no/such/libtpu.so:%s/own/libtpu.so", root);
    setenv("HEADRACE_PJRT_PLUGINS", list, 1);
    expect(HR_PLUGIN_TPU, HR_OK, "/own/libtpu.so");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_tpu, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_gpu, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_environment_goes_first, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
