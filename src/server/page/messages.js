/* Messages on the page: what was said, and the buttons that belong to it. */

import {copyText, el} from './dom.js';
import {markdown} from './markdown.js';
import {tokenView} from './tokens.js';

const variantOf = message => message.variants[message.chosen];

function button(label, onclick, more) {
    return el('button', {type: 'button', class: 'quiet', text: label, onclick, ...more});
}

/** A message's node with update(), which draws what has changed. actions: {regenerate, choose,
 * edit, goOn}, called with the message; `options`: {tokens: () => bool, busy: () => bool,
 * last: message => bool}. */
export function messageNode(message, actions, options) {
    const user = message.role === 'user';
    const body = el('div', {class: 'body'});
    const thoughts = el('div', {class: 'thoughts'});
    const reasoning = el('details', {class: 'reasoning', hidden: true},
        el('summary', {text: 'Reasoning'}), thoughts);
    const note = el('span', {class: 'note'});
    const problem = el('p', {class: 'problem', role: 'alert', hidden: true});
    const tools = el('div', {class: 'tools'});
    const node = el('article', {class: `message ${message.role}`, 'aria-label': user ? 'You' : 'Model'},
        el('h2', {class: 'who', text: user ? 'You' : 'Model'}),
        el('div', {class: 'what'}, reasoning, body, problem, el('div', {class: 'foot'}, note, tools)));
    let drawn = {}; /* what the body shows: {variant, length, view}; redrawn only when it differs,
                       or a screen reader would hear it again and a selection would be lost */

    function drawBody(variant) {
        const asTokens = Boolean(!user && options.tokens() && variant.tokens?.length);
        const same = drawn.variant === variant && Boolean(drawn.view) === asTokens;
        if (same && asTokens) drawn.view.grow();
        if (same && (asTokens || drawn.length === variant.text.length)) return;
        drawn = {variant, length: variant.text.length};
        if (asTokens) drawn.view = tokenView(variant.tokens);
        if (asTokens) body.replaceChildren(drawn.view.node);
        else if (user) body.textContent = variant.text;
        else body.replaceChildren(...markdown(variant.text));
    }

    function drawTools(variant) {
        const copy = button('Copy', () => copyText(variant.text, copy));
        const all = [];
        if (message.variants.length > 1) all.push(...switcher());
        if (variant.text) all.push(copy);
        if (user) all.push(button('Edit', () => actions.edit(message)));
        else if (options.last(message)) {
            if (variant.text && variant.finish !== 'stop') {
                all.push(button('Continue', () => actions.goOn(message)));
            }
            all.push(button('Regenerate', () => actions.regenerate(message)));
        }
        tools.replaceChildren(...all);
    }

    function switcher() {
        const at = message.chosen, n = message.variants.length;
        return [
            button('‹', () => actions.choose(message, at - 1),
                {disabled: at === 0, 'aria-label': 'Previous answer'}),
            el('span', {class: 'note', text: `${at + 1} of ${n}`}),
            button('›', () => actions.choose(message, at + 1),
                {disabled: at === n - 1, 'aria-label': 'Next answer'}),
        ];
    }

    function update() {
        const variant = variantOf(message), writing = options.busy(message);
        drawBody(variant);
        reasoning.hidden = !variant.reasoning;
        if (thoughts.textContent !== (variant.reasoning ?? '')) thoughts.textContent = variant.reasoning ?? '';
        node.classList.toggle('writing', writing);
        problem.hidden = !variant.error;
        problem.textContent = variant.error ?? '';
        note.textContent = writing ? '' : variant.note ?? '';
        if (writing) tools.replaceChildren();
        else drawTools(variant);
    }

    update();
    return {message, node, update};
}
