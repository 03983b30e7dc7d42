/* A tool call as its model writes it, byte by byte.
 *
 * Caller's thread, inside an hr_reply, whose buffers it uses. The beginning is read strictly: until
 * a name and the beginning of arguments are there, anything that does not belong makes the whole
 * of it content. From then on it is a call whatever comes, as clients have been told; its
 * arguments are given out as they are written, and end where their brackets do. */
#include "text/reply_int.h"

#include "base/json.h"

#define MOST_NAME 256 /* bytes of a name that stands bare; longer ones are prose */

enum {
    AT_START, /* behind the mark */
    AT_BARE,  /* a name without quotes */
    AT_MARKS, /* behind it: [CALL_ID]…[ARGS] */
    AT_FIRST, /* behind {: a key, or } */
    AT_KEY,   /* behind a comma: a key */
    AT_IN_KEY,
    AT_COLON,
    AT_VALUE,
    AT_IN_VALUE,
    AT_NEXT, /* behind a value: a comma, or } */
    AT_LIST, /* behind an element of a list */
};

enum { MEMBER_OTHER, MEMBER_NAME, MEMBER_ARGUMENTS };

/* ---- what is known --------------------------------------------------------------------------- */

void hr_reply_call_begin(hr_reply *r)
{
    r->phase = HR_REPLY_CALLING;
    r->call.at = AT_START;
    r->call.listed = r->call.bare = r->call.streaming = false;
    r->call.committed = r->call.named = r->call.argued = false;
    hr_buf_clear(&r->call.name);
    hr_buf_clear(&r->call.arguments);
}

/* The next element of a list. */
static void begin_element(hr_reply *r)
{
    hr_reply_call_begin(r);
    r->call.listed = true;
}

/* Not what a call looks like: false, so that the byte is looked at anew. */
static bool bad(hr_reply *r)
{
    if (r->call.committed) r->phase = HR_REPLY_TAIL;
    else hr_reply_reject(r);
    return false;
}

/* The same about a byte that was taken. */
static void give_up(hr_reply *r)
{
    (void)bad(r);
}

static void keep(hr_reply *r, char c)
{
    if (!r->call.committed) hr_reply_hold(r, c);
}

static bool is_told(const hr_reply *r)
{
    return !r->options.one_call || r->n_calls <= 1;
}

static void note(hr_reply *r, const hr_buf *b)
{
    if (!r->status) r->status = hr_buf_status(b);
}

static void commit(hr_reply *r)
{
    hr_reply_flush(r);
    note(r, &r->call.name);
    note(r, &r->call.arguments);
    hr_buf_clear(&r->held);
    r->call.committed = true;
    r->n_calls++;
    if (!is_told(r)) return;
    r->options.sink(r->options.context, HR_REPLY_CALL, hr_buf_str(&r->call.name));
    hr_str arguments = hr_buf_str(&r->call.arguments);
    if (arguments.n) r->options.sink(r->options.context, HR_REPLY_ARGUMENTS, arguments);
}

static void put_argument(hr_reply *r, char c)
{
    if (is_told(r)) hr_reply_put(r, HR_REPLY_ARGUMENTS, c);
}

/* Behind the brace that closes a call's object, or its bare arguments. */
static void leave(hr_reply *r)
{
    r->fresh = true;
    if (r->call.listed) r->call.at = AT_LIST;
    else if (r->options.format.calls == HR_CALLS_HERMES) r->phase = HR_REPLY_TAIL;
    else r->phase = HR_REPLY_TALKING;
}

/* ---- values that are read -------------------------------------------------------------------- */

/* JSON of one value; of a string, its text goes to `out`, unless that is NULL. */
static bool read_json(hr_str text, hr_json_type type, hr_buf *out)
{
    hr_arena arena = { 0 };
    const hr_json *v;
    bool good = !hr_json_parse(text, NULL, &arena, &v) && v->type == type;
    if (good && out) {
        hr_buf_clear(out);
        hr_buf_add_str(out, v->text);
    }
    hr_arena_deinit(&arena);
    return good;
}

static bool read_string(hr_str text, hr_buf *out)
{
    return text.p[0] == '"' && read_json(text, HR_JSON_STRING, out);
}

