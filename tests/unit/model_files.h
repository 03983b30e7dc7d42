/* Checkpoints made by the tests: a scratch folder, GGUF and safetensors files byte by byte, so that
 * every field can be wrong on purpose. */
#ifndef HEADRACE_TESTS_MODEL_FILES_H
#define HEADRACE_TESTS_MODEL_FILES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/half.h"
#include "model/model_int.h"

/* ---- scratch folder ----------------------------------------------------------------------- */

static char scratch[64];

static inline int scratch_setup(void **state)
{
    (void)state;
    strcpy(scratch, "/tmp/headrace-test-XXXXXX");
    return mkdtemp(scratch) ? 0 : 1;
}

static inline int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st, (void)kind, (void)ftw;
    return remove(path);
}

static inline int scratch_teardown(void **state)
{
    (void)state;
    return nftw(scratch, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* scratch/name; a ring of four, so that two may be in use. */
static inline const char *at(const char *name)
{
    static char ring[4][512];
    static int next;
    char *p = ring[next++ % 4];
    snprintf(p, sizeof ring[0], "%s/%s", scratch, name);
    return p;
}

static inline void put_file(const char *name, const void *p, size_t n)
{
    FILE *f = fopen(at(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    fclose(f);
}

static inline void put_text(const char *name, const char *text)
{
    put_file(name, text, strlen(text));
}

/* ---- allocator that watches and fails ----------------------------------------------------- */

typedef struct watch {
    size_t largest;       /* biggest single request */
    long countdown;       /* this many succeed; < 0 = all */
    hr_allocator as_hook; /* .self = this */
} watch;

static inline bool watch_step(watch *w, size_t bytes)
{
    if (bytes > w->largest) w->largest = bytes;
    if (w->countdown == 0) return false;
    if (w->countdown > 0) w->countdown--;
    return true;
}
static inline void *watch_alloc(void *self, size_t bytes, size_t align)
{
    if (!watch_step(self, bytes)) return NULL;
    return align <= 16 ? malloc(bytes) : aligned_alloc(align, (bytes + align - 1) / align * align);
}
static inline void *watch_realloc(void *self, void *p, size_t bytes)
{
    return watch_step(self, bytes) ? realloc(p, bytes) : NULL;
}
static inline void watch_free(void *self, void *p)
{
    (void)self;
    free(p);
}
static inline void watch_start(watch *w, long countdown)
{
    *w =
        (watch){ .countdown = countdown, .as_hook = { watch_alloc, watch_realloc, watch_free, w } };
    hr_set_allocator(&w->as_hook);
}

/* ---- noise -------------------------------------------------------------------------------- */

/* xorshift64*, so that a failing round can be made again from its number. */
static inline uint64_t noise(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(0x2545F4914F6CDD1D);
}

/* Damages 1 to 8 places of n bytes: a bit, a byte, or an 8-byte number of an ugly kind. */
static inline void damage(char *p, size_t n, uint64_t *state)
{
    static const uint64_t ugly[] = { 0,
                                     1,
                                     UINT64_MAX,
                                     INT64_MAX,
                                     UINT64_C(1) << 63,
                                     UINT64_C(1) << 32,
                                     UINT32_MAX,
                                     UINT64_C(1) << 62 };
    for (uint64_t k = noise(state) % 8 + 1; k; k--) {
        size_t i = noise(state) % n;
        switch (noise(state) % 3) {
        case 0: p[i] = (char)(p[i] ^ (1 << noise(state) % 8)); break;
        case 1: p[i] = (char)noise(state); break;
        default: memcpy(p + i, &ugly[noise(state) % 8], n - i < 8 ? n - i : 8);
        }
    }
}

/* ---- GGUF --------------------------------------------------------------------------------- */

static inline void put_u32(hr_buf *b, uint32_t v)
{
    hr_buf_add(b, &v, sizeof v);
}
static inline void put_u64(hr_buf *b, uint64_t v)
{
    hr_buf_add(b, &v, sizeof v);
}
static inline void put_str(hr_buf *b, const char *s)
{
    put_u64(b, strlen(s));
    hr_buf_add_c(b, s);
}

/* A file in the making: tables apart, joined by gguf_finish. */
typedef struct gguf_file {
    hr_buf values, tensors, data;
    uint64_t n_values, n_tensors;
    uint64_t alignment;
} gguf_file;

static inline void gguf_key(gguf_file *f, const char *key, uint32_t type)
{
    put_str(&f->values, key);
    put_u32(&f->values, type);
    f->n_values++;
}
static inline void gguf_u32(gguf_file *f, const char *key, uint32_t v)
{
    gguf_key(f, key, HR_GGUF_U32);
    put_u32(&f->values, v);
}
static inline void gguf_f32(gguf_file *f, const char *key, float v)
{
    gguf_key(f, key, HR_GGUF_F32);
    put_u32(&f->values, hr_f32_bits(v));
}
static inline void gguf_text(gguf_file *f, const char *key, const char *v)
{
    gguf_key(f, key, HR_GGUF_STRING);
    put_str(&f->values, v);
}

static inline void gguf_pad(gguf_file *f)
{
    while (f->data.n % f->alignment) hr_buf_add_byte(&f->data, 0);
}

/* ne in file order (the row first), 0 ends; data is copied. */
static inline void gguf_tensor(gguf_file *f, const char *name, const uint64_t ne[4], uint32_t type,
                               const void *data, size_t bytes)
{
    uint32_t rank = 0;
    while (rank < 4 && ne[rank]) rank++;
    gguf_pad(f);
    put_str(&f->tensors, name);
    put_u32(&f->tensors, rank);
    for (uint32_t i = 0; i < rank; i++) put_u64(&f->tensors, ne[i]);
    put_u32(&f->tensors, type);
    put_u64(&f->tensors, f->data.n);
    hr_buf_add(&f->data, data, bytes);
    f->n_tensors++;
}

/* Joins the parts into *out and forgets them. */
static inline void gguf_finish(gguf_file *f, hr_buf *out)
{
    hr_buf_add_c(out, "GGUF");
    put_u32(out, 3);
    put_u64(out, f->n_tensors);
    put_u64(out, f->n_values);
    hr_buf_add_str(out, hr_buf_str(&f->values));
    hr_buf_add_str(out, hr_buf_str(&f->tensors));
    while (out->n % f->alignment) hr_buf_add_byte(out, 0);
    hr_buf_add_str(out, hr_buf_str(&f->data));
    hr_buf_deinit(&f->values);
    hr_buf_deinit(&f->tensors);
    hr_buf_deinit(&f->data);
    *f = (gguf_file){ .alignment = 32 };
}

/* ---- safetensors -------------------------------------------------------------------------- */

/* Length, header text, data: as they are given. */
static inline void put_safetensors(const char *name, const char *header, const void *data, size_t n)
{
    hr_buf b = { 0 };
    put_u64(&b, strlen(header));
    hr_buf_add_c(&b, header);
    hr_buf_add(&b, data, n);
    put_file(name, b.p, b.n);
    hr_buf_deinit(&b);
}

/* A file in the making; every element is a small number that depends on its place. */
typedef struct st_file {
    hr_buf header, data;
} st_file;

static inline void st_tensor(st_file *f, const char *name, hr_shape s)
{
    size_t begin = f->data.n;
    for (int64_t i = 0; i < hr_shape_count(s); i++) {
        float v = (float)(i % 97) / 97 - 0.5f;
        hr_buf_add(&f->data, &v, sizeof v);
    }
    hr_buf_printf(&f->header, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[", f->header.n ? "," : "{",
                  name);
    for (int i = 0; i < s.rank; i++)
        hr_buf_printf(&f->header, "%s%lld", i ? "," : "", (long long)s.dim[i]);
    hr_buf_printf(&f->header, "],\"data_offsets\":[%zu,%zu]}", begin, f->data.n);
}

static inline void st_finish(st_file *f, const char *name)
{
    hr_buf_add_c(&f->header, f->header.n ? "}" : "{}");
    put_safetensors(name, hr_buf_c(&f->header), f->data.p, f->data.n);
    hr_buf_deinit(&f->header);
    hr_buf_deinit(&f->data);
    *f = (st_file){ 0 };
}

#endif
