/* Inside the template interpreter: tokens, tree, values, and what the files call of each other.
 *
 * source ─lex→ tokens ─parse→ tree ─scope→ tree with slots ─exec/eval→ text with marks
 *
 * The tree lives in the template's arena and is immutable; every value of a rendering lives in
 * that rendering's arena and goes with it. Values are immutable too (the sandbox of jinja2 forbids
 * list.append and the like), but for namespaces, generators, cyclers and joiners. */
#ifndef HEADRACE_TEXT_JINJA_INT_H
#define HEADRACE_TEXT_JINJA_INT_H

#include "text/jinja/jinja.h"

/* ---- values --------------------------------------------------------------------------------- */

typedef enum hr_jkind {
    HR_J_MISSING, /* no value at all: an argument not given, a slot not set */
    HR_J_UNDEFINED,
    HR_J_NONE,
    HR_J_BOOL,
    HR_J_INT,
    HR_J_BIG, /* an integer beyond 64 bits: its digits; prints and compares, does not compute */
    HR_J_FLOAT,
    HR_J_STR,
    HR_J_LIST,
    HR_J_TUPLE,
    HR_J_DICT,
    HR_J_RANGE,
    HR_J_GENERATOR, /* one pass, then empty: what map, select … return */
    HR_J_VIEW,      /* dict.keys(), .values(), .items() */
    HR_J_FUNCTION,  /* a global function or a method bound to `self` */
    HR_J_MACRO,
    HR_J_NAMESPACE,
    HR_J_LOOP,
    HR_J_CYCLER,
    HR_J_JOINER,
} hr_jkind;

/* Bytes [from, to) of a string are data. */
typedef struct hr_jmark {
    size_t from, to;
} hr_jmark;

/* Text with provenance: the marks are in order, apart from each other, and tell which bytes are
 * data. Most strings have none or one that covers all. */
typedef struct hr_jstr {
    const char *p;
    size_t n;     /* bytes */
    size_t chars; /* code points */
    const hr_jmark *marks;
    size_t n_marks;
    hr_jmark one; /* where `marks` points when there is one */
    bool markup;  /* it is HTML already (markup.c) */
} hr_jstr;

typedef struct hr_jlist hr_jlist;
typedef struct hr_jdict hr_jdict;
typedef struct hr_jrange hr_jrange;
typedef struct hr_jgenerator hr_jgenerator;
typedef struct hr_jview hr_jview;
typedef struct hr_jbound hr_jbound;
typedef struct hr_jmacro hr_jmacro;
typedef struct hr_jloop hr_jloop;
typedef struct hr_jundefined hr_jundefined;

typedef struct hr_jval {
    uint8_t kind; /* hr_jkind */
    bool data;    /* a number or truth value that came in as data: prints as data */
    union {
        bool b;
        int64_t i;
        double f;
        const hr_jstr *s; /* STR, BIG */
        const hr_jlist *l;
        hr_jdict *d; /* DICT, NAMESPACE */
        const hr_jrange *r;
        hr_jgenerator *g; /* GENERATOR, CYCLER, JOINER */
        const hr_jview *v;
        const hr_jbound *fn;
        const hr_jmacro *macro;
        hr_jloop *loop;
        const hr_jundefined *u;
    } as;
} hr_jval;

struct hr_jlist {
    const hr_jval *items;
    size_t n;
    bool group; /* of groupby: .grouper and .list name its two items */
};

typedef struct hr_jentry {
    hr_jval key, value;
} hr_jentry;

/* In order of insertion; above HR_JDICT_LINEAR entries an index finds keys by hash. */
struct hr_jdict {
    hr_jentry *entries;
    size_t n, capacity;
    uint32_t *index; /* [index_size], entry + 1 or 0; NULL while small */
    size_t index_size;
};

struct hr_jrange {
    int64_t start, stop, step;
    size_t n;
};

/* CYCLER: the items and where it stands; JOINER: one item, its separator, after a first use. */
struct hr_jgenerator {
    const hr_jval *items;
    size_t n, at;
};

typedef enum hr_jview_kind { HR_JVIEW_KEYS, HR_JVIEW_VALUES, HR_JVIEW_ITEMS } hr_jview_kind;
struct hr_jview {
    hr_jdict *dict;
    hr_jview_kind kind;
};

