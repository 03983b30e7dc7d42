/* What tests of the PJRT room share: the stub, the real plugins, a build without the room.
 *
 * Include cmocka first, then this; what follows is for HR_HAVE_PJRT. */
#ifndef HEADRACE_TESTS_PLUGIN_BED_H
#define HEADRACE_TESTS_PLUGIN_BED_H

#ifdef HR_HAVE_PJRT
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "stub_plugin.h"

#define STUB HR_STUB_FOLDER "/stub_plugin.so"

static inline stub_state *stub_of(const char *path)
{
    stub_state *(*get)(void) = NULL;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *symbol = library ? dlsym(library, "stub_get_state") : NULL;
    if (!symbol) fail_msg("%s: %s", path, dlerror());
    memcpy(&get, &symbol, sizeof get);
    return get();
}

/* tests/run.py names plugins, or "" for none; by hand it is what setup fetched. Skips the test
 * where there is none. */
static inline const char *fetched_plugin(const char *variable, const char *fetched)
{
    const char *named = getenv(variable);
    if (!named) named = fetched;
    if (access(named, R_OK)) skip();
    return named;
}
#define XLA_CPU                                                                                    \
    fetched_plugin("HEADRACE_PJRT_PLUGIN",                                                         \
                   HR_SOURCE_DIR "/.cache/pjrt/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so")
#define LIBTPU fetched_plugin("HEADRACE_TPU_PLUGIN", HR_SOURCE_DIR "/.cache/pjrt/libtpu/libtpu.so")

/* ---- memory that ends --------------------------------------------------------------------- */

/* Requests that are still met, and blocks that are held. */
static int64_t memory_left, memory_held;

static inline void *dry_alloc(void *self, size_t bytes, size_t align)
{
    (void)self;
    if (memory_left-- <= 0) return NULL;
    memory_held++;
    return align <= 16 ? malloc(bytes) : aligned_alloc(align, (bytes + align - 1) / align * align);
}

static inline void *dry_realloc(void *self, void *p, size_t bytes)
{
    (void)self;
    if (memory_left-- <= 0) return NULL;
    memory_held += !p;
    return realloc(p, bytes);
}

static inline void dry_free(void *self, void *p)
{
    (void)self;
    memory_held -= p != NULL;
    free(p);
}

#else
static void test_pjrt_is_not_built(void **state)
{
    (void)state;
    skip(); /* tools/setup.sh pjrt adds the room's header */
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_pjrt_is_not_built) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif

#endif
