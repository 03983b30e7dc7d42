/* Samples of /metrics: the text parsed, the last three minutes kept, and the questions that a
 * dashboard asks of them (rates, ratios, quantiles). */

const KEEP = 180; /* samples, one a second */
const samples = []; /* {at (seconds), families: Map name → [{labels, value}]} */

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/;
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;
const unescape = s => s.replace(/\\(.)/g, (_, c) => (c === 'n' ? '\n' : c));
const number = s => (s === '+Inf' ? Infinity : s === '-Inf' ? -Infinity : Number(s));

/** Prometheus text → Map of sample name → [{labels, value}]. */
export function parseMetrics(text) {
    const families = new Map();
    for (const line of text.split('\n')) {
        const m = line.startsWith('#') ? null : LINE.exec(line);
        if (!m) continue;
        const labels = {};
        for (const [, name, value] of (m[2] ?? '').matchAll(LABEL)) labels[name] = unescape(value);
        if (!families.has(m[1])) families.set(m[1], []);
        families.get(m[1]).push({labels, value: number(m[3])});
    }
    return families;
}

const sum = (families, name) => (families.get(name) ?? []).reduce((n, s) => n + s.value, 0);

function histogram(families, name) {
    const buckets = families.get(`${name}_bucket`) ?? [];
    return {
        bounds: buckets.map(b => number(b.labels.le)), counts: buckets.map(b => b.value),
        sum: sum(families, `${name}_sum`), count: sum(families, `${name}_count`),
    };
}

function subtract(a, b) {
    return {
        bounds: a.bounds, counts: a.counts.map((c, i) => c - (b.counts[i] ?? 0)),
        sum: a.sum - b.sum, count: a.count - b.count,
    };
}

/** As Prometheus' histogram_quantile: linear inside the bucket; NaN when empty. In the lowest bucket
 * that would be a guess: `below` is then its bound. Returns {value, below, above}. */
export function quantile(h, q) {
    const rank = q * h.count, i = h.counts.findIndex(c => c >= rank);
    if (!h.count || i < 0) return {value: NaN};
    if (h.bounds[i] === Infinity) return {above: h.bounds[i - 1]};
    if (i === 0) return {below: h.bounds[0]};
    const low = h.bounds[i - 1], before = h.counts[i - 1], inside = h.counts[i] - before;
    return {value: low + (h.bounds[i] - low) * (rank - before) / inside};
}

/* A restarted server counts from 0 again: what came before it is of no use. */
function restarted(now, before) {
    const name = 'headrace:steps_total';
    return before && sum(now.families, name) < sum(before.families, name);
}

export function addSample(text) {
    const sample = {at: performance.now() / 1000, families: parseMetrics(text)};
    if (restarted(sample, samples.at(-1))) samples.length = 0;
    if (sample.at - samples.at(-1)?.at < 0.5) samples.pop(); /* too near for a rate */
    samples.push(sample);
    if (samples.length > KEEP) samples.shift();
}

/** One gauge over time. */
export function series(name) {
    return samples.map(s => sum(s.families, name));
}

/** What a counter grew by, per second, between each two samples. */
export function rates(name) {
    const out = [];
    for (let i = 1; i < samples.length; i++) {
        const [a, b] = [samples[i - 1], samples[i]];
        out.push((sum(b.families, name) - sum(a.families, name)) / (b.at - a.at));
    }
    return out;
}

/** The mean rate over the last `seconds`. */
export function rate(name, seconds) {
    const last = samples.at(-1), first = samples.find(s => last.at - s.at <= seconds);
    if (!last || first === last) return 0;
    return (sum(last.families, name) - sum(first.families, name)) / (last.at - first.at);
}

/** hits / queries between each two samples; the last known value where nothing was asked. */
export function ratios(hits, queries) {
    const out = [], h = series(hits), q = series(queries);
    for (let i = 1; i < h.length; i++) {
        const asked = q[i] - q[i - 1];
        out.push(asked > 0 ? (h[i] - h[i - 1]) / asked : out.at(-1) ?? 0);
    }
    return out;
}

/** A histogram since the server's start, and over the kept samples. */
export function histograms(name) {
    const all = histogram(samples.at(-1).families, name);
    return {all, recent: subtract(all, histogram(samples[0].families, name))};
}

export function total(name) {
    return samples.length ? sum(samples.at(-1).families, name) : 0;
}

export function labelsOf(name) {
    return samples.at(-1)?.families.get(name)?.[0]?.labels ?? {};
}

export function latest() {
    return {running: total('vllm:num_requests_running'), waiting: total('vllm:num_requests_waiting')};
}