/* Why it is undefined, told only when somebody trips over it. */
struct hr_jundefined {
    enum { HR_JU_NAME, HR_JU_ATTRIBUTE, HR_JU_ELEMENT, HR_JU_UNSAFE, HR_JU_HINT } why;
    hr_str name;   /* NAME, ATTRIBUTE, UNSAFE: the name; HINT: the whole sentence */
    hr_jval of;    /* ATTRIBUTE, ELEMENT, UNSAFE: the object */
    hr_jval index; /* ELEMENT */
};

/* ---- the tree ------------------------------------------------------------------------------- */

typedef enum hr_jnode_kind {
    /* expressions */
    HR_JN_CONST,
    HR_JN_NAME,
    HR_JN_NSREF, /* name.attr as the target of a set */
    HR_JN_TUPLE,
    HR_JN_LIST,
    HR_JN_DICT,    /* items: PAIR */
    HR_JN_PAIR,    /* a: key, b: value */
    HR_JN_COND,    /* a if b else c (c may be NULL) */
    HR_JN_OR,      /* a, b */
    HR_JN_AND,     /* a, b */
    HR_JN_NOT,     /* a */
    HR_JN_COMPARE, /* a, items: OPERAND */
    HR_JN_OPERAND, /* op, a */
    HR_JN_BINARY,  /* op, a, b */
    HR_JN_CONCAT,  /* items */
    HR_JN_UNARY,   /* op, a */
    HR_JN_GETATTR, /* a, name */
    HR_JN_GETITEM, /* a, b */
    HR_JN_SLICE,   /* a: start, b: stop, c: step, each may be NULL */
    HR_JN_CALL,    /* a, arguments */
    HR_JN_FILTER,  /* a (NULL: the text of a block), name, arguments */
    HR_JN_TEST,    /* a, name, arguments */
    HR_JN_KEYWORD, /* name, a */
    /* statements */
    HR_JN_DATA,        /* value: template text */
    HR_JN_OUTPUT,      /* a */
    HR_JN_IF,          /* a, body, elifs (items: IF), orelse */
    HR_JN_FOR,         /* a: target, b: iterable, c: filter or NULL, body, orelse */
    HR_JN_SET,         /* a: target, b: value */
    HR_JN_SETBLOCK,    /* a: target, b: filter or NULL, body */
    HR_JN_FILTERBLOCK, /* b: filter, body */
    HR_JN_WITH,        /* items: PAIR target, value; body */
    HR_JN_MACRO,       /* name, items: parameters, kw: defaults, body */
    HR_JN_CALLBLOCK,   /* a: call or NULL (generation), items, kw, body */
    HR_JN_BREAK,
    HR_JN_CONTINUE,
} hr_jnode_kind;

typedef enum hr_jop {
    HR_JOP_ADD,
    HR_JOP_SUB,
    HR_JOP_MUL,
    HR_JOP_DIV,
    HR_JOP_FLOORDIV,
    HR_JOP_MOD,
    HR_JOP_POW,
    HR_JOP_EQ,
    HR_JOP_NE,
    HR_JOP_LT,
    HR_JOP_LE,
    HR_JOP_GT,
    HR_JOP_GE,
    HR_JOP_IN,
    HR_JOP_NOTIN,
} hr_jop;

typedef struct hr_jnode hr_jnode;
typedef struct hr_jblock {
    hr_jnode **items;
    size_t n;
} hr_jblock;

/* Where a variable lives: `hops` activations outwards, then its slot. */
typedef struct hr_jref {
    uint32_t hops, slot;
} hr_jref;

/* What entering a scope does to its slots, worked out from the text as jinja2's compiler does. */
typedef struct hr_jload {
    enum { HR_JL_PARAMETER, HR_JL_RESOLVE, HR_JL_ALIAS, HR_JL_UNDEFINED } how;
    uint32_t slot;
    hr_str name;  /* RESOLVE */
    hr_jref from; /* ALIAS */
} hr_jload;

typedef struct hr_jscope {
    hr_jload *loads;
    size_t n_loads, capacity;
} hr_jscope;

