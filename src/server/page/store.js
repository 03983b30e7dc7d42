/* What outlives a reload: conversations and settings, in localStorage.
 *
 * A talk: {id, title, system, messages}. A message: {role, variants, chosen}; a variant is one
 * answer: {text, tokens, note, error}, so that regenerating loses nothing. When the browser's room
 * is full, the oldest talks give up their tokens first, then themselves. */

const TALKS = 'headrace.talks', SETTINGS = 'headrace.settings', CURRENT = 'headrace.current';

function read(name, otherwise) {
    try {
        return JSON.parse(localStorage.getItem(name)) ?? otherwise;
    } catch {
        return otherwise; /* not ours, or from another version */
    }
}

function makeTalk() {
    const id = `${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 8)}`;
    return {id, title: '', system: '', messages: []};
}

function isTalk(t) {
    return t && typeof t.id === 'string' && Array.isArray(t.messages)
        && t.messages.every(m => Array.isArray(m.variants) && m.variants[m.chosen]);
}

const stored = read(TALKS, []);
export const talks = Array.isArray(stored) ? stored.filter(isTalk) : []; /* newest first */
export const settings = read(SETTINGS, {});
let currentId = read(CURRENT, null);

function put(name, value) {
    try {
        localStorage.setItem(name, JSON.stringify(value));
        return true;
    } catch {
        return false;
    }
}

function dropTokens(talk) {
    let had = false;
    for (const m of talk.messages) {
        for (const v of m.variants) {
            if (v.tokens) had = true;
            delete v.tokens;
        }
    }
    return had;
}

export function saveTalks() {
    put(CURRENT, currentId);
    for (let oldest = talks.length - 1; !put(TALKS, talks) && oldest >= 0; oldest--) {
        if (!dropTokens(talks[oldest]) && oldest > 0) talks.splice(oldest, 1);
    }
}

export function saveSettings() {
    put(SETTINGS, settings);
}

export function current() {
    let talk = talks.find(t => t.id === currentId);
    if (!talk) {
        talk = talks[0] ?? makeTalk();
        if (!talks.length) talks.push(talk);
        currentId = talk.id;
    }
    return talk;
}

export function choose(id) {
    currentId = id;
    saveTalks();
}

/** A new one, or the newest where nothing was said yet. */
export function startTalk() {
    const system = current().system;
    if (!talks[0] || talks[0].messages.length) talks.unshift(makeTalk());
    talks[0].system = system;
    choose(talks[0].id);
}

export function removeTalk(id) {
    const i = talks.findIndex(t => t.id === id);
    if (i >= 0) talks.splice(i, 1);
    current();
    saveTalks();
}
