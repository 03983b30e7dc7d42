/* A pairing heap threaded through the sequences themselves.
 *
 * Engine thread only; owns nothing. Arrivals, preempted ones that come back to their old place and
 * cancels anywhere in the middle all cost O(1) or O(log n), and none allocates. Under the fcfs
 * policy every priority is 0, so the same order serves both. In a tree, `next` and `previous` are
 * siblings; the first child's `previous` is its parent. */
#include "engine/waiting.h"

bool hr_waiting_before(const hr_seq *a, const hr_seq *b)
{
    if (a->priority != b->priority) return a->priority < b->priority;
    if (a->request != b->request) return a->request < b->request;
    return a->choice < b->choice;
}

/* Two trees become one: the later root is the earlier one's first child. Either may be NULL. */
static hr_seq *meld(hr_seq *a, hr_seq *b)
{
    if (!a) return b;
    if (!b) return a;
    if (hr_waiting_before(b, a)) {
        hr_seq *t = a;
        a = b;
        b = t;
    }
    b->previous = a;
    b->next = a->child;
    if (a->child) a->child->previous = b;
    a->child = b;
    return a;
}

/* The first tree of a chain of siblings, on its own; the chain goes on without it. */
static hr_seq *cut_first(hr_seq **chain)
{
    hr_seq *q = *chain;
    if (!q) return NULL;
    *chain = q->next;
    q->next = q->previous = NULL;
    return q;
}

/* All trees of a chain as one: in pairs from left to right, then from right to left. */
static hr_seq *meld_all(hr_seq *chain)
{
    hr_seq *pairs = NULL, *root = NULL;
    while (chain) {
        hr_seq *a = cut_first(&chain), *b = cut_first(&chain), *pair = meld(a, b);
        pair->next = pairs;
        pairs = pair;
    }
    while (pairs) {
        hr_seq *pair = pairs;
        pairs = pair->next;
        pair->next = NULL;
        root = meld(root, pair);
    }
    return root;
}

void hr_waiting_add(hr_waiting *w, hr_seq *q)
{
    q->next = q->previous = q->child = NULL;
    w->first = meld(w->first, q);
    w->n++;
}

void hr_waiting_remove(hr_waiting *w, hr_seq *q)
{
    hr_seq *rest = meld_all(q->child);
    if (q == w->first) w->first = rest;
    else {
        if (q->previous->child == q) q->previous->child = q->next;
        else q->previous->next = q->next;
        if (q->next) q->next->previous = q->previous;
        w->first = meld(w->first, rest);
    }
    q->next = q->previous = q->child = NULL;
    w->n--;
}