typedef struct hr_jfilter hr_jfilter;
typedef struct hr_jtest hr_jtest;

struct hr_jnode {
    uint8_t kind;                                      /* hr_jnode_kind */
    uint8_t op;                                        /* hr_jop */
    bool store;                                        /* NAME: assigned to */
    bool parameter;                                    /* NAME: a parameter of a macro or with */
    bool recursive;                                    /* FOR */
    bool catches_kwargs, catches_varargs, uses_caller; /* MACRO, CALLBLOCK */
    hr_template_place at;
    hr_str name;
    hr_jval value;
    hr_jnode *a, *b, *c;
    hr_jblock items, kw, body, orelse;
    hr_jnode *star, *star2; /* *args, **kwargs; FOR: star is the target in the filter's scope */
    hr_jref ref;            /* NAME, NSREF, MACRO */
    uint32_t n_slots;       /* MACRO, CALLBLOCK, recursive FOR: of an activation */
    uint32_t slot_loop;     /* FOR */
    uint32_t slot_caller, slot_kwargs, slot_varargs;
    hr_jscope *scope, *scope_test, *scope_else;
    const hr_jfilter *filter; /* FILTER; NULL: unknown, an error when it is reached */
    const hr_jtest *test;     /* TEST */
};

struct hr_template {
    hr_arena arena;
    hr_str source;
    hr_jblock body;
    hr_jscope scope;
    uint32_t n_slots;
};

/* ---- lexing and parsing --------------------------------------------------------------------- */

typedef enum hr_jtoken_kind {
    HR_JT_EOF,
    HR_JT_DATA,
    HR_JT_VARIABLE_BEGIN,
    HR_JT_VARIABLE_END,
    HR_JT_BLOCK_BEGIN,
    HR_JT_BLOCK_END,
    HR_JT_NAME,
    HR_JT_STRING,
    HR_JT_INTEGER,
    HR_JT_FLOAT,
    HR_JT_OPERATOR,
} hr_jtoken_kind;

typedef struct hr_jtoken {
    hr_jtoken_kind kind;
    hr_template_place at;
    hr_str text; /* the characters; of STRING and DATA the value */
} hr_jtoken;

typedef struct hr_jtokens {
    hr_jtoken *items;
    size_t n, capacity;
} hr_jtokens;

/* The origin of every refusal that has a place: "chat template line L column C: …", and *failed
 * (which may be NULL) becomes that place. */
HR_MUST_USE hr_status hr_jinja_refuse(hr_template_place *failed, hr_template_place at,
                                      hr_status code, const char *fmt, ...) HR_PRINTF(4, 5);
HR_MUST_USE hr_status hr_jinja_lex(hr_str source, hr_arena *arena, hr_template_place *failed,
                                   hr_jtokens *out);

typedef struct hr_jparser {
    hr_arena *arena;
    const hr_jtoken *tokens; /* ends in EOF */
    size_t at;
    size_t depth;              /* of nesting, bounded */
    size_t loop_depth;         /* loops around this place within one function */
    hr_template_place *failed; /* borrowed, or NULL */
} hr_jparser;

/* Nested brackets and blocks of a template; real ones stay below 30. */
#define HR_JINJA_MAX_NESTING 100

HR_MUST_USE hr_status hr_jinja_parse_template(hr_jparser *p, hr_jblock *out);
HR_MUST_USE hr_status hr_jinja_syntax(const hr_jparser *p, const char *fmt, ...) HR_PRINTF(2, 3);
hr_jnode *hr_jinja_node(hr_jparser *p, hr_jnode_kind kind);
HR_MUST_USE hr_status hr_jinja_block_add(hr_arena *arena, hr_jblock *b, hr_jnode *n);
bool hr_jinja_at_op(const hr_jparser *p, const char *op);
bool hr_jinja_at_name(const hr_jparser *p, const char *name);
bool hr_jinja_skip_op(hr_jparser *p, const char *op);
bool hr_jinja_skip_name(hr_jparser *p, const char *name);
HR_MUST_USE hr_status hr_jinja_expect_op(hr_jparser *p, const char *op);
HR_MUST_USE hr_status hr_jinja_expect_name(hr_jparser *p, hr_str *out);

