/* The GGUF reader on good and hostile files (F09, G05). */
#include "model_files.h"

/* ---- a small good file ---------------------------------------------------------------------- */

static const float numbers[64] = { 1, 2, 3, 4, 5, 6, 7, 8 };

static void add_good_parts(gguf_file *f)
{
    *f = (gguf_file){ .alignment = 32 };
    gguf_text(f, "general.architecture", "llama");
    gguf_u32(f, "a.u32", 7);
    gguf_f32(f, "a.f32", 0.5f);
    gguf_key(f, "a.i8", HR_GGUF_I8);
    hr_buf_add_byte(&f->values, (char)-3);
    gguf_key(f, "a.list", HR_GGUF_ARRAY);
    put_u32(&f->values, HR_GGUF_STRING);
    put_u64(&f->values, 2);
    put_str(&f->values, "one");
    put_str(&f->values, "");
    gguf_key(f, "a.numbers", HR_GGUF_ARRAY);
    put_u32(&f->values, HR_GGUF_I32);
    put_u64(&f->values, 3);
    for (uint32_t i = 0; i < 3; i++) put_u32(&f->values, i + 10);
    gguf_tensor(f, "output_norm.weight", (const uint64_t[4]){ 4 }, 0, numbers, 16);
    gguf_tensor(f, "blk.12.attn_q.weight", (const uint64_t[4]){ 4, 2 }, 0, numbers, 32);
}

/* Reads scratch/name into a checkpoint; the caller closes. */
typedef struct opened {
    hr_arena arena;
    hr_checkpoint c;
    hr_gguf g;
} opened;

static hr_status open_gguf(const char *name, opened *o)
{
    *o = (opened){ 0 };
    o->c.arena = &o->arena;
    return hr_gguf_read(at(name), &o->c, &o->g);
}

static void close_gguf(opened *o)
{
    hr_gguf_deinit(&o->g);
    hr_checkpoint_deinit(&o->c);
    hr_arena_deinit(&o->arena);
}

static void reads_a_good_file(void **state)
{
    (void)state;
    gguf_file f;
    hr_buf b = { 0 };
    opened o;
    add_good_parts(&f);
    gguf_finish(&f, &b);
    put_file("good.gguf", b.p, b.n);
    hr_status st = open_gguf("good.gguf", &o);
    if (st) fail_msg("%s", hr_message());

    int64_t n = 0;
    double d = 0;
    assert_int_equal(hr_gguf_i64(&o.g, "a.u32", HR_REQUIRED, &n), HR_OK);
    assert_int_equal(n, 7);
    assert_int_equal(hr_gguf_i64(&o.g, "a.i8", HR_REQUIRED, &n), HR_OK);
    assert_int_equal(n, -3);
    assert_int_equal(hr_gguf_f64(&o.g, "a.f32", HR_REQUIRED, &d), HR_OK);
    assert_true(d == 0.5);
    n = 99;
    assert_int_equal(hr_gguf_i64(&o.g, "a.none", HR_OPTIONAL, &n), HR_OK);
    assert_int_equal(n, 99);
    assert_int_equal(hr_gguf_i64(&o.g, "a.none", HR_REQUIRED, &n), HR_INVALID_ARGUMENT);
    assert_int_equal(hr_gguf_i64(&o.g, "a.f32", HR_REQUIRED, &n), HR_INVALID_ARGUMENT);
    const hr_gguf_value *list = hr_gguf_get(&o.g, "a.list");
    assert_int_equal(list->count, 2);
    assert_true(hr_str_eq_c(((const hr_str *)list->items)[0], "one"));
    assert_int_equal(((const int32_t *)hr_gguf_get(&o.g, "a.numbers")->items)[2], 12);

    hr_tensor *t = hr_checkpoint_find(&o.c, HR_STR("model.layers.12.self_attn.q_proj.weight"));
    assert_non_null(t);
    assert_true(hr_shape_eq(t->weight.shape, HR_SHAPE(2, 4)));
    float row[4];
    assert_int_equal(t->weight.read_rows(&t->weight, 1, 1, row), HR_OK);
    assert_true(row[0] == 5 && row[3] == 8);
    assert_int_equal(t->weight.read_rows(&t->weight, 1, 2, row), HR_INTERNAL);
    assert_non_null(hr_checkpoint_find(&o.c, HR_STR("model.norm.weight")));
    close_gguf(&o);

    /* A file that shrinks after it was checked is a status, not a crash. */
    assert_int_equal(open_gguf("good.gguf", &o), HR_OK);
    assert_int_equal(truncate(at("good.gguf"), (off_t)b.n - 8), 0);
    t = hr_checkpoint_find(&o.c, HR_STR("model.layers.12.self_attn.q_proj.weight"));
    assert_int_equal(t->weight.read_rows(&t->weight, 1, 1, row), HR_DATA_LOSS);
    close_gguf(&o);
    hr_buf_deinit(&b);
}

