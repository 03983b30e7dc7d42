/* Errors as OpenAI's clients read them: names by HTTP status, HTTP status by code, the body.
 *
 * Pure; any thread. */
#include "base/status.h"
#include "server/exchange.h"

/* The names of OpenAI's Python exceptions where there is one, as vLLM does. */
static const char *type_name(int http_status)
{
    switch (http_status) {
    case 400: return "BadRequestError";
    case 401: return "AuthenticationError";
    case 403: return "PermissionDeniedError";
    case 404: return "NotFoundError";
    case 405: return "MethodNotAllowedError";
    case 408: return "RequestTimeoutError";
    case 413: return "RequestTooLargeError";
    case 414: return "URITooLongError";
    case 415: return "UnsupportedMediaTypeError";
    case 417: return "ExpectationFailedError";
    case 429: return "RateLimitError";
    case 431: return "RequestHeadersTooLargeError";
    case 501: return "NotImplementedError";
    case 503: return "ServiceUnavailableError";
    case 505: return "HTTPVersionNotSupportedError";
    default: return http_status < 500 ? "BadRequestError" : "InternalServerError";
    }
}

int hr_exchange_http_status(int st)
{
    switch (st) {
    case HR_INVALID_ARGUMENT:
    case HR_OUT_OF_RANGE:
    case HR_UNIMPLEMENTED: return 400;
    case HR_NOT_FOUND: return 404;
    case HR_UNAVAILABLE:
    case HR_RESOURCE_EXHAUSTED: return 503;
    default: return 500;
    }
}

void hr_exchange_error_body(hr_json_writer *w, int http_status, const char *param, hr_str message)
{
    hr_json_begin_object(w);
    hr_json_key(w, HR_STR("error"));
    hr_json_begin_object(w);
    hr_json_key(w, HR_STR("message"));
    hr_json_str(w, message);
    hr_json_key(w, HR_STR("type"));
    hr_json_str(w, hr_str_c(type_name(http_status)));
    hr_json_key(w, HR_STR("param"));
    if (param) hr_json_str(w, hr_str_c(param));
    else hr_json_null(w);
    hr_json_key(w, HR_STR("code"));
    hr_json_i64(w, http_status);
    hr_json_end_object(w);
    hr_json_end_object(w);
}