typedef enum hr_jtuple_flags {
    HR_JTUPLE_DEFAULT = 0,
    HR_JTUPLE_SIMPLE = 1,    /* names and literals only: targets */
    HR_JTUPLE_NO_COND = 2,   /* no x if y else z */
    HR_JTUPLE_PARENS = 4,    /* in parentheses: may be empty */
    HR_JTUPLE_NAMESPACE = 8, /* targets may be ns.attr */
} hr_jtuple_flags;
HR_MUST_USE hr_status hr_jinja_parse_tuple(hr_jparser *p, hr_jtuple_flags flags,
                                           const char *end_name, hr_jnode **out);
HR_MUST_USE hr_status hr_jinja_parse_expression(hr_jparser *p, hr_jnode **out);
/* A chain of filters onto *node (which may start as NULL); `first` = its name comes at once. */
typedef enum hr_jchain { HR_JCHAIN_PIPE, HR_JCHAIN_INLINE } hr_jchain;
HR_MUST_USE hr_status hr_jinja_parse_filters(hr_jparser *p, hr_jchain first, hr_jnode **node);

/* Gives every name its slot and every scope its loads. */
HR_MUST_USE hr_status hr_jinja_resolve(hr_template *t, hr_template_place *failed);

/* ---- a rendering ---------------------------------------------------------------------------- */

/* The variables of one call of the template, a macro or a recursive loop. */
typedef struct hr_jactivation {
    hr_jval *slots;
    struct hr_jactivation *outer; /* where the function was defined */
} hr_jactivation;

/* A string being made. `= { .it = it }` is empty; failures are sticky in `status`. */
typedef struct hr_jinterp hr_jinterp;
typedef struct hr_jbuilder {
    hr_jinterp *it;
    char *p;
    size_t n, capacity, chars;
    hr_jmark *marks;
    size_t n_marks, marks_capacity;
    bool markup; /* what is being made */
    hr_status status;
} hr_jbuilder;

struct hr_jinterp {
    hr_arena arena; /* owned: every value of the rendering */
    const hr_template *template;
    const hr_render_options *options;
    uint64_t steps_left;
    size_t depth, max_depth, max_output;
    hr_template_place at; /* of the node being evaluated, for messages */
    hr_jdict *variables;  /* the top level object */
    hr_jactivation *here;
    hr_jbuilder *out; /* where output goes now */
};

struct hr_jmacro {
    const hr_jnode *node;
    hr_jactivation *outer;
};

typedef struct hr_jargs {
    const hr_jval *pos;
    size_t n;
    const hr_str *names;
    const hr_jval *kw;
    size_t n_kw;
} hr_jargs;

/* A function that templates can call. Its parameters are named by `params`, blanks between; "$"
 * stands for one that has no name. The first `required` must be given. Arguments come bound: one
 * per parameter, MISSING where none was given. "*" as `params`: arguments come as they were. */
typedef hr_status (*hr_jcall)(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out);
typedef struct hr_jfunction {
    const char *name;
    const char *params;
    uint8_t required;
    hr_jcall call;
} hr_jfunction;

struct hr_jbound {
    const hr_jfunction *function;
    hr_jval self;
};

struct hr_jfilter {
    hr_jfunction f;
};
struct hr_jtest {
    hr_jfunction f; /* gives BOOL */
};

/* Walks anything iterable once. */
typedef struct hr_jiter {
    hr_jval of;
    size_t at, byte;
} hr_jiter;

/* A for loop in progress, and what the template sees of it as `loop`. */
struct hr_jloop {
    hr_jinterp *it;
    hr_jval iterable;
    hr_jiter iter;
    const hr_jnode *node;
    hr_jactivation *here;  /* where it runs */
    hr_jactivation *outer; /* recursive: where the loop function was defined */
    int64_t index0, depth0;
    int64_t length;                 /* -1 = not yet known */
    hr_jval before, current, after; /* after: MISSING = not peeked */
    hr_jval changed;                /* TUPLE or MISSING */
    const hr_jval *rest;            /* what is left once the length was asked for; else NULL */
    size_t n_rest, at_rest;
};

