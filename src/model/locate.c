/* From the name a user types to a path.
 *
 * Runs on the thread that loads; looks, never fetches: what is not here is answered with the
 * command that would bring it. */
#include <ctype.h>

#include "model/model_int.h"

/* Models that set-up can fetch, and where it puts them below the cache folder. */
static const struct {
    const char *name, *file, *fetch;
} packaged[] = {
    { "smollm2-135m", "SmolLM2-135M-Instruct.Q4_1.gguf", "tools/setup.sh model" },
};

static hr_status locate_packaged(const char *name, hr_buf *path, bool *known)
{
    *known = false;
    for (size_t i = 0; i < sizeof packaged / sizeof *packaged; i++) {
        if (strcmp(name, packaged[i].name) != 0) continue;
        *known = true;
        HR_TRY(hr_cache_root(path));
        hr_buf_printf(path, "/headrace/models/%s/%s", name, packaged[i].file);
        const char *file = hr_buf_c(path);
        HR_TRY(hr_buf_status(path));
        if (hr_path_exists(file)) return HR_OK;
        return hr_fail(HR_NOT_FOUND, "model '%s' is not at %s; fetch it with: %s", name, file,
                       packaged[i].fetch);
    }
    return HR_OK;
}

/* Part of a Hugging Face name: what their hub allows. */
static bool is_repo_part(hr_str s)
{
    if (s.n == 0 || s.n > 96 || s.p[0] == '.' || s.p[0] == '-') return false;
    for (size_t i = 0; i < s.n; i++)
        if (!isalnum((unsigned char)s.p[i]) && !strchr("-_.", s.p[i])) return false;
    return true;
}

static bool split_repo(const char *name, hr_str *org, hr_str *repo)
{
    hr_str s = hr_str_c(name);
    size_t slash = hr_str_find(s, HR_STR("/"), 0);
    if (slash > s.n) return false;
    *org = hr_str_slice(s, 0, slash);
    *repo = hr_str_slice(s, slash + 1, s.n);
    return is_repo_part(*org) && is_repo_part(*repo);
}

/* The hub's cache folder, as huggingface_hub finds it. */
static hr_status hub_root(hr_buf *out)
{
    const char *hub = hr_environment("HF_HUB_CACHE"), *home = hr_environment("HF_HOME");
    hr_buf_clear(out);
    if (hub) {
        hr_buf_add_c(out, hub);
    } else if (home) {
        hr_buf_printf(out, "%s/hub", home);
    } else {
        HR_TRY(hr_cache_root(out));
        hr_buf_add_c(out, "/huggingface/hub");
    }
    return hr_buf_status(out);
}

/* models--org--name/refs/main holds the revision whose folder is under snapshots. */
static hr_status locate_snapshot(const hr_buf *repo, hr_buf *path)
{
    hr_buf text = { 0 }, snapshots = { 0 };
    hr_buf_clear(path);
    hr_buf_add_str(path, hr_buf_str(repo));
    hr_buf_add_c(path, "/refs/main");
    hr_buf_add_str(&snapshots, hr_buf_str(repo));
    hr_buf_add_c(&snapshots, "/snapshots");
    hr_status st = hr_file_slurp(hr_buf_c(path), 256, &text);
    if (!st) st = hr_path_join(hr_buf_c(&snapshots), hr_str_trim(hr_buf_str(&text)), path);
    if (!st && !hr_path_is_dir(path->p)) st = hr_fail(HR_NOT_FOUND, "%s: no such folder", path->p);
    hr_buf_deinit(&text);
    hr_buf_deinit(&snapshots);
    return st;
}

static hr_status locate_hub(const char *name, hr_str org, hr_str part, hr_buf *path)
{
    hr_buf repo = { 0 };
    hr_status st = hub_root(&repo);
    hr_buf_printf(&repo, "/models--%.*s--%.*s", HR_STR_ARG(org), HR_STR_ARG(part));
    const char *folder = hr_buf_c(&repo);
    if (!st) st = hr_buf_status(&repo);
    if (!st) st = locate_snapshot(&repo, path);
    if (st == HR_NOT_FOUND)
        st = hr_fail(HR_NOT_FOUND, "model '%s' is not at %s; fetch it with: hf download %s", name,
                     folder, name);
    hr_buf_deinit(&repo);
    return st;
}

hr_status hr_model_locate(const char *name, hr_buf *path)
{
    bool known;
    hr_str org, repo;
    hr_buf_clear(path);
    if (hr_path_exists(name)) {
        hr_buf_add_c(path, name);
        hr_buf_c(path);
        return hr_buf_status(path);
    }
    hr_status st = locate_packaged(name, path, &known);
    if (known) return st;
    if (split_repo(name, &org, &repo) && !hr_str_ends(repo, HR_STR(".gguf")))
        return locate_hub(name, org, repo, path);
    return hr_fail(HR_NOT_FOUND,
                   "model '%s': no such file or folder, and neither the name of a "
                   "packaged model (%s) nor of a Hugging Face one (org/name)",
                   name, packaged[0].name);
}

hr_status hr_model_open(const char *name, const hr_model_options *options, hr_model **out)
{
    hr_buf path = { 0 };
    *out = NULL;
    hr_status st = hr_model_locate(name, &path);
    if (!st) st = hr_model_load(hr_buf_c(&path), options, out);
    hr_buf_deinit(&path);
    return st;
}
