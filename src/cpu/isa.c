/* Which instructions this machine has.
 *
 * Runs once, when the backend is created. A path is offered only when CPUID lists every
 * instruction that its files are compiled with, and XGETBV says that the operating system saves
 * the registers: a processor with AVX512 under a kernel without it must take AVX2. Sources: Intel
 * SDM vol. 2 CPUID (leaves 1 and 7), vol. 1 chapter 13 (XCR0 bits). On 64-bit Arm the kernel tells
 * by getauxval what a program may use. */
#include "cpu/isa.h"

#include <stdlib.h>
#include <string.h>

#define NOT_HERE(isa)                                                                              \
    static bool available_##isa(void)                                                              \
    {                                                                                              \
        return false;                                                                              \
    }

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    LEAF1_ECX_FMA = 1 << 12,
    LEAF1_ECX_OSXSAVE = 1 << 27,
    LEAF1_ECX_F16C = 1 << 29,
    LEAF7_EBX_BMI2 = 1 << 8,
    LEAF7_EBX_AVX2 = 1 << 5,
    LEAF7_EBX_AVX512F = 1 << 16,
    LEAF7_EBX_AVX512DQ = 1 << 17,
    LEAF7_EBX_AVX512BW = 1 << 30,
    LEAF7_ECX_AVX512VNNI = 1 << 11,
    LEAF7_EDX_AMX_BF16 = 1 << 22,
    LEAF7_EDX_AMX_TILE = 1 << 24,
    LEAF7_EDX_AMX_INT8 = 1 << 25,
    LEAF7_1_EAX_AVX512BF16 = 1 << 5,
};
#define LEAF7_EBX_AVX512VL (1u << 31)

/* SSE+AVX; those and opmask, ZMM_Hi256, Hi16_ZMM; XTILECFG, XTILEDATA. */
enum { XCR0_YMM = 0x06, XCR0_ZMM = 0xe6, XCR0_TILES = 0x60000 };

typedef struct cpu_words {
    unsigned vendor[3], family; /* 12 letters */
    unsigned leaf1_ecx, leaf7_ebx, leaf7_ecx, leaf7_edx, leaf7_1_eax;
    unsigned xcr0;
} cpu_words;

static cpu_words cpu_read(void)
{
    cpu_words w = { 0 };
    unsigned a, b, c, d;
    if (!__get_cpuid(0, &a, &b, &c, &d)) return w;
    w.vendor[0] = b, w.vendor[1] = d, w.vendor[2] = c;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return w;
    w.leaf1_ecx = c;
    w.family = a >> 8 & 15;
    if (w.family == 15) w.family += a >> 20 & 255;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        w.leaf7_ebx = b;
        w.leaf7_ecx = c;
        w.leaf7_edx = d;
        if (a && __get_cpuid_count(7, 1, &a, &b, &c, &d)) w.leaf7_1_eax = a;
    }
    if (w.leaf1_ecx & LEAF1_ECX_OSXSAVE) {
        unsigned high;
        __asm__("xgetbv" : "=a"(w.xcr0), "=d"(high) : "c"(0));
    }
    return w;
}

static bool has(unsigned word, unsigned bits)
{
    return (word & bits) == bits;
}
static bool available_avx2(void)
{
    cpu_words w = cpu_read();
    return has(w.xcr0, XCR0_YMM) && has(w.leaf1_ecx, LEAF1_ECX_FMA | LEAF1_ECX_F16C) &&
           has(w.leaf7_ebx, LEAF7_EBX_AVX2 | LEAF7_EBX_BMI2);
}
static bool available_avx512(void)
{
    cpu_words w = cpu_read();
    return available_avx2() && has(w.xcr0, XCR0_ZMM) &&
           has(w.leaf7_ebx,
               LEAF7_EBX_AVX512F | LEAF7_EBX_AVX512DQ | LEAF7_EBX_AVX512BW | LEAF7_EBX_AVX512VL) &&
           has(w.leaf7_ecx, LEAF7_ECX_AVX512VNNI);
}
static bool available_avx512_bf16(void)
{
    return available_avx512() && has(cpu_read().leaf7_1_eax, LEAF7_1_EAX_AVX512BF16);
}

/* Linux lends tiles to a process that asks for them (arch/x86/xstate.html in its documentation):
 * ARCH_REQ_XCOMP_PERM of XTILEDATA, for all threads at once. Asking again changes nothing. */
