/* How many threads this process may really use.
 *
 * A container often sees every core of its host but is allowed the time of two; one thread per
 * core then makes spinning threads fight for that time. The answer is the smaller of the affinity
 * mask and the CPU bandwidth quota of every control group from ours to the root, rounded down.
 * Sources: Linux Documentation/admin-guide/cgroup-v2.rst (cpu.max), scheduler/sched-bwc.rst (v1).
 */
#include "cpu/threads_int.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "base/sync.h"
#include "cpu/cpu.h"

enum { PATH_BYTES = 4096, LINE_BYTES = 4608, NO_LIMIT = INT_MAX };

/* First line of a small kernel file, without its newline. */
static bool read_line(const char *path, char *line, size_t bytes)
{
    FILE *f = fopen(path, "re");
    if (!f) return false;
    bool ok = fgets(line, (int)bytes, f) != NULL;
    fclose(f);
    if (ok) line[strcspn(line, "\n")] = 0;
    return ok;
}

static int whole_threads(long long quota, long long period)
{
    if (quota <= 0 || period <= 0) return NO_LIMIT;
    long long n = quota / period;
    return n < 1 ? 1 : n > INT_MAX ? INT_MAX : (int)n;
}

static int quota_v2(const char *dir)
{
    char path[PATH_BYTES + 32], line[128];
    snprintf(path, sizeof path, "%s/cpu.max", dir);
    long long quota, period;
    if (!read_line(path, line, sizeof line)) return NO_LIMIT;
    if (sscanf(line, "%lld %lld", &quota, &period) != 2) return NO_LIMIT; /* "max 100000" */
    return whole_threads(quota, period);
}

static int quota_v1(const char *dir)
{
    char path[PATH_BYTES + 32], quota[64], period[64];
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", dir);
    if (!read_line(path, quota, sizeof quota)) return NO_LIMIT;
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", dir);
    if (!read_line(path, period, sizeof period)) return NO_LIMIT;
    return whole_threads(atoll(quota), atoll(period)); /* -1 = none */
}

/* The least quota of mount/group and of every group above it. A group path that a container's
 * mount does not show costs nothing: its files are absent, the mount's own are read last. */
static int quota_upwards(const char *mount, const char *group, int (*quota)(const char *dir))
{
    char dir[PATH_BYTES];
    int least = NO_LIMIT;
    if ((size_t)snprintf(dir, sizeof dir, "%s%s", mount, group) >= sizeof dir) return NO_LIMIT;
    size_t floor_at = strlen(mount);
    for (;;) {
        int q = quota(dir);
        if (q < least) least = q;
        char *slash = strrchr(dir, '/');
        if (strlen(dir) <= floor_at || !slash || (size_t)(slash - dir) < floor_at) return least;
        *slash = 0;
    }
}

/* "cpu" as one of the comma-separated controllers. */
static bool names_cpu(const char *controllers)
{
    hr_str rest = hr_str_c(controllers);
    for (hr_str part; hr_str_next(&rest, ',', &part);)
        if (hr_str_eq_c(part, "cpu")) return true;
    return false;
}

/* A line of /proc/self/cgroup: "id:controllers:path"; "0::path" is version 2. */
static int quota_of_line(char *line, const char *cgroup_mount)
{
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group) return NO_LIMIT;
    *controllers++ = 0;
    *group++ = 0;
    group[strcspn(group, "\n")] = 0;
    if (strcmp(group, "/") == 0) group++;
    char mount[PATH_BYTES];
    if (!*controllers) {
        int pure = quota_upwards(cgroup_mount, group, quota_v2);
        snprintf(mount, sizeof mount, "%s/unified", cgroup_mount);
        int hybrid = quota_upwards(mount, group, quota_v2);
        return pure < hybrid ? pure : hybrid;
    }
    if (!names_cpu(controllers)) return NO_LIMIT;
    snprintf(mount, sizeof mount, "%s/%s", cgroup_mount, controllers);
    int joined = quota_upwards(mount, group, quota_v1);
    snprintf(mount, sizeof mount, "%s/cpu", cgroup_mount);
    int single = quota_upwards(mount, group, quota_v1);
    return joined < single ? joined : single;
}

int hr_threads_quota(const char *proc_cgroup, const char *cgroup_mount)
{
    FILE *f = fopen(proc_cgroup, "re");
    if (!f) return NO_LIMIT;
    char line[LINE_BYTES];
    int least = NO_LIMIT;
    while (fgets(line, sizeof line, f)) {
        int q = quota_of_line(line, cgroup_mount);
        if (q < least) least = q;
    }
    fclose(f);
    return least;
}

int hr_cpu_thread_limit(void)
{
    int affinity = hr_processors();
    int quota = hr_threads_quota("/proc/self/cgroup", "/sys/fs/cgroup");
    return affinity < quota ? affinity : quota;
}
