/* Small charts by hand: lines over time as SVG, and shaded table cells. */

import {el, svg} from './dom.js';

const WIDTH = 180, HEIGHT = 48; /* units; the element's own size stretches them */

/* The next of 1, 2, 5, 10 …: a scale that does not jump with every sample. */
function niceTop(v) {
    if (!(v > 0)) return 1;
    const ten = 10 ** Math.floor(Math.log10(v));
    return [1, 2, 5, 10].map(m => m * ten).find(t => t >= v * (1 - 1e-9));
}

/* Samples that a chart is wide: a minute, then three. */
const span = values => (values.length > 60 ? 180 : 60);

/* The newest value is at the right edge, wherever the series began. */
function points(values, top) {
    const step = WIDTH / (span(values) - 1), from = WIDTH - (values.length - 1) * step;
    return values.map((v, i) =>
        `${(from + i * step).toFixed(2)},${(HEIGHT - 1 - (HEIGHT - 2) * Math.min(1, v / top)).toFixed(2)}`);
}

/** Draws lists of values into an <svg>; returns the top of the scale. fixed: its top, if known. */
export function drawLines(node, lists, fixed) {
    const top = fixed ?? niceTop(Math.max(0, ...lists.flat()));
    node.setAttribute('viewBox', `0 0 ${WIDTH} ${HEIGHT}`);
    node.setAttribute('preserveAspectRatio', 'none');
    node.replaceChildren(...lists.flatMap((values, i) => {
        if (values.length < 2) return [];
        const p = points(values, top), first = p[0].split(',')[0];
        return [
            svg('polygon', {class: `area area-${i}`,
                points: `${first},${HEIGHT} ${p.join(' ')} ${WIDTH},${HEIGHT}`}),
            svg('polyline', {class: `line line-${i}`, points: p.join(' '),
                'vector-effect': 'non-scaling-stroke'}),
        ];
    }));
    return top;
}

/** A panel: a title, figures, a chart. names: of its lines. Returns draw(lists, figures, fixed). */
export function chartPanel(parent, title, names, format) {
    const chart = svg('svg', {class: 'chart', role: 'img'});
    const top = el('span', {class: 'top-value'});
    const figures = names.map(() => el('b'));
    const past = el('span', {class: 'faint'});
    parent.append(el('section', {class: 'panel', 'aria-label': title},
        el('h2', null, title, past),
        el('p', {class: 'figures'}, ...names.map((n, i) =>
            el('span', {class: `figure key-${i}`}, figures[i], ` ${n}`))),
        el('div', {class: 'plot'}, chart, top)));
    return (lists, fixed) => {
        const scale = drawLines(chart, lists, fixed);
        top.textContent = format(scale);
        past.textContent = span(lists[0]) > 60 ? 'last 3 minutes' : 'last minute';
        names.forEach((n, i) => {
            figures[i].textContent = format(lists[i].at(-1) ?? 0);
        });
        chart.setAttribute('aria-label', `${title}, ${past.textContent}. Now: ${
            names.map((n, i) => `${format(lists[i].at(-1) ?? 0)} ${n}`).join(', ')}`);
    };
}

/** A cell shaded by `share` (0..1). */
export function heatCell(share, label, text = '') {
    const cell = el('td', {class: 'heat', title: label, 'aria-label': label, text});
    cell.style.setProperty('--share', String(share));
    return cell;
}
