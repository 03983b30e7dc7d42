/* Inside the cpu room: the part of threads.c that tests point at other files. */
#ifndef HEADRACE_CPU_THREADS_INT_H
#define HEADRACE_CPU_THREADS_INT_H

/* Whole threads that the control groups named in `proc_cgroup` (/proc/self/cgroup) may use, their
 * files under `cgroup_mount` (/sys/fs/cgroup); at least 1, INT_MAX when nothing limits them. */
int hr_threads_quota(const char *proc_cgroup, const char *cgroup_mount);

#endif