static bool is_json(hr_str text)
{
    hr_arena arena = { 0 };
    const hr_json *v;
    bool good = !hr_json_parse(text, NULL, &arena, &v);
    hr_arena_deinit(&arena);
    return good;
}

/* Arguments that came before the name, or are no object: null is an empty one, and some models
 * write the object as a text. */
static bool read_arguments(hr_str text, hr_buf *out)
{
    hr_buf_clear(out);
    if (text.p[0] == '"')
        return read_string(text, out) && read_json(hr_buf_str(out), HR_JSON_OBJECT, NULL);
    if (hr_str_eq_c(text, "null")) text = HR_STR("{}");
    hr_buf_add_str(out, text);
    return read_json(text, HR_JSON_OBJECT, NULL);
}

/* A value has ended; false where it is not what it should be. */
static bool end_value(hr_reply *r)
{
    hr_str text = hr_buf_str(&r->call.text);
    note(r, &r->call.text);
    r->call.at = AT_NEXT;
    r->call.streaming = false;
    if (r->call.committed) return true;
    if (r->call.member == MEMBER_OTHER) return is_json(text);
    if (r->call.member == MEMBER_NAME) {
        if (!read_string(text, &r->call.name) || !r->call.name.n) return false;
        r->call.named = true;
    } else {
        if (!read_arguments(text, &r->call.arguments)) return false;
        r->call.argued = true;
    }
    if (r->call.named && r->call.argued) commit(r);
    return true;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Its first byte, which is then one like the others. */
static bool begin_value(hr_reply *r, char c)
{
    if (c == ',' || c == ':' || c == '}' || c == ']') return bad(r);
    r->call.depth = 0;
    r->call.in_string = r->call.escaped = false;
    r->call.scalar = c != '"' && c != '{' && c != '[';
    r->call.at = AT_IN_VALUE;
    hr_buf_clear(&r->call.text);
    if (!r->call.committed && c == '{' && r->call.named && r->call.member == MEMBER_ARGUMENTS) {
        commit(r);
        r->call.streaming = r->call.argued = true;
    }
    return false;
}

static void take(hr_reply *r, char c)
{
    if (r->call.streaming) put_argument(r, c);
    if (r->call.committed) return;
    hr_reply_hold(r, c);
    hr_buf_add_byte(&r->call.text, c);
}

/* Follows strings and brackets; true when the value, no number or word, ends with this byte. */
static bool closes(hr_reply *r, char c)
{
    if (r->call.in_string) {
        bool quote = c == '"' && !r->call.escaped;
        r->call.escaped = c == '\\' && !r->call.escaped;
        r->call.in_string = !quote;
    } else if (c == '"') r->call.in_string = true;
    else if (c == '{' || c == '[') r->call.depth++;
    else if (c == '}' || c == ']') r->call.depth--;
    return !r->call.scalar && !r->call.in_string && !r->call.depth;
}

static bool in_value(hr_reply *r, char c)
{
    if (r->call.scalar && (c == ',' || c == '}' || c == ']' || hr_reply_is_blank(c)))
        return end_value(r) ? false : bad(r);
    /* a mark in the middle of brackets: the model has lost its way */
    if (c == '<' && !r->call.in_string && r->options.format.calls == HR_CALLS_HERMES) return bad(r);
    take(r, c);
    if (!closes(r, c)) return true;
    if (!end_value(r)) give_up(r);
    else if (r->call.bare) leave(r);
    return true;
}

/* ---- members --------------------------------------------------------------------------------- */

static bool end_key(hr_reply *r)
{
    hr_buf key = { 0 };
    bool good = read_string(hr_buf_str(&r->call.text), &key) && !hr_buf_status(&key);
    hr_str name = hr_buf_str(&key);
    bool arguments = hr_str_eq_c(name, "arguments") || hr_str_eq_c(name, "parameters");
    r->call.member = arguments && !r->call.argued ? MEMBER_ARGUMENTS
                     : hr_str_eq_c(name, "name")  ? MEMBER_NAME
                                                  : MEMBER_OTHER;
    r->call.at = AT_COLON;
    hr_buf_deinit(&key);
    return good;
}

/* The opening quote included. */
static bool in_key(hr_reply *r, char c)
{
    bool ends = r->call.text.n && c == '"' && !r->call.escaped;
    r->call.escaped = c == '\\' && !r->call.escaped;
    keep(r, c);
    hr_buf_add_byte(&r->call.text, c);
    if (ends && !end_key(r)) give_up(r);
    return true;
}

static bool begin_key(hr_reply *r)
{
    hr_buf_clear(&r->call.text);
    r->call.escaped = false;
    r->call.at = AT_IN_KEY;
    return false;
}

static bool end_object(hr_reply *r, char c)
{
    /* without a mark, an object of a name alone is as likely an answer in JSON */
    bool whole = r->call.argued || r->options.format.calls != HR_CALLS_LLAMA3;
    if (!r->call.committed && !(r->call.named && whole)) return bad(r);
    keep(r, c);
    if (!r->call.committed) {
        hr_buf_add_c(&r->call.arguments, "{}");
        commit(r);
    }
    leave(r);
    return true;
}

/* ---- names that stand bare ------------------------------------------------------------------- */

static bool begin_arguments(hr_reply *r, char c)
{
    r->call.bare = r->call.named = true;
    r->call.member = MEMBER_ARGUMENTS;
    return begin_value(r, c);
}

static bool in_bare(hr_reply *r, char c)
{
    if (c == '{') return begin_arguments(r, c);
    if (c == '[' || hr_reply_is_blank(c)) {
        r->call.at = AT_MARKS;
        r->call.depth = 0;
        hr_buf_clear(&r->call.text);
        return false;
    }
    if ((unsigned char)c < ' ' || strchr("\"]}<>(),;", c) || r->call.name.n == MOST_NAME)
        return bad(r);
    keep(r, c);
    hr_buf_add_byte(&r->call.name, c);
    return true;
}

/* [CALL_ID]…[ARGS], which newer vocabularies put between name and arguments. */
static bool in_marks(hr_reply *r, char c)
{
    if (c == '{' && !r->call.depth) return begin_arguments(r, c);
    bool mark = c == '[' || c == ']' || hr_reply_is_blank(c);
    bool id =
        (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
    if ((!mark && !id) || r->call.text.n == MOST_NAME) return bad(r);
    if (c == '[') r->call.depth = 1;
    if (c == ']') r->call.depth = 0;
    keep(r, c);
    hr_buf_add_byte(&r->call.text, c);
    return true;
}

/* ---- where a call is ------------------------------------------------------------------------- */

static bool at_start(hr_reply *r, char c)
{
    bool mistral = r->options.format.calls == HR_CALLS_MISTRAL && !r->call.listed;
    if (c == '{') r->call.at = AT_FIRST;
    else if (mistral && c == '[') r->call.listed = true;
    else if (!hr_reply_is_blank(c)) {
        if (!mistral) return bad(r);
        r->call.at = AT_BARE;
        return false;
    }
    keep(r, c);
    return true;
}

static bool at_list(hr_reply *r, char c)
{
    if (c == ',') begin_element(r);
    else if (c == ']') r->phase = HR_REPLY_TALKING;
    else if (!hr_reply_is_blank(c)) return bad(r);
    return true;
}

/* What must be there, white space before it. */
static bool expect(hr_reply *r, char c, char wanted, int then)
{
    if (c == wanted) r->call.at = then;
    else if (!hr_reply_is_blank(c)) return bad(r);
    keep(r, c);
    return true;
}

bool hr_reply_call_step(hr_reply *r, char c)
{
    switch (r->call.at) {
    case AT_START: return at_start(r, c);
    case AT_BARE: return in_bare(r, c);
    case AT_MARKS: return in_marks(r, c);
    case AT_FIRST:
        return c == '}' ? end_object(r, c) : c == '"' ? begin_key(r) : expect(r, c, '"', AT_KEY);
    case AT_KEY: return c == '"' ? begin_key(r) : expect(r, c, '"', AT_KEY);
    case AT_IN_KEY: return in_key(r, c);
    case AT_COLON: return expect(r, c, ':', AT_VALUE);
    case AT_VALUE:
        if (!hr_reply_is_blank(c)) return begin_value(r, c);
        keep(r, c);
        return true;
    case AT_IN_VALUE: return in_value(r, c);
    case AT_NEXT: return c == '}' ? end_object(r, c) : expect(r, c, ',', AT_KEY);
    case AT_LIST: return at_list(r, c);
    }
    return true;
}
