/* The page's start: which view is shown, the key, the panels of narrow screens, and the beat that
 * asks the server how it is. */

import {getJson, newKey, request, whenKeyNeeded} from './api.js';
import {startChat} from './chat.js';
import {makeControls} from './controls.js';
import {drawPrograms, drawSamples, startDashboard} from './dashboard.js';
import {$} from './dom.js';
import {addSample, latest} from './samples.js';
import {saveSettings, settings} from './store.js';
import {drawTalks, startTalks} from './talks.js';

let model = '';
const view = () => (location.hash === '#server' ? 'server' : 'chat');
const wait = ms => new Promise(done => setTimeout(done, ms));

/* ---- the key ---------------------------------------------------------------------------- */

whenKeyNeeded(refused => new Promise(resolve => {
    const dialog = $('key-dialog'), input = $('key');
    $('key-note').dataset.refused ??= $('key-note').textContent;
    $('key-note').textContent = refused ? 'The server does not take that key.'
        : $('key-note').dataset.refused;
    input.value = '';
    const done = key => {
        dialog.close();
        $('enter-key').hidden = Boolean(key);
        resolve(key);
    };
    $('key-form').onsubmit = event => {
        event.preventDefault();
        done(input.value);
    };
    $('key-cancel').onclick = () => done(null);
    dialog.oncancel = () => done(null);
    dialog.showModal();
}));

/* ---- the server's state ----------------------------------------------------------------- */

function setState(state, text = state) {
    if ($('state').dataset.state === state) return;
    $('state').dataset.state = state;
    $('state').textContent = text;
}

let asked = false; /* for a key: once by itself, afterwards by the button */

async function loadModel() {
    const {data} = await getJson('v1/models', {quiet: asked});
    model = data[0].id;
    $('model').textContent = model;
    document.title = `${model} · headrace`;
    startDashboard(data[0]);
}

/* The model is loading, or the server has gone: asked until it is there. */
async function untilReady() {
    for (;;) {
        try {
            const health = await fetch('health', {cache: 'no-store'});
            if (health.ok) return;
            setState('loading', 'loading the model');
        } catch {
            setState('gone', 'no connection');
        }
        await wait(700);
    }
}

async function connect() {
    await untilReady();
    try {
        await loadModel();
        setState('ready');
        $('enter-key').hidden = true;
    } catch (e) {
        asked = true;
        setState('locked', e.status === 401 ? 'needs a key' : e.message);
        $('enter-key').hidden = e.status !== 401;
    }
}

async function beat() {
    const metrics = await request('metrics', {quiet: true});
    addSample(await metrics.text());
    $('strip-running').textContent = latest().running;
    $('strip-waiting').textContent = latest().waiting;
    drawSamples(view() === 'server');
    if (view() === 'server') drawPrograms(await getJson('programs', {quiet: true}));
}

async function keepAsking() {
    for (;;) {
        if (document.visibilityState === 'visible') {
            if (!model) await connect();
            try {
                if (model) await beat();
            } catch (e) {
                if (e.status === undefined || e.status === 503) await connect();
            }
        }
        await wait(1000);
    }
}

/* ---- views and panels ------------------------------------------------------------------- */

function showView() {
    const now = view();
    $('chat-view').hidden = now !== 'chat';
    $('server-view').hidden = now !== 'server';
    for (const link of document.querySelectorAll('[data-view]')) {
        if (link.dataset.view === now) link.setAttribute('aria-current', 'page');
        else link.removeAttribute('aria-current');
    }
    if (now === 'server' && model) beat().catch(() => {});
}

const isOpen = opener => opener.getAttribute('aria-expanded') === 'true';

function setOpen(opener, open) {
    $(opener.dataset.opens).classList.toggle('open', open);
    opener.setAttribute('aria-expanded', String(open));
}

function startPanel(opener) {
    const panel = $(opener.dataset.opens);
    opener.addEventListener('click', () => {
        setOpen(opener, !isOpen(opener));
        if (isOpen(opener)) panel.querySelector('button, input, textarea').focus();
    });
    panel.addEventListener('keydown', event => {
        if (event.key !== 'Escape' || !isOpen(opener)) return;
        setOpen(opener, false);
        opener.focus();
        event.stopPropagation();
    });
}

/* What the controls say; where one does not hold, it must be seen. */
function sampling() {
    return controls.read(() => setOpen($('open-settings'), true));
}

const controls = makeControls($('controls'), settings.sampling, saveSettings);
$('reset').addEventListener('click', controls.reset);
$('enter-key').addEventListener('click', async () => {
    if (await newKey(false)) connect();
});
addEventListener('hashchange', showView);
document.querySelectorAll('[data-opens]').forEach(startPanel);
startChat({model: () => model, sampling, drawTalks});
startTalks();
showView();
keepAsking();
