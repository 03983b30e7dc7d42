/* The process as the kernel sees it.
 *
 * Any thread; owns nothing. A few small files of /proc: microseconds, so a scrape may ask. */
#include "server/process.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static void get_memory(hr_process *p)
{
    unsigned long long pages, resident;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f && fscanf(f, "%llu %llu", &pages, &resident) == 2) {
        uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
        p->virtual_bytes = pages * page;
        p->resident_bytes = resident * page;
    }
    if (f) fclose(f);
}

/* When the process began, in clock ticks after boot: field 22, counted from behind the name, which
 * may hold anything. */
static unsigned long long start_ticks(void)
{
    char line[1024];
    unsigned long long ticks = 0;
    FILE *f = fopen("/proc/self/stat", "re");
    size_t n = f ? fread(line, 1, sizeof line - 1, f) : 0;
    if (f) fclose(f);
    line[n] = 0;
    char *p = strrchr(line, ')');
    for (int field = 2; p && field < 22; field++) p = strchr(p + 1, ' ');
    if (p) sscanf(p, "%llu", &ticks);
    return ticks;
}

static void get_start(hr_process *p)
{
    unsigned long long ticks = start_ticks();
    struct timespec since_boot, now;
    if (!ticks || clock_gettime(CLOCK_BOOTTIME, &since_boot) || clock_gettime(CLOCK_REALTIME, &now))
        return;
    double age = (double)since_boot.tv_sec + (double)since_boot.tv_nsec * 1e-9 -
                 (double)ticks / (double)sysconf(_SC_CLK_TCK);
    p->start_time_s = (double)now.tv_sec + (double)now.tv_nsec * 1e-9 - age;
}

static void get_files(hr_process *p)
{
    struct rlimit limit;
    if (!getrlimit(RLIMIT_NOFILE, &limit)) p->max_fds = limit.rlim_cur;
    DIR *d = opendir("/proc/self/fd");
    if (!d) return;
    for (const struct dirent *e = readdir(d); e; e = readdir(d))
        if (e->d_name[0] != '.') p->open_fds++;
    closedir(d);
    p->open_fds--; /* the one that looked */
}

void hr_process_get(hr_process *out)
{
    *out = (hr_process){ 0 };
    get_memory(out);
    get_start(out);
    get_files(out);
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage)) return;
    out->cpu_s = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                 (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}
