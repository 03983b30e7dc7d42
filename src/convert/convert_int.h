/* Inside the convert room. */
#ifndef HEADRACE_CONVERT_CONVERT_INT_H
#define HEADRACE_CONVERT_CONVERT_INT_H

#include <stdio.h>

#include "base/json.h"
#include "convert/convert.h"
#include "model/model.h"

/* ---- loss.c: what quantising did to a matrix --------------------------------------------------
 */

/* Sums over all its numbers. */
typedef struct hr_loss {
    double most;    /* largest |new - old| */
    double squares; /* of new - old */
    double old_old, new_new, old_new;
    int64_t n;
} hr_loss;

/* `new` times `scale` stands for `old`. */
void hr_loss_add(hr_loss *l, const float *old, const float *new, double scale, int64_t n);
double hr_loss_rms(const hr_loss *l);    /* of new - old, over that of old; 0 where all are 0 */
double hr_loss_cosine(const hr_loss *l); /* 1 where all are 0 */

/* ---- entries.c: the tensors of the new checkpoint ---------------------------------------------
 */

typedef struct hr_entry {
    const char *name;
    const hr_weight *weight; /* whose numbers, or, with is_scale, whose scales */
    bool is_scale;
    const char *dtype; /* as safetensors spells it */
    int64_t shape[2];
    int rank;
    uint64_t bytes, offset; /* offset in its file's data */
    size_t shard;
    hr_loss loss;  /* of a quantised matrix, once it is written */
    float *scales; /* owned; with is_scale: those of the matrix just written */
} hr_entry;

typedef struct hr_entries {
    hr_entry *at;   /* owned [n] */
    hr_arena names; /* of scales */
    size_t n, shards;
    uint64_t bytes;
} hr_entries;

/* Every weight of the model, a quantised one with its scales behind it, dealt out to files of at
 * most `shard_bytes`, or of one tensor. */
HR_MUST_USE hr_status hr_entries_make(const hr_model *m, uint64_t shard_bytes, hr_entries *out);
/* The bytes of entry i, in pieces, to `file`; each matrix is read once. A quantised one is
 * measured, and leaves its scales to the entry behind it, which is written next. */
HR_MUST_USE hr_status hr_entry_write(hr_entries *e, size_t i, FILE *file, const char *path);
void hr_entries_deinit(hr_entries *e);

/* ---- folder.c: a folder that appears whole -----------------------------------------------------
 */

typedef struct hr_new_folder {
    hr_buf path;     /* terminated: beside the place it will have */
    const char *out; /* that place */
} hr_new_folder;

HR_MUST_USE hr_status hr_new_folder_begin(const char *out, hr_new_folder *f);
/* "folder/name", terminated; holds until the next call with the same buffer. */
HR_MUST_USE hr_status hr_new_folder_path(const hr_new_folder *f, const char *name, hr_buf *path);
/* Renames it to its place. */
HR_MUST_USE hr_status hr_new_folder_finish(hr_new_folder *f);
/* Removes it unless it was finished. */
void hr_new_folder_deinit(hr_new_folder *f);

/* The files beside the weights, as they are; config.json with quantization_config in it. */
HR_MUST_USE hr_status hr_folder_copy_texts(const char *from, const hr_new_folder *to);
HR_MUST_USE hr_status hr_folder_write_config(const char *from, const hr_convert_options *o,
                                             int64_t columns, const hr_new_folder *to);

/* ---- shards.c ----------------------------------------------------------------------------------
 */

/* model.safetensors, or model-00001-of-00002.safetensors … and their index. */
HR_MUST_USE hr_status hr_shards_write(hr_entries *e, const hr_new_folder *to,
                                      const hr_convert_options *o);

#endif
