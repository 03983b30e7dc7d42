/* Any bytes as a GGUF file: refused in words, or its metadata are a configuration and a vocabulary
 * or are refused in words, and every tensor can be read from end to end. */
#include "fuzz/fuzz_file.h"
#include "model/model_int.h"

static void check_status(hr_status st)
{
    fuzz_require(st != HR_INTERNAL, "a file is never our bug");
    fuzz_require(!st || hr_message()[0], "a refusal has its words");
}

static void check_tensors(const hr_checkpoint *c, uint64_t size)
{
    for (size_t i = 0; i < c->n; i++) {
        const hr_tensor *t = c->tensors[i];
        fuzz_require(t->offset <= size && t->bytes <= size - t->offset, "tensors lie in the file");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    fuzz_file f = fuzz_file_make(data, n);
    hr_arena arena = { 0 };
    hr_checkpoint c = { .arena = &arena };
    hr_gguf g = { 0 };
    hr_config config = { 0 };
    hr_model_vocab vocab = { 0 };
    const hr_family *family;
    hr_status st = hr_gguf_read(f.path, &c, &g);
    check_status(st);
    if (!st) {
        check_tensors(&c, n);
        st = hr_checkpoint_index(&c);
        check_status(st);
        if (!st) check_status(hr_config_from_gguf(&g, &c, &arena, &config, &family));
        check_status(hr_vocab_from_gguf(&g, &arena, &vocab));
    }
    hr_gguf_deinit(&g);
    hr_checkpoint_deinit(&c);
    hr_arena_deinit(&arena);
    close(f.fd);
    return 0;
}
