/* What this process takes of its machine, for the process_* metrics that every Prometheus client
 * library exports. */
#ifndef HEADRACE_SERVER_PROCESS_H
#define HEADRACE_SERVER_PROCESS_H

#include <stdint.h>

typedef struct hr_process {
    uint64_t virtual_bytes, resident_bytes;
    double start_time_s; /* since 1970; 0 = not known */
    double cpu_s;        /* user and system, all threads */
    uint64_t open_fds, max_fds;
} hr_process;

/* What the system does not tell is 0. */
void hr_process_get(hr_process *out);

#endif
