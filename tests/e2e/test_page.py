"""The web page in Chromium: what a person does, with real keys and clicks, and that it stays at home."""
import json
import re
import subprocess
import time

import pytest

import chromium
from conftest import ROOT

SHOTS = ROOT / "build" / "artefacts"
SERVER_FLAGS = ["--max-num-seqs", 8, "--max-num-batched-tokens", 256, "--max-model-len", 1024]
KEY = "a-key-of-its-own"

ready = "document.getElementById('state').dataset.state === 'ready'"
idle = "!document.getElementById('send').hidden"
answer = "document.querySelector('.message.assistant:last-of-type .body').textContent"


@pytest.fixture(scope="module")
def browser():
    if not chromium.binary():
        pytest.skip("no Chromium: tools/setup.sh test")
    b = chromium.Browser()
    yield b
    b.stop()


@pytest.fixture
def page(browser, server):
    p = browser.page(server.address + "/")
    p.wait(ready)
    yield p
    assert p.problems() == []
    assert [u for u in p.requests() if not u.startswith(server.address)] == []
    p.close()


def set_control(page, name, value):
    page.js(f"""(() => {{
        const input = document.getElementById('control-{name}');
        input.closest('details')?.setAttribute('open', '');
        if (input.type === 'checkbox') input.checked = {json.dumps(value)};
        else input.value = {json.dumps(str(value))};
        input.dispatchEvent(new Event('input'));
    }})()""")


def press_tool(page, label):
    page.js("[...document.querySelectorAll('.tools button')]"
            f".find(b => b.textContent === {json.dumps(label)}).click()")


def send(page, text):
    page.click("#message")
    page.type(text)
    page.press("Enter")


def test_chat(page):
    """A message, an answer that grows, the same after a reload, a second turn, another answer."""
    set_control(page, "max_tokens", 40)
    set_control(page, "temperature", 0)
    page.click("#message")
    page.type("Say something")
    page.press("Enter", shift=True)
    page.type("about water.")
    page.press("Enter")
    sizes = {page.wait(f"{answer}.length")}
    while not page.js(idle):
        sizes.add(page.js(f"{answer}.length"))
    assert len(sizes) > 3, f"the answer came at once: {sizes}"
    assert page.js("document.querySelector('.message.user .body').textContent") == \
        "Say something\nabout water."
    first = page.js(answer)
    note = page.text(".message.assistant .note")
    assert re.match(r"40 tokens · [\d.]+ tok/s · first after \d+ ms · cut at the limit$", note), note

    page.reload()
    page.wait(ready)
    assert page.js(answer) == first and page.text(".message.assistant .note") == note
    assert page.js("document.getElementById('control-max_tokens').value") == "40"

    press_tool(page, "Continue")
    page.wait(f"{answer}.length > {len(first)} && {idle}")
    assert page.js(f"{answer}.startsWith({json.dumps(first[:-1])})")
    press_tool(page, "Regenerate")
    page.wait(f"{idle} && document.querySelector('.message.assistant .tools').textContent.includes('2 of 2')")
    assert page.js(answer) == first  # temperature 0
    send(page, "Go on.")
    page.wait(f"{idle} && document.querySelectorAll('.message').length === 4")
    assert page.js(f"{answer}.length")


def test_request_is_what_the_controls_say(page):
    """Each control arrives under its API name; 64-bit seeds whole; what is left alone is not sent."""
    page.js("""(() => {
        window.bodies = [];
        const real = window.fetch;
        window.fetch = (path, options) => {
            if (options?.body) window.bodies.push(options.body);
            return real(path, options);
        };
    })()""")
    values = {"temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.05,
              "repetition_penalty": 1.1, "presence_penalty": -0.5, "frequency_penalty": 0.25,
              "max_tokens": 3, "min_tokens": 1, "top_logprobs": 2}
    for name, value in values.items():
        set_control(page, name, value)
    set_control(page, "seed", "-9223372036854775808")
    set_control(page, "stop", "zzz\\n\nqqq")
    set_control(page, "logit_bias", "5:-100, 7:1.5")
    set_control(page, "stop_token_ids", "3, 4")
    set_control(page, "ignore_eos", True)
    page.click("#system")
    page.type("Be brief.")
    send(page, "Hello")
    page.wait(f"{idle} && window.bodies.length")
    body = json.loads(page.js("window.bodies[0]"))
    assert body == {
        **values, "model": "smollm2-135m", "stream": True, "logprobs": True,
        "stream_options": {"include_usage": True}, "seed": -2 ** 63, "stop": ["zzz\n", "qqq"],
        "logit_bias": {"5": -100, "7": 1.5}, "stop_token_ids": [3, 4], "ignore_eos": True,
        "messages": [{"role": "system", "content": "Be brief."},
                     {"role": "user", "content": "Hello"}]}
    assert page.js("document.querySelector('.message.assistant .problem').hidden"), page.text(".assistant .problem")

    page.js("document.getElementById('reset').click(); window.bodies.length = 0")
    set_control(page, "max_tokens", 1)
    page.js("document.querySelector('.message.assistant .tools button:last-child').click()")
    page.wait(f"{idle} && window.bodies.length")
    assert set(json.loads(page.js("window.bodies[0]"))) == {
        "model", "messages", "stream", "stream_options", "logprobs", "top_logprobs", "max_tokens"}