/* Every proper prefix of a good file is refused. */
static void refuses_every_prefix(void **state)
{
    (void)state;
    gguf_file f;
    hr_buf b = { 0 };
    add_good_parts(&f);
    gguf_finish(&f, &b);
    for (size_t n = 0; n < b.n; n++) {
        opened o;
        put_file("prefix.gguf", b.p, n);
        hr_status st = open_gguf("prefix.gguf", &o);
        if (st != HR_INVALID_ARGUMENT && st != HR_DATA_LOSS)
            fail_msg("%zu of %zu bytes: status %d", n, b.n, (int)st);
        close_gguf(&o);
    }
    hr_buf_deinit(&b);
}

static void survives_short_memory(void **state)
{
    (void)state;
    gguf_file f;
    hr_buf b = { 0 };
    add_good_parts(&f);
    gguf_finish(&f, &b);
    put_file("memory.gguf", b.p, b.n);
    hr_buf_deinit(&b);
    for (long n = 0;; n++) {
        watch w;
        opened o;
        watch_start(&w, n);
        hr_status st = open_gguf("memory.gguf", &o);
        close_gguf(&o);
        hr_set_allocator(NULL);
        if (!st) {
            assert_true(n > 5);
            break;
        }
        assert_int_equal(st, HR_RESOURCE_EXHAUSTED);
    }
}

/* ---- hostile files -------------------------------------------------------------------------- */

/* Refused with `words` in the sentence, and no allocation larger than the file and the reader's
 * fixed window. */
static void refuses(hr_buf *b, const char *words)
{
    opened o;
    watch w;
    put_file("bad.gguf", b->p, b->n);
    watch_start(&w, -1);
    hr_status st = open_gguf("bad.gguf", &o);
    close_gguf(&o);
    hr_set_allocator(NULL);
    if (st != HR_INVALID_ARGUMENT && st != HR_DATA_LOSS)
        fail_msg("wanted a refusal about '%s', got status %d", words, (int)st);
    if (!strstr(hr_message(), "bad.gguf") || !strstr(hr_message(), words))
        fail_msg("'%s' is not in: %s", words, hr_message());
    assert_true(w.largest <= (1 << 20) || w.largest <= b->n);
    hr_buf_deinit(b);
}

static void start(hr_buf *b, uint32_t version, uint64_t tensors, uint64_t values)
{
    *b = (hr_buf){ 0 };
    hr_buf_add_c(b, "GGUF");
    put_u32(b, version);
    put_u64(b, tensors);
    put_u64(b, values);
}

static void refuses_bad_headers(void **state)
{
    (void)state;
    hr_buf b = { 0 };
    hr_buf_add_c(&b, "GGML\3\0\0\0and more bytes");
    refuses(&b, "not a GGUF file");
    start(&b, 1, 0, 0);
    refuses(&b, "version 1");
    start(&b, 4, 0, 0);
    refuses(&b, "version 4");
    start(&b, 0x03000000, 0, 0);
    refuses(&b, "big-endian");
    start(&b, 3, UINT64_C(1) << 60, 0);
    refuses(&b, "ends inside its header");
    start(&b, 3, 0, UINT64_C(1) << 60);
    refuses(&b, "ends inside its header");
    start(&b, 3, UINT64_MAX, UINT64_MAX);
    refuses(&b, "ends inside its header");
}

