/* The safetensors reader on good and hostile files and shards (F01-F04). */
#include "model_files.h"

typedef struct opened {
    hr_arena arena;
    hr_checkpoint c;
} opened;

static hr_status open_file(const char *name, opened *o)
{
    *o = (opened){ 0 };
    o->c.arena = &o->arena;
    hr_status st = hr_safetensors_read(at(name), &o->c);
    return st ? st : hr_checkpoint_index(&o->c);
}

static hr_status open_dir(opened *o)
{
    *o = (opened){ 0 };
    o->c.arena = &o->arena;
    return hr_safetensors_read_dir(scratch, &o->c);
}

static void close_file(opened *o)
{
    hr_checkpoint_deinit(&o->c);
    hr_arena_deinit(&o->arena);
}

static const unsigned char bytes[4096] = { 0 };

/* Refused, with the file and `words` in the sentence, and no allocation out of proportion. */
static void refuses(const char *header, size_t n, const char *words)
{
    opened o;
    watch w;
    put_safetensors("bad.safetensors", header, bytes, n);
    watch_start(&w, -1);
    hr_status st = open_file("bad.safetensors", &o);
    close_file(&o);
    hr_set_allocator(NULL);
    if (st != HR_INVALID_ARGUMENT && st != HR_DATA_LOSS)
        fail_msg("wanted a refusal about '%s', got status %d", words, (int)st);
    if (!strstr(hr_message(), "bad.safetensors") || !strstr(hr_message(), words))
        fail_msg("'%s' is not in: %s", words, hr_message());
    assert_true(w.largest <= 65536);
}

#define ENTRY(name, dtype, shape, begin, end)                                                      \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end   \
    "]}"

static void reads_a_good_file(void **state)
{
    (void)state;
    opened o;
    float row[2] = { 0 };
    static const float data[6] = { 1, 2, 3, 4, 5, 6 };
    /* not in file order, metadata, an empty tensor, a scalar, spaces at the end */
    put_safetensors(
        "good.safetensors",
        "{\"__metadata__\":{\"format\":\"pt\"}," ENTRY("b", "F32", "[1]", "16", "20") "," ENTRY(
            "a", "F32", "[2,2]", "0",
            "16") "," ENTRY("e", "F16", "[0,7]", "16",
                            "16") "," ENTRY("s", "BF16", "[]", "20",
                                            "22") "," ENTRY("h", "F16", "[1]", "22", "24") "}   ",
        data, 24);
    if (open_file("good.safetensors", &o)) fail_msg("%s", hr_message());
    const hr_tensor *a = hr_checkpoint_find(&o.c, HR_STR("a"));
    assert_true(hr_shape_eq(a->weight.shape, HR_SHAPE(2, 2)));
    assert_int_equal(a->weight.read_rows(&a->weight, 1, 1, row), HR_OK);
    assert_true(row[0] == 3 && row[1] == 4);
    assert_int_equal(hr_checkpoint_find(&o.c, HR_STR("h"))->weight.format, HR_FORMAT_F16);
    assert_null(hr_checkpoint_find(&o.c, HR_STR("__metadata__")));
    close_file(&o);
}