@pytest.mark.parametrize("name, good, bad", [
    ("temperature", ["0", "2"], ["-0.1", "2.01"]),
    ("top_p", ["0.001", "1"], ["0", "1.01"]),
    ("top_k", ["-1", "0"], ["-2", "1.5"]),
    ("min_p", ["0", "1"], ["-0.1", "1.1"]),
    ("presence_penalty", ["-2", "2"], ["-2.1", "2.1"]),
    ("frequency_penalty", ["-2", "2"], ["-2.1", "2.1"]),
    ("repetition_penalty", ["0.01", "5"], ["0", "-1"]),
    ("max_tokens", ["1"], ["0", "1.5"]),
    ("seed", ["-9223372036854775808", "9223372036854775807"], ["9223372036854775808", "x"]),
    ("top_logprobs", ["0", "20"], ["-1", "21"]),
    ("logit_bias", ["1:2"], ["1", "x:1"]),
])
def test_ranges(shared_page, name, good, bad):
    """spec/sampling.md's ranges, and a bad value keeps a message from being sent."""
    page = shared_page
    for text in good + bad:
        set_control(page, name, text)
        valid = page.js(f"document.getElementById('control-{name}').validity.valid")
        assert valid == (text in good), text
    page.js("document.getElementById('message').value = 'x'; document.getElementById('send').click()")
    assert page.js("document.querySelectorAll('.message').length") == 0
    assert page.js("document.activeElement.id") == f"control-{name}"
    set_control(page, name, "")


@pytest.fixture(scope="module")
def shared_page(browser, server):
    p = browser.page(server.address + "/")
    p.wait(ready)
    yield p
    p.close()


def test_stop(page, server):
    """Escape and the button stop the answer, keep what came, and free the engine."""
    running = "vllm:num_requests_running"
    for how in (lambda: page.press("Escape"), lambda: page.click("#stop")):
        set_control(page, "ignore_eos", True)
        set_control(page, "max_tokens", 900)
        send(page, "Count.")
        page.wait("!document.getElementById('stop').hidden")
        page.wait(f"{answer}.length > 10")
        how()
        page.wait(idle, timeout=3)
        assert page.js(f"{answer}.length") > 10
        assert page.js("[...document.querySelectorAll('.note')].some(n => n.textContent.endsWith('stopped'))")
        end = time.monotonic() + 5
        while not re.search(rf"^{running}\S* 0\.0$", server.get("/metrics")[2].decode(), re.M):
            assert time.monotonic() < end
            time.sleep(0.02)
        page.click("#new-talk")


def test_keyboard_alone(page):
    """From the address bar to an answer and the server's view without a mouse."""
    focus = "document.activeElement.id || document.activeElement.className || document.activeElement.textContent"
    order = []
    for _ in range(7):
        page.press("Tab")
        order.append(page.js(focus))
    assert order == ["skip", "Chat", "Server", "new-talk", "talk-title", "quiet delete", "token-view"]
    page.press("Tab", shift=True)
    assert page.js(focus) == "quiet delete"
    page.js("document.querySelector('.skip').focus()")
    page.press("Enter")
    page.wait("document.activeElement.id === 'message'")
    set_control(page, "max_tokens", 2)
    page.type("Hello")
    page.press("Enter")
    page.wait(f"{idle} && {answer}.length")
    page.wait("document.activeElement.id === 'message'")
    page.js("document.querySelector('[data-view=server]').focus()")
    page.press("Enter")
    page.wait("!document.getElementById('server-view').hidden")


