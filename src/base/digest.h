/* SHA-256: what identifies files and programs across machines and restarts. */
#ifndef HEADRACE_BASE_DIGEST_H
#define HEADRACE_BASE_DIGEST_H

#include "base/file.h"

#define HR_DIGEST_BYTES 32
/* Of a digest as hexadecimal text, terminator included. */
#define HR_DIGEST_TEXT 65

typedef struct hr_digest {
    unsigned char at[HR_DIGEST_BYTES];
} hr_digest;

/* Of the parts' bytes one after the other: where a part ends is not in it. */
HR_MUST_USE hr_status hr_digest_of(const hr_str *parts, size_t n, hr_digest *out);
/* Of a file's content, read in chunks. */
HR_MUST_USE hr_status hr_digest_file(const hr_file *f, hr_digest *out);
/* The same, remembered under the user's cache folder by (device, inode, size, mtime), since reading
 * 16 GB takes seconds: a file that was rewritten has another key. */
HR_MUST_USE hr_status hr_digest_file_remembered(const hr_file *f, char out[HR_DIGEST_TEXT]);
void hr_digest_text(const hr_digest *d, char out[HR_DIGEST_TEXT]);

#endif
