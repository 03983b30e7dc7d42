/* Between the two halves of logits processors. */
#ifndef HEADRACE_ENGINE_PROCESSOR_INT_H
#define HEADRACE_ENGINE_PROCESSOR_INT_H

#include "engine/processor.h"

enum {
    HR_PROCESSOR_MESSAGE = 256, /* bytes of a processor's own sentence, terminator included */
    HR_PROCESSOR_GUARD = 16,    /* words behind what a processor writes to */
};

/* Makes what a processor wrote fit to be shown; `otherwise` where it wrote nothing. */
void hr_processor_said(char message[HR_PROCESSOR_MESSAGE], const char *otherwise);
/* Of a code that a processor returned; UNKNOWN for a number that is none. */
hr_status hr_processor_status(int code);

#endif
