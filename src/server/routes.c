/* Which handler answers which path, and the handlers that need nothing but the server's phase.
 *
 * Runs on the I/O thread. The table is routes.def. Order of refusals: preflight (answered), drain,
 * key, path, method, content type; so a stranger learns nothing of the paths behind a key. */
#include "base/log.h"
#include "server/net.h"

#define HR_ROUTE(method, path, handler, access, body)                                              \
    { #method, path, hr_route_##handler, HR_ROUTE_##access, HR_ROUTE_##body },
static const hr_route routes[] = {
#include "server/routes.def"
};
#undef HR_ROUTE
#define MAX_FIELDS 1024 /* of a body's object: each is looked up on this thread */
#define N_ROUTES   (sizeof routes / sizeof *routes)

/* ---- finding --------------------------------------------------------------------------------- */

static bool method_fits(const hr_route *r, hr_str method)
{
    if (hr_str_eq_c(method, r->method)) return true;
    return hr_str_eq_c(method, "HEAD") && !strcmp(r->method, "GET");
}

/* The route; else *known: the path exists for other methods. */
static const hr_route *find(const hr_http_request *r, bool *known)
{
    *known = false;
    for (size_t i = 0; i < N_ROUTES; i++) {
        if (!hr_str_eq_c(r->path, routes[i].path)) continue;
        *known = true;
        if (method_fits(&routes[i], r->method)) return &routes[i];
    }
    return NULL;
}

/* What "Allow:" says of a path. */
static void list_methods(hr_str path, hr_buf *out)
{
    for (size_t i = 0; i < N_ROUTES; i++) {
        if (!hr_str_eq_c(path, routes[i].path)) continue;
        hr_buf_printf(out, "%s%s", routes[i].method,
                      strcmp(routes[i].method, "GET") ? ", " : ", HEAD, ");
    }
    hr_buf_add_c(out, "OPTIONS");
}

/* ---- refusals -------------------------------------------------------------------------------- */

typedef enum verdict {
    GO,
    PREFLIGHT,
    DRAINING,
    NO_KEY,
    NO_PATH,
    OPTIONS_ONLY,
    NO_METHOD,
    NO_JSON,
    ENCODED,
} verdict;

/* vLLM's rule: the media type, parameters aside, is application/json. */
static bool is_json(const hr_http_request *r)
{
    hr_str type = hr_http_header_get(r, "content-type");
    size_t end = hr_str_find(type, HR_STR(";"), 0);
    if (end != SIZE_MAX) type.n = end;
    return hr_http_same(hr_str_trim(type), HR_STR("application/json"));
}

static bool is_encoded(const hr_http_request *r)
{
    hr_str coding = hr_http_header_get(r, "content-encoding");
    return coding.n && !hr_http_same(coding, HR_STR("identity"));
}

/* While draining the last numbers can still be scraped. */
static bool is_refused_by_drain(const hr_server *s, const hr_route *r)
{
    return s->phase >= HR_SERVER_DRAINING && !(r && !strcmp(r->path, "/metrics"));
}

static verdict judge(hr_exchange *x)
{
    const hr_http_request *r = &x->request;
    const hr_server *s = x->server;
    if (hr_access_is_preflight(r)) return PREFLIGHT;
    bool known;
    x->route = find(r, &known);
    if (is_refused_by_drain(s, x->route)) return DRAINING;
    bool open = x->route && x->route->access == HR_ROUTE_OPEN;
    if (!open && !hr_access_allows(s->access, r)) return NO_KEY;
    if (!known) return NO_PATH;
    if (!x->route) return hr_str_eq_c(r->method, "OPTIONS") ? OPTIONS_ONLY : NO_METHOD;
    if (x->route->body == HR_ROUTE_NONE) return GO;
    if (!is_json(r)) return NO_JSON;
    return is_encoded(r) ? ENCODED : GO;
}

bool hr_routes_would_refuse(hr_exchange *x)
{
    return judge(x) != GO;
}

static void refuse_method(hr_exchange *x, bool is_error)
{
    hr_buf methods = { 0 };
    list_methods(x->request.path, &methods);
    hr_exchange_set_header(x, "Allow", hr_buf_c(&methods));
    hr_buf_deinit(&methods);
    if (!is_error) hr_exchange_reply(x, 204, NULL, (hr_str){ 0 });
    else
        hr_exchange_error(x, 405, NULL, "The path %.*s does not answer %.*s.",
                          HR_STR_ARG(x->request.path), HR_STR_ARG(x->request.method));
}

bool hr_routes_refuse(hr_exchange *x)
{
    switch (judge(x)) {
    case GO: return false;
    case PREFLIGHT: hr_access_preflight(x->server->access, x); break;
    case DRAINING: hr_exchange_error(x, 503, NULL, "The server is shutting down."); break;
    case NO_KEY:
        hr_exchange_set_header(x, "WWW-Authenticate", "Bearer");
        hr_exchange_error(x, 401, NULL,
                          "A valid API key is needed: send 'Authorization: Bearer KEY'.");
        break;
    case NO_PATH:
        hr_exchange_error(x, 404, NULL, "There is no path %.*s.", HR_STR_ARG(x->request.path));
        break;
    case OPTIONS_ONLY: refuse_method(x, false); break;
    case NO_METHOD: refuse_method(x, true); break;
    case NO_JSON:
        hr_exchange_error(x, 415, NULL,
                          "The body must be JSON: send 'Content-Type: "
                          "application/json'.");
        break;
    case ENCODED:
        hr_exchange_error(x, 415, NULL, "Bodies with a Content-Encoding are not read here.");
        break;
    }
    return true;
}

void hr_routes_call(hr_exchange *x)
{
    const hr_exchange_own *o = hr_exchange_own_of(x);
    if (o->json_status && o->hashing) {
        hr_exchange_error(x, hr_exchange_http_status(o->json_status), "sampling_trace",
                          "sampling_trace: the model's hash: %s", o->json_message);
        return;
    }
    if (o->json_status) {
        int status = hr_exchange_http_status(o->json_status);
        hr_exchange_error(x, status, NULL, "The body is no JSON this server reads: %s.",
                          o->json_message);
        return;
    }
    if (x->json && x->json->count > MAX_FIELDS && x->json->type == HR_JSON_OBJECT) {
        hr_exchange_error(x, 400, NULL, "The body has %zu fields; no request has more than %d.",
                          x->json->count, MAX_FIELDS);
        return;
    }
    bool needs_engine = x->route->body == HR_ROUTE_JSON;
    if (needs_engine && !x->server->engine) {
        hr_exchange_error(x, 503, NULL, "The model is still loading.");
        return;
    }
    x->route->handle(x);
}

/* ---- the small handlers ---------------------------------------------------------------------- */

void hr_route_health(hr_exchange *x)
{
    if (x->server->phase == HR_SERVER_READY) hr_exchange_reply(x, 200, NULL, (hr_str){ 0 });
    else hr_exchange_error(x, 503, NULL, "The model is still loading.");
}

void hr_route_ping(hr_exchange *x)
{
    hr_route_health(x);
}

void hr_route_version(hr_exchange *x)
{
    hr_exchange_reply(x, 200, "application/json", HR_STR("{\"version\":\"" HR_VERSION "\"}"));
}
