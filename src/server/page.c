/* The web page: files that are part of the binary, sent as they are.
 *
 * I/O thread; owns nothing. A file's ETag is a hash of its bytes, so that a browser asks once per
 * build and is told 304 afterwards. The page may load from this server only and be framed by
 * nobody; it needs no key, since it holds no secret: what it fetches does. */
#include "server/page.h"

#include <stdio.h>

#include "server/server_int.h"

static const char *const security[][2] = {
    { "Content-Security-Policy",
      "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; "
      "frame-ancestors 'none'" },
    { "X-Content-Type-Options", "nosniff" },
    { "Referrer-Policy", "no-referrer" },
    { "Cross-Origin-Opener-Policy", "same-origin" },
    { "Cache-Control", "no-cache" },
};

static const char *type_of(hr_str name)
{
    static const char *const types[][2] = {
        { ".html", "text/html; charset=utf-8" },
        { ".css", "text/css; charset=utf-8" },
        { ".js", "text/javascript; charset=utf-8" },
        { ".svg", "image/svg+xml" },
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (hr_str_ends(name, hr_str_c(types[i][0]))) return types[i][1];
    return "application/octet-stream";
}

static const hr_page_file *find(hr_str path)
{
    hr_str name = hr_str_slice(path, 1, path.n);
    if (!name.n) name = HR_STR("index.html");
    for (const hr_page_file *f = hr_page_files; f->name; f++)
        if (hr_str_eq_c(name, f->name)) return f;
    return NULL;
}

/* FNV-1a over the bytes: it need only differ between builds. */
static void make_etag(const hr_page_file *f, char out[24])
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < f->n; i++) h = (h ^ f->bytes[i]) * 0x100000001b3u;
    snprintf(out, 24, "\"%016llx\"", (unsigned long long)h);
}

/* If-None-Match: a list of tags, each perhaps weak, or "*". Ours holds no comma. */
static bool matches(hr_str list, const char *etag)
{
    if (hr_str_eq_c(hr_str_trim(list), "*")) return true;
    return list.n && hr_str_find(list, hr_str_c(etag), 0) != SIZE_MAX;
}

void hr_route_page(hr_exchange *x)
{
    const hr_page_file *f = find(x->request.path);
    if (!f) {
        hr_exchange_error(x, 404, NULL, "no such file");
        return;
    }
    char etag[24];
    make_etag(f, etag);
    hr_exchange_set_header(x, "ETag", etag);
    for (size_t i = 0; i < sizeof security / sizeof *security; i++)
        hr_exchange_set_header(x, security[i][0], security[i][1]);
    hr_str body = { (const char *)f->bytes, f->n };
    if (matches(hr_exchange_header(x, "If-None-Match"), etag))
        hr_exchange_reply(x, 304, type_of(hr_str_c(f->name)), (hr_str){ 0 });
    else hr_exchange_reply(x, 200, type_of(hr_str_c(f->name)), body);
}
