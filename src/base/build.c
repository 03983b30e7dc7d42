/* Reading our own build ID.
 *
 * Any thread; owns nothing. The linker leaves it in a note of the object, which is mapped with it:
 * the object that holds our code is found by address among those that are loaded. */
#include "base/build.h"

#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct search {
    uintptr_t code; /* an address of ours */
    char *out;      /* [65] */
    bool found;
} search;

static bool holds(const struct dl_phdr_info *o, uintptr_t address)
{
    for (int i = 0; i < o->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &o->dlpi_phdr[i];
        uintptr_t begin = (uintptr_t)(o->dlpi_addr + p->p_vaddr);
        if (p->p_type == PT_LOAD && address >= begin && address - begin < p->p_memsz) return true;
    }
    return false;
}

static size_t padded(size_t n)
{
    return (n + 3) & ~(size_t)3;
}

/* Notes one after the other: a head, a name, content, each padded to four bytes. */
static bool read_notes(const char *at, size_t n, char out[65])
{
    ElfW(Nhdr) head;
    while (n >= sizeof head) {
        memcpy(&head, at, sizeof head);
        size_t name = padded(head.n_namesz), all = sizeof head + name + padded(head.n_descsz);
        if (all > n) return false;
        const char *content = at + sizeof head + name;
        bool ours = head.n_type == NT_GNU_BUILD_ID && head.n_namesz == 4 &&
                    !memcmp(at + sizeof head, "GNU", 4);
        if (ours && head.n_descsz && head.n_descsz <= 32) {
            for (size_t i = 0; i < head.n_descsz; i++)
                snprintf(out + 2 * i, 3, "%02x", (unsigned char)content[i]);
            return true;
        }
        at += all;
        n -= all;
    }
    return false;
}

static int visit(struct dl_phdr_info *o, size_t size, void *ctx)
{
    search *s = ctx;
    (void)size;
    if (!holds(o, s->code)) return 0;
    for (int i = 0; i < o->dlpi_phnum && !s->found; i++) {
        const ElfW(Phdr) *p = &o->dlpi_phdr[i];
        const void *at = (const void *)(uintptr_t)(o->dlpi_addr + p->p_vaddr);
        if (p->p_type == PT_NOTE) s->found = read_notes(at, p->p_memsz, s->out);
    }
    return 1;
}

bool hr_build_id(char out[65])
{
    search s = { .code = (uintptr_t)&hr_build_id, .out = out };
    out[0] = '\0';
    dl_iterate_phdr(visit, &s);
    return s.found;
}