/* string.c: errors, steps, memory */
HR_MUST_USE hr_status hr_jinja_fail(hr_jinterp *it, const char *fmt, ...) HR_PRINTF(2, 3);
HR_MUST_USE hr_status hr_jinja_exhausted(hr_jinterp *it, const char *what);
static inline HR_MUST_USE hr_status hr_jinja_step(hr_jinterp *it, size_t n)
{
    if (it->steps_left > n) {
        it->steps_left -= n;
        return HR_OK;
    }
    it->steps_left = 0;
    return hr_jinja_exhausted(it, "the template takes too many steps");
}
static inline HR_MUST_USE hr_status hr_jinja_enter(hr_jinterp *it)
{
    if (it->depth >= it->max_depth) return hr_jinja_exhausted(it, "evaluation nests too deeply");
    it->depth++;
    return HR_OK;
}
static inline void hr_jinja_leave(hr_jinterp *it)
{
    it->depth--;
}
/* Zeroed; charged to the rendering. */
HR_MUST_USE hr_status hr_jinja_alloc(hr_jinterp *it, size_t n, size_t item, void *out);
/* What jinja2 says when an undefined value is used. */
HR_MUST_USE hr_status hr_jinja_fail_undefined(hr_jinterp *it, hr_jval v);

/* string.c: text */
void hr_jinja_put(hr_jbuilder *b, hr_str text, bool data);
void hr_jinja_put_c(hr_jbuilder *b, const char *text);
void hr_jinja_put_slice(hr_jbuilder *b, const hr_jstr *s, size_t from, size_t to);
void hr_jinja_put_str(hr_jbuilder *b, const hr_jstr *s);
void hr_jinja_put_char(hr_jbuilder *b, uint32_t c, bool data);
HR_MUST_USE hr_status hr_jinja_finish(hr_jbuilder *b, hr_jval *out);
HR_MUST_USE hr_status hr_jinja_string(hr_jinterp *it, hr_str text, bool data, hr_jval *out);
HR_MUST_USE hr_status hr_jinja_substring(hr_jinterp *it, const hr_jstr *s, size_t from, size_t to,
                                         hr_jval *out);
/* Is any of the bytes data? */
bool hr_jinja_is_data(const hr_jstr *s, size_t from, size_t to);
/* The byte where the code point `index` ≤ chars begins. */
size_t hr_jinja_offset(const hr_jstr *s, size_t index);
static inline hr_str hr_jinja_text(const hr_jstr *s)
{
    return (hr_str){ s->p, s->n };
}

/* markup.c */
static inline bool hr_jinja_is_markup(hr_jval v)
{
    return v.kind == HR_J_STR && v.as.s->markup;
}
/* str(v) as markup, as it is, and escaped; _escape leaves markup alone. */
HR_MUST_USE hr_status hr_jinja_as_markup(hr_jinterp *it, hr_jval v, hr_jval *out);
HR_MUST_USE hr_status hr_jinja_escape(hr_jinterp *it, hr_jval v, hr_jval *out);
HR_MUST_USE hr_status hr_jinja_force_escape(hr_jinterp *it, hr_jval v, hr_jval *out);
/* Calls a method of str, a filter: what keeps the type keeps it, what brings text is escaped. */
HR_MUST_USE hr_status hr_jinja_call_method(hr_jinterp *it, const hr_jbound *method,
                                           const hr_jargs *args, hr_jval *out);
HR_MUST_USE hr_status hr_jinja_call_filter(hr_jinterp *it, const hr_jfilter *filter, hr_jval self,
                                           const hr_jargs *args, hr_jval *out);

/* unicode.c */
bool hr_jinja_is_space(uint32_t c);
bool hr_jinja_is_word(uint32_t c); /* may stand in an identifier */
bool hr_jinja_is_printable(uint32_t c);
typedef enum hr_jclass {
    HR_JC_ALPHA,
    HR_JC_DECIMAL,
    HR_JC_DIGIT,
    HR_JC_NUMERIC,
    HR_JC_ALNUM,
    HR_JC_UPPER,
    HR_JC_LOWER,
    HR_JC_TITLE,
    HR_JC_CASED,
} hr_jclass;
bool hr_jinja_is(uint32_t c, hr_jclass class);
typedef enum hr_jcase { HR_JCASE_UPPER, HR_JCASE_LOWER, HR_JCASE_TITLE, HR_JCASE_FOLD } hr_jcase;
/* Bytes [from, to) of s in another case, as Python maps it, onto b. */
void hr_jinja_put_case(hr_jbuilder *b, const hr_jstr *s, size_t from, size_t to, hr_jcase to_case);
size_t hr_jinja_skip_space(hr_str s, size_t at);
/* Where the white space at the end of s begins. */
size_t hr_jinja_rstrip(hr_str s);

