/* The native backend: plans of kernels over one slab and a pool of threads. This room's door. */
#ifndef HEADRACE_CPU_CPU_H
#define HEADRACE_CPU_CPU_H

#include "backend/backend.h"

enum { HR_CPU_MAX_THREADS = 1024 };

typedef enum hr_cpu_pages {
    HR_CPU_PAGES_HUGE,  /* ask for transparent huge pages (madvise) where a region is large */
    HR_CPU_PAGES_SMALL, /* never ask */
} hr_cpu_pages;

typedef enum hr_cpu_weights {
    HR_CPU_WEIGHTS_PACK,    /* read and packed as programs are compiled */
    HR_CPU_WEIGHTS_MEASURE, /* only their sizes are taken: for planning, execute is not allowed */
} hr_cpu_weights;

typedef struct hr_cpu_options {
    int threads;     /* compute threads, the caller's included; 0 = hr_cpu_thread_limit() */
    const char *isa; /* "scalar", "avx2", … (isa.h); NULL = HEADRACE_ISA, else the best there is */
    hr_cpu_pages pages; /* of weights, slab and buffers */
    hr_cpu_weights weights;
    const char
        *cache_folder;    /* packed weights are kept there between starts; NULL or "" = nowhere */
    uint64_t cache_bytes; /* most that all files there may take */
    hr_str weights_id; /* text that tells apart all that weights can be read as; empty = not kept */
} hr_cpu_options;

/* The thread that creates the backend is compute worker 0: compile and execute are called from it
 * (or hand it over as a whole). NULL options = all defaults. An ISA that is unknown or that this
 * machine lacks is INVALID_ARGUMENT naming it. Outputs of execute must be buffers of their own: an
 * output that is also an input is refused unless it is the donated one. */
HR_MUST_USE hr_status hr_cpu_backend_create(const hr_cpu_options *opt, hr_backend **out);

/* Threads that this process may use: min(affinity, floor(cgroup v1 or v2 quota)), at least 1. */
int hr_cpu_thread_limit(void);

#endif
