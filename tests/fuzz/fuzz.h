/* What the fuzz targets share. A target is one file fuzz_<what>.c with this one function; it never
 * fails by its return value, only by what the sanitizers see and by fuzz_require. */
#ifndef HEADRACE_TESTS_FUZZ_FUZZ_H
#define HEADRACE_TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* libFuzzer's entry: any bytes, of any length. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* What must hold for every input; abort is what a fuzzer keeps an input for. */
static inline void fuzz_require(bool ok, const char *what)
{
    if (ok) return;
    fprintf(stderr, "fuzz: broken: %s\n", what);
    abort();
}

#endif
