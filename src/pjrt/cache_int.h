/* Inside the cache of compiled programs. */
#ifndef HEADRACE_PJRT_CACHE_INT_H
#define HEADRACE_PJRT_CACHE_INT_H

#include <stdint.h>

#include "base/status.h"

/* What entries' names end in; what a name has after it is a file that is being written. */
#define HR_PJRT_ENTRY_ENDING ".program"

/* cache_room.c: removes the entries whose last use is longest ago until the rest takes at most
 * `most` bytes, not counting the one at `but`, and what writers left behind an hour ago. Files of
 * other names are not touched. */
HR_MUST_USE hr_status hr_pjrt_cache_make_room(const char *folder, uint64_t most, const char *but);

#endif
