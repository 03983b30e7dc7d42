/* The server's view: load, cache, speed, latencies, and what each compiled program costs. */

import {chartPanel, drawLines, heatCell} from './charts.js';
import {$, el} from './dom.js';
import * as samples from './samples.js';

const count = v => Math.round(v).toLocaleString('en');
const percent = v => `${(100 * v).toFixed(v > 0 && v < 0.1 ? 1 : 0)} %`;
const rate = v => (v >= 100 ? count(v) : v.toFixed(v >= 10 ? 0 : 1));

function duration(s) {
    if (!Number.isFinite(s)) return '–';
    if (s < 1e-3) return `${(s * 1e6).toFixed(0)} µs`;
    if (s < 1) return `${(s * 1e3).toFixed(s < 0.01 ? 2 : s < 0.1 ? 1 : 0)} ms`;
    return `${s.toFixed(s < 10 ? 2 : 1)} s`;
}

/* A round number without the zeros that keep columns even. */
const short = s => duration(s).replace(/(\.\d*?)0+(?= )/, '$1').replace('. ', ' ');

/* ---- over time -------------------------------------------------------------------------- */

let panels = null;

export function startDashboard(model) {
    $('facts').dataset.context = model.max_model_len;
    if (panels) return;
    const p = (...args) => chartPanel($('panels'), ...args);
    panels = {
        requests: p('Requests', ['running', 'waiting'], count),
        tokens: p('Tokens per second', ['generated', 'prompt'], rate),
        cache: p('KV cache in use', ['of all blocks'], percent),
        prefix: p('Prefix cache hit rate', ['of prompt tokens'], percent),
    };
}

function drawPanels() {
    panels.requests([samples.series('vllm:num_requests_running'),
        samples.series('vllm:num_requests_waiting')]);
    panels.tokens([samples.rates('vllm:generation_tokens_total'),
        samples.rates('vllm:prompt_tokens_total')]);
    panels.cache([samples.series('vllm:kv_cache_usage_perc')], 1);
    panels.prefix([samples.ratios('vllm:prefix_cache_hits_total',
        'vllm:prefix_cache_queries_total')], 1);
}

const LATENCIES = [
    ['Time to first token', 'vllm:time_to_first_token_seconds'],
    ['Inter-token', 'vllm:inter_token_latency_seconds'],
    ['Whole request', 'vllm:e2e_request_latency_seconds'],
    ['Queue', 'vllm:request_queue_time_seconds'],
    ['Prefill', 'vllm:request_prefill_time_seconds'],
    ['Decode', 'vllm:request_decode_time_seconds'],
];

const heads = names => el('thead', null,
    el('tr', null, ...names.map(n => el('th', {scope: 'col', text: n}))));

function quantileText(h, q) {
    const {value, below, above} = samples.quantile(h, q);
    if (below !== undefined) return `< ${short(below)}`;
    return above === undefined ? duration(value) : `> ${short(above)}`;
}

function latencyRow([name, metric]) {
    const {all, recent} = samples.histograms(metric), h = recent.count ? recent : all;
    return el('tr', null, el('th', {scope: 'row', text: name}),
        ...[duration(h.sum / h.count), ...[0.5, 0.9, 0.99].map(q => quantileText(h, q))].map(
            text => el('td', {class: 'number', text})),
        el('td', {class: 'number faint', text: count(recent.count)}),
        el('td', {class: 'number faint', text: count(all.count)}));
}

function drawLatency() {
    $('latency').replaceChildren(el('table', null,
        heads(['', 'mean', 'p50', 'p90', 'p99', 'last 3 min', 'since start']),
        el('tbody', null, ...LATENCIES.map(latencyRow))));
}

/** After each sample; `all`: the view is on the screen. */
export function drawSamples(all) {
    const generated = samples.rates('vllm:generation_tokens_total');
    $('strip-rate').textContent = rate(samples.rate('vllm:generation_tokens_total', 3));
    drawLines($('strip-spark'), [generated]);
    if (!all || !panels) return;
    drawPanels();
    drawLatency();
}

/* ---- programs --------------------------------------------------------------------------- */

const bucketOf = p => [p.tokens && `${p.tokens} tokens`, p.requests && `${p.requests} requests`]
    .filter(Boolean).join(', ') || 'one shape';

/* Padding in the unit that the program's rows have, against all the rows it ran. */
function paddingShare(p) {
    const rows = p.calls * (p.tokens ?? p.requests ?? 0);
    return rows ? p.padding / rows : 0;
}

