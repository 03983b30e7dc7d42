/* The web page's files, part of the binary: made from src/server/page by cmake/embed.cmake. */
#ifndef HEADRACE_SERVER_PAGE_H
#define HEADRACE_SERVER_PAGE_H

#include <stddef.h>

typedef struct hr_page_file {
    const char *name; /* "page.js"; NULL ends the table */
    const unsigned char *bytes;
    size_t n;
} hr_page_file;

extern const hr_page_file hr_page_files[];

#endif