/* value.c */
static inline hr_jval hr_jinja_none(void)
{
    return (hr_jval){ .kind = HR_J_NONE };
}
static inline hr_jval hr_jinja_bool(bool b)
{
    return (hr_jval){ .kind = HR_J_BOOL, .as.b = b };
}
static inline hr_jval hr_jinja_int(int64_t i)
{
    return (hr_jval){ .kind = HR_J_INT, .as.i = i };
}
static inline hr_jval hr_jinja_float(double f)
{
    return (hr_jval){ .kind = HR_J_FLOAT, .as.f = f };
}
HR_MUST_USE hr_status hr_jinja_undefined(hr_jinterp *it, hr_jundefined why, hr_jval *out);
HR_MUST_USE hr_status hr_jinja_hint(hr_jinterp *it, const char *sentence, hr_jval *out);
HR_MUST_USE hr_status hr_jinja_list(hr_jinterp *it, hr_jkind kind, const hr_jval *items, size_t n,
                                    hr_jval *out);
HR_MUST_USE hr_status hr_jinja_generator(hr_jinterp *it, const hr_jval *items, size_t n,
                                         hr_jval *out);
HR_MUST_USE hr_status hr_jinja_pair(hr_jinterp *it, hr_jval a, hr_jval b, hr_jval *out);
const char *hr_jinja_type_name(hr_jval v); /* as Python's type(v).__name__ */
HR_MUST_USE hr_status hr_jinja_truth(hr_jinterp *it, hr_jval v, bool *out);
HR_MUST_USE hr_status hr_jinja_equal(hr_jinterp *it, hr_jval a, hr_jval b, bool *out);
/* Orders as Python's <; *out < 0, 0, > 0; 2 = unordered (NaN). An error for types that do not
 * compare; `op` is for its message. */
HR_MUST_USE hr_status hr_jinja_order(hr_jinterp *it, hr_jval a, hr_jval b, const char *op,
                                     int *out);
/* False when v has no length. */
bool hr_jinja_length(hr_jval v, size_t *out);
bool hr_jinja_iterable(hr_jval v);
HR_MUST_USE hr_status hr_jinja_iterate(hr_jinterp *it, hr_jval v, hr_jiter *out);
/* *more false at the end. */
HR_MUST_USE hr_status hr_jinja_next(hr_jinterp *it, hr_jiter *i, hr_jval *out, bool *more);
/* Everything that v gives, as an array. */
HR_MUST_USE hr_status hr_jinja_collect(hr_jinterp *it, hr_jval v, const hr_jval **items, size_t *n);
/* An int or a bool as a number; false for other kinds. */
static inline bool hr_jinja_as_int(hr_jval v, int64_t *out)
{
    *out = v.kind == HR_J_BOOL ? v.as.b : v.as.i;
    return v.kind == HR_J_INT || v.kind == HR_J_BOOL;
}

/* sort.c: *order becomes the indices of `keys` [n], sorted. */
typedef enum hr_jsort { HR_JSORT_UP, HR_JSORT_DOWN } hr_jsort;
HR_MUST_USE hr_status hr_jinja_sort(hr_jinterp *it, const hr_jval *keys, size_t n,
                                    hr_jsort direction, size_t *order);

/* dict.c */
HR_MUST_USE hr_status hr_jinja_dict_new(hr_jinterp *it, size_t capacity, hr_jdict **out);
/* An error for keys that Python cannot hash. */
HR_MUST_USE hr_status hr_jinja_dict_set(hr_jinterp *it, hr_jdict *d, hr_jval key, hr_jval value);
/* The same for a string that is known not to be a key yet. */
HR_MUST_USE hr_status hr_jinja_dict_add(hr_jinterp *it, hr_jdict *d, hr_jval key, hr_jval value);
/* *out NULL when absent. */
HR_MUST_USE hr_status hr_jinja_dict_get(hr_jinterp *it, const hr_jdict *d, hr_jval key,
                                        const hr_jval **out);