def test_token_view(page):
    """Shaded tokens that join to the text; alternatives by hover and by arrow keys."""
    set_control(page, "max_tokens", 12)
    set_control(page, "seed", 5)
    page.click("#token-view")
    send(page, "Name three rivers.")
    page.wait(f"{idle} && document.querySelectorAll('.token').length")
    spans = page.js("[...document.querySelectorAll('.token')].map(t => t.textContent.replaceAll('⏎', ''))")
    stored = page.js("JSON.parse(Object.entries(localStorage).find(([k]) => k.startsWith('headrace.talk.'))[1])"
                     ".messages[1].variants[0]")
    assert "".join(spans) == stored["text"] == "".join(t[0] for t in stored["tokens"])
    assert all(len(t[2]) in (5, 6) for t in stored["tokens"])
    shade = page.js("[...document.querySelectorAll('.token')].map(t => Number(t.style.getPropertyValue('--surprise')))")
    assert shade == pytest.approx([min(1, -t[1] / 7) for t in stored["tokens"]], abs=1e-3)

    page.click(".token:nth-child(2)", hover=True)
    assert page.js("!document.getElementById('token-card').hidden")
    assert page.js("document.querySelectorAll('#token-card tbody tr').length") in (5, 6)
    assert page.js("document.querySelectorAll('#token-card .chosen').length") == 1
    page.js("document.querySelector('.token').focus()")
    page.press("ArrowRight")
    page.press("ArrowRight")
    assert page.js("[...document.querySelectorAll('.token')].indexOf(document.activeElement)") == 2
    assert page.js("document.activeElement.getAttribute('aria-describedby')") == "token-card"
    page.press("Escape")
    assert page.js("document.getElementById('token-card').hidden")
    page.click("#message", hover=True)
    page.click(".token:nth-child(4)", hover=True)
    page.screenshot(SHOTS / "page-tokens-light.png")
    page.look(dark=True)
    page.screenshot(SHOTS / "page-tokens-dark.png")


def test_dashboard(page):
    """Numbers of the engine, after it has done something; every program is a row."""
    set_control(page, "max_tokens", 30)
    send(page, "Hello there.")
    page.wait(idle)
    page.click("[data-view=server]")
    page.wait("document.querySelectorAll('.line').length >= 4")
    programs = json.loads(page.js("fetch('/programs').then(r => r.text())"))
    assert page.text("#late").startswith(
        f"No late compilations: all {len(programs['programs'])} programs were compiled before")
    rows = page.js("[...document.querySelectorAll('#heat tbody tr:not(.group)')].map("
                   "r => [r.cells[0].textContent, r.cells.length, r.cells[17].textContent])")
    wanted = [p for p in programs["programs"] if p["program"] != "select"]
    assert [r[1] for r in rows] == [19] * len(wanted)  # bucket, 15 of time, mean, calls, padding
    assert [int(r[2].replace(",", "")) for r in rows] == [p["calls"] for p in wanted]
    assert sum(p["calls"] for p in wanted) > 30
    latency = page.js("[...document.querySelectorAll('#latency tbody tr')].map(r => r.innerText)")
    assert len(latency) == 6 and all(re.search(r"\d (µs|ms|s)\b", row) for row in latency), latency
    assert page.text("#facts").startswith("Context1,024 tokensKV cache")
    page.size(1280, 1100)
    page.screenshot(SHOTS / "page-server-light.png")
    page.look(dark=True)
    page.screenshot(SHOTS / "page-server-dark.png")
    page.size(390, 844)
    assert page.js("document.documentElement.scrollWidth") == 390
    page.screenshot(SHOTS / "page-server-narrow.png")
    page.click("[data-view=chat]")
    assert page.js("document.documentElement.scrollWidth") == 390
    page.click("#open-settings")
    assert page.js("document.activeElement.id") == "system"
    page.press("Escape")
    assert page.js("document.activeElement.id") == "open-settings"
    page.screenshot(SHOTS / "page-chat-narrow.png")


def test_talks(page):
    """Conversations are apart, survive a reload, and go when they are told to."""
    set_control(page, "max_tokens", 3)
    for text in ("First of them", "Second of them"):
        page.click("#new-talk")
        send(page, text)
        page.wait(idle)
    titles = "[...document.querySelectorAll('.talk-title')].map(t => t.textContent)"
    assert page.js(titles) == ["Second of them", "First of them"]
    page.click("li:nth-child(2) .talk-title")
    assert page.text(".message.user .body") == "First of them"
    press_tool(page, "Edit")
    assert page.js("document.getElementById('message').value") == "First of them"
    assert page.js("document.querySelectorAll('.message').length") == 0
    page.press("Enter")
    page.wait(f"{idle} && document.querySelectorAll('.message').length === 2")
    page.js("document.querySelector('li:nth-child(1) .delete').click()")
    page.reload()
    page.wait(ready)
    assert page.js(titles) == ["First of them"]
    for settings in ("x", "5", "[]", "null", '{"sampling": 3}'):  # of another version, or broken
        page.js(f"""localStorage['headrace.talk.broken'] = '{{';
            localStorage['headrace.talk.strange'] = '{{"id":"9","messages":[{{"variants":[0],"chosen":0}}]}}';
            localStorage['headrace.settings'] = {json.dumps(settings)}""")
        page.reload()
        page.wait(ready)
        assert page.js(titles) == ["First of them"]


