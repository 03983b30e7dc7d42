/* The chat: the current talk on the page, sending and stopping.
 *
 * One answer streams at a time. It belongs to its talk, not to the screen: switching talks stops
 * it, and what had come is kept. */

import {$, copyText, el, perFrame} from './dom.js';
import {generate, requestBody} from './generate.js';
import {messageNode} from './messages.js';
import * as store from './store.js';

let context; /* {model(), sampling(), drawTalks()} from page.js */
let running = null; /* {controller, message} */
let drawn = null;   /* the talk on the screen */
let shown = [];     /* its message nodes, in order */

const log = $('log'), box = $('message');
const variantOf = message => message.variants[message.chosen];
const options = {
    tokens: () => $('token-view').checked,
    busy: message => running?.message === message,
    last: message => store.current().messages.at(-1) === message,
};

/* ---- drawing ---------------------------------------------------------------------------- */

const nearEnd = () => log.scrollHeight - log.scrollTop - log.clientHeight < 60;

const drawStream = perFrame(() => {
    const follow = nearEnd();
    shown.at(-1)?.update();
    if (follow) log.scrollTop = log.scrollHeight;
});

const empty = el('div', {class: 'empty'},
    el('p', {text: 'Nothing has been said yet.'}),
    el('p', {class: 'note', text: 'Answers stream as they are made. '
        + 'The token view shows how sure the model was of each word.'}));

/** Brings the screen to what the talk is. Nodes that stand stay as they are. */
export function drawTalk() {
    const talk = store.current(), messages = talk.messages;
    if (drawn !== talk) {
        drawn = talk;
        shown = [];
        $('system').value = talk.system;
    }
    let keep = 0;
    while (keep < shown.length && shown[keep].message === messages[keep]) keep++;
    shown = [...shown.slice(0, keep), ...messages.slice(keep).map(m => messageNode(m, actions, options))];
    for (const node of [...log.children]) {
        if (!shown.some(s => s.node === node)) node.remove();
    }
    log.append(...(shown.length ? shown.slice(keep).map(s => s.node) : [empty]));
    for (const s of shown) s.update();
    log.scrollTop = log.scrollHeight;
    $('legend').hidden = !options.tokens();
}

function drawButtons() {
    $('send').hidden = Boolean(running);
    $('stop').hidden = !running;
    log.setAttribute('aria-busy', String(Boolean(running)));
}

function fitBox() {
    box.style.height = 'auto';
    box.style.height = `${Math.min(box.scrollHeight + 2, innerHeight * 0.4)}px`;
}

/* ---- answering -------------------------------------------------------------------------- */

function history(talk, until) {
    const messages = talk.system ? [{role: 'system', content: talk.system}] : [];
    for (const m of talk.messages) {
        const {text} = variantOf(m);
        if (m === until) break;
        if (text) messages.push({role: m.role, content: text}); /* a failed answer said nothing */
    }
    return messages;
}

/** Streams into the message's chosen variant. */
async function answer(talk, message, messages, more) {
    const sampling = context.sampling();
    if (!sampling) return;
    const variant = variantOf(message), controller = new AbortController();
    delete variant.error;
    delete variant.finish;
    running = {controller, message};
    drawTalk();
    drawButtons();
    $('stop').focus({preventScroll: true});
    const saving = setInterval(() => store.saveTalk(talk), 2000);
    await generate(requestBody(context.model(), messages, sampling, more), variant,
        controller.signal, drawStream);
    clearInterval(saving);
    running = null;
    drawButtons();
    if (store.current() === talk) drawTalk();
    store.saveTalk(talk);
    context.drawTalks();
    if (document.activeElement === document.body) box.focus({preventScroll: true});
}

const emptyVariant = () => ({text: '', tokens: []});

const actions = {
    regenerate(message) {
        if (running || !context.sampling()) return;
        const talk = store.current();
        if (variantOf(message).text) message.chosen = message.variants.push(emptyVariant()) - 1;
        answer(talk, message, history(talk, message));
    },
    goOn(message) {
        if (running || !context.sampling()) return;
        const talk = store.current(), so_far = variantOf(message).text;
        answer(talk, message, [...history(talk, message), {role: 'assistant', content: so_far}],
            {add_generation_prompt: false, continue_final_message: true});
    },
    choose(message, i) {
        message.chosen = i;
        shown.at(-1).update();
        store.saveTalk(store.current());
    },
    /** Back to the box, with all that came after. */
    edit(message) {
        stop();
        const talk = store.current();
        box.value = variantOf(message).text;
        talk.messages.splice(talk.messages.indexOf(message));
        drawTalk();
        store.saveTalk(talk);
        fitBox();
        box.focus();
    },
};

export function stop() {
    running?.controller.abort();
}

function send() {
    const text = box.value.trim();
    if (!text || running || !context.sampling()) return;
    const talk = store.current();
    talk.messages.push({role: 'user', chosen: 0, variants: [{text}]});
    talk.title ||= text.replace(/\s+/g, ' ').slice(0, 60);
    const messages = history(talk), message = {role: 'assistant', chosen: 0, variants: [emptyVariant()]};
    talk.messages.push(message);
    box.value = '';
    fitBox();
    context.drawTalks();
    answer(talk, message, messages);
}

/* The call behind the last answer, or the next one, for a shell. */
function curl() {
    const talk = store.current(), last = talk.messages.at(-1);
    const body = requestBody(context.model(), history(talk, last?.role === 'assistant' ? last : null),
        context.sampling() ?? {});
    const url = new URL('v1/chat/completions', location.href.split('#')[0]);
    return [`curl -N ${url}`, "-H 'Content-Type: application/json'",
        '-H "Authorization: Bearer $HEADRACE_API_KEY"',
        `-d '${body.replaceAll("'", "'\\''")}'`].join(' \\\n    ');
}

/** What the chat needs of the page: model(), sampling() (null while some control does not hold),
 * drawTalks(). */
export function startChat(given) {
    context = given;
    $('composer').addEventListener('submit', event => {
        event.preventDefault();
        send();
    });
    $('stop').addEventListener('click', stop);
    box.addEventListener('input', fitBox);
    box.addEventListener('keydown', event => {
        if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
        event.preventDefault();
        send();
    });
    document.addEventListener('keydown', event => {
        if (event.key === 'Escape' && running && !document.querySelector('dialog[open]')) stop();
    });
    $('token-view').checked = Boolean(store.settings.token_view);
    $('token-view').addEventListener('change', event => {
        store.settings.token_view = event.target.checked;
        store.saveSettings();
        drawTalk();
    });
    $('system').addEventListener('input', event => {
        store.current().system = event.target.value;
    });
    $('system').addEventListener('change', () => store.saveTalk(store.current()));
    $('curl').addEventListener('click', () => copyText(curl(), $('curl')));
    addEventListener('pagehide', () => store.saveTalk(store.current()));
    drawTalk();
    drawButtons();
}
