/* GET /v1/models, which names a request may give, and the server's fingerprint.
 *
 * I/O thread. The fingerprint is a hash of the build and the engine's manifest (programs, buckets,
 * numerics): two servers with the same one give the same answers to the same requests. */
#include <openssl/sha.h>
#include <stdio.h>

#include "server/openai.h"

/* The i-th name it serves under. */
static hr_str served_name(const hr_server *s, size_t i)
{
    return s->options.n_served_names ? hr_str_c(s->options.served_names[i]) : s->model_name;
}

static size_t count_names(const hr_server *s)
{
    return s->options.n_served_names ? s->options.n_served_names : 1;
}

hr_status hr_openai_check_model(const hr_server *s, hr_str name)
{
    if (!name.n) return HR_OK;
    for (size_t i = 0; i < count_names(s); i++)
        if (hr_str_eq(name, served_name(s, i))) return HR_OK;
    return hr_fail(HR_NOT_FOUND, "The model `%.*s` does not exist.",
                   (int)(name.n > 200 ? 200 : name.n), name.p);
}

static void write_model(hr_json_writer *w, const hr_server *s, size_t i)
{
    const char *root = s->engine_options->model;
    hr_json_begin_object(w);
    hr_json_key(w, HR_STR("id"));
    hr_json_str(w, served_name(s, i));
    hr_json_key(w, HR_STR("object"));
    hr_json_str(w, HR_STR("model"));
    hr_json_key(w, HR_STR("created"));
    hr_json_i64(w, s->started_unix);
    hr_json_key(w, HR_STR("owned_by"));
    hr_json_str(w, HR_STR("headrace"));
    hr_json_key(w, HR_STR("root"));
    hr_json_str(w, hr_str_c(root ? root : ""));
    hr_json_key(w, HR_STR("parent"));
    hr_json_null(w);
    hr_json_key(w, HR_STR("max_model_len"));
    hr_json_i64(w, hr_engine_max_model_len(s->engine));
    hr_json_key(w, HR_STR("permission"));
    hr_json_raw(w, HR_STR("[]"));
    hr_json_end_object(w);
}

void hr_route_models(hr_exchange *x)
{
    hr_server *s = x->server;
    if (!s->engine) {
        hr_exchange_fail(x, hr_fail(HR_UNAVAILABLE, "the model is being loaded"), NULL);
        return;
    }
    hr_buf out = { 0 };
    hr_json_writer w = { .out = &out };
    hr_json_begin_object(&w);
    hr_json_key(&w, HR_STR("object"));
    hr_json_str(&w, HR_STR("list"));
    hr_json_key(&w, HR_STR("data"));
    hr_json_begin_array(&w);
    for (size_t i = 0; i < count_names(s); i++) write_model(&w, s, i);
    hr_json_end_array(&w);
    hr_json_end_object(&w);
    hr_status st = hr_buf_status(&out);
    if (st) hr_exchange_fail(x, st, NULL);
    else hr_exchange_reply(x, 200, "application/json", hr_buf_str(&out));
    hr_buf_deinit(&out);
}

const char *hr_openai_fingerprint(hr_server *s)
{
    if (s->fingerprint[0] || !s->engine) return s->fingerprint;
    unsigned char hash[SHA256_DIGEST_LENGTH];
    char *manifest = headrace_manifest(s->engine, 0);
    hr_buf text = { 0 };
    hr_buf_printf(&text, "headrace %s\n%s", headrace_version(), manifest ? manifest : "");
    SHA256((const unsigned char *)hr_buf_c(&text), text.n, hash);
    if (manifest && !hr_buf_status(&text)) /* else the next answer tries again */
        snprintf(s->fingerprint, sizeof s->fingerprint, "fp_%02x%02x%02x%02x%02x%02x%02x%02x",
                 hash[0], hash[1], hash[2], hash[3], hash[4], hash[5], hash[6], hash[7]);
    hr_buf_deinit(&text);
    headrace_free(manifest);
    return s->fingerprint;
}
