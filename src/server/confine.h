/* The sandbox of `headrace serve`: what a serving process may still do. docs/SECURITY.md tells it.
 */
#ifndef HEADRACE_SERVER_CONFINE_H
#define HEADRACE_SERVER_CONFINE_H

#include <stdbool.h>

#include "server/server.h"

typedef struct hr_confinement {
    int landlock; /* version of the kernel's interface; 0 = it has none */
    bool plugin;  /* the wider profile, for what a device's plugin needs */
    bool off;     /* --no-sandbox, or an instrumented build */
} hr_confinement;

/* Files. Before the first thread starts and before anything of a request's is read; what is opened
 * from here on is the model, the compile cache and what the flags name. Logs what is missing. */
HR_MUST_USE hr_status hr_confine_files(const hr_server_options *o, const headrace_options *engine,
                                       hr_confinement *out);
/* System calls, of every thread. After warm-up: packing, compiling and loading are over. */
HR_MUST_USE hr_status hr_confine_calls(const hr_confinement *c);

#endif
