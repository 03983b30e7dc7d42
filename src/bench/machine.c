/* What the system says of this machine, for the head of a table and for choosing sizes. */
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#include "bench/kernels_int.h"
#include "engine/measure.h"

static void read_name(char *to, size_t size)
{
    FILE *f = fopen("/proc/cpuinfo", "re");
    char line[512];
    struct utsname system;
    snprintf(to, size, "%s", uname(&system) ? "unknown" : system.machine); /* Arm has no name */
    while (f && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (!colon || strncmp(line, "model name", 10) != 0) continue;
        snprintf(to, size, "%s", colon + 2);
        to[strcspn(to, "\n")] = '\0';
        break;
    }
    if (f) fclose(f);
}

/* Bytes of the first processor's data or unified cache of that level; 0 = not told. */
static size_t read_cache(int level)
{
    for (int i = 0; i < 8; i++) {
        char path[96], type[32] = "";
        int found = 0;
        unsigned long long kib = 0;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/level", i);
        FILE *f = fopen(path, "re");
        if (!f) break;
        if (fscanf(f, "%d", &found) != 1) found = 0;
        fclose(f);
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/type", i);
        f = fopen(path, "re");
        if (f && fscanf(f, "%31s", type) != 1) type[0] = '\0';
        if (f) fclose(f);
        if (found != level || !strcmp(type, "Instruction")) continue;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
        f = fopen(path, "re");
        if (f && fscanf(f, "%lluK", &kib) != 1) kib = 0;
        if (f) fclose(f);
        return (size_t)kib << 10;
    }
    return 0;
}

void hr_bench_machine_read(hr_bench_machine *m)
{
    time_t now = time(NULL);
    struct tm utc;
    *m = (hr_bench_machine){ .l2 = read_cache(2), .l3 = read_cache(3) };
    m->available = hr_memory_available();
    read_name(m->cpu, sizeof m->cpu);
    if (gmtime_r(&now, &utc)) strftime(m->date, sizeof m->date, "%Y-%m-%d %H:%M UTC", &utc);
}
