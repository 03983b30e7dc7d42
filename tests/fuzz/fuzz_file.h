/* A file that holds an input, for readers that take a path: in memory, gone when it is closed. */
#ifndef HEADRACE_TESTS_FUZZ_FUZZ_FILE_H
#define HEADRACE_TESTS_FUZZ_FUZZ_FILE_H

#include <sys/mman.h>
#include <unistd.h>

#include "fuzz/fuzz.h"

typedef struct fuzz_file {
    int fd;
    char path[40];
} fuzz_file;

static inline fuzz_file fuzz_file_make(const uint8_t *data, size_t n)
{
    fuzz_file f = { .fd = memfd_create("fuzz", MFD_CLOEXEC) };
    fuzz_require(f.fd >= 0 && write(f.fd, data, n) == (ssize_t)n, "a file in memory");
    snprintf(f.path, sizeof f.path, "/proc/self/fd/%d", f.fd);
    return f;
}

#endif
