/* One answer: the request, its stream, and what came of it.
 *
 * A variant is filled while it streams: {text, reasoning, tokens, note, error, finish}; reasoning
 * only where the model has one. */

import {events, request} from './api.js';
import {packToken} from './tokens.js';

/** The body of a chat request. Seeds have 64 bits, numbers of JavaScript 53: it goes in as text. */
export function requestBody(model, messages, sampling, more) {
    const {seed, ...rest} = sampling;
    const body = {
        model, messages, stream: true, stream_options: {include_usage: true}, logprobs: true,
        ...rest, ...more,
    };
    const text = JSON.stringify(body);
    return seed === undefined ? text : `${text.slice(0, -1)},"seed":${seed}}`;
}

function take(variant, choice) {
    if (choice.delta?.content) variant.text += choice.delta.content;
    const thought = choice.delta?.reasoning ?? choice.delta?.reasoning_content;
    if (thought) variant.reasoning = (variant.reasoning ?? '') + thought;
    for (const t of choice.logprobs?.content ?? []) variant.tokens.push(packToken(t));
    if (choice.finish_reason) variant.finish = choice.finish_reason;
}

function describe(variant, times) {
    const parts = [], seconds = (times.last - times.first) / 1000, n = times.tokens;
    parts.push(`${n} token${n === 1 ? '' : 's'}`);
    if (n > 1 && seconds > 0) parts.push(`${((n - 1) / seconds).toFixed(1)} tok/s`);
    if (times.first) parts.push(`first after ${Math.round(times.first - times.began)} ms`);
    if (variant.finish && variant.finish !== 'stop') {
        parts.push({length: 'cut at the limit', abort: 'stopped'}[variant.finish] ?? variant.finish);
    }
    return parts.join(' · ');
}

/** Streams an answer into `variant`; `changed` after each event. Never throws: what went wrong is
 * variant.error. A stop by `signal` is no error. */
export async function generate(body, variant, signal, changed) {
    const times = {began: performance.now(), first: 0, last: 0, tokens: variant.tokens.length};
    try {
        const response = await request('v1/chat/completions', {body, signal});
        for await (const event of events(response)) {
            if (event.error) throw new Error(event.error.message);
            if (event.usage) times.tokens = event.usage.completion_tokens;
            const choice = event.choices?.[0];
            if (!choice) continue;
            take(variant, choice);
            if (choice.delta?.content || choice.delta?.reasoning || choice.logprobs?.content?.length) {
                times.last = performance.now();
                times.first ||= times.last;
                times.tokens = Math.max(times.tokens, variant.tokens.length);
            }
            changed();
        }
        if (!variant.finish) throw new Error('the connection ended before the answer did');
    } catch (e) {
        if (signal.aborted) variant.finish = 'abort';
        else variant.error = e instanceof TypeError ? 'the server cannot be reached' : e.message;
    }
    variant.note = describe(variant, times);
    changed();
}
