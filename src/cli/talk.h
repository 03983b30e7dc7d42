/* What the terminal clients share: lines in, streamed answers out, from an engine in this process
 * or from a server. */
#ifndef HEADRACE_CLI_TALK_H
#define HEADRACE_CLI_TALK_H

#include "cli/cli.h"

typedef struct hr_talk hr_talk;

/* Loads the model, or finds the server of --url. Takes SIGINT over. */
HR_MUST_USE hr_status hr_talk_open(hr_args *a, hr_talk **out);
void hr_talk_close(hr_talk *t); /* NULL is fine */

/* The next line of standard input, without its end; `prompt` is shown on a terminal. False at the
 * end of input. */
bool hr_talk_read(hr_talk *t, const char *prompt, hr_buf *line);

typedef enum hr_talk_kind { HR_TALK_TEXT, HR_TALK_MESSAGES } hr_talk_kind;

/* Prints the answer to a text, or to a chat (a JSON array of messages), as it comes, and appends it
 * to `answer`. Ctrl-C ends it early, which is no failure. */
HR_MUST_USE hr_status hr_talk_answer(hr_talk *t, hr_talk_kind kind, hr_str question,
                                     hr_buf *answer);
bool hr_talk_is_terminal(const hr_talk *t); /* standard input is one */

#endif