def test_full_storage(page):
    """When the browser has no room left, old tokens go before old words, and the new talk is kept."""
    page.js("""(() => {
        for (let i = 0; i < 4; i++) {
            localStorage[`headrace.talk.00000000${i}-old`] = JSON.stringify({
                id: `00000000${i}-old`, title: `old ${i}`, system: '', messages: [
                    {role: 'assistant', chosen: 0, variants: [
                        {text: 'kept', tokens: [['x'.repeat(1200000), -1, []]]}]}]});
        }
    })()""")
    page.reload()
    page.wait(ready)
    page.click("#new-talk")
    set_control(page, "max_tokens", 2)
    send(page, "Long: " + "w " * 300)
    page.wait(f"document.querySelectorAll('.message').length === 2 && {idle}")
    page.js("""import('/store.js').then(({current, saveTalk}) => {
        current().messages[0].variants[0].text = 'y'.repeat(1500000);
        saveTalk(current());
        window.saved = true;
    })""")
    page.wait("window.saved")
    kept = page.js("Object.keys(localStorage).filter(k => k.startsWith('headrace.talk.')).sort()"
                   ".map(k => [k.slice(-3), localStorage[k].length > 1e6, localStorage[k].includes('kept')])")
    assert kept == [["old", False, True], *[["old", True, True]] * 3, [kept[-1][0], True, False]]


def test_loading_and_gone(browser, serve, smollm2):
    """The page says what the server does: loading, ready, gone."""
    server = serve(smollm2, *SERVER_FLAGS).ready()
    p = browser.page("about:blank")
    p.call("Page.addScriptToEvaluateOnNewDocument", source="""
        const real = window.fetch;
        window.fetch = (path, ...more) => (path === 'health' && !window.loaded)
            ? Promise.resolve(new Response('', {status: 503})) : real(path, ...more);""")
    p.go(server.address + "/")
    p.wait("document.getElementById('state').textContent === 'loading the model'")
    p.js("window.loaded = true")
    p.wait(ready)
    assert server.stop() == 0
    p.wait("document.getElementById('state').textContent === 'no connection'")
    send(p, "Is anybody there?")
    p.wait(f"{idle} && document.querySelector('.message.assistant .problem')?.textContent"
           " === 'the server cannot be reached'")
    assert [x for x in p.problems() if "ERR_CONNECTION_REFUSED" not in x] == []
    p.close()


def test_reasoning_stands_apart(browser, serve, smollm2, tmp_path):
    """The prompt opens it and the model never ends it: the answer is empty, the reasoning is not."""
    (tmp_path / "template").write_text("{{ messages[-1].content }} </think> <think>\n")
    s = serve(smollm2, "--max-model-len", 256, "--max-num-seqs", 4, "--max-num-batched-tokens", 64,
              "--chat-template", tmp_path / "template").ready()
    p = browser.page(s.address + "/")
    p.wait(ready)
    for name, value in (("max_tokens", 8), ("temperature", 0), ("ignore_eos", True)):
        set_control(p, name, value)
    send(p, "The sky is")
    p.wait(f"{idle} && document.querySelectorAll('.message').length === 2")
    assert p.js("document.querySelector('.message.user .reasoning').hidden")
    assert not p.js("document.querySelector('.message.assistant .reasoning').hidden")
    assert p.js("document.querySelector('.message.assistant .thoughts').textContent.length") > 5
    assert p.js("document.querySelector('.message.assistant .body').textContent") == ""
    p.close()


