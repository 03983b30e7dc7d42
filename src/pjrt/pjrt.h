/* PJRT: the same graphs on any device that has a plugin. This room's door.
 *
 * The only user of dlopen and of PJRT's types. A graph becomes StableHLO text, the plugin compiles
 * it, weights and caches live in the plugin's buffers. */
#ifndef HEADRACE_PJRT_PJRT_H
#define HEADRACE_PJRT_PJRT_H

#include "backend/backend.h"

typedef struct hr_pjrt_options {
    const char *plugin;         /* path of the plugin's shared object */
    const char *create_options; /* "key=value,key=value" for the plugin's client, or NULL; a value
                                   of digits is an int64, true and false are bools */
    const char *attention_custom_call; /* target of a custom call that the plugin has for ragged
                                     paged attention, or NULL: a loop in StableHLO */
    const char *cache_folder; /* of compiled programs, kept between starts; NULL or "": none is */
    uint64_t cache_bytes;     /* most that they may take */
    int compile_threads;      /* 0 = as many as this process may run on, at most 4; -1 = none, the
                                 caller's */
} hr_pjrt_options;

/* The options' strings live as long as the backend. Loads the plugin, checks its API version,
 * creates a client. NOT_FOUND when there is no such file, FAILED_PRECONDITION when it is no PJRT
 * plugin or too old. */
HR_MUST_USE hr_status hr_pjrt_backend_create(const hr_pjrt_options *opt, hr_backend **out);

/* What the plugin's client says of itself and its devices, a line each, for `headrace devices`. */
HR_MUST_USE hr_status hr_pjrt_describe(const hr_pjrt_options *opt, hr_buf *out);

/* The StableHLO text of a graph, as compile hands it to a plugin. */
HR_MUST_USE hr_status hr_pjrt_stablehlo(const hr_graph *g, const hr_pjrt_options *opt, hr_buf *out);

#endif
