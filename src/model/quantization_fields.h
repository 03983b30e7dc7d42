/* The fields of a quantization_config, checked by table: a new scheme is rows, not code. */
#ifndef HEADRACE_MODEL_QUANTIZATION_FIELDS_H
#define HEADRACE_MODEL_QUANTIZATION_FIELDS_H

#include "model/quantization.h"

enum { HR_QUANT_MOST_CHOICES = 4 };

/* `choices` are the JSON texts that are supported, strings without their quotes; none = read
 * elsewhere, or whatever it says has no bearing on what is computed. `absent` stands for a field
 * that is not there. */
typedef struct hr_quant_field {
    const char *key, *absent;
    const char *choices[HR_QUANT_MOST_CHOICES];
} hr_quant_field;

/* A row of a field that may say anything. */
#define HR_QUANT_ANY(key)                                                                          \
    {                                                                                              \
        key, "",                                                                                   \
        {                                                                                          \
            NULL                                                                                   \
        }                                                                                          \
    }

typedef struct hr_quant_fields {
    const hr_quant_field *fields;
    size_t n;
} hr_quant_fields;

#define HR_QUANT_FIELDS(list) ((hr_quant_fields){ list, sizeof(list) / sizeof *(list) })

/* Every field of `o` is in the table and says what is supported, or is refused as
 * "config.json: where.field …". */
hr_status hr_quant_check(const char *where, hr_quant_fields t, const hr_json *o);
hr_status hr_quant_refuse(const char *where, hr_str key, hr_str text, const char *const *choices);
/* As choices spell it: "null", "true", a number's or a string's text. */
hr_str hr_quant_text(const hr_json *v);

/* A list of names into the arena; patterns must compile. */
hr_status hr_quant_read_names(const char *what, const hr_json *list, hr_arena *arena,
                              hr_quant_names *out);

/* quantization_gptq.c: quant_method "gptq" and "awq", already known as such. */
hr_status hr_quant_read_gptq(const hr_json *json, hr_arena *arena, hr_quantization *q);
hr_status hr_quant_read_awq(const hr_json *json, hr_arena *arena, hr_quantization *q);

#endif
