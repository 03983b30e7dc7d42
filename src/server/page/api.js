/* Talking to the server: one fetch that carries the key, and a reader of event streams.
 *
 * The key lives in sessionStorage: this tab, until it is closed. It is asked for when the server
 * first says 401, once, however many requests hear it at the same time. */

import {storage} from './dom.js';

const KEY = 'headrace.key', session = storage('sessionStorage');
let key = session.getItem(KEY);
let ask = async () => null;
let asking = null;

/** `f` shows the question and resolves to a key, or null when the user will not say. */
export function whenKeyNeeded(f) {
    ask = f;
}

export class ApiError extends Error {
    constructor(status, message, param) {
        super(message);
        this.status = status;
        this.param = param;
    }
}

async function errorOf(response) {
    let message = `${response.status} ${response.statusText}`, param = null;
    try {
        const {error} = await response.json();
        message = error.message;
        param = error.param;
    } catch { /* not JSON: something in between answered, and the status line must do */ }
    return new ApiError(response.status, message, param);
}

/** Asks for a key unless another request is asking; true when there is a new one. */
export async function newKey(refused) {
    asking ??= ask(refused).finally(() => {
        asking = null;
    });
    const given = await asking;
    if (!given) return false;
    key = given;
    session.setItem(KEY, key);
    return true;
}

/** A response with status 2xx, else an ApiError. body: JSON text, which makes it a POST.
 * quiet: no question, a 401 is an error like any other. */
export async function request(path, {body, signal, quiet} = {}) {
    for (;;) {
        const headers = {};
        if (key) headers.Authorization = `Bearer ${key}`;
        if (body !== undefined) headers['Content-Type'] = 'application/json';
        const response = await fetch(path, {
            method: body === undefined ? 'GET' : 'POST', headers, body, signal, cache: 'no-store',
        });
        if (response.ok) return response;
        const error = await errorOf(response);
        if (response.status !== 401 || quiet || !await newKey(Boolean(key))) throw error;
    }
}

export async function getJson(path, options) {
    return (await request(path, options)).json();
}

/** The data of each server-sent event, parsed, until [DONE] or the end. */
export async function* events(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    try {
        for (;;) {
            const {done, value} = await reader.read();
            if (done) return;
            const blocks = (rest + value).split('\n\n');
            rest = blocks.pop();
            for (const block of blocks) {
                const data = block.split('\n').filter(line => line.startsWith('data:'))
                    .map(line => line.slice(5).trimStart()).join('\n');
                if (data === '[DONE]') return;
                if (data) yield JSON.parse(data);
            }
        }
    } finally {
        reader.cancel().catch(() => {});
    }
}