const hr_jval *hr_jinja_dict_find(const hr_jdict *d, hr_str key);
bool hr_jinja_hashable(hr_jval v);

/* print.c */
HR_MUST_USE hr_status hr_jinja_print(hr_jbuilder *b, hr_jval v); /* Python's str() */
HR_MUST_USE hr_status hr_jinja_repr(hr_jbuilder *b, hr_jval v);
HR_MUST_USE hr_status hr_jinja_to_str(hr_jinterp *it, hr_jval v, hr_jval *out);

/* tojson.c */
HR_MUST_USE hr_status hr_jinja_from_json(hr_jinterp *it, const hr_json *j, bool data, hr_jval *out);
hr_status hr_jinja_filter_tojson(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out);

/* ops.c */
HR_MUST_USE hr_status hr_jinja_binary(hr_jinterp *it, hr_jop op, hr_jval a, hr_jval b,
                                      hr_jval *out);
HR_MUST_USE hr_status hr_jinja_unary(hr_jinterp *it, hr_jop op, hr_jval a, hr_jval *out);
HR_MUST_USE hr_status hr_jinja_compare(hr_jinterp *it, hr_jop op, hr_jval a, hr_jval b, bool *out);

/* attr.c */
HR_MUST_USE hr_status hr_jinja_getattr(hr_jinterp *it, hr_jval of, hr_str name, hr_jval *out);
HR_MUST_USE hr_status hr_jinja_getitem(hr_jinterp *it, hr_jval of, hr_jval index, hr_jval *out);
HR_MUST_USE hr_status hr_jinja_slice(hr_jinterp *it, hr_jval of, hr_jval start, hr_jval stop,
                                     hr_jval step, hr_jval *out);
/* "a.b.0" as the filters take it (or an int, or NONE for the value itself). */
HR_MUST_USE hr_status hr_jinja_attr_path(hr_jinterp *it, hr_jval of, hr_jval path, hr_jval *out);

/* call.c */
HR_MUST_USE hr_status hr_jinja_call(hr_jinterp *it, hr_jval callee, const hr_jargs *args,
                                    hr_jval *out);
HR_MUST_USE hr_status hr_jinja_apply(hr_jinterp *it, const hr_jfunction *f, hr_jval self,
                                     const hr_jargs *args, hr_jval *out);
HR_MUST_USE hr_status hr_jinja_bind(hr_jinterp *it, const hr_jfunction *f, hr_jval self,
                                    hr_jval *out);

/* eval.c, exec.c, loop.c */
HR_MUST_USE hr_status hr_jinja_eval(hr_jinterp *it, const hr_jnode *n, hr_jval *out);
/* A filter node over a value that was captured from a block. */
HR_MUST_USE hr_status hr_jinja_eval_filter(hr_jinterp *it, const hr_jnode *n, const hr_jval *block,
                                           hr_jval *out);
HR_MUST_USE hr_status hr_jinja_eval_args(hr_jinterp *it, const hr_jnode *n, const hr_jval *caller,
                                         hr_jargs *out);
typedef enum hr_jflow { HR_JF_NEXT, HR_JF_BREAK, HR_JF_CONTINUE } hr_jflow;
HR_MUST_USE hr_status hr_jinja_exec(hr_jinterp *it, const hr_jblock *body, hr_jflow *flow);
HR_MUST_USE hr_status hr_jinja_enter_scope(hr_jinterp *it, const hr_jscope *s);
HR_MUST_USE hr_status hr_jinja_assign(hr_jinterp *it, const hr_jnode *target, hr_jval v);
HR_MUST_USE hr_status hr_jinja_for(hr_jinterp *it, const hr_jnode *n, hr_jflow *flow);
HR_MUST_USE hr_status hr_jinja_loop_attr(hr_jinterp *it, hr_jloop *l, hr_str name, hr_jval *out);
HR_MUST_USE hr_status hr_jinja_loop_call(hr_jinterp *it, hr_jloop *l, const hr_jargs *args,
                                         hr_jval *out);
