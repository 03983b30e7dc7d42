/* Any bytes as a file kept between starts. The first byte says which kind; bit 1 of it that the
 * file's own checks are set right first, which a fuzzer cannot guess: what is behind them must hold
 * by itself. Compiled programs (pjrt/cache.c), packed weights (cpu/kept.c). */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "cpu/kept.h"
#include "cpu/kept_file.h"
#include "fuzz/fuzz.h"
#include "pjrt/cache.h"

static char folder[64];

static void make_folder(void)
{
    if (folder[0]) return;
    snprintf(folder, sizeof folder, "/dev/shm/headrace-fuzz-XXXXXX");
    fuzz_require(mkdtemp(folder), "a folder in memory");
}

static void put(const char *path, hr_str bytes)
{
    FILE *f = fopen(path, "wb");
    fuzz_require(f && fwrite(bytes.p, 1, bytes.n, f) == bytes.n && !fclose(f), "a file");
}

static void read_program(hr_str bytes)
{
    hr_pjrt_cache c;
    hr_digest key;
    char name[HR_DIGEST_TEXT], path[192];
    hr_buf file = { 0 };
    hr_pjrt_entry e;
    hr_pjrt_cache_open(&c, folder, (uint64_t)1 << 30, HR_STR("fuzz"));
    fuzz_require(!hr_pjrt_cache_key(&c, HR_STR("options"), HR_STR("text"), &key), "a key");
    hr_digest_text(&key, name);
    snprintf(path, sizeof path, "%s/%s.program", folder, name);
    put(path, bytes);
    if (hr_pjrt_cache_read(&c, &key, &file, &e))
        fuzz_require(e.blob.n <= file.n && e.blob.p + e.blob.n <= file.p + file.n, "its own bytes");
    hr_buf_deinit(&file);
    hr_pjrt_cache_close(&c);
    unlink(path);
}

/* Sizes, key and sums as the reader wants them, as far as the length allows. */
static void set_right(uint8_t *bytes, size_t n, const hr_digest *key)
{
    hr_kept_trailer t;
    if (n < sizeof t) return;
    memcpy(&t, bytes + n - sizeof t, sizeof t);
    memcpy(t.magic, hr_kept_magic, sizeof t.magic);
    t.version = HR_KEPT_VERSION;
    t.key = *key;
    size_t left = n - sizeof t;
    t.data_bytes = t.data_bytes % (left + 1) / 64 * 64;
    t.table_bytes = left - t.data_bytes;
    t.n %= 8;
    size_t pieces = (size_t)hr_kept_pieces(t.data_bytes),
           sums = (size_t)t.n * sizeof(hr_kept_entry);
    if (sums + pieces * 8 <= t.table_bytes)
        for (size_t i = 0; i < pieces; i++) {
            uint64_t sum = hr_kept_sum(bytes, (size_t)t.data_bytes); /* an input is one piece */
            memcpy(bytes + t.data_bytes + sums + 8 * i, &sum, sizeof sum);
        }
    hr_str table = { (const char *)bytes + t.data_bytes, (size_t)t.table_bytes };
    fuzz_require(!hr_kept_checksum(&t, table, &t.checksum), "a sum");
    memcpy(bytes + n - sizeof t, &t, sizeof t);
}

static void read_weights(uint8_t *bytes, size_t n, bool right)
{
    static hr_pool *pool;
    hr_kept k;
    hr_kept_options o = { folder, "scalar", (uint64_t)1 << 30, HR_STR("fuzz") };
    if (!pool) fuzz_require(!hr_pool_create(1, &pool), "a pool");
    hr_kept_open(&k, &o, pool);
    fuzz_require(k.path.p && !k.map, "nothing is there yet");
    if (right) set_right(bytes, n, &k.key);
    put(k.path.p, (hr_str){ (const char *)bytes, n });
    hr_kept_close(&k);
    hr_kept_open(&k, &o, pool);
    hr_weight w = { .name = "w" };
    hr_packed p = { .n = 1, .k = 1 };
    if (hr_kept_find(&k, &w, &p))
        fuzz_require(p.data >= (uint8_t *)k.map &&
                         p.data + p.bytes <= (uint8_t *)k.map + k.map_bytes,
                     "weights lie in the file");
    unlink(k.path.p);
    hr_kept_close(&k);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (!n) return 0;
    make_folder();
    uint8_t *copy = malloc(n);
    fuzz_require(copy, "memory");
    memcpy(copy, data + 1, n - 1);
    if (data[0] & 1) read_program((hr_str){ (const char *)copy, n - 1 });
    else read_weights(copy, n - 1, data[0] & 2);
    free(copy);
    return 0;
}
