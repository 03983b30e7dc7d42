/* What a step's sampler rows say of their sequences.
 *
 * Engine thread. A sequence has one row, and one more for each draft, which drew what follows if
 * that draft and those before it are right. So rows are taken in order for as long as the token
 * drawn is the draft: each is then what a step of its own would have drawn, with the same logits,
 * the same random word and the same parameters. The first that is another is a token, too; the rows
 * after it saw a text that never was, and nobody looks at them. */
#include <string.h>

#include "base/log.h"
#include "engine/engine_int.h"

/* Appends the token and says whether, and why, the sequence ends with it. */
static hr_finish append_token(hr_seq *q, int32_t token)
{
    q->tokens[q->n_tokens++] = token;
    if (q->grammar) q->grammar->accept(q->grammar_state, token);
    for (size_t i = 0; i < q->n_stop; i++) {
        if (q->stop_ids[i] != token) continue;
        q->stop_id = i < q->n_eos ? -1 : token;
        return HR_FINISH_STOP;
    }
    return hr_seq_outputs(q) >= q->max_tokens ? HR_FINISH_LENGTH : HR_FINISH_NONE;
}

/* As many top entries and named ids as the request asked for. */
static void copy_columns(const hr_step_result *r, hr_step_message *m, const hr_sampler_state *s,
                         size_t from)
{
    const hr_sampling *p = s->sampling;
    size_t top = p->logprobs > 0 ? (size_t)p->logprobs : 0, width = (size_t)r->top;
    size_t extra = p->n_logprob_token_ids, to = (size_t)m->n;
    if (top > width) top = width;
    if (top) {
        memcpy(m->top_ids + to * width, r->top_ids + from * width, top * sizeof *m->top_ids);
        memcpy(m->top_logprobs + to * width, r->top_logprobs + from * width,
               top * sizeof *m->top_logprobs);
    }
    if (extra)
        memcpy(m->extra_logprobs + to * HR_SAMPLING_MAX_EXTRA,
               r->extra_logprobs + from * HR_SAMPLING_MAX_EXTRA, extra * sizeof *m->extra_logprobs);
}

static void copy_trace(const hr_step_result *r, hr_step_trace *t, const hr_seq *q, int64_t i)
{
    if (!q->sampling.sampling->sampling_trace) return;
    *t = (hr_step_trace){ .candidates = { r->trace_grammar[i], r->trace_masks[i] },
                          .entropy = r->trace_sums[2 * i],
                          .share = r->trace_sums[2 * i + 1],
                          .position = q->n_tokens };
    memcpy(t->candidates + 2, r->trace_counts + 3 * i, 3 * sizeof *t->candidates);
    memcpy(t->cuts, r->trace_cuts + 3 * i, sizeof t->cuts);
}

/* Row `i` of the step is the sequence's next token, or says why there is none. */
static hr_finish take_row(hr_engine *e, hr_step_message *m, hr_seq *q, int64_t i)
{
    const hr_step_result *r = &e->runner.result;
    hr_step_row *row = &m->rows[m->n];
    *row = (hr_step_row){ .request = q->request,
                          .choice = q->choice,
                          .token = -1,
                          .stop_id = -1,
                          .cached = q->cached,
                          .started_s = q->started_s };
    if (q->processing.failed) return HR_FINISH_ERROR; /* the log has it */
    if (r->status[i] || r->token[i] < 0) {
        hr_log(HR_LOG_WARNING, "engine: req=%llu choice=%u: %s", (unsigned long long)q->request,
               q->choice,
               r->status[i] == HR_SAMPLER_NAN ? "its logits hold NaN" : "its masks leave no token");
        hr_scheduler_distrust(&e->scheduler, q);
        return HR_FINISH_ERROR;
    }
    row->token = r->token[i];
    row->logprob = r->logprob[i];
    row->rank = r->rank[i];
    copy_columns(r, m, &q->sampling, (size_t)i);
    copy_trace(r, &m->traces[m->n], q, i);
    hr_finish finish = append_token(q, row->token);
    row->stop_id = q->stop_id;
    return finish;
}

static void count_drafts(hr_engine *e, int64_t drafts, int64_t accepted)
{
    hr_engine_stats *s = &e->stats;
    if (!drafts) return;
    hr_counter *tokens = hr_step_prefills(&e->plan) ? &s->prefill_tokens : &s->decode_tokens;
    hr_counter_add(tokens, (uint64_t)accepted);
    hr_counter_add(&s->drafts, 1);
    hr_counter_add(&s->draft_tokens, (uint64_t)drafts);
    hr_counter_add(&s->accepted_tokens, (uint64_t)accepted);
    for (int64_t i = 0; i < accepted; i++) hr_counter_add(&s->accepted_at[i], 1);
}

void hr_engine_take_rows(hr_engine *e, hr_step_item *item, int64_t first, hr_step_message *m)
{
    hr_seq *q = item->seq;
    int64_t accepted = 0;
    for (int64_t i = 0;; i++) {
        int32_t draft =
            i < item->drafts ? q->tokens[q->n_tokens] : -1; /* about to be written over */
        hr_finish finish = take_row(e, m, q, first + i);
        int32_t token = m->rows[m->n].token;
        m->rows[m->n++].finish = item->finish = finish;
        accepted += token >= 0 && token == draft;
        if (finish || token != draft) break;
    }
    count_drafts(e, item->drafts, accepted);
    if (item->drafts && !item->finish) hr_scheduler_accept(&e->scheduler, item);
}