static void refuses_bad_metadata(void **state)
{
    (void)state;
    hr_buf b;
    static const uint64_t lengths[] = { UINT64_C(1) << 63, UINT64_MAX, 1000, INT64_MAX };
    for (size_t i = 0; i < 4; i++) {
        start(&b, 3, 0, 1); /* a key's length */
        put_u64(&b, lengths[i]);
        refuses(&b, "a string is longer than the file");
        start(&b, 3, 0, 1); /* a string's length */
        put_str(&b, "k");
        put_u32(&b, HR_GGUF_STRING);
        put_u64(&b, lengths[i]);
        refuses(&b, "a string is longer than the file");
        for (uint32_t type = 0; type < HR_GGUF_TYPES; type++) { /* an array's length */
            if (type == HR_GGUF_ARRAY) continue;
            start(&b, 3, 0, 1);
            put_str(&b, "k");
            put_u32(&b, HR_GGUF_ARRAY);
            put_u32(&b, type);
            put_u64(&b, lengths[i]);
            refuses(&b, "an array is longer than the file");
        }
    }
    start(&b, 3, 0, 1);
    put_str(&b, "k");
    put_u32(&b, HR_GGUF_ARRAY);
    put_u32(&b, HR_GGUF_ARRAY);
    put_u64(&b, 1);
    refuses(&b, "arrays of arrays");
    start(&b, 3, 0, 1);
    put_str(&b, "k");
    put_u32(&b, 13);
    refuses(&b, "unknown metadata type");
    start(&b, 3, 0, 1);
    put_str(&b, "k");
    put_u32(&b, HR_GGUF_BOOL);
    hr_buf_add_byte(&b, 2);
    refuses(&b, "not 0 or 1");
    start(&b, 3, 0, 1);
    put_str(&b, "");
    put_u32(&b, HR_GGUF_BOOL);
    hr_buf_add_byte(&b, 1);
    refuses(&b, "a name that is empty");
    start(&b, 3, 0, 1);
    put_u64(&b, 3);
    hr_buf_add(&b, "a\0b", 3);
    put_u32(&b, HR_GGUF_BOOL);
    hr_buf_add_byte(&b, 1);
    refuses(&b, "holds NUL");
    start(&b, 3, 0, 2);
    for (int i = 0; i < 2; i++) {
        put_str(&b, "same.key");
        put_u32(&b, HR_GGUF_U32);
        put_u32(&b, 1);
    }
    refuses(&b, "'same.key' is there twice");
}

static void refuses_bad_alignment(void **state)
{
    (void)state;
    static const uint32_t values[] = { 0, 3, 33, 0x80000000u };
    hr_buf b;
    for (size_t i = 0; i < 4; i++) {
        start(&b, 3, 0, 1);
        put_str(&b, "general.alignment");
        put_u32(&b, HR_GGUF_U32);
        put_u32(&b, values[i]);
        refuses(&b, "general.alignment");
    }
    start(&b, 3, 0, 1);
    put_str(&b, "general.alignment");
    put_u32(&b, HR_GGUF_I32);
    put_u32(&b, 32);
    refuses(&b, "must be a UINT32");
}

/* One tensor "t" with these fields and 4,096 bytes of data. */
static void one_tensor(hr_buf *b, uint32_t rank, const uint64_t *ne, uint32_t type, uint64_t offset)
{
    start(b, 3, 1, 0);
    put_str(b, "t");
    put_u32(b, rank);
    for (uint32_t i = 0; i < rank; i++) put_u64(b, ne[i]);
    put_u32(b, type);
    put_u64(b, offset);
    while (b->n % 32) hr_buf_add_byte(b, 0);
    for (int i = 0; i < 4096; i++) hr_buf_add_byte(b, 0);
}

#define NE(...) ((const uint64_t[]){ __VA_ARGS__ })

