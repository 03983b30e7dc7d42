/* A little Markdown, as nodes: fenced code, headings, lists, quotes, rules, and in the line code,
 * strong, emphasis and links. What it does not know stays as it was written. Built from text nodes
 * only; links lead to http and https and nowhere else. */

import {copyText, el} from './dom.js';

/* Spans are bounded, so that a model stuck on one character costs no more than linear time. */
const INLINE = new RegExp([
    '(?<!`)(`{1,3})(?!`)(.{1,2000}?)(?<!`)\\1(?!`)',
    '\\*\\*(?=[^\\s*])(.{1,2000}?)(?<=[^\\s*])\\*\\*',
    '(?<![\\w*])\\*(?=[^\\s*])([^*]{1,2000}?)(?<=\\S)\\*(?![\\w*])',
    '\\[([^\\][]{1,500})\\]\\((https?://[^\\s)]{1,2000})\\)',
].join('|'), 's');
const MAX_DEPTH = 8; /* of quotes and lists in each other; deeper ones stay text */

function inline(text) {
    const out = [];
    for (;;) {
        const m = INLINE.exec(text);
        if (!m) break;
        if (m.index) out.push(text.slice(0, m.index));
        if (m[2] !== undefined) out.push(el('code', {text: m[2]}));
        else if (m[3] !== undefined) out.push(el('strong', null, ...inline(m[3])));
        else if (m[4] !== undefined) out.push(el('em', null, ...inline(m[4])));
        else {
            out.push(el('a', {href: m[6], target: '_blank', rel: 'noopener noreferrer'},
                ...inline(m[5])));
        }
        text = text.slice(m.index + m[0].length);
    }
    if (text) out.push(text);
    return out;
}

function codeBlock(language, code) {
    const copy = el('button', {
        type: 'button', class: 'quiet copy', text: 'Copy', onclick: () => copyText(code, copy),
    });
    return el('figure', {class: 'code'},
        el('figcaption', null, el('span', {text: language || 'code'}), copy),
        el('pre', {tabindex: 0}, el('code', {text: code})));
}

/* Readers of blocks: each looks at lines[i] and returns [node, next i], or null when it is not
 * its kind. */
const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/, HEADING = /^ {0,3}(#{1,6})\s+(.*)$/,
    RULE = /^ {0,3}([-*_])(\s*\1){2,}\s*$/, QUOTE = /^ {0,3}> ?/,
    ITEM = /^( *)([-*+]|\d{1,9}[.)])\s+(.*)$/;

function fence(lines, i) {
    const open = FENCE.exec(lines[i]);
    if (!open) return null;
    const body = [];
    /* a block that is not closed yet is one that still streams */
    for (i++; i < lines.length && lines[i].trim() !== open[1]; i++) body.push(lines[i]);
    return [codeBlock(open[2].trim(), body.join('\n')), i + 1];
}

function heading(lines, i) {
    const m = HEADING.exec(lines[i]);
    /* below the page's own h1 and h2 */
    return m && [el(`h${Math.min(6, m[1].length + 2)}`, null, ...inline(m[2])), i + 1];
}

function rule(lines, i) {
    return RULE.test(lines[i]) ? [el('hr'), i + 1] : null;
}

function quote(lines, i, depth) {
    const body = [];
    for (; i < lines.length && QUOTE.test(lines[i]); i++) body.push(lines[i].replace(QUOTE, ''));
    return body.length ? [el('blockquote', null, ...blocks(body, depth + 1)), i] : null;
}

function list(lines, i, depth) {
    const first = ITEM.exec(lines[i]);
    if (!first) return null;
    const indent = first[1].length, ordered = /\d/.test(first[2]);
    const node = el(ordered ? 'ol' : 'ul', ordered ? {start: parseInt(first[2], 10)} : null);
    while (i < lines.length) {
        const m = ITEM.exec(lines[i]);
        if (!m || m[1].length !== indent || /\d/.test(m[2]) !== ordered) break;
        const body = [m[3]];
        for (i++; i < lines.length; i++) { /* what is indented further belongs to the item */
            const deeper = /^ */.exec(lines[i])[0].length > indent;
            if (!lines[i].trim() || !deeper) break;
            body.push(lines[i].slice(indent + 2));
        }
        node.append(el('li', null, ...blocks(body, depth + 1, 'tight')));
        while (i + 1 < lines.length && !lines[i].trim() && ITEM.test(lines[i + 1])) i++;
    }
    return [node, i];
}

const KINDS = [fence, heading, rule, quote, list];

function starts(lines, i) {
    return [FENCE, HEADING, RULE, QUOTE, ITEM].some(r => r.test(lines[i]));
}

function blocks(lines, depth, tight) {
    if (depth > MAX_DEPTH) return [lines.join('\n')];
    const out = [];
    let i = 0;
    while (i < lines.length) {
        if (!lines[i].trim()) {
            i++;
            continue;
        }
        let made = null;
        for (const kind of KINDS) made ??= kind(lines, i, depth);
        if (made) {
            out.push(made[0]);
            i = made[1];
            continue;
        }
        const body = [lines[i++]];
        while (i < lines.length && lines[i].trim() && !starts(lines, i)) body.push(lines[i++]);
        out.push(...(tight ? inline(body.join('\n')) : [el('p', null, ...inline(body.join('\n')))]));
    }
    return out;
}

/** Nodes for a text. */
export function markdown(text) {
    return blocks(text.replace(/\r\n?/g, '\n').split('\n'), 0);
}
