"""headrace chat and complete: what is asked, what is kept, and what Ctrl-C stops."""
import json
import os
import pty
import select
import signal
import subprocess
import time

import pytest

from conftest import BIN, generate, headrace
from stub_server import Stub

SMALL = ["--max-model-len", 512, "--max-num-seqs", 4, "--max-num-batched-tokens", 64]
GREEDY = ["--temperature", 0, "--max-tokens", 12]


@pytest.fixture
def stub():
    s = Stub()
    yield s
    s.close()


def chat(stub, text, *flags, command="chat", **more):
    return headrace(command, "--url", stub.url, *flags, stdin=text, **more)


def roles(messages):
    return [(m["role"], m["content"]) for m in messages]


# ---- with a server ------------------------------------------------------------------------------

@pytest.mark.sanitize
def test_history_goes_with_every_message(stub):
    r = chat(stub, "first\nsecond\n", "--system", "Be brief.", "--max-tokens", 2)
    assert r.returncode == 0 and r.stdout == " one two\n one two\n", r.stderr
    assert [roles(q["body"]["messages"]) for q in stub.requests] == [
        [("system", "Be brief."), ("user", "first")],
        [("system", "Be brief."), ("user", "first"), ("assistant", " one two"), ("user", "second")]]
    assert {q["path"] for q in stub.requests} == {"/v1/chat/completions"}


@pytest.mark.sanitize
def test_commands(stub, tmp_path):
    file = tmp_path / "chat.json"
    r = chat(stub, f"""hello
/system One.
again
/save {file}
/reset
after
/system
/history
//slash
two \\
lines
/help
/nonsense
/save
/quit
never said
""", "--max-tokens", 1)
    assert r.returncode == 1  # two commands were wrong
    assert "unknown command /nonsense" in r.stderr and "/save FILE" in r.stderr
    assert "/reset" in r.stderr  # the help
    assert [roles(q["body"]["messages"])[-1][1] for q in stub.requests] == [
        "hello", "again", "after", "/slash", "two \nlines"]
    assert roles(stub.requests[1]["body"]["messages"])[0] == ("system", "One.")
    assert roles(stub.requests[2]["body"]["messages"]) == [("system", "One."), ("user", "after")]
    assert stub.requests[3]["body"]["messages"][0]["role"] == "user"
    assert roles(json.loads(file.read_text())) == [
        ("system", "One."), ("user", "hello"), ("assistant", " one"), ("user", "again"),
        ("assistant", " one")]
    assert "user: after\nassistant:  one\n" in r.stdout and "system:" not in r.stdout


@pytest.mark.sanitize
def test_sampling_goes_to_the_server(stub):
    chat(stub, "x\n", "--temperature", 0.5, "--top-k", 7, "--seed", 3, "--stop", "a\"b", "--stop",
         "c", "--min-tokens", 1, "--max-tokens", 1, "--no-skip-special-tokens", "--model", "m",
         "--api-key", "k", "--header", "X-A: b")
    [q] = stub.requests
    assert {k: v for k, v in q["body"].items() if k != "messages"} == {
        "model": "m", "stream": True, "temperature": 0.5, "top_k": 7, "seed": 3, "min_tokens": 1,
        "max_tokens": 1, "skip_special_tokens": False, "stop": ["a\"b", "c"]}
    assert q["headers"]["Authorization"] == "Bearer k" and q["headers"]["X-A"] == "b"


@pytest.mark.sanitize
def test_a_failed_message_leaves_no_trace(stub):
    stub.plan.fail = lambda n: (400, {"error": {"message": "too long"}}) if n == 1 else None
    stub.plan.tokens = 1
    r = chat(stub, "a\nb\nc\n")
    assert r.returncode == 1 and "HTTP 400: too long" in r.stderr
    assert roles(stub.requests[2]["body"]["messages"]) == [
        ("user", "a"), ("assistant", " one"), ("user", "c")]


@pytest.mark.sanitize
def test_bytes_of_any_kind_pass(stub):
    stub.plan.echo = True
    r = chat(stub, 'quote " back \\\\ tab \t ü 🎈 \x01\n', timeout=20)
    assert r.returncode == 0
    assert json.loads(r.stdout)[0]["content"] == 'quote " back \\\\ tab \t ü 🎈 \x01'