function heatRow(p, bounds) {
    const n = p.step_seconds.count, pad = paddingShare(p);
    const cells = p.step_seconds.counts.map((c, i) => {
        const to = i < bounds.length ? `up to ${duration(bounds[i])}` : `above ${duration(bounds.at(-1))}`;
        return heatCell(n ? c / n : 0, `${percent(n ? c / n : 0)} of calls ${to}`);
    });
    return el('tr', {class: n ? '' : 'idle'},
        el('th', {scope: 'row', text: bucketOf(p)}), ...cells,
        el('td', {class: 'number', text: n ? duration(p.step_seconds.sum / n) : '–'}),
        el('td', {class: 'number', text: count(p.calls)}),
        heatCell(pad, `${percent(pad)} of rows were padding`, n ? percent(pad) : '–'));
}

/* Only every other bound has room for a label. */
function boundHead(bounds) {
    const names = bounds.map((b, i) => (i % 2 ? '' : short(b)));
    return heads(['bucket', ...names, 'more', 'mean', 'calls', 'padding']);
}

function drawHeat({programs, step_seconds_bounds: bounds}) {
    const table = el('table', {class: 'heat-table'},
        el('colgroup', null, el('col', {class: 'name'}), el('col', {span: bounds.length + 1}),
            el('col', {class: 'figure', span: 3})),
        boundHead(bounds));
    for (const name of new Set(programs.map(p => p.program))) {
        if (name === 'select') continue; /* two axes: the grid below */
        table.append(el('tbody', null,
            el('tr', {class: 'group'}, el('th', {scope: 'rowgroup', colspan: bounds.length + 5, text: name})),
            ...programs.filter(p => p.program === name).map(p => heatRow(p, bounds))));
    }
    $('heat').replaceChildren(table);
}

function drawGrid({programs}) {
    const cells = programs.filter(p => p.program === 'select');
    const all = cells.reduce((n, p) => n + p.calls, 0);
    const axis = name => [...new Set(cells.map(p => p[name]))].sort((a, b) => a - b);
    const tokens = axis('tokens'), requests = axis('requests');
    const cellOf = (t, r) => {
        const p = cells.find(c => c.tokens === t && c.requests === r);
        if (!p) return el('td');
        const mean = p.calls ? `, ${duration(p.step_seconds.sum / p.step_seconds.count)} each` : '';
        return heatCell(all ? p.calls / all : 0,
            `${t} tokens, ${r} requests: ${count(p.calls)} steps${mean}`, p.calls ? count(p.calls) : '');
    };
    $('grid').replaceChildren(el('table', {class: 'heat-table grid-table'},
        heads(['tokens', ...requests.map(r => `${r} req.`)]),
        el('tbody', null, ...tokens.map(t => el('tr', null,
            el('th', {scope: 'row', text: t}), ...requests.map(r => cellOf(t, r)))))));
}

function drawLate(ledger) {
    const n = ledger.late_compilations;
    $('late').classList.toggle('bad', n > 0);
    const text = n ? `${count(n)} late compilation${n > 1 ? 's' : ''}: a step had to wait for the compiler.`
        : `No late compilations: all ${count(ledger.programs.length)} programs were compiled `
            + `before the first request, in ${duration(ledger.compile_seconds)}.`;
    if ($('late').textContent !== text) $('late').textContent = text;
}

/* Of the engine's numerics; one that is not here is shown by its own name. */
const NAMES = {
    backend: 'Backend', isa: 'Instruction set', activation: 'Activations', rows: 'Rows of products',
    kv: 'KV type',
};

function drawFacts(ledger) {
    const cache = samples.labelsOf('vllm:cache_config_info');
    const facts = [
        ['Context', `${count(Number($('facts').dataset.context))} tokens`],
        ['KV cache', cache.num_gpu_blocks
            ? `${count(Number(cache.num_gpu_blocks))} blocks of ${cache.block_size}` : '–'],
        ['Preemptions', count(samples.total('vllm:num_preemptions_total'))],
        ['Steps', count(samples.total('headrace:steps_total'))],
        ...Object.entries(ledger.numerics).filter(([, v]) => typeof v !== 'object')
            .map(([k, v]) => [NAMES[k] ?? k, String(v)]),
        ['Version', ledger.headrace],
    ];
    $('facts').replaceChildren(el('dl', null, ...facts.map(([k, v]) =>
        el('div', null, el('dt', {text: k}), el('dd', {text: v})))));
}

/** After each reading of /programs. */
export function drawPrograms(ledger) {
    drawLate(ledger);
    drawFacts(ledger);
    drawHeat(ledger);
    drawGrid(ledger);
}
