/* What a process gives up for good: files by Landlock, system calls by seccomp.
 *
 * Mechanism only: which files and when is the server's business (server/confine.c). Neither can be
 * taken back, by this process or by those that it starts. */
#ifndef HEADRACE_BASE_SANDBOX_H
#define HEADRACE_BASE_SANDBOX_H

#include <stdbool.h>

#include "base/status.h"

/* Why this build cannot be confined: a sanitizer or coverage, which open and start what they like
 * at the end of the process. NULL when it can. */
const char *hr_sandbox_instrumented(void);

/* ---- files: landlock.c ------------------------------------------------------------------------
 */

enum {
    HR_LANDLOCK_READ = 1,   /* files, and what is in folders */
    HR_LANDLOCK_WRITE = 2,  /* also make, replace and remove files */
    HR_LANDLOCK_REMOVE = 4, /* remove files */
    HR_LANDLOCK_DEVICES = 8 /* ioctl on device files */
};

typedef struct hr_landlock {
    int fd;  /* owned; -1 = the kernel has no Landlock */
    int abi; /* 0 = none */
    bool writes_only;
} hr_landlock;

typedef enum hr_landlock_kind {
    HR_LANDLOCK_ALL,    /* everything is denied but what is allowed; no new TCP connection either */
    HR_LANDLOCK_WRITES, /* reading, executing and the network stay free */
} hr_landlock_kind;

/* A kernel without Landlock is no failure: fd is -1, and what follows does nothing. */
HR_MUST_USE hr_status hr_landlock_create(hr_landlock_kind kind, hr_landlock *out);
/* What lies at and below `path` may be used so. A path that is not there is passed over. */
HR_MUST_USE hr_status hr_landlock_allow(hr_landlock *l, const char *path, unsigned use);
/* From here on, for this thread and those that it starts; sets no_new_privs in any case. */
HR_MUST_USE hr_status hr_landlock_enter(hr_landlock *l);
void hr_landlock_deinit(hr_landlock *l);

/* ---- system calls: seccomp.c ------------------------------------------------------------------
 */

typedef enum hr_seccomp_kind {
    HR_SECCOMP_SERVING, /* those of syscalls.def; no executable memory, no program, no socket */
    HR_SECCOMP_PLUGIN,  /* all but those that change the machine or other processes */
} hr_seccomp_kind;

/* Every thread of the process, from here on. UNIMPLEMENTED where the kernel or the machine's kind
 * has no filter for it. */
HR_MUST_USE hr_status hr_seccomp_enter(hr_seccomp_kind kind);
/* "execve": the name of a call that ends the process with SIGSYS; "?" for others. */
const char *hr_seccomp_name(int number);

#endif