static void refuses_shapes_that_do_not_fit_bytes(void **state)
{
    (void)state;
    refuses("{" ENTRY("t", "F32", "[1000,1000]", "0", "4") "}", 4,
            "tensor 't': shape [1000,1000] of F32 does not fill its 4 bytes");
    refuses("{" ENTRY("t", "F32", "[1]", "0", "8") "}", 8, "tensor 't': shape [1]");
    refuses("{" ENTRY("t", "F32", "[1]", "8", "4") "}", 8, "tensor 't': data_offsets end before");
    refuses("{" ENTRY("t", "F32", "[2]", "0", "8") "}", 4, "tensor 't' ends at 8 of 4 data bytes");
    refuses("{" ENTRY("t", "F99", "[1]", "0", "4") "}", 4, "tensor 't': unknown dtype F99");
    refuses("{" ENTRY("t", "F64", "[1]", "0", "8") "}", 8, "tensor 't': unsupported dtype F64");
    refuses("{" ENTRY("t", "f32", "[1]", "0", "4") "}", 4, "tensor 't': unknown dtype f32");
    refuses("{\"t\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "tensor 't': dtype must be");
    refuses("{\"t\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "tensor 't': shape must be");
    refuses("{\"t\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "tensor 't': data_offsets must be");
    refuses("{" ENTRY("t", "F32", "[1]", "-4", "0") "}", 4, "tensor 't': data_offsets must be");
    refuses("{" ENTRY("t", "F32", "[1]", "0.5", "4") "}", 4, "tensor 't': data_offsets must be");
    refuses("{" ENTRY("t", "F32", "[-1]", "0", "4") "}", 4, "tensor 't': a dimension is not");
    refuses("{" ENTRY("t", "F32", "[1,1,1,1,1]", "0", "4") "}", 4, "more than four dimensions");
    refuses("{\"t\":[]}", 0, "tensor 't': its entry must be an object");
    refuses("{" ENTRY("", "F32", "[1]", "0", "4") "}", 4, "its name is empty");
    refuses("{" ENTRY("a\\u0000b", "F32", "[1]", "0", "4") "}", 4, "holds NUL");
}

static void refuses_products_that_wrap(void **state)
{
    (void)state;
    refuses("{" ENTRY("t", "F16", "[4294967296,4294967296]", "0", "0") "}", 0,
            "tensor 't': the product of its shape");
    refuses("{" ENTRY("t", "U8", "[4294967296,4294967296]", "0", "1099511627776") "}", 0,
            "tensor 't': unsupported dtype U8");
    refuses("{" ENTRY("t", "F32", "[4611686018427387904]", "0", "0") "}", 0, "tensor 't': shape");
    refuses("{" ENTRY("t", "F32", "[9223372036854775808]", "0", "4") "}", 4, "a dimension is not");
    refuses("{" ENTRY("t", "F32", "[1]", "0", "18446744073709551620") "}", 4, "data_offsets must");
}

static void refuses_bad_headers(void **state)
{
    (void)state;
    static const uint64_t lengths[] = { UINT64_C(1) << 63, UINT64_MAX, 0, 1, 100, 100000001 };
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        hr_buf b = { 0 };
        opened o;
        put_u64(&b, lengths[i]);
        hr_buf_add_c(&b, "{}");
        put_file("bad.safetensors", b.p, b.n);
        assert_int_equal(open_file("bad.safetensors", &o), HR_INVALID_ARGUMENT);
        assert_non_null(strstr(hr_message(), "bad.safetensors: a header of"));
        close_file(&o);
        hr_buf_deinit(&b);
    }
    for (size_t n = 0; n < 8; n++) {
        opened o;
        put_file("bad.safetensors", "\2\0\0\0\0\0\0", n);
        assert_int_equal(open_file("bad.safetensors", &o), HR_INVALID_ARGUMENT);
        close_file(&o);
    }
    refuses("[]", 0, "the header is not an object");
    refuses("{\"a\":", 0, "header: JSON at byte");
    refuses("{} x", 0, "header: JSON at byte");
    refuses("{" ENTRY("t", "F32", "[1]", "0", "4") "," ENTRY("t", "F32", "[1]", "4", "8") "}", 8,
            "has the key \"t\" twice");
}

static void refuses_overlaps_and_gaps(void **state)
{
    (void)state;
    refuses("{" ENTRY("k", "F32", "[2]", "0", "8") "," ENTRY("v", "F32", "[2]", "0", "8") "}", 8,
            "its bytes overlap those of another tensor");
    refuses("{" ENTRY("k", "F32", "[2]", "0", "8") "," ENTRY("v", "F32", "[2]", "4", "12") "}", 12,
            "tensor 'v': its bytes overlap");
    refuses("{" ENTRY("k", "F32", "[2]", "0", "8") "," ENTRY("v", "F32", "[2]", "16", "24") "}", 24,
            "tensor 'v': a gap lies before its bytes");
    refuses("{" ENTRY("k", "F32", "[2]", "8", "16") "}", 16, "tensor 'k': a gap lies before");
    refuses("{" ENTRY("k", "F32", "[2]", "0", "8") "}", 16, "8 bytes after the last tensor");
    refuses("{}", 16, "16 bytes after the last tensor");
}

static void survives_short_memory(void **state)
{
    (void)state;
    put_safetensors(
        "memory.safetensors",
        "{" ENTRY("a", "F32", "[2,2]", "0", "16") "," ENTRY("b", "F32", "[1]", "16", "20") "}",
        bytes, 20);
    for (long n = 0;; n++) {
        watch w;
        opened o;
        watch_start(&w, n);
        hr_status st = open_file("memory.safetensors", &o);
        close_file(&o);
        hr_set_allocator(NULL);
        if (!st) {
            assert_true(n > 5);
            break;
        }
        assert_int_equal(st, HR_RESOURCE_EXHAUSTED);
    }
}

/* ---- shards --------------------------------------------------------------------------------- */

#define INDEX     "model.safetensors.index.json"
#define ONE(name) "{" ENTRY(name, "F32", "[2]", "0", "8") "}"

static void put_shards(void)
{
    put_safetensors("one.safetensors", ONE("a"), bytes, 8);
    put_safetensors("two.safetensors", ONE("b"), bytes, 8);
    put_text(INDEX, "{\"metadata\":{\"total_size\":16},\"weight_map\":{\"a\":\"one.safetensors\","
                    "\"b\":\"two.safetensors\"}}");
}

static void refuses_dir(hr_status wanted, const char *words)
{
    opened o;
    hr_status st = open_dir(&o);
    close_file(&o);
    if (st != wanted) fail_msg("'%s': status %d: %s", words, (int)st, hr_message());
    if (!strstr(hr_message(), words)) fail_msg("'%s' is not in: %s", words, hr_message());
}

static void reads_only_the_files_of_the_index(void **state)
{
    (void)state;
    opened o;
    put_shards();
    put_safetensors("model.safetensors", ONE("foreign"), bytes, 8);
    put_safetensors("three.safetensors", "{broken", bytes, 8);
    if (open_dir(&o)) fail_msg("%s", hr_message());
    assert_int_equal(o.c.n, 2);
    assert_null(hr_checkpoint_find(&o.c, HR_STR("foreign")));
    close_file(&o);
    unlink(at(INDEX));
    if (open_dir(&o)) fail_msg("%s", hr_message());
    assert_int_equal(o.c.n, 1);
    assert_non_null(hr_checkpoint_find(&o.c, HR_STR("foreign")));
    close_file(&o);
    unlink(at("model.safetensors"));
    refuses_dir(HR_NOT_FOUND, "model.safetensors");
}

static void refuses_bad_shards(void **state)
{
    (void)state;
    put_shards();
    unlink(at("two.safetensors"));
    refuses_dir(HR_NOT_FOUND, "two.safetensors");
    put_shards();
    assert_int_equal(truncate(at("two.safetensors"), 40), 0);
    refuses_dir(HR_INVALID_ARGUMENT, "two.safetensors");
    put_shards();
    struct stat s;
    assert_int_equal(stat(at("two.safetensors"), &s), 0);
    assert_int_equal(truncate(at("two.safetensors"), s.st_size - 4), 0);
    refuses_dir(HR_DATA_LOSS, "two.safetensors: tensor 'b' ends at 8 of 4 data bytes");
    put_shards();
    put_safetensors("two.safetensors", ONE("c"), bytes, 8);
    refuses_dir(HR_INVALID_ARGUMENT, "tensor 'b' is not in two.safetensors");
    put_shards();
    put_safetensors("two.safetensors", ONE("a"), bytes, 8);
    refuses_dir(HR_INVALID_ARGUMENT, "tensor 'a' is there twice");
    put_shards();
    put_safetensors(
        "two.safetensors",
        "{" ENTRY("b", "F32", "[1]", "0", "4") "," ENTRY("extra", "F32", "[1]", "4", "8") "}",
        bytes, 8);
    refuses_dir(HR_INVALID_ARGUMENT, "its files hold 3 tensors, it names 2");
}

static void refuses_bad_indices(void **state)
{
    (void)state;
    put_shards();
    put_text(INDEX, "{\"weight_map\":{\"a\":\"two.safetensors\",\"b\":\"one.safetensors\"}}");
    refuses_dir(HR_INVALID_ARGUMENT, "tensor 'a' is not in two.safetensors");
    put_text(INDEX, "{\"weight_map\":{\"a\":\"../../etc/passwd\"}}");
    refuses_dir(HR_INVALID_ARGUMENT, "'../../etc/passwd' is not a plain file name");
    put_text(INDEX, "{\"weight_map\":{\"a\":\"..\"}}");
    refuses_dir(HR_INVALID_ARGUMENT, "not a plain file name");
    put_text(INDEX, "{\"weight_map\":{\"a\":7}}");
    refuses_dir(HR_INVALID_ARGUMENT, "the file of 'a' is not a string");
    put_text(INDEX, "{\"weight_map\":{}}");
    refuses_dir(HR_INVALID_ARGUMENT, "no weight_map");
    put_text(INDEX, "[]");
    refuses_dir(HR_INVALID_ARGUMENT, "no weight_map");
    put_text(INDEX, "{\"weight_map\":");
    refuses_dir(HR_INVALID_ARGUMENT, INDEX ": JSON at byte");
    unlink(at(INDEX));
}

/* 3,000 damaged files: read or refused, never anything else (ASan and UBSan watch). */
static void survives_damage(void **state)
{
    (void)state;
    static const char header[] = "{\"__metadata__\":{\"format\":\"pt\"}," ENTRY(
        "model.norm.weight", "F32", "[2,2]", "0", "16") "," ENTRY("b", "F16", "[1,3]", "16",
                                                                  "22") "}";
    hr_buf b = { 0 };
    put_u64(&b, sizeof header - 1);
    hr_buf_add_c(&b, header);
    hr_buf_add(&b, bytes, 22);
    char *copy = malloc(b.n);
    for (uint64_t round = 1; round <= 3000; round++) {
        uint64_t seed = round * 977;
        opened o;
        memcpy(copy, b.p, b.n);
        damage(copy, b.n, &seed);
        put_file("damaged.safetensors", copy, b.n);
        hr_status st = open_file("damaged.safetensors", &o);
        close_file(&o);
        if (st && st != HR_INVALID_ARGUMENT && st != HR_DATA_LOSS)
            fail_msg("round %llu: %s", (unsigned long long)round, hr_message());
    }
    free(copy);
    hr_buf_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_a_good_file),
        cmocka_unit_test(refuses_shapes_that_do_not_fit_bytes),
        cmocka_unit_test(refuses_products_that_wrap),
        cmocka_unit_test(refuses_bad_headers),
        cmocka_unit_test(refuses_overlaps_and_gaps),
        cmocka_unit_test(survives_short_memory),
        cmocka_unit_test(survives_damage),
        cmocka_unit_test(reads_only_the_files_of_the_index),
        cmocka_unit_test(refuses_bad_shards),
        cmocka_unit_test(refuses_bad_indices),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
