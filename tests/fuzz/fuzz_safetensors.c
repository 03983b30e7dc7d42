/* Any bytes as a safetensors file: refused in words, or all that it says of its tensors holds: they
 * lie in it, side by side, and together are all of its data. */
#include "fuzz/fuzz_file.h"
#include "model/model_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    fuzz_file f = fuzz_file_make(data, n);
    hr_arena arena = { 0 };
    hr_checkpoint c = { .arena = &arena };
    hr_status st = hr_safetensors_read(f.path, &c);
    fuzz_require(st != HR_INTERNAL, "a file is never our bug");
    fuzz_require(!st || hr_message()[0], "a refusal has its words");
    uint64_t bytes = 0;
    for (size_t i = 0; i < c.n && !st; i++) {
        const hr_tensor *t = c.tensors[i];
        fuzz_require(t->offset <= n && t->bytes <= n - t->offset, "tensors lie in the file");
        bytes += t->bytes;
    }
    fuzz_require(bytes <= n, "and beside each other");
    if (!st) {
        st = hr_checkpoint_index(&c);
        fuzz_require(st != HR_INTERNAL && (!st || hr_message()[0]), "two of one name, in words");
    }
    hr_checkpoint_deinit(&c);
    hr_arena_deinit(&arena);
    close(f.fd);
    return 0;
}
