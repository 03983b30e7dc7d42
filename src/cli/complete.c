/* headrace complete: every line of standard input is a prompt, and is continued.
 *
 * Main thread. On a terminal the prompt is not repeated: the answer continues what was typed. */
#include <stdio.h>

#include "cli/talk.h"

int hr_cli_complete(hr_args *a)
{
    hr_talk *t;
    if (hr_talk_open(a, &t)) return hr_cli_complain();
    int exit_status = 0;
    hr_buf line = { 0 }, answer = { 0 };
    while (hr_talk_read(t, "> ", &line)) {
        if (line.n && hr_talk_answer(t, HR_TALK_TEXT, hr_buf_str(&line), &answer))
            exit_status = hr_cli_complain();
        hr_buf_clear(&line);
        hr_buf_clear(&answer);
    }
    hr_buf_deinit(&line);
    hr_buf_deinit(&answer);
    hr_talk_close(t);
    return exit_status;
}
