/* What a test tells the stub plugin, and what the stub has counted. */
#ifndef HEADRACE_TESTS_STUB_PLUGIN_H
#define HEADRACE_TESTS_STUB_PLUGIN_H

#include <pjrt_c_api.h>

typedef struct stub_state {
    int fail_at;    /* the call that fails, from 1; 0 = none */
    int fail_event; /* the event that fails when it is awaited, from 1; 0 = none */
    _Atomic int calls, events;
    _Atomic int alive; /* errors, events, buffers, programs, clients given out, not taken back */
    int no_devices;    /* the client has none */
    size_t devices;    /* of the client, at most 3; 0 = 1 */
    int backwards;     /* a program's replicas are not in the order of the devices */
    int64_t memory;    /* bytes in use of the device, of twice as many; 0 = it does not count */
    size_t results;    /* of every program */
    int borrows;       /* memory that it may keep is not copied */
    int lent, spoiled; /* such buffers so far; those that it was not left to, or waited for */

    /* compiling */
    int fail_compile;    /* the compile that fails, from 1; 0 = none */
    int meet;            /* a compile waits until as many are under way, ten seconds at most */
    int refuse_load;     /* no serialized program is taken */
    size_t blob_results; /* what a serialized program says it has; 0 = results */
    _Atomic int compiles, loads, inside, met;
} stub_state;

/* Exported beside GetPjrtApi. */
stub_state *stub_get_state(void);
const PJRT_Api *GetPjrtApi(void);

#endif
