/* StableHLO of the writes to tables that live on the device.
 *
 * One write after another in a loop that carries the table, so that it changes in place, the order
 * of writes to one place is the list's, and entries past the last used one cost nothing. */
#include "pjrt/hlo_exact.h"

typedef struct writes {
    hr_hlo_value slots;    /* i32 [U]; < 0 = none */
    hr_hlo_value ids, add; /* i32 [U], of count_tokens */
    hr_hlo_value rows;     /* [U,W], of write_rows */
    hr_hlo_value used;     /* i32: entries up to the last one that writes */
} writes;

/* carried: entry i32, table */
static hr_hlo_value writes_more(hr_hlo *h, void *ctx, const hr_hlo_value *carried)
{
    return hr_hlo_compare(h, "LT", carried[0], ((const writes *)ctx)->used);
}

static hr_hlo_value write_all(hr_hlo *h, hr_hlo_value table, writes *w, hr_hlo_body_fn one)
{
    hr_hlo_value carried[] = { hr_hlo_splat_i(h, hr_hlo_scalar(HR_HLO_I32), 0), table };
    hr_hlo_value end = hr_hlo_binary_i(h, "add", hr_hlo_iota(h, w->slots.shape, 0), 1);
    end = hr_hlo_select(h, hr_hlo_compare_i(h, "GE", w->slots, 0), end,
                        hr_hlo_splat_i(h, end.shape, 0));
    w->used = hr_hlo_reduce(h, "maximum", end, 0);
    w->used = hr_hlo_binary_i(h, "maximum", w->used, 0); /* of an empty list too */
    hr_hlo_while(h, carried, 2, writes_more, one, w);
    return carried[1];
}

/* Entry i of [U], as [1], or row i of [U,W], as [1,W]. */
static hr_hlo_value entry(hr_hlo *h, hr_hlo_value list, hr_hlo_value i)
{
    hr_hlo_value starts[] = { i, hr_hlo_splat_i(h, hr_hlo_scalar(HR_HLO_I32), 0) };
    return hr_hlo_dynamic_slice(h, list, starts, (int64_t[]){ 1, list.shape.dim[1] });
}

static void next(hr_hlo *h, hr_hlo_value *carried)
{
    carried[0] = hr_hlo_binary_i(h, "add", carried[0], 1);
}

/* ---- counts --------------------------------------------------------------------------------- */

static void clear_one(hr_hlo *h, void *ctx, hr_hlo_value *carried)
{
    const writes *w = ctx;
    hr_hlo_shape row = HR_HLO_SHAPE(UI16, 1, carried[1].shape.dim[1]);
    carried[1] = hr_hlo_scatter(h, carried[1], entry(h, w->slots, carried[0]),
                                hr_hlo_splat_i(h, row, 0), HR_HLO_SCATTER_SET);
    next(h, carried);
}

/* A count after `add`; i32. Bit 15: in the prompt, rest: times generated. */
static hr_hlo_value counted(hr_hlo *h, hr_hlo_value count, hr_hlo_value add)
{
    hr_hlo_value mark = hr_hlo_binary_i(h, "or", count, 0x8000);
    hr_hlo_value generated = hr_hlo_binary_i(h, "and", count, 0x7FFF);
    hr_hlo_value more = hr_hlo_binary_i(h, "minimum", add, 0x7FFF); /* so that the sum fits */
    more = hr_hlo_binary(h, "add", generated, more);
    more = hr_hlo_binary_i(h, "minimum", more, 0x7FFF);
    more = hr_hlo_binary(h, "or", more, hr_hlo_binary_i(h, "and", count, 0x8000));
    return hr_hlo_select(h, hr_hlo_compare_i(h, "LT", add, 0), mark, more);
}

static void count_one(hr_hlo *h, void *ctx, hr_hlo_value *carried)
{
    const writes *w = ctx;
    hr_hlo_shape one = HR_HLO_SHAPE(I32, 1, 1);
    hr_hlo_value pair[] = { hr_hlo_reshape(h, entry(h, w->slots, carried[0]), one),
                            hr_hlo_reshape(h, entry(h, w->ids, carried[0]), one) };
    hr_hlo_value at = hr_hlo_concatenate(h, pair, 2, 1);
    hr_hlo_value count = hr_hlo_convert(h, hr_hlo_gather(h, carried[1], at), HR_HLO_I32);
    count = counted(h, count, entry(h, w->add, carried[0]));
    carried[1] = hr_hlo_scatter(h, carried[1], at, hr_hlo_convert(h, count, HR_HLO_UI16),
                                HR_HLO_SCATTER_SET);
    next(h, carried);
}

hr_status hr_hlo_emit_count_tokens(hr_hlo_emit *e)
{
    writes clear = { .slots = e->in[1] };
    writes count = { .slots = e->in[2], .ids = e->in[3], .add = e->in[4] };
    hr_hlo_value table = write_all(e->h, e->in[0], &clear, clear_one);
    e->out[0] = write_all(e->h, table, &count, count_one);
    return HR_OK;
}

/* ---- rows ----------------------------------------------------------------------------------- */

static void write_one(hr_hlo *h, void *ctx, hr_hlo_value *carried)
{
    const writes *w = ctx;
    carried[1] = hr_hlo_scatter(h, carried[1], entry(h, w->slots, carried[0]),
                                entry(h, w->rows, carried[0]), HR_HLO_SCATTER_SET);
    next(h, carried);
}

hr_status hr_hlo_emit_write_rows(hr_hlo_emit *e)
{
    writes w = { .slots = e->in[2], .rows = e->in[1] };
    e->out[0] = write_all(e->h, e->in[0], &w, write_one);
    return HR_OK;
}
