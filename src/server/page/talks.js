/* The list of conversations: choose, start, delete. */

import {drawTalk, stop} from './chat.js';
import {$, el} from './dom.js';
import * as store from './store.js';

function row(talk) {
    const title = talk.title || 'Untitled', chosen = talk === store.current();
    return el('li', null,
        el('button', {
            type: 'button', class: 'talk-title', text: title, title,
            'aria-current': chosen ? 'true' : null,
            onclick: () => change(() => store.choose(talk.id)),
        }),
        el('button', {
            type: 'button', class: 'quiet delete', text: '×', 'aria-label': `Delete “${title}”`,
            onclick() {
                change(() => store.removeTalk(talk.id));
                $('new-talk').focus();
            },
        }));
}

function change(how) {
    stop();
    how();
    drawTalks();
    drawTalk();
}

export function drawTalks() {
    $('talks').replaceChildren(...store.talks.map(row));
}

export function startTalks() {
    store.whenOthersWrite(drawTalks);
    $('new-talk').addEventListener('click', () => {
        change(store.startTalk);
        $('message').focus();
    });
    drawTalks();
}
