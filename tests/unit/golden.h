/* Text compared with a file in tests/golden. HEADRACE_UPDATE_GOLDEN=1 rewrites the file instead:
 * what it then holds is read by a person before it is committed. */
#ifndef HEADRACE_TESTS_GOLDEN_H
#define HEADRACE_TESTS_GOLDEN_H

#include <stdio.h>

#include "base/file.h"
#include "graph/graph.h"

static inline void golden_text(hr_str text, const char *name)
{
    char path[512];
    hr_buf want = { 0 };
    snprintf(path, sizeof path, HR_SOURCE_DIR "/tests/golden/%s.txt", name);
    if (getenv("HEADRACE_UPDATE_GOLDEN")) assert_int_equal(hr_file_write_atomic(path, text), HR_OK);
    if (hr_file_slurp(path, 1 << 20, &want)) fail_msg("%s", hr_message());
    if (!hr_str_eq(hr_buf_str(&want), text))
        fail_msg("differs from %s:\n%.*s", path, (int)text.n, text.p);
    hr_buf_deinit(&want);
}

/* tests/golden/graph_<name>.txt */
static inline void golden_graph(const hr_graph *g, const char *name)
{
    char file[64];
    hr_buf text = { 0 };
    hr_graph_print(g, &text);
    assert_int_equal(hr_buf_status(&text), HR_OK);
    snprintf(file, sizeof file, "graph_%s", name);
    golden_text(hr_buf_str(&text), file);
    hr_buf_deinit(&text);
}

#endif
