/* Any bytes as a saved result of a benchmark: refused in words, or its table is text. */
#include "base/utf8.h"
#include "bench/bench.h"
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    hr_buf table = { 0 };
    hr_str json = { (const char *)data, n };
    hr_status st = hr_bench_table(json, "ttft,tpot,itl,e2el", "50,99,99.9", &table);
    fuzz_require(st != HR_INTERNAL, "a file is never our bug");
    fuzz_require(!st || hr_message()[0], "a refusal has its words");
    fuzz_require(st || table.n > 0, "a table");
    hr_buf_deinit(&table);
    return 0;
}