static void refuses_bad_tensors(void **state)
{
    (void)state;
    hr_buf b;
    one_tensor(&b, 5, NE(1, 1, 1, 1, 1), 0, 0);
    refuses(&b, "tensor 't' has 5 dimensions");
    one_tensor(&b, 0, NE(1), 0, 0);
    refuses(&b, "tensor 't' has 0 dimensions");
    one_tensor(&b, 2, NE(4, 0), 0, 0);
    refuses(&b, "tensor 't' has a dimension of 0");
    one_tensor(&b, 2, NE(4, UINT64_C(1) << 63), 0, 0);
    refuses(&b, "tensor 't' has a dimension of 9223372036854775808");
    one_tensor(&b, 1, NE(4), 999, 0);
    refuses(&b, "tensor 't' has type 999 (unknown)");
    one_tensor(&b, 1, NE(256), 10, 0);
    refuses(&b, "type 10 (Q2_K)");
    one_tensor(&b, 2, NE(INT64_MAX, 2), 24, 0);
    refuses(&b, "tensor 't' has type 24 (I8)");
    one_tensor(&b, 2, NE(INT64_MAX, 2), 0, 0);
    refuses(&b, "larger than the file");
    one_tensor(&b, 1, NE((UINT64_C(1) << 62) - 1), 0, 0);
    refuses(&b, "larger than the file");
    one_tensor(&b, 4, NE(UINT64_C(1) << 32, UINT64_C(1) << 32, UINT64_C(1) << 32, 1), 1, 0);
    refuses(&b, "larger than the file");
    one_tensor(&b, 2, NE(UINT64_C(1) << 62, 32), 8, 0);
    refuses(&b, "larger than the file");
    one_tensor(&b, 1, NE(1024), 0, 32);
    refuses(&b, "is at offset 32, 0 is expected");
    one_tensor(&b, 1, NE(4), 0, UINT64_MAX - 31);
    refuses(&b, "0 is expected");
    one_tensor(&b, 1, NE(1025), 0, 0);
    refuses(&b, "tensor 't' ends past the end of the file");
}

static void refuses_rows_that_split_a_block(void **state)
{
    (void)state;
    static const struct {
        uint32_t type;
        uint64_t columns;
        const char *words;
    } cases[] = {
        { 8, 172, "172 elements, not a multiple of the 32 in a block of Q8_0" },
        { 2, 33, "block of Q4_0" },
        { 3, 16, "block of Q4_1" },
        { 6, 48, "block of Q5_0" },
        { 7, 31, "block of Q5_1" },
        { 12, 896, "896 elements, not a multiple of the 256" },
        { 13, 128, "block of Q5_K" },
        { 14, 257, "block of Q6_K" },
    };
    hr_buf b;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        one_tensor(&b, 2, NE(cases[i].columns, 256), cases[i].type,
                   0); /* the total is a multiple */
        refuses(&b, cases[i].words);
    }
}

/* Mixed formats in one file are fine; each row lies where its own format puts it. */
static void takes_mixed_formats(void **state)
{
    (void)state;
    static const struct {
        uint32_t type;
        hr_format format;
    } kinds[] = { { 0, HR_FORMAT_F32 },   { 1, HR_FORMAT_F16 },  { 30, HR_FORMAT_BF16 },
                  { 8, HR_FORMAT_Q8_0 },  { 2, HR_FORMAT_Q4_0 }, { 3, HR_FORMAT_Q4_1 },
                  { 6, HR_FORMAT_Q5_0 },  { 7, HR_FORMAT_Q5_1 }, { 12, HR_FORMAT_Q4_K },
                  { 13, HR_FORMAT_Q5_K }, { 14, HR_FORMAT_Q6_K } };
    gguf_file f = { .alignment = 32 };
    hr_buf b = { 0 };
    opened o;
    unsigned char data[256 * 4 * 3], row[256 * 4];
    for (size_t i = 0; i < 11; i++) {
        char name[8];
        snprintf(name, sizeof name, "t%zu", i);
        size_t bytes = hr_format_row_bytes(kinds[i].format, 256);
        for (size_t k = 0; k < 3 * bytes; k++) data[k] = (unsigned char)(i * 16 + k / bytes);
        gguf_tensor(&f, name, (const uint64_t[4]){ 256, 3 }, kinds[i].type, data, 3 * bytes);
    }
    gguf_finish(&f, &b);
    put_file("mixed.gguf", b.p, b.n);
    hr_buf_deinit(&b);
    if (open_gguf("mixed.gguf", &o)) fail_msg("%s", hr_message());
    for (size_t i = 0; i < 11; i++) {
        hr_tensor *t = o.c.tensors[i];
        assert_int_equal(t->weight.format, kinds[i].format);
        for (int64_t r = 0; r < 3; r++) {
            assert_int_equal(t->weight.read_rows(&t->weight, r, 1, row), HR_OK);
            for (size_t k = 0; k < hr_format_row_bytes(kinds[i].format, 256); k++)
                assert_int_equal(row[k], i * 16 + (size_t)r);
        }
    }
    close_gguf(&o);
}

