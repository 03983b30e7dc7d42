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
    int devices;              /* that run each program side by side: the first ones that the client
                                 addresses; 0 = 1 */
    int compile_threads;      /* 0 = as many as this process may run on, at most 4; -1 = none, the
                                 caller's */
} hr_pjrt_options;

/* The options' strings live as long as the backend. Loads the plugin, checks its API version,
 * creates a client. NOT_FOUND when there is no such file, FAILED_PRECONDITION when it is no PJRT
 * plugin or too old. */
HR_MUST_USE hr_status hr_pjrt_backend_create(const hr_pjrt_options *opt, hr_backend **out);

/* What the plugin's client says of itself and its devices, a line each, for `headrace devices`. */
HR_MUST_USE hr_status hr_pjrt_describe(const hr_pjrt_options *opt, hr_buf *out);

/* Devices that are not here, by the name their plugin has for them ("v6e:2x2x1"), to compile for.
 * No client is made. UNIMPLEMENTED where the plugin knows none. */
typedef struct hr_pjrt_topology hr_pjrt_topology;
HR_MUST_USE hr_status hr_pjrt_topology_create(const hr_pjrt_options *opt, const char *name,
                                              hr_pjrt_topology **out);
void hr_pjrt_topology_destroy(hr_pjrt_topology *t); /* NULL is fine */
/* Its platform and devices, a line each: id, process, kind, coordinates, core. */
HR_MUST_USE hr_status hr_pjrt_topology_describe(const hr_pjrt_topology *t, hr_buf *out);

/* What a compiler says of a program; sizes on the device, 0 = it does not say. */
typedef struct hr_pjrt_compiled {
    size_t text_bytes; /* of its StableHLO */
    size_t code_bytes, argument_bytes, temporary_bytes, peak_bytes;
    double seconds;
} hr_pjrt_compiled;
/* Compiles a graph for one of its devices and drops the result. */
HR_MUST_USE hr_status hr_pjrt_topology_compile(const hr_pjrt_topology *t, const hr_graph *g,
                                               hr_pjrt_compiled *out);

/* The StableHLO text of a graph, as compile hands it to a plugin. */
HR_MUST_USE hr_status hr_pjrt_stablehlo(const hr_graph *g, const hr_pjrt_options *opt, hr_buf *out);

#endif
