/* What a test tells the stub plugin, and what the stub has counted. */
#ifndef HEADRACE_TESTS_STUB_PLUGIN_H
#define HEADRACE_TESTS_STUB_PLUGIN_H

#include <pjrt_c_api.h>

typedef struct stub_state {
    int fail_at;    /* the call that fails, from 1; 0 = none */
    int fail_event; /* the event that fails when it is awaited, from 1; 0 = none */
    int calls, events;
    int alive;      /* errors, events, buffers, programs, clients given out and not taken back */
    int no_devices; /* the client has none */
    size_t results; /* of every program */
} stub_state;

/* Exported beside GetPjrtApi. */
stub_state *stub_get_state(void);
const PJRT_Api *GetPjrtApi(void);

#endif