def test_metrics_reading(page):
    """The dashboard's reading of Prometheus text: escapes, infinities, quantiles."""
    text = '# HELP a b\na{x="q\\"}, \\\\n",le="+Inf"} 1e+06\nb 2.5\n'
    page.js(f"""import('/samples.js').then(({{parseMetrics, quantile}}) => {{
        const m = parseMetrics({json.dumps(text)});
        const h = {{bounds: [1, 2, 4, Infinity], counts: [10, 30, 40, 50], count: 50, sum: 1}};
        window.out = [m.get('a')[0], m.get('b')[0].value,
            ...[0.1, 0.4, 0.7, 0.9].map(q => quantile(h, q)),
            quantile({{bounds: [1], counts: [0], count: 0}}, 0.5).value];
    }})""")
    out = page.wait("window.out")
    assert out[0] == {"labels": {"x": 'q"}, \\n', "le": "+Inf"}, "value": 1e6}
    assert out[1] == 2.5
    # by hand: rank 5 lies in the lowest bucket; 20 is halfway in (1,2]; 35 halfway in (2,4]; 45 above
    assert out[2:6] == [{"below": 1}, {"value": 1.5}, {"value": 3}, {"above": 4}]


def test_curl(page):
    """What is copied runs in a shell and gives the answer's stream."""
    page.js("navigator.clipboard.writeText = async text => { window.copied = text; }")
    set_control(page, "max_tokens", 4)
    set_control(page, "temperature", 0)
    send(page, "It's \"quoted\".")
    page.wait(idle)
    page.click("#curl")
    command = page.wait("window.copied")
    out = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=30)
    chunks = [json.loads(line[6:]) for line in out.stdout.splitlines()
              if line.startswith("data: {")]
    text = "".join(c["delta"].get("content") or "" for k in chunks for c in k["choices"])
    assert text == page.js("document.querySelector('.message.assistant .body').textContent") != ""


def test_markdown_is_text(page):
    """Hostile answers stay text; what a model likes to write is shown as it meant it."""
    page.js("""import('/markdown.js').then(({markdown}) => {
        const host = document.createElement('div');
        host.className = 'body';
        host.append(...markdown([
            '# Title', 'A **bold** and *slanted* `x < 1` <img src=x onerror=alert(1)>',
            '[ok](https://example.org/) [no](javascript:alert(1))', '', '1. one', '2. two', '   - deep',
            '', '> said', '', '```html', '<script>alert(1)</script>', '```'].join('\\n')));
        document.getElementById('log').replaceChildren(host);
        window.host = host;
        window.deep = markdown('>'.repeat(50000) + 'x').length + markdown('`*['.repeat(20000)).length;
    })""")
    page.wait("window.deep")
    assert page.js("host.querySelectorAll('script, img').length") == 0
    assert page.js("host.querySelector('pre').textContent") == "<script>alert(1)</script>"
    assert page.js("[...host.querySelectorAll('a')].map(a => a.href)") == ["https://example.org/"]
    assert page.js("[...host.querySelectorAll('strong, em, p code, h3, ol > li, li ul li, blockquote')]"
                   ".map(e => e.localName)") == ["h3", "strong", "em", "code", "li", "li", "li",
                                                 "blockquote"]


def test_api_key(browser, serve, smollm2):
    """The key is asked for once, a wrong one again; it is kept for the tab, and not for ever."""
    server = serve(smollm2, *SERVER_FLAGS, "--api-key", KEY).ready()
    p = browser.page(server.address + "/")
    p.wait("document.getElementById('key-dialog').open")
    p.type("wrong")
    p.press("Enter")
    p.wait("document.getElementById('key-note').textContent.includes('does not take')")
    p.type(KEY)
    p.press("Enter")
    p.wait(ready)
    set_control(p, "max_tokens", 5)
    send(p, "Hello")
    p.wait(f"{idle} && {answer}.length")
    p.reload()
    p.wait(ready)
    assert not p.js("document.getElementById('key-dialog').open")
    assert p.js("Object.values(localStorage).join().includes(sessionStorage['headrace.key'])") is False
    p.click("[data-view=server]")
    p.wait("document.querySelectorAll('#heat tbody tr').length > 5")
    assert [x for x in p.problems() if "401" not in x] == []
    p.close()


def test_files(server):
    """Policy, types, ETags; none of them needs a key or another host."""
    for path in ("/", "/page.js", "/page.css", "/favicon.svg"):
        status, headers, body = server.get(path)
        assert status == 200 and body
        assert "default-src 'self'" in headers["Content-Security-Policy"]
        again, more, nothing = server.get(path, headers={"If-None-Match": headers["ETag"]})
        assert (again, nothing, more["ETag"]) == (304, b"", headers["ETag"])
        assert server.get(path, headers={"If-None-Match": '"other"'})[0] == 200
    page_folder = ROOT / "src" / "server" / "page"
    for file in page_folder.iterdir():
        assert server.get(f"/{file.name}")[2] == file.read_bytes() or file.name == "index.html"
        urls = re.findall(r"https?://[^\s'\"`)]+", file.read_text())
        assert set(urls) <= {"http://www.w3.org/2000/svg"}, file.name
