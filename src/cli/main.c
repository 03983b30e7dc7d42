/* The headrace command: finds the subcommand, parses its flags, runs it.
 *
 * The only room that prints or exits. Standard output carries answers alone; everything said about
 * them goes to standard error. Exit status: 0 done, 1 failed, 2 the command line was wrong. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sandbox.h"
#include "cli/cli.h"

const hr_cli_entry hr_cli_entries[] = {
    { "serve", HR_CLI_SERVE, hr_cli_serve, "answer OpenAI-compatible HTTP requests",
      "usage: headrace serve MODEL [flags]\n\n"
      "MODEL is a folder in Hugging Face layout, a .gguf file, a packaged model (smollm2-135m), "
      "or\n"
      "org/name in the local Hugging Face cache. Open http://127.0.0.1:8000/ in a browser, or:\n\n"
      "  curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' \\\n"
      "    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'\n\n" },
    { "plan", HR_CLI_PLAN, hr_cli_plan, "memory, programs and buckets of a start, without weights",
      "usage: headrace plan MODEL [flags]\n\n"
      "Reads a checkpoint's headers, no weight, and tells what serving it with these flags "
      "takes;\nfails where the machine cannot hold it.\n\n" },
    { "compile", HR_CLI_COMPILE, hr_cli_compile,
      "every program, written down, into the compile cache, or for other devices",
      "usage: headrace compile MODEL --dump DIR [flags]\n"
      "       headrace compile MODEL --device NAME [flags]\n"
      "       headrace compile MODEL --topology NAME --plugin PATH [flags]\n\n"
      "--dump writes DIR/backbone_t16.mlir and so on, the text that a PJRT device would be given; "
      "no plugin is\nneeded. --device makes a start with these flags and ends, so that the next "
      "start with them packs\nno weights and compiles nothing (--compile-cache). --topology "
      "compiles for devices that "
      "are not here, without weights, and tells\nsizes and times:\n\n"
      "  tools/setup.sh tpu\n"
      "  headrace compile smollm2-135m --topology v6e:2x2x1 --plugin .cache/pjrt/libtpu/libtpu.so"
      "\n\n" },
    { "devices", HR_CLI_DEVICES, hr_cli_devices, "what --device can name here",
      "usage: headrace devices [--device NAME] [flags]\n\n"
      "Lists the native backend and the PJRT plugins found: those that HEADRACE_PJRT_PLUGINS "
      "names, with\ncolons between, and those of installed Python packages. With --device opens "
      "that one and tells what it\nsays of itself.\n\n" },
    { "generate", HR_CLI_GENERATE, hr_cli_generate, "answer prompts, without a server",
      "usage: headrace generate MODEL -p TEXT [flags]\n\n"
      "MODEL is a folder in Hugging Face layout, a .gguf file, a packaged model (smollm2-135m), "
      "or\n"
      "org/name in the local Hugging Face cache.\n\n"
      "  headrace generate smollm2-135m --chat -p 'Why is the sky blue?'\n"
      "  headrace generate model.gguf -p 'Once upon a time' --temperature 0.8 --seed 7 "
      "--json\n\n" },
    { "replay", HR_CLI_REPLAY, hr_cli_replay,
      "a recorded answer once more, compared token by token",
      "usage: headrace replay FILE [MODEL] [flags]\n\n"
      "FILE is an answer with a sampling trace, whole or as a stream, as a client saved it; - is "
      "standard\ninput. It names its model; MODEL says where it lies here. Exit status 0: equal, "
      "1: not, or not to be had.\n\n"
      "  curl http://127.0.0.1:8000/v1/completions -H 'Content-Type: application/json' \\\n"
      "    -d '{\"prompt\": \"Hello\", \"sampling_trace\": true}' > answer.json\n"
      "  headrace replay answer.json\n\n" },
    { "tokenize", HR_CLI_TOKENIZE, hr_cli_tokenize, "token ids of a text",
      "usage: headrace tokenize MODEL|tokenizer.json [--prompt TEXT] [flags]\n\n"
      "Prints a JSON list of token ids. Without --prompt or --prompt-file the text comes from\n"
      "standard input.\n\n" },
    { "render", HR_CLI_RENDER, hr_cli_render, "a chat as the model's template renders it",
      "usage: headrace render [MODEL] --messages FILE [flags]\n\n"
      "Renders messages through the model's chat template, or through --template FILE, for which\n"
      "no model is needed. What is wrong in a template is shown in its line.\n\n"
      "  headrace render --template chat_template.jinja --messages chat.json --tools tools.json "
      "\\\n"
      "    --chat-template-kwargs '{\"bos_token\": \"<s>\", \"enable_thinking\": false}'\n\n" },
    { "chat", HR_CLI_CHAT, hr_cli_chat, "talk to a model in this terminal",
      "usage: headrace chat MODEL [flags]\n       headrace chat --url URL [flags]\n\n"
      "Lines are messages; /help lists what else can be typed. Ctrl-C stops an answer, Ctrl-D "
      "ends.\n\n" },
    { "complete", HR_CLI_COMPLETE, hr_cli_complete, "continue texts, one a line",
      "usage: headrace complete MODEL [flags]\n       headrace complete --url URL [flags]\n\n"
      "Every line is a prompt that the model continues. Ctrl-C stops an answer, Ctrl-D ends.\n\n" },
    { "bench serve", HR_CLI_BENCH_SERVE, hr_cli_bench_serve,
      "load an OpenAI-compatible server, and time it",
      "usage: headrace bench serve [--base-url URL] [flags]\n\n"
      "Works against any OpenAI-compatible server; definitions and table are those of vLLM's\n"
      "benchmark. The server must run already:\n\n"
      "  headrace serve smollm2-135m &\n"
      "  headrace bench serve --num-prompts 100 --random-input-len 128 --max-concurrency 16 "
      "--ignore-eos\n\n" },
    { "bench throughput", HR_CLI_BENCH_THROUGHPUT, hr_cli_bench_throughput,
      "tokens per second of the engine alone",
      "usage: headrace bench throughput MODEL [flags]\n\n"
      "Submits all requests at once to an engine in this process.\n\n" },
    { "bench latency", HR_CLI_BENCH_LATENCY, hr_cli_bench_latency,
      "seconds that one batch takes in the engine",
      "usage: headrace bench latency MODEL [flags]\n\n"
      "Runs the same batch again and again, prefix caching off, and tells the percentiles.\n\n" },
    { "bench startup", HR_CLI_BENCH_STARTUP, hr_cli_bench_startup,
      "seconds from launching a process to its first token",
      "usage: headrace bench startup MODEL [flags]\n\n"
      "Launches this program anew, with the model's files out of the page cache and in it.\n\n" },
    { "bench sampler", HR_CLI_BENCH_SAMPLER, hr_cli_bench_sampler,
      "what each sampling option costs behind a random lm_head",
      "usage: headrace bench sampler [flags]\n\n"
      "Needs no model. Head alone, head and sampler, sampler alone, each option by itself and all\n"
      "at once:\n\n"
      "  headrace bench sampler --batch-sizes 1,32 --head float32,w8a8\n\n" },
    { "bench kernels", HR_CLI_BENCH_KERNELS, hr_cli_bench_kernels,
      "what each op reaches of the machine's measured peaks",
      "usage: headrace bench kernels [flags]\n\n"
      "Needs no model. Measures how fast this machine reads memory and caches and how fast it\n"
      "multiplies, then times each op natively over row counts and tells how much of that it "
      "reaches:\n\n"
      "  headrace bench kernels --ops linear --formats i8c,q8_0 --shapes 896x9728 "
      "--rows 1,8,64,512\n\n" },
    { "bench tokenizer", HR_CLI_BENCH_TOKENIZER, hr_cli_bench_tokenizer,
      "how fast texts become token ids",
      "usage: headrace bench tokenizer MODEL|tokenizer.json --texts FILE [flags]\n\n"
      "FILE has a JSON string a line. Every run encodes all of them, one after the other on one "
      "thread,\nwith nothing remembered from the run before.\n\n" },
    { "quantize", HR_CLI_QUANTIZE, hr_cli_quantize, "write a checkpoint in 8 or 4 bits",
      "usage: headrace quantize MODEL OUT --scheme w8a8|w4a8 [flags]\n\n"
      "MODEL is a folder in Hugging Face layout with float weights; OUT is a new one, in "
      "compressed-tensors\nlayout, that transformers, vLLM and headrace load. Tells what each "
      "linear lost. headrace eval kl OUT\n--reference MODEL tells what that costs in "
      "answers.\n\n" },
    { "eval perplexity", HR_CLI_EVAL_PERPLEXITY, hr_cli_eval_perplexity,
      "how well a model predicts a text",
      "usage: headrace eval perplexity MODEL --file FILE [flags]\n"
      "       headrace eval perplexity --base-url URL --file FILE [flags]\n\n"
      "exp of the mean negative log-probability of the text's tokens, in overlapping "
      "windows.\n\n" },
    { "eval kl", HR_CLI_EVAL_KL, hr_cli_eval_kl, "how far two models' predictions are apart",
      "usage: headrace eval kl MODEL --reference MODEL --file FILE [flags]\n"
      "       headrace eval kl MODEL --reference-dtype float32 --file FILE [flags]\n\n"
      "Mean KL divergence from the reference, agreement of the likeliest token, and the text's\n"
      "perplexity under both. One model is loaded after the other.\n\n" },
    { "eval gsm8k", HR_CLI_EVAL_GSM8K, hr_cli_eval_gsm8k, "grade-school arithmetic, step by step",
      "usage: headrace eval gsm8k MODEL --data test.jsonl --fewshot train.jsonl [flags]\n"
      "       headrace eval gsm8k --base-url URL --data test.jsonl --fewshot train.jsonl "
      "[flags]\n\n"
      "Greedy answers to GSM8K's questions, with lm-evaluation-harness's prompt, filters and "
      "standard error.\nThe data: github.com/openai/grade-school-math, MIT licence.\n\n" },
};
enum { N_COMMANDS = sizeof hr_cli_entries / sizeof *hr_cli_entries };
const size_t hr_cli_n_entries = N_COMMANDS;

void hr_cli_log(void *args, int level, const char *line)
{
    const hr_args *a = args;
    if (level <= a->log_level) fprintf(stderr, "%s\n", line);
}

int hr_cli_complain(void)
{
    fprintf(stderr, "headrace: %s\n", hr_message());
    return 1;
}

static void print_overview(FILE *to)
{
    hr_buf text = { 0 };
    hr_cli_overview(&text);
    fputs(hr_buf_c(&text), to);
    hr_buf_deinit(&text);
}

const hr_cli_entry *hr_cli_find(int argc, char **argv, size_t *words)
{
    char both[64]; /* "bench serve" is one command */
    snprintf(both, sizeof both, "%s %s", argv[0], argc > 1 ? argv[1] : "");
    for (size_t i = 0; i < N_COMMANDS; i++)
        for (*words = 1; *words <= 2; ++*words)
            if (!strcmp(*words == 1 ? argv[0] : both, hr_cli_entries[i].name))
                return &hr_cli_entries[i];
    return NULL;
}

