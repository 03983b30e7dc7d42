/* What outlives a reload: conversations and settings, in localStorage.
 *
 * A talk: {id, title, system, messages}. A message: {role, variants, chosen}; a variant is one
 * answer: {text, tokens, note, finish, error}, so that regenerating loses nothing. Each talk has a
 * key of its own, so that two tabs never write over each other's. When the browser's room is full,
 * the oldest talks give up their tokens first, then themselves. */

import {storage} from './dom.js';

const local = storage('localStorage');
const TALK = 'headrace.talk.', SETTINGS = 'headrace.settings', CURRENT = 'headrace.current';

function read(name, otherwise) {
    try {
        return JSON.parse(local.getItem(name)) ?? otherwise;
    } catch {
        return otherwise; /* not ours, or from another version */
    }
}

function put(name, value) {
    try {
        local.setItem(name, JSON.stringify(value));
        return true;
    } catch {
        return false;
    }
}

/* The time is in the id: newer ones sort first. */
function makeTalk() {
    const now = Date.now().toString(36).padStart(9, '0');
    return {id: `${now}-${Math.random().toString(36).slice(2, 8)}`, title: '', system: '', messages: []};
}

const isObject = v => v !== null && typeof v === 'object' && !Array.isArray(v);

function isTalk(t) {
    return isObject(t) && typeof t.id === 'string' && Array.isArray(t.messages)
        && t.messages.every(m => typeof m?.variants?.[m.chosen]?.text === 'string');
}

function readTalks() {
    const found = Object.keys(local).filter(k => k.startsWith(TALK)).map(k => read(k, null));
    return found.filter(isTalk).sort((a, b) => (a.id < b.id ? 1 : -1));
}

export const talks = readTalks(); /* newest first */
const stored = read(SETTINGS, {});
export const settings = isObject(stored) ? stored : {};
if (!isObject(settings.sampling)) settings.sampling = {};
let currentId = read(CURRENT, null);

function dropTokens(talk) {
    const variants = talk.messages.flatMap(m => m.variants).filter(v => v.tokens);
    for (const v of variants) delete v.tokens;
    return variants.length > 0;
}

/* Makes room by what is oldest; false when there is nothing left to give. */
function makeRoom(keep) {
    const oldest = talks.findLast(t => t !== keep);
    if (!oldest) return dropTokens(keep);
    if (dropTokens(oldest) && put(TALK + oldest.id, oldest)) return true;
    removeTalk(oldest.id);
    return true;
}

export function saveTalk(talk) {
    if (!talk.messages.length && !talk.system) return;
    while (!put(TALK + talk.id, talk) && makeRoom(talk)) { /* until it fits */ }
}

export function saveSettings() {
    put(SETTINGS, settings);
}

export function current() {
    let talk = talks.find(t => t.id === currentId) ?? talks[0];
    if (!talk) talks.push(talk = makeTalk());
    currentId = talk.id;
    return talk;
}

export function choose(id) {
    currentId = id;
    put(CURRENT, id);
}

/** A new one, or the newest where nothing was said yet. */
export function startTalk() {
    const {system} = current();
    if (talks[0].messages.length) talks.unshift(makeTalk());
    talks[0].system = system;
    choose(talks[0].id);
}

export function removeTalk(id) {
    const i = talks.findIndex(t => t.id === id);
    if (i >= 0) talks.splice(i, 1);
    local.removeItem(TALK + id);
}

/** What another tab has changed, but for the talk that is on this screen. */
export function whenOthersWrite(f) {
    addEventListener('storage', event => {
        if (!event.key?.startsWith(TALK) || event.key === TALK + currentId) return;
        const here = talks.find(t => t.id === currentId);
        talks.splice(0, talks.length, ...readTalks().filter(t => t.id !== currentId));
        if (here) talks.push(here);
        talks.sort((a, b) => (a.id < b.id ? 1 : -1));
        f();
    });
}
