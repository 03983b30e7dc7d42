/* Which build this is: what tells two programs of one version apart. */
#ifndef HEADRACE_BASE_BUILD_H
#define HEADRACE_BASE_BUILD_H

#include <stdbool.h>

/* The linker's build ID of the program or library that this code is in, hexadecimal: a hash of its
 * content, the same for the same code built the same way. False where the linker left none. */
bool hr_build_id(char out[65]);

#endif
