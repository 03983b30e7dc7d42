/* What a model will need, before any weight is read. */
#ifndef HEADRACE_ENGINE_MEASURE_H
#define HEADRACE_ENGINE_MEASURE_H

#include "engine/engine.h"

/* Bytes, beside the KV cache. */
typedef struct hr_memory {
    size_t weights;   /* packed */
    size_t buffers;   /* inputs, outputs, sampler tables */
    size_t peak;      /* largest working memory of any program */
    size_t available; /* to this process when it was measured */
    bool of_device;   /* as a plugin's device says it, not this machine */
} hr_memory;

/* Bytes that this process may still take: the machine's, or less under a cgroup limit. */
size_t hr_memory_available(void);
/* Compiles the programs of the last buckets, which need most, against weights that are only
 * measured. e->backend, where there is one, is asked what its device has. `every` non-NULL: all
 * programs, into that ledger, which the caller deinits. The engine's options are resolved. */
HR_MUST_USE hr_status hr_engine_measure(const hr_engine *e, hr_ledger *every, hr_memory *out);

#endif
