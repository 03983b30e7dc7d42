/* Compiling for devices that are not here. A door for `headrace compile`. */
#ifndef HEADRACE_ENGINE_AOT_H
#define HEADRACE_ENGINE_AOT_H

#include "base/str.h"
#include "headrace/headrace.h"

typedef struct hr_aot_options {
    const char *plugin;   /* path of a PJRT plugin's shared object */
    const char *topology; /* the devices, as it calls them: "v6e:2x2x1" */
    void (*print)(void *ctx, const char *line);
    void *ctx;
} hr_aot_options;

/* Compiles every program that a start with these options would, ahead of time and without a client:
 * no such device need be here. Prints the devices, a line for each program when it is done
 * (seconds, code size, peak memory), and a total. A program that the plugin refuses is printed with
 * its reason and does not end the walk; the first of them is the status. */
HR_MUST_USE hr_status hr_engine_compile_for(const headrace_options *o, const hr_aot_options *aot);

#endif