static int unknown_command(const char *name)
{
    const char *names[N_COMMANDS];
    for (size_t i = 0; i < N_COMMANDS; i++) names[i] = hr_cli_entries[i].name;
    const char *nearest = hr_str_nearest(name, names, N_COMMANDS);
    if (!strcmp(name, "bench ")) fputs("headrace: which benchmark?\n", stderr);
    else if (!strcmp(name, "eval ")) fputs("headrace: which evaluation?\n", stderr);
    else
        fprintf(stderr, "headrace: unknown command %s%s%s%s\n", name,
                nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
    print_overview(stderr);
    return 2;
}

static int print_help(const hr_cli_entry *c)
{
    hr_buf text = { 0 };
    hr_args_help(c->bit, c->usage, &text);
    fputs(hr_buf_c(&text), stdout);
    hr_buf_deinit(&text);
    return 0;
}

static void print_log(void *self, hr_log_level level, const char *line)
{
    (void)self, (void)level;
    fprintf(stderr, "%s\n", line);
}

/* An answer that could not be written, to a full disk say, was not given. */
static int flush(int exit_status)
{
    if (!fflush(stdout) && !ferror(stdout)) return exit_status;
    perror("headrace: standard output");
    return 1;
}

static int run(const hr_cli_entry *c, int argc, char **argv)
{
    hr_args a;
    int exit_status = 2;
    hr_status st = hr_args_parse(argc, argv, c->bit, c->name, &a);
    if (!st) st = hr_args_check(&a);
    hr_log_set(print_log, NULL, (hr_log_level)a.log_level);
    if (st) hr_cli_complain();
    else exit_status = a.help ? print_help(c) : c->run(&a);
    hr_args_deinit(&a);
    return flush(exit_status);
}

/* The kept file of packed weights is the one file that is mapped. */
static void on_bus_error(int number)
{
    static const char line[] =
        "headrace: bus error: a file of packed weights in --compile-cache was "
        "cut short while it was in use\n";
    (void)number;
    (void)!write(STDERR_FILENO, line, sizeof line - 1);
    _exit(1);
}

/* What the sandbox never lets pass (docs/SECURITY.md). The default action follows, which leaves a
 * core where the system keeps them. */
static void on_forbidden_call(int number, siginfo_t *what, void *context)
{
    static const char start[] = "headrace: the sandbox ended this process: system call ";
    const char *name = hr_seccomp_name(what->si_syscall);
    (void)context;
    (void)!write(STDERR_FILENO, start, sizeof start - 1);
    (void)!write(STDERR_FILENO, name, strlen(name));
    (void)!write(STDERR_FILENO, "\n", 1);
    signal(number, SIG_DFL);
    raise(number);
}

static void set_signals(void)
{
    struct sigaction forbidden = { .sa_sigaction = on_forbidden_call, .sa_flags = SA_SIGINFO };
    signal(SIGBUS, on_bus_error);
    signal(SIGXFSZ, SIG_IGN); /* a limit on files is an error of write, as a full disk is */
    sigaction(SIGSYS, &forbidden, NULL);
}

int main(int argc, char **argv)
{
    set_signals();
    const char *name = argc > 1 ? argv[1] : "--help";
    if (!strcmp(name, "--version") || !strcmp(name, "version")) {
        puts("headrace " HR_VERSION);
        return 0;
    }
    if (!strcmp(name, "--help") || !strcmp(name, "-h")) {
        print_overview(argc > 1 ? stdout : stderr);
        return argc > 1 ? 0 : 2;
    }
    if (!strcmp(name, "help")) return flush(hr_cli_help(argc - 2, argv + 2));
    size_t words;
    const hr_cli_entry *c = hr_cli_find(argc - 1, argv + 1, &words);
    if (c) return run(c, argc - 1 - (int)words, argv + 1 + words);
    char both[64];
    snprintf(both, sizeof both, "%s %s", name, argc > 2 ? argv[2] : "");
    bool family = !strcmp(name, "bench") || !strcmp(name, "eval");
    return unknown_command(family ? both : name);
}
