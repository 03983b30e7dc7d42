/* The folder of what is kept between starts: compiled programs and packed weights, a file each.
 *
 * What makes a file worth trusting is its kind's business; whose folder it is and how much lies in
 * it is decided here. */
#ifndef HEADRACE_BASE_CACHE_H
#define HEADRACE_BASE_CACHE_H

#include "base/file.h"

/* What the names of kept files end in; what a name has after that is a file being written. */
#define HR_CACHE_PROGRAM ".program"
#define HR_CACHE_WEIGHTS ".weights"

/* Makes the folder for its owner alone. PERMISSION_DENIED when others may write to it: what comes
 * out of it is run, and computed with. */
HR_MUST_USE hr_status hr_cache_make_folder(const char *folder);
/* Removes the files whose last use is longest ago until `bytes` more fit under `limit`, not
 * counting the file at `but`, which these bytes will replace; and what writers left behind an hour
 * ago. Files of other names are not touched. RESOURCE_EXHAUSTED when the bytes alone are too many.
 */
HR_MUST_USE hr_status hr_cache_make_room(const char *folder, uint64_t limit, uint64_t bytes,
                                         const char *but);
/* A read is a use. */
void hr_cache_used(const char *path);

#endif