static bool may_use_tiles(void)
{
    enum { REQUEST = 0x1023, XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, REQUEST, XTILEDATA) == 0;
}
static bool available_amx(void)
{
    cpu_words w = cpu_read();
    return available_avx512() && has(w.xcr0, XCR0_TILES) &&
           has(w.leaf7_edx, LEAF7_EDX_AMX_TILE | LEAF7_EDX_AMX_INT8 | LEAF7_EDX_AMX_BF16) &&
           may_use_tiles();
}

/* VDPBF16PS is a choice of the processor's maker: it is two multiply-adds of f32 at once, or runs
 * at half the pace of one. Never timed at start-up, so that a machine always computes the same
 * bits: the figures are kept in bench/results/bf16.txt, and a processor that is not among them
 * takes the multiply-adds. */
static bool bf16_pays(void)
{
    static const struct {
        const char *vendor;
        unsigned family;
        int gflops_bf16, gflops_f32; /* one core, in registers */
    } measured[] = {
        { "AuthenticAMD", 26, 391, 209 }, /* Zen 5 */
        { "GenuineIntel", 6, 82, 170 },   /* Xeon with AMX */
    };
    cpu_words w = cpu_read();
    for (size_t i = 0; i < sizeof measured / sizeof measured[0]; i++)
        if (!memcmp(w.vendor, measured[i].vendor, sizeof w.vendor) &&
            w.family == measured[i].family)
            return measured[i].gflops_bf16 > measured[i].gflops_f32;
    return false;
}
void hr_isa_relax(void)
{
    __builtin_ia32_pause();
}
NOT_HERE(neon)
NOT_HERE(neon_dotprod)
#define BF16_PAYS bf16_pays()
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>

static bool available_neon(void)
{
    return getauxval(AT_HWCAP) & HWCAP_ASIMD;
}
static bool available_neon_dotprod(void)
{
    return available_neon() && getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
}
/* YIELD costs nothing on the processors there are; ISB holds this one up for as long as PAUSE
 * would. */
void hr_isa_relax(void)
{
    __asm__ volatile("isb" ::: "memory");
}
NOT_HERE(avx2)
NOT_HERE(avx512)
NOT_HERE(avx512_bf16)
NOT_HERE(amx)
#else
void hr_isa_relax(void)
{
}
NOT_HERE(avx2)
NOT_HERE(avx512)
NOT_HERE(avx512_bf16)
NOT_HERE(amx)
NOT_HERE(neon)
NOT_HERE(neon_dotprod)
#endif

#ifndef BF16_PAYS
#define BF16_PAYS false
#endif

static bool available_scalar(void)
{
    return true;
}

static const struct {
    const char *name;
    bool (*available)(void);
} paths[HR_ISA_COUNT] = {
#define HR_ISA_ROW(name) [HR_ISA_##name] = { #name, available_##name },
    HR_ISA_LIST(HR_ISA_ROW)
#undef HR_ISA_ROW
};

const char *hr_isa_name(hr_isa isa)
{
    return paths[isa].name;
}

bool hr_isa_available(hr_isa isa)
{
    return paths[isa].available();
}

bool hr_isa_bf16(hr_isa isa)
{
    return isa == HR_ISA_avx512_bf16 || isa == HR_ISA_amx;
}

/* amx is taken only when asked for: its kernels are tested on tiles in plain C, and no run on a
 * processor's own is kept in bench/results yet. */
static bool pays(hr_isa isa)
{
    if (isa == HR_ISA_amx) return false;
    return isa != HR_ISA_avx512_bf16 || BF16_PAYS;
}

static hr_status choose_by_name(const char *name, const char *from, hr_isa *out)
{
    for (int i = 0; i < HR_ISA_COUNT; i++) {
        if (strcmp(name, paths[i].name) != 0) continue;
        if (!paths[i].available())
            return hr_fail(HR_INVALID_ARGUMENT, "%s %s: this machine lacks its instructions", from,
                           name);
        *out = (hr_isa)i;
        return HR_OK;
    }
#define HR_ISA_WORD(x) " " #x
    return hr_fail(HR_INVALID_ARGUMENT, "%s %s: unknown; known are" HR_ISA_LIST(HR_ISA_WORD), from,
                   name);
#undef HR_ISA_WORD
}

hr_status hr_isa_choose(const char *name, hr_isa *out)
{
    *out = HR_ISA_scalar;
    if (name) return choose_by_name(name, "instruction set", out);
    const char *env = getenv("HEADRACE_ISA");
    if (env && *env) return choose_by_name(env, "HEADRACE_ISA", out);
    for (int i = 0; i < HR_ISA_COUNT; i++)
        if (paths[i].available() && pays((hr_isa)i)) *out = (hr_isa)i;
    return HR_OK;
}