static void refuses_two_tensors_of_one_name_and_gaps(void **state)
{
    (void)state;
    gguf_file f = { .alignment = 32 };
    hr_buf b = { 0 };
    gguf_tensor(&f, "same", (const uint64_t[4]){ 4 }, 0, numbers, 16);
    gguf_tensor(&f, "same", (const uint64_t[4]){ 4 }, 0, numbers, 16);
    gguf_finish(&f, &b);
    refuses(&b, "tensor 'same' is there twice");
    f = (gguf_file){ .alignment = 32 };
    gguf_tensor(&f, "a", (const uint64_t[4]){ 4 }, 0, numbers, 16);
    gguf_pad(&f);
    for (int i = 0; i < 32; i++) hr_buf_add_byte(&f.data, 0);
    gguf_tensor(&f, "b", (const uint64_t[4]){ 4 }, 0, numbers, 16);
    gguf_finish(&f, &b);
    refuses(&b, "tensor 'b' is at offset 64, 32 is expected");
}

/* Two overlapping tensors: the second's offset points into the first. */
static void refuses_overlap(void **state)
{
    (void)state;
    hr_buf b;
    start(&b, 3, 2, 0);
    for (int i = 0; i < 2; i++) {
        put_str(&b, i ? "k" : "q");
        put_u32(&b, 1);
        put_u64(&b, 8);
        put_u32(&b, 0);
        put_u64(&b, 0);
    }
    for (int i = 0; i < 256; i++) hr_buf_add_byte(&b, 0);
    refuses(&b, "tensor 'k' is at offset 0, 32 is expected");
}

/* 3,000 damaged files: read or refused, never anything else (ASan and UBSan watch). */
static void survives_damage(void **state)
{
    (void)state;
    gguf_file f;
    hr_buf b = { 0 };
    add_good_parts(&f);
    gguf_finish(&f, &b);
    char *copy = malloc(b.n);
    for (uint64_t round = 1; round <= 3000; round++) {
        uint64_t seed = round * 977;
        opened o;
        watch w;
        memcpy(copy, b.p, b.n);
        damage(copy, b.n, &seed);
        put_file("damaged.gguf", copy, b.n);
        watch_start(&w, -1);
        hr_status st = open_gguf("damaged.gguf", &o);
        for (size_t i = 0; i < o.c.n && !st; i++) {
            hr_tensor *t = o.c.tensors[i];
            void *row = malloc(hr_format_row_bytes(t->weight.format,
                                                   t->weight.shape.dim[t->weight.shape.rank - 1]));
            assert_int_equal(t->weight.read_rows(&t->weight, 0, 1, row), HR_OK);
            free(row);
        }
        close_gguf(&o);
        hr_set_allocator(NULL);
        if (st && st != HR_INVALID_ARGUMENT && st != HR_DATA_LOSS)
            fail_msg("round %llu: %s", (unsigned long long)round, hr_message());
        assert_true(w.largest <= 1 << 20);
    }
    free(copy);
    hr_buf_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_a_good_file),
        cmocka_unit_test(refuses_every_prefix),
        cmocka_unit_test(survives_short_memory),
        cmocka_unit_test(refuses_bad_headers),
        cmocka_unit_test(refuses_bad_metadata),
        cmocka_unit_test(refuses_bad_alignment),
        cmocka_unit_test(refuses_bad_tensors),
        cmocka_unit_test(refuses_rows_that_split_a_block),
        cmocka_unit_test(takes_mixed_formats),
        cmocka_unit_test(refuses_two_tensors_of_one_name_and_gaps),
        cmocka_unit_test(refuses_overlap),
        cmocka_unit_test(survives_damage),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
