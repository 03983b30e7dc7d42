/* The model's hash: what identifies its weights across machines and restarts.
 *
 * Runs on the thread that asks; owns nothing. SHA-256 of each file of the checkpoint, then of the
 * list of those. */
#include <inttypes.h>

#include "base/digest.h"
#include "model/model_int.h"

static hr_status hash_text(hr_str s, char out[HR_DIGEST_TEXT])
{
    hr_digest d;
    HR_TRY(hr_digest_of(&s, 1, &d));
    hr_digest_text(&d, out);
    return HR_OK;
}

/* config.json is a few kilobytes: read, never remembered. */
static hr_status add_config(const hr_model *m, hr_buf *list)
{
    hr_buf path = { 0 }, text = { 0 };
    char hex[HR_DIGEST_TEXT];
    hr_status st = hr_path_join(m->path, HR_STR("config.json"), &path);
    if (!st) st = hr_file_slurp(path.p, (size_t)16 << 20, &text);
    if (!st) st = hash_text(hr_buf_str(&text), hex);
    if (!st) hr_buf_printf(list, "%s\n", hex);
    hr_buf_deinit(&path);
    hr_buf_deinit(&text);
    return st;
}

hr_status hr_model_hash(const hr_model *m, char out[65])
{
    const hr_checkpoint *c = &m->checkpoint;
    hr_buf list = { 0 };
    out[0] = '\0';
    if (m->gguf.path) return hr_digest_file_remembered(c->files[0], out);
    hr_status st = add_config(m, &list);
    for (size_t i = 0; i < c->n_files && !st; i++) {
        char hex[HR_DIGEST_TEXT];
        st = hr_digest_file_remembered(c->files[i], hex);
        if (!st) hr_buf_printf(&list, "%s\n", hex);
    }
    if (m->dummy) hr_buf_printf(&list, "dummy %" PRIu64 "\n", m->dummy_seed);
    if (!st) st = hr_buf_status(&list);
    if (!st) st = hash_text(hr_buf_str(&list), out);
    hr_buf_deinit(&list);
    return st;
}
