/* Sampling controls: one list of what spec'd options there are, their ranges and defaults; the
 * form, its checks and the request's fields derive from it.
 *
 * An empty control is an option that is not sent: the server then takes the model's own
 * (generation_config.json) or OpenAI's. */

import {el} from './dom.js';

const lines = text => text.split('\n').filter(Boolean)
    .map(s => s.replace(/\\([nt\\])/g, (_, c) => ({n: '\n', t: '\t', '\\': '\\'})[c]));

const integers = text => text.split(/[\s,]+/).filter(Boolean).map(word => {
    if (!/^-?\d{1,15}$/.test(word)) throw new Error(`“${word}” is not a token id`);
    return Number(word);
});

const biases = text => Object.fromEntries(text.split(/[\s,]+/).filter(Boolean).map(pair => {
    const m = /^(\d{1,15}):([-+]?\d+(?:\.\d+)?)$/.exec(pair);
    if (!m) throw new Error(`“${pair}” is not id:bias`);
    return [m[1], Number(m[2])];
}));

const seed = text => {
    if (!/^-?\d{1,19}$/.test(text) || BigInt.asIntN(64, BigInt(text)) !== BigInt(text)) {
        throw new Error('a seed is an integer of 64 bits');
    }
    return BigInt(text);
};

/* kind: range (number and slider), number, text (with `read`), lines (with `read`), check.
 * above: the end of the range that is not part of it. */
export const CONTROLS = [
    {name: 'temperature', label: 'Temperature', kind: 'range', min: 0, max: 2, step: 0.05, usual: 1,
        help: '0 takes the likeliest token'},
    {name: 'top_p', label: 'Top p', kind: 'range', min: 0, max: 1, step: 0.01, usual: 1, above: true,
        help: 'Likeliest tokens of this mass in all'},
    {name: 'top_k', label: 'Top k', kind: 'number', min: -1, step: 1, usual: 0,
        help: '0 and −1 are off'},
    {name: 'min_p', label: 'Min p', kind: 'range', min: 0, max: 1, step: 0.01, usual: 0,
        help: 'Of the likeliest token’s probability'},
    {name: 'repetition_penalty', label: 'Repetition penalty', kind: 'range', min: 0, max: 2,
        step: 0.01, usual: 1, above: true, open: true,
        help: 'Looks at prompt and answer'},
    {name: 'presence_penalty', label: 'Presence penalty', kind: 'range', min: -2, max: 2, step: 0.05,
        usual: 0, help: 'Once per token of the answer'},
    {name: 'frequency_penalty', label: 'Frequency penalty', kind: 'range', min: -2, max: 2,
        step: 0.05, usual: 0, help: 'Each time the answer repeats it'},
    {name: 'max_tokens', label: 'Max tokens', kind: 'number', min: 1, step: 1,
        usual: 'auto', help: 'Auto: the rest of the context'},
    {name: 'seed', label: 'Seed', kind: 'text', read: seed, usual: 'drawn',
        help: 'Same seed, same answer'},
    {name: 'stop', label: 'Stop strings', kind: 'lines', read: lines,
        usual: 'one per line, \\n is a newline'},
    {name: 'top_logprobs', label: 'Alternatives per token', kind: 'number', min: 0, max: 20, step: 1,
        usual: 5, own: true, help: 'For the token view'},
];

export const MORE_CONTROLS = [
    {name: 'min_tokens', label: 'Min tokens', kind: 'number', min: 0, step: 1, usual: 0},
    {name: 'stop_token_ids', label: 'Stop token ids', kind: 'text', read: integers, usual: 'none'},
    {name: 'logit_bias', label: 'Logit bias', kind: 'text', read: biases, usual: 'id:bias, −100 to 100'},
    {name: 'allowed_token_ids', label: 'Allowed token ids', kind: 'text', read: integers, usual: 'all'},
    {name: 'bad_words', label: 'Bad words', kind: 'lines', read: lines, usual: 'one per line'},
    {name: 'ignore_eos', label: 'Ignore end of text', kind: 'check', usual: false},
    {name: 'include_stop_str_in_output', label: 'Keep the stop string', kind: 'check', usual: false},
    {name: 'skip_special_tokens', label: 'Hide special tokens', kind: 'check', usual: true},
];

const ALL = [...CONTROLS, ...MORE_CONTROLS];

