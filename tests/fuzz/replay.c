/* Runs a fuzz target over files, for builds without libFuzzer: the inputs that once found something
 * are tests for every compiler. Called as libFuzzer would be: FILE… */
#include "fuzz/fuzz.h"

static int replay(const char *path)
{
    FILE *f = fopen(path, "rb");
    uint8_t *data = malloc(1 << 20);
    if (!f || !data) {
        perror(path);
        return 1;
    }
    size_t n = fread(data, 1, 1 << 20, f);
    fclose(f);
    uint8_t *exact = malloc(n ? n : 1); /* no slack behind the input: reading past it is seen */
    for (size_t i = 0; exact && i < n; i++) exact[i] = data[i];
    free(data);
    if (exact) LLVMFuzzerTestOneInput(exact, n);
    free(exact);
    return !exact;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (replay(argv[i])) return 1;
    printf("%d inputs\n", argc - 1);
    return argc < 2;
}
