/* seccomp: the system calls that are left, as a BPF program that the kernel runs before each.
 *
 * Installed from one thread for all (TSYNC). The program is a list: for each call of syscalls.def
 * two instructions, "is it this one" and the verdict; the kernel keeps by number which calls always
 * pass, so the length costs nothing where it matters. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/sandbox.h"

#if defined(__x86_64__)
#define MACHINE  AUDIT_ARCH_X86_64
#define HAVE_OLD 1
#elif defined(__aarch64__)
#define MACHINE  AUDIT_ARCH_AARCH64
#define HAVE_OLD 0
#else
#define MACHINE  0
#define HAVE_OLD 0
#endif
#define X32_BIT         0x40000000u
#define VMA_NAME        0x53564d41u /* PR_SET_VMA: glibc names its memory */
#define MAX_INSTRUCTION 512

#define PASS    SECCOMP_RET_ALLOW
#define REFUSE  (SECCOMP_RET_ERRNO | EPERM)
#define UNKNOWN (SECCOMP_RET_ERRNO | ENOSYS)

static const struct call {
    const char *name;
    unsigned number;
    uint32_t verdict;
} calls[] = {
#define HR_CALL(name)  { #name, SYS_##name, PASS },
#define HR_NEVER(name) { #name, SYS_##name, SECCOMP_RET_TRAP },
#if HAVE_OLD
#define HR_OLD(name) { #name, SYS_##name, PASS },
#else
#define HR_OLD(name)
#endif
#include "base/syscalls.def"
#undef HR_CALL
#undef HR_NEVER
#undef HR_OLD
};
#define N_CALLS (sizeof calls / sizeof *calls)

const char *hr_seccomp_name(int number)
{
    for (size_t i = 0; i < N_CALLS; i++)
        if (calls[i].number == (unsigned)number) return calls[i].name;
    return number == SYS_clone ? "clone" : "?";
}

/* ---- the program ----------------------------------------------------------------------------- */

typedef struct program {
    struct sock_filter at[MAX_INSTRUCTION];
    size_t n; /* more than there is room for: too long */
} program;

static void add(program *p, unsigned code, uint32_t k, size_t yes, size_t no)
{
    if (p->n < MAX_INSTRUCTION)
        p->at[p->n] = (struct sock_filter){ (uint16_t)code, (uint8_t)yes, (uint8_t)no, k };
    p->n++;
}

static void give(program *p, uint32_t verdict)
{
    add(p, BPF_RET | BPF_K, verdict, 0, 0);
}

static void load(program *p, size_t offset)
{
    add(p, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

static void load_argument(program *p, size_t i)
{
    load(p, offsetof(struct seccomp_data, args) + 8 * i); /* the low half: little endian */
}

/* For a call: the next `n` instructions; each block of them ends in a verdict. */
static void when(program *p, unsigned number, size_t n)
{
    add(p, BPF_JMP | BPF_JEQ | BPF_K, number, 0, n);
}

static void decide(program *p, unsigned number, uint32_t verdict)
{
    when(p, number, 1);
    give(p, verdict);
}

/* Passes when the argument is one of the values. */
static void when_argument(program *p, unsigned number, size_t argument, const uint32_t *values,
                          size_t n)
{
    when(p, number, 2 * n + 2);
    load_argument(p, argument);
    for (size_t i = 0; i < n; i++) {
        add(p, BPF_JMP | BPF_JEQ | BPF_K, values[i], 0, 1);
        give(p, PASS);
    }
    give(p, REFUSE);
}

static void when_bit(program *p, unsigned number, size_t argument, uint32_t bit, uint32_t set,
                     uint32_t clear)
{
    when(p, number, 4);
    load_argument(p, argument);
    add(p, BPF_JMP | BPF_JSET | BPF_K, bit, 0, 1);
    give(p, set);
    give(p, clear);
}

/* A program of another kind of machine means others by the same numbers. */
static void check_machine(program *p)
{
    load(p, offsetof(struct seccomp_data, arch));
    add(p, BPF_JMP | BPF_JEQ | BPF_K, MACHINE, 1, 0);
    give(p, SECCOMP_RET_KILL_PROCESS);
    load(p, offsetof(struct seccomp_data, nr));
    if (!HAVE_OLD) return;
    add(p, BPF_JMP | BPF_JGE | BPF_K, X32_BIT, 0, 1);
    give(p, SECCOMP_RET_KILL_PROCESS);
}

/* Own limits may be read, nobody's set. */
static void add_limits(program *p)
{
    when(p, SYS_prlimit64, 8);
    load_argument(p, 0);
    add(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 5);
    load_argument(p, 2);
    add(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 3);
    load(p, offsetof(struct seccomp_data, args) + 8 * 2 + 4);
    add(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1);
    give(p, PASS);
    give(p, REFUSE);
#if HAVE_OLD
    decide(p, SYS_getrlimit, PASS);
#endif
}

static void build_serving(program *p)
{
    const uint32_t own[] = { (uint32_t)getpid() };
    static const uint32_t names[] = { PR_SET_NAME, PR_GET_NAME, VMA_NAME };
    static const uint32_t controls[] = { FIONREAD, FIONBIO, FIOCLEX, TCGETS };
    for (size_t i = 0; i < N_CALLS; i++) decide(p, calls[i].number, calls[i].verdict);
    when_bit(p, SYS_mmap, 2, PROT_EXEC, REFUSE, PASS);
    when_bit(p, SYS_mprotect, 2, PROT_EXEC, REFUSE, PASS);
    when_bit(p, SYS_clone, 0, CLONE_THREAD, PASS, SECCOMP_RET_TRAP); /* a thread, no process */
    decide(p, SYS_clone3, UNKNOWN); /* what it wants cannot be seen: the C library asks again */
    when_argument(p, SYS_prctl, 0, names, 3);
    when_argument(p, SYS_ioctl, 1, controls, 4); /* above all no terminal's input */
    when_argument(p, SYS_tgkill, 0, own, 1);     /* abort */
    add_limits(p);
    give(p, REFUSE);
}

static void build_plugin(program *p)
{
    static const unsigned own[] = { SYS_execve, SYS_execveat }; /* compilers' assemblers */
    for (size_t i = 0; i < N_CALLS; i++) {
        bool left = calls[i].number == own[0] || calls[i].number == own[1];
        if (calls[i].verdict == SECCOMP_RET_TRAP && !left) decide(p, calls[i].number, REFUSE);
    }
    give(p, PASS);
}

hr_status hr_seccomp_enter(hr_seccomp_kind kind)
{
    program p;
    p.n = 0;
    if (!MACHINE) return hr_fail(HR_UNIMPLEMENTED, "no list of system calls for this machine");
    check_machine(&p);
    if (kind == HR_SECCOMP_SERVING) build_serving(&p);
    else build_plugin(&p);
    if (p.n > MAX_INSTRUCTION) return hr_fail(HR_INTERNAL, "seccomp: %zu instructions", p.n);
    struct sock_fprog f = { (unsigned short)p.n, p.at };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return hr_fail(HR_UNIMPLEMENTED, "no_new_privs: %s", strerror(errno));
    if (!syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &f)) return HR_OK;
    return hr_fail(HR_UNIMPLEMENTED, "seccomp: %s", strerror(errno));
}