function numberIn(c, input) {
    const text = input.value.trim();
    if (!text && !input.validity?.badInput) return undefined;
    const v = Number(text);
    const low = c.above ? v <= c.min : v < c.min, high = !c.open && c.max !== undefined && v > c.max;
    if (text === '' || !Number.isFinite(v)) throw new Error('not a number');
    if (low || high) {
        throw new Error(c.max === undefined || c.open ? `${c.above ? 'above' : 'at least'} ${c.min}`
            : c.above ? `above ${c.min}, at most ${c.max}` : `${c.min} to ${c.max}`);
    }
    if (c.step === 1 && !Number.isInteger(v)) throw new Error('a whole number');
    return v;
}

function valueIn(c, input) {
    if (c.kind === 'check') return input.checked === c.usual ? undefined : input.checked;
    if (c.kind === 'range' || c.kind === 'number') return numberIn(c, input);
    const text = c.kind === 'lines' ? input.value : input.value.trim();
    return text ? c.read(text) : undefined;
}

/** The form in `parent`. `saved`: texts and checks by name, kept up to date; `changed` is called
 * after each change. Returns {read, reset}. */
export function makeControls(parent, saved, changed) {
    const inputs = new Map();

    function check(c) {
        const {input, row, note} = inputs.get(c.name);
        let problem = '', value;
        try {
            value = valueIn(c, input);
        } catch (e) {
            problem = e.message;
        }
        input.setCustomValidity(problem);
        input.setAttribute('aria-invalid', String(Boolean(problem)));
        note.textContent = problem || c.help || '';
        note.classList.toggle('problem', Boolean(problem));
        row.classList.toggle('changed', value !== undefined);
        return value;
    }

    function draw(c) {
        const {input, slider} = inputs.get(c.name);
        if (c.kind === 'check') input.checked = saved[c.name] ?? c.usual;
        else input.value = saved[c.name] ?? '';
        if (slider) slider.value = input.value === '' ? c.usual : input.value;
        check(c);
    }

    function store(c) {
        const {input} = inputs.get(c.name);
        const value = c.kind === 'check' ? input.checked : input.value;
        if (value === '' || value === c.usual) delete saved[c.name];
        else saved[c.name] = value;
        check(c);
        changed();
    }

    function makeInput(c) {
        const id = `control-${c.name}`, common = {id, name: c.name, 'aria-describedby': `${id}-note`};
        const note = el('p', {id: `${id}-note`, class: 'note'});
        const entry = {note, slider: null};
        if (c.kind === 'lines') {
            entry.input = el('textarea', {...common, rows: 2, placeholder: c.usual});
        } else if (c.kind === 'check') {
            entry.input = el('input', {...common, type: 'checkbox'});
        } else {
            entry.input = el('input', {
                ...common, type: c.kind === 'text' ? 'text' : 'number', placeholder: String(c.usual ?? ''),
                min: c.min, max: c.open ? undefined : c.max, step: c.step === 1 ? 1 : 'any',
                inputmode: c.kind === 'text' ? undefined : 'decimal', autocomplete: 'off',
            });
        }
        if (c.kind === 'range') {
            entry.slider = el('input', {
                type: 'range', min: c.above ? c.min + c.step : c.min, max: c.max, step: c.step,
                'aria-label': `${c.label}, slider`, tabindex: -1, /* the number says the same */
                oninput() {
                    entry.input.value = entry.slider.value;
                    store(c);
                },
            });
        }
        entry.input.addEventListener('input', () => {
            if (entry.slider) entry.slider.value = entry.input.value === '' ? c.usual : entry.input.value;
            store(c);
        });
        entry.row = el('div', {class: `field of-${c.kind}`},
            el('label', {for: id, text: c.label}), entry.input, entry.slider, note);
        inputs.set(c.name, entry);
        return entry.row;
    }

    parent.append(...CONTROLS.map(makeInput), el('details', null, el('summary', {text: 'More options'}),
        ...MORE_CONTROLS.map(makeInput)));
    ALL.forEach(draw);
    return {
        /** What goes into a request; null when some control does not hold: `show` is called, and
         * the control gets the focus. */
        read(show) {
            const out = {};
            for (const c of ALL) {
                const value = check(c), {input} = inputs.get(c.name);
                if (!input.validity.valid) {
                    show();
                    input.closest('details')?.setAttribute('open', '');
                    input.focus();
                    return null;
                }
                if (value !== undefined) out[c.name] = value;
                else if (c.own) out[c.name] = c.usual;
            }
            return out;
        },
        reset() {
            for (const c of ALL) delete saved[c.name];
            ALL.forEach(draw);
            changed();
        },
    };
}
