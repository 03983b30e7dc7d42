/* The token view: an answer as its tokens, each shaded by how unlikely it was, with what the model
 * would rather have said in a card beside it.
 *
 * A stored token: [text, logprob, [[text, logprob], …]]. One tab stop per answer; arrows move in
 * it. The card is shown on hover and on focus, and Escape puts it away. */

import {$, el} from './dom.js';

const card = $('token-card');
const FULL_SURPRISE = 7; /* nats: one chance in a thousand has the full shade */

/** From the API's logprobs.content entry. */
export function packToken(t) {
    const round = x => Math.round(x * 1e4) / 1e4;
    return [t.token, round(t.logprob), (t.top_logprobs ?? []).map(a => [a.token, round(a.logprob)])];
}

const percent = logprob => {
    const p = 100 * Math.exp(logprob);
    if (p >= 99.95) return '100 %';
    if (p >= 0.1) return `${p.toFixed(1)} %`;
    return p >= 1e-4 ? `${p.toPrecision(1)} %` : '≈ 0 %';
};

/* What cannot be seen, made visible. */
const visible = text => text.replace(/\n/g, '⏎').replace(/\t/g, '⇥').replace(/^ | $/g, '␣') || '∅';

function cardRow(text, logprob, chosen) {
    const bar = el('span', {class: 'bar-fill'});
    bar.style.width = `${100 * Math.exp(logprob)}%`;
    return el('tr', {class: chosen ? 'chosen' : ''},
        el('td', {class: 'token-text', text: visible(text)}),
        el('td', {class: 'bar-cell'}, bar),
        el('td', {class: 'number', text: percent(logprob)}),
        el('td', {class: 'number faint', text: logprob <= -9999 ? '−∞' : logprob.toFixed(3)}));
}

function showCard(span, [text, logprob, top]) {
    const rows = top.map(([t, l]) => cardRow(t, l, t === text && l === logprob));
    const among = top.some(([t, l]) => t === text && l === logprob);
    card.replaceChildren(
        el('table', null,
            el('thead', null, el('tr', null, ...['token', '', 'probability', 'logprob'].map(
                h => el('th', {scope: 'col', text: h})))),
            el('tbody', null, ...(among ? [] : [cardRow(text, logprob, true)]), ...rows)));
    card.hidden = false;
    const at = span.getClientRects()[0], own = card.getBoundingClientRect();
    const below = at.bottom + own.height + 8 < innerHeight;
    card.style.left = `${Math.max(8, Math.min(at.left, innerWidth - own.width - 8))}px`;
    card.style.top = `${below ? at.bottom + 6 : Math.max(8, at.top - own.height - 6)}px`;
    span.setAttribute('aria-describedby', card.id);
}

export function hideCard() {
    card.hidden = true;
}

function tokenSpan(token, i) {
    const [text, logprob] = token;
    const span = el('span', {
        class: 'token', role: 'listitem', tabindex: i ? -1 : 0,
        'aria-label': `${visible(text)}, ${percent(logprob)}`,
        text: text.replace(/\n/g, '⏎\n'),
        onmouseenter: () => showCard(span, token), onmouseleave: hideCard,
        onfocus: () => showCard(span, token), onblur: hideCard,
    });
    span.style.setProperty('--surprise', String(Math.min(1, -logprob / FULL_SURPRISE)));
    return span;
}

const MOVES = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10};

function move(event) {
    const spans = [...event.currentTarget.children], from = spans.indexOf(event.target);
    let to = from + (MOVES[event.key] ?? 0);
    if (event.key === 'Home') to = 0;
    if (event.key === 'End') to = spans.length - 1;
    if (event.key === 'Escape' && !card.hidden) {
        hideCard();
        event.stopPropagation();
    }
    if (from < 0 || to === from) return;
    event.preventDefault();
    to = Math.max(0, Math.min(spans.length - 1, to));
    event.target.tabIndex = -1;
    spans[to].tabIndex = 0;
    spans[to].focus();
}

/** The view of a list of tokens that may grow: call grow() after it did. */
export function tokenView(tokens) {
    const node = el('div', {
        class: 'tokens', role: 'list', 'aria-label': 'Tokens; arrow keys move', onkeydown: move,
    });
    const grow = () => {
        for (let i = node.childElementCount; i < tokens.length; i++) node.append(tokenSpan(tokens[i], i));
    };
    grow();
    return {node, grow};
}