@pytest.mark.sanitize
def test_complete_takes_a_prompt_a_line(stub):
    r = chat(stub, "Once upon\n\nand then", "--max-tokens", 3, command="complete")
    assert r.returncode == 0 and r.stdout == " one two three\n" * 2
    assert [(q["path"], q["body"]["prompt"]) for q in stub.requests] == [
        ("/v1/completions", "Once upon"), ("/v1/completions", "and then")]


@pytest.mark.parametrize("command", ["chat", "complete"])
def test_command_lines(stub, command):
    for flags, word in [([], "which model"), (["m", "--url", stub.url], "not both"),
                        (["m", "--api-key", "k"], "--url"), (["--url", "ftp://x"], "http"),
                        (["/no/such/model"], "/no/such/model")]:
        r = headrace(command, *flags, stdin="x\n")
        assert r.returncode in (1, 2) and word in r.stderr, r.stderr


# ---- Ctrl-C -------------------------------------------------------------------------------------

class Running:
    """A client whose output can be waited for; `terminal` gives it one as standard input."""

    def __init__(self, *arguments, terminal=False):
        self.master, self.output = None, b""
        stdin = subprocess.PIPE
        if terminal:
            self.master, stdin = pty.openpty()
        self.p = subprocess.Popen([BIN, *map(str, arguments)], stdin=stdin, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, start_new_session=True)
        if terminal:
            os.close(stdin)

    def type(self, text):
        if self.master is not None:
            os.write(self.master, text.encode())
        else:
            self.p.stdin.write(text.encode())
            self.p.stdin.flush()

    def until(self, done, timeout=30):
        end = time.monotonic() + timeout
        while not done(self.output.decode(errors="replace")):
            left = end - time.monotonic()
            assert left > 0 and select.select([self.p.stdout], [], [], left)[0], self.output
            part = os.read(self.p.stdout.fileno(), 65536)
            assert part, self.output
            self.output += part

    def end(self):
        if self.p.stdin:
            self.p.stdin.close()
        self.output += self.p.stdout.read()
        self.p.stdout.close()
        if self.master is not None:
            os.close(self.master)
        return self.p.wait(30)

    def kill(self):
        if self.p.poll() is None:
            self.p.kill()
            self.p.wait()


@pytest.fixture
def run():
    all_of_them = []

    def start(*arguments, **more):
        all_of_them.append(Running(*arguments, **more))
        return all_of_them[-1]
    yield start
    for r in all_of_them:
        r.kill()


def test_interrupt_stops_the_answer_not_the_program(stub, run):
    stub.plan.gap, stub.plan.tokens = 0.02, 1000
    r = run("chat", "--url", stub.url)
    r.type("long\n")
    r.until(lambda s: "three" in s)
    r.p.send_signal(signal.SIGINT)
    r.until(lambda s: s.endswith("\n"))
    stub.plan.tokens = 1
    r.type("short\n")
    r.until(lambda s: s.count("\n") == 2)
    assert r.end() == 0
    messages = roles(stub.requests[1]["body"]["messages"])
    assert messages[0] == ("user", "long") and messages[2] == ("user", "short")
    assert messages[1][1].startswith(" one two three") and len(messages[1][1]) < 2000
    end = time.monotonic() + 10
    while not stub.gone and time.monotonic() < end:
        time.sleep(0.01)
    assert stub.gone == 1  # the server saw its client leave


def test_interrupt_in_this_process(smollm2, run):
    r = run("chat", smollm2, *SMALL, "--temperature", 0, "--ignore-eos", "--max-tokens", 450)
    r.type("Tell me a story.\n")
    r.until(lambda s: len(s) > 30)
    r.p.send_signal(signal.SIGINT)
    r.until(lambda s: s.endswith("\n"))
    stopped = len(r.output)
    r.type("/history\n")
    r.until(lambda s: "assistant: " in s)
    r.type("/reset\n/quit\n")
    assert r.end() == 0
    story = r.output[:stopped].decode().rstrip("\n")
    assert f"assistant: {story}\n" in r.output.decode()


def test_a_terminal_is_prompted(stub, run):
    stub.plan.tokens = 2
    r = run("chat", "--url", stub.url, terminal=True)
    r.until(lambda s: s.endswith("> "))
    assert "/help" in r.output.decode()
    r.p.send_signal(signal.SIGINT)  # at the prompt: nothing to stop
    r.until(lambda s: s.count("Ctrl-D ends.") == 2 and s.endswith("\n> "))
    r.type("hi\n")
    r.until(lambda s: "one two\n" in s and s.endswith("> "))
    r.type("\x04")
    assert r.end() == 0
    assert [q["body"]["messages"][-1]["content"] for q in stub.requests] == ["hi"]


