/* The folder of compiled programs.
 *
 * Any thread. An entry is trusted only when all of it is what its writer left: magic, version, the
 * key it is named after, its length, and a checksum over everything. It is named after a hash of
 * all that went into it, so it is never brought up to date, only left behind; its modification time
 * is that of its last use, and the oldest go when the folder is full. Two starts at once write the
 * same bytes under the same name, each whole. */
#include "pjrt/cache.h"

#include "base/cache.h"
#include "base/log.h"

/* An entry's first bytes. The line ends show a file that was copied as text. */
typedef struct header {
    char magic[8];
    uint32_t version, bytes; /* bytes: of this header */
    hr_digest key;
    uint64_t length, peak_bytes, code_bytes;
    hr_digest checksum; /* of all above, then of the blob */
} header;

static const char magic[8] = { 'h', 'r', 'p', 'j', 'r', 't', '\r', '\n' };
enum { VERSION = 1 };
/* More than any plugin writes; less than what would take the machine down. */
#define LONGEST ((size_t)2 << 30)

/* ---- the folder ------------------------------------------------------------------------------ */

void hr_pjrt_cache_open(hr_pjrt_cache *c, const char *folder, uint64_t limit, hr_str common)
{
    *c = (hr_pjrt_cache){ .limit = limit };
    hr_buf path = { 0 };
    hr_buf_add_c(&path, folder);
    hr_buf_c(&path);
    hr_status st = hr_buf_status(&path);
    if (!st) st = hr_cache_make_folder(path.p);
    if (!st) st = hr_digest_of(&common, 1, &c->common);
    if (!st) {
        c->folder = path.p;
        return;
    }
    hr_log(HR_LOG_WARNING, "compile cache: %s; every start compiles", hr_message());
    hr_buf_deinit(&path);
}

void hr_pjrt_cache_close(hr_pjrt_cache *c)
{
    hr_free(c->folder);
    *c = (hr_pjrt_cache){ 0 };
}

/* ---- entries --------------------------------------------------------------------------------- */

hr_status hr_pjrt_cache_key(const hr_pjrt_cache *c, hr_str options, hr_str text, hr_digest *out)
{
    hr_digest of_options;
    HR_TRY(hr_digest_of(&options, 1, &of_options));
    hr_str parts[] = { { (const char *)c->common.at, HR_DIGEST_BYTES },
                       { (const char *)of_options.at, HR_DIGEST_BYTES },
                       text };
    return hr_digest_of(parts, 3, out);
}

static hr_status path_of(const hr_pjrt_cache *c, const hr_digest *key, hr_buf *out)
{
    char name[HR_DIGEST_TEXT];
    hr_digest_text(key, name);
    hr_buf_printf(out, "%s/%s" HR_CACHE_PROGRAM, c->folder, name);
    hr_buf_c(out);
    return hr_buf_status(out);
}

static hr_status checksum(const header *h, hr_str blob, hr_digest *out)
{
    hr_str parts[] = { { (const char *)h, offsetof(header, checksum) }, blob };
    return hr_digest_of(parts, 2, out);
}

static hr_status check_entry(hr_str file, const hr_digest *key, header *h)
{
    hr_digest sum;
    if (file.n < sizeof *h) return hr_fail(HR_DATA_LOSS, "it is cut off");
    memcpy(h, file.p, sizeof *h);
    if (memcmp(h->magic, magic, sizeof magic)) return hr_fail(HR_DATA_LOSS, "it is no program");
    if (h->version != VERSION || h->bytes != sizeof *h)
        return hr_fail(HR_DATA_LOSS, "it has format %u, this build writes %u", h->version, VERSION);
    if (memcmp(&h->key, key, sizeof *key)) return hr_fail(HR_DATA_LOSS, "it is another program");
    if (h->length != file.n - sizeof *h) return hr_fail(HR_DATA_LOSS, "its length is wrong");
    HR_TRY(checksum(h, hr_str_slice(file, sizeof *h, file.n), &sum));
    if (memcmp(&sum, &h->checksum, sizeof sum)) return hr_fail(HR_DATA_LOSS, "it is damaged");
    return HR_OK;
}

void hr_pjrt_cache_refuse(const hr_pjrt_cache *c, const hr_digest *key)
{
    hr_buf path = { 0 };
    char why[HR_MESSAGE_MAX];
    memcpy(why, hr_message(), sizeof why);
    if (!path_of(c, key, &path))
        hr_log(HR_LOG_WARNING, "compile cache: %s is not used: %s", path.p, why);
    hr_buf_deinit(&path);
}

bool hr_pjrt_cache_read(hr_pjrt_cache *c, const hr_digest *key, hr_buf *file, hr_pjrt_entry *out)
{
    hr_buf path = { 0 };
    header h;
    if (!c->folder) return false;
    hr_status st = path_of(c, key, &path);
    if (!st) st = hr_file_slurp(path.p, LONGEST, file);
    bool none = st == HR_NOT_FOUND;
    if (!st) st = check_entry(hr_buf_str(file), key, &h);
    if (!st) {
        *out = (hr_pjrt_entry){ .blob = hr_str_slice(hr_buf_str(file), sizeof h, file->n),
                                .peak_bytes = h.peak_bytes,
                                .code_bytes = h.code_bytes };
        hr_cache_used(path.p);
    } else if (!none) hr_pjrt_cache_refuse(c, key);
    hr_buf_deinit(&path);
    return !st;
}

static hr_status make_file(const hr_digest *key, const hr_pjrt_entry *e, hr_buf *out)
{
    header h = { .version = VERSION,
                 .bytes = sizeof h,
                 .key = *key,
                 .length = e->blob.n,
                 .peak_bytes = e->peak_bytes,
                 .code_bytes = e->code_bytes };
    memcpy(h.magic, magic, sizeof magic);
    HR_TRY(checksum(&h, e->blob, &h.checksum));
    hr_buf_add(out, &h, sizeof h);
    hr_buf_add_str(out, e->blob);
    return hr_buf_status(out);
}

/* The first complaint tells; a start has one for each program. */
void hr_pjrt_cache_complain(hr_pjrt_cache *c)
{
    bool first = hr_counter_next(&c->complaints) == 1;
    hr_log(first ? HR_LOG_WARNING : HR_LOG_DEBUG, "compile cache: a program is not kept: %s",
           hr_message());
}

void hr_pjrt_cache_write(hr_pjrt_cache *c, const hr_digest *key, const hr_pjrt_entry *e)
{
    hr_buf path = { 0 }, file = { 0 };
    if (!c->folder) return;
    hr_status st = path_of(c, key, &path);
    if (!st) st = make_file(key, e, &file);
    if (!st) st = hr_cache_make_room(c->folder, c->limit, file.n, path.p);
    if (!st) st = hr_file_write_atomic(path.p, hr_buf_str(&file));
    if (st) hr_pjrt_cache_complain(c);
    hr_buf_deinit(&file);
    hr_buf_deinit(&path);
}