HR_MUST_USE hr_status hr_jinja_macro_call(hr_jinterp *it, const hr_jmacro *m, const hr_jargs *args,
                                          hr_jval *out);
static inline hr_jval *hr_jinja_slot(hr_jinterp *it, hr_jref ref)
{
    hr_jactivation *a = it->here;
    for (uint32_t i = 0; i < ref.hops; i++) a = a->outer;
    return &a->slots[ref.slot];
}

/* text.c: operations on strings that filters and methods share; `self` is a STR */
hr_status hr_jinja_str_strip(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out);
hr_status hr_jinja_str_replace(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out);
hr_status hr_jinja_str_upper(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out);
hr_status hr_jinja_str_lower(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out);
hr_status hr_jinja_str_capitalize(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out);
hr_status hr_jinja_str_center(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out);
typedef enum hr_jsides { HR_JSIDE_LEFT = 1, HR_JSIDE_RIGHT = 2, HR_JSIDE_BOTH = 3 } hr_jsides;
/* `chars` MISSING or NONE: white space. */
HR_MUST_USE hr_status hr_jinja_strip(hr_jinterp *it, const hr_jstr *s, hr_jval chars,
                                     hr_jsides sides, hr_jval *out);
/* At most `count` times; < 0 = all. */
HR_MUST_USE hr_status hr_jinja_replace(hr_jinterp *it, const hr_jstr *s, const hr_jstr *old,
                                       const hr_jstr *with, int64_t count, hr_jval *out);
/* `fill` MISSING: blanks. */
HR_MUST_USE hr_status hr_jinja_pad(hr_jinterp *it, const hr_jstr *s, size_t left, size_t right,
                                   hr_jval fill, hr_jval *out);
HR_MUST_USE hr_status hr_jinja_join(hr_jinterp *it, const hr_jstr *separator, const hr_jval *items,
                                    size_t n, hr_jval *out);
/* Where the line that begins at `at` ends, and where the next one begins (str.splitlines). */
size_t hr_jinja_line_end(const hr_jstr *s, size_t at, size_t *next);
/* Python's int(text, base) and float(text); false when the text is no such number. */
bool hr_jinja_parse_int(hr_str text, int base, int64_t *out);
bool hr_jinja_parse_float(hr_str text, double *out);
/* Do all characters belong to the class? False for an empty string. */
bool hr_jinja_all(const hr_jstr *s, hr_jclass class);
/* islower, isupper: some cased character, none of the other case. */
bool hr_jinja_all_cased(const hr_jstr *s, hr_jclass class);

/* methods_str.c */
const hr_jfunction *hr_jinja_find_str_method(hr_str name);
/* filters_list.c, filters_pick.c, filters_text.c: the tables that filters.c joins */
extern const hr_jfilter hr_jinja_list_filters[], hr_jinja_pick_filters[], hr_jinja_text_filters[];

/* filters.c, tests.c, methods.c, globals.c: tables */
const hr_jfilter *hr_jinja_find_filter(hr_str name);
const hr_jtest *hr_jinja_find_test(hr_str name);
const hr_jfunction *hr_jinja_find_method(hr_jval of, hr_str name);
/* *out MISSING when there is none of that name. */
HR_MUST_USE hr_status hr_jinja_find_global(hr_jinterp *it, hr_str name, hr_jval *out);
bool hr_jinja_is_type(hr_jval v); /* is it a class in Python? */
/* dict.name, MISSING when there is no such thing. */
HR_MUST_USE hr_status hr_jinja_dict_attr(hr_jinterp *it, hr_jval of, hr_str name, hr_jval *out);

/* format.c */
HR_MUST_USE hr_status hr_jinja_percent(hr_jinterp *it, const hr_jstr *format, hr_jval values,
                                       hr_jval *out);
hr_status hr_jinja_method_format(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out);
/* strftime.c */
HR_MUST_USE hr_status hr_jinja_strftime(hr_jbuilder *b, const hr_jstr *format, const struct tm *tm,
                                        int microseconds);

#endif