def test_answers_cannot_command_the_terminal(stub):
    """A pipe gets the bytes as they are; a terminal gets pictures of control characters."""
    stub.plan.texts = ["a\x1b[2J\x07b\x7f", "\u009bc ü\n\td"]
    assert chat(stub, "x\n").stdout == "a\x1b[2J\x07b\x7f\u009bc ü\n\td\n"
    master, slave = pty.openpty()
    p = subprocess.Popen([BIN, "chat", "--url", stub.url], stdin=subprocess.PIPE, stdout=slave,
                         stderr=subprocess.DEVNULL)
    os.close(slave)
    p.communicate(b"x\n", timeout=30)
    shown = os.read(master, 65536).decode()
    os.close(master)
    assert p.returncode == 0
    assert shown == "a\u241b[2J\u2407b\u2421\ufffdc ü\r\n\td\r\n"


# ---- with a model -------------------------------------------------------------------------------

def test_chat_is_what_generate_answers(smollm2, tmp_path):
    file = tmp_path / "chat.json"
    r = headrace("chat", smollm2, *SMALL, *GREEDY, "--system", "You are a poet.",
                 stdin=f"Name a colour.\nAnother one?\n/save {file}\n")
    assert r.returncode == 0, r.stderr
    messages = json.loads(file.read_text())
    assert [m["role"] for m in messages] == ["system"] + ["user", "assistant"] * 2
    assert r.stdout == "".join(m["content"] + "\n" for m in messages if m["role"] == "assistant")
    for n in (2, 4):
        asked = tmp_path / "asked.json"
        asked.write_text(json.dumps(messages[:n]))
        [answer] = generate(smollm2, *SMALL, *GREEDY, "--messages", asked)
        assert answer["choices"][0]["text"] == messages[n]["content"]


def on_a_terminal(*arguments, text):
    """What a command prints where its standard output is a terminal."""
    master, slave = pty.openpty()
    p = subprocess.Popen([BIN, *map(str, arguments)], stdin=subprocess.PIPE, stdout=slave,
                         stderr=subprocess.DEVNULL)
    os.close(slave)
    p.communicate(text.encode(), timeout=60)
    shown = b""
    while select.select([master], [], [], 0)[0]:
        try:
            shown += os.read(master, 65536)
        except OSError:
            break
    os.close(master)
    assert p.returncode == 0
    return shown.decode().replace("\r\n", "\n")


def test_reasoning_is_dim_and_no_part_of_the_answer(smollm2, serve, tmp_path):
    """The prompt opens it, and the model never ends it: all that it says is reasoning."""
    template, file = tmp_path / "template", tmp_path / "chat.json"
    template.write_text("{% for m in messages %}{{ m.content.split('</think>')[-1] }}\n{% endfor %}<think>\n")
    s = serve(smollm2, *SMALL, "--chat-template", template).ready()
    for where in ([smollm2, *SMALL, "--chat-template", template], ["--url", s.address]):
        asked = f"The sky is blue because\n/save {file}\n"
        assert headrace("chat", *where, *GREEDY, stdin=asked).stdout == "\n"
        assert roles(json.loads(file.read_text()))[-1] == ("assistant", "")
        shown = on_a_terminal("chat", *where, *GREEDY, text=asked)
        assert shown.startswith("\x1b[2m") and shown.endswith("\x1b[22m\n\n") and len(shown) > 30


def test_complete_is_what_generate_answers(smollm2):
    prompts = ["Once upon a time", "The sky is"]
    r = headrace("complete", smollm2, *SMALL, *GREEDY, stdin="\n".join(prompts) + "\n")
    assert r.returncode == 0, r.stderr
    answers = generate(smollm2, *SMALL, *GREEDY, "-p", prompts[0], "-p", prompts[1])
    assert r.stdout == "".join(a["choices"][0]["text"] + "\n" for a in answers)


def test_against_headrace(server):
    text = "Name a colour.\nAnother one?\n"
    a = headrace("chat", "--url", server.address, *GREEDY, stdin=text)
    assert a.returncode == 0 and len(a.stdout) > 20, a.stderr
    assert server.get("/health")[0] == 200
