/* What no flag can tell alone: whether a whole command line makes sense.
 *
 * Main thread, before any file is opened. The rule is that nothing typed is ever ignored: a flag
 * that would have no effect is refused, and so is a command that lacks what it works on. */
#include "base/log.h"
#include "cli/args.h"

static hr_status check_log_level(hr_args *a)
{
    static const char *const names[] = { "error", "warning", "info", "debug" };
    a->log_level = a->command == HR_CLI_SERVE ? HR_LOG_INFO : HR_LOG_WARNING;
    if (!a->own.log_level) return HR_OK;
    for (int i = 0; i < 4; i++)
        if (!strcmp(a->own.log_level, names[i])) {
            a->log_level = i;
            return HR_OK;
        }
    return hr_fail(HR_INVALID_ARGUMENT, "--log-level %s: it is error, warning, info or debug",
                   a->own.log_level);
}

/* Sampling flags are not applied yet. */
static bool was_typed(const hr_args *a, const char *flag)
{
    for (size_t i = 0; i < a->n_typed; i++)
        if (!strcmp(a->typed[i].flag->name, flag)) return true;
    return false;
}

/* Flags that mean something only beside another. */
static hr_status check_companions(const hr_args *a)
{
    const hr_cli_command *c = &a->own;
    bool text = c->prompts.n || c->prompt_file;
    bool generates = a->command == HR_CLI_GENERATE;
    const struct {
        bool given, has;
        const char *flag, *needs;
    } rules[] = {
        { c->tools, c->messages, "--tools", "--messages" },
        { c->documents, c->messages, "--documents", "--messages" },
        { c->template_kwargs, c->messages, "--chat-template-kwargs", "--messages" },
        { c->token_buckets != 0, c->fit_buckets, "--token-buckets", "--fit-buckets" },
        { c->request_buckets != 0, c->fit_buckets, "--request-buckets", "--fit-buckets" },
        { c->no_generation_prompt, c->messages, "--no-generation-prompt", "--messages" },
        { c->continue_final_message, c->messages, "--continue-final-message", "--messages" },
        { generates && c->system, c->chat, "--system", "--chat" },
        { c->chat, text, "--chat", "-p or --prompt-file" },
        { was_typed(a, "--sampling-trace"), c->json, "--sampling-trace", "--json" },
        { generates && c->no_special, text && !c->chat, "--no-special", "a prompt without --chat" },
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].given && !rules[i].has)
            return hr_fail(HR_INVALID_ARGUMENT, "%s needs %s", rules[i].flag, rules[i].needs);
    return HR_OK;
}

static hr_status check_generate(const hr_args *a)
{
    const hr_cli_command *c = &a->own;
    if (!a->model) return hr_fail(HR_INVALID_ARGUMENT, "which model? headrace generate MODEL …");
    if (!c->prompts.n && !c->prompt_file && !c->prompt_ids.n && !c->messages)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "no prompt: give -p TEXT, --prompt-file, --prompt-ids or --messages");
    return HR_OK;
}

static hr_status check_replay(const hr_args *a)
{
    if (a->own.replay_file) return HR_OK;
    return hr_fail(HR_INVALID_ARGUMENT, "which answer? headrace replay FILE [MODEL]; - is standard "
                                        "input");
}

static hr_status check_tokenize(const hr_args *a)
{
    const hr_cli_command *c = &a->own;
    if (!a->model)
        return hr_fail(HR_INVALID_ARGUMENT, "which model? headrace tokenize MODEL|tokenizer.json");
    if (c->prompts.n + (c->prompt_file != NULL) > 1)
        return hr_fail(HR_INVALID_ARGUMENT, "one --prompt or --prompt-file; many texts go through "
                                            "--json-lines");
    return HR_OK;
}

static hr_status check_render(const hr_args *a)
{
    const hr_cli_command *c = &a->own;
    if (!a->model && !c->template_file)
        return hr_fail(HR_INVALID_ARGUMENT, "which template? give MODEL or --template FILE");
    if (!c->messages && !c->variables)
        return hr_fail(HR_INVALID_ARGUMENT, "no chat: give --messages FILE or --variables FILE");
    if (c->messages && c->variables)
        return hr_fail(HR_INVALID_ARGUMENT, "--variables holds everything: leave out --messages");
    return HR_OK;
}

static hr_status check_choice(const char *flag, const char *value, const char *first,
                              const char *second)
{
    if (!value || !strcmp(value, first) || !strcmp(value, second)) return HR_OK;
    return hr_fail(HR_INVALID_ARGUMENT, "%s %s: it is %s or %s", flag, value, first, second);
}

/* Names that stand for a number in the options. */
static hr_status check_choices(hr_args *a)
{
    const hr_cli_command *c = &a->own;
    HR_TRY(check_choice("--log-format", c->log_format, "text", "json"));
    HR_TRY(check_choice("--generation-config", c->generation_config, "auto", "vllm"));
    if (c->generation_config)
        a->options.use_generation_config = !strcmp(c->generation_config, "auto");
    return HR_OK;
}

static hr_status check_serve(const hr_args *a)
{
    const hr_server_options *o = &a->server;
    if (!a->model)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "which model? headrace %s MODEL; smollm2-135m is the "
                       "packaged one",
                       a->program);
    if (o->port < 0 || o->port > 65535)
        return hr_fail(HR_INVALID_ARGUMENT, "--port must be 0..65535, not %d", o->port);
    if (!o->ssl_keyfile != !o->ssl_certfile)
        return hr_fail(HR_INVALID_ARGUMENT, "--ssl-keyfile and --ssl-certfile go together");
    if (o->stream_interval < 0 || o->max_request_bytes < 0)
        return hr_fail(HR_INVALID_ARGUMENT, "%s must not be negative",
                       o->stream_interval < 0 ? "--stream-interval" : "--max-request-bytes");
    if (!(o->shutdown_timeout >= 0 && o->shutdown_timeout <= 86400))
        return hr_fail(HR_INVALID_ARGUMENT, "--shutdown-timeout must be 0..86400 seconds");
    return HR_OK;
}

static hr_status check_compile(const hr_args *a)
{
    const hr_cli_command *c = &a->own;
    if (!c->topology != !c->plugin)
        return hr_fail(HR_INVALID_ARGUMENT, "--topology and --plugin need each other");
    if ((c->dump || c->topology) && a->options.device)
        return hr_fail(HR_INVALID_ARGUMENT, "%s opens no device: leave --device out",
                       c->dump ? "--dump" : "--topology");
    if (c->dump || c->topology || a->options.device) return HR_OK;
    return hr_fail(HR_INVALID_ARGUMENT,
                   "what for? headrace compile MODEL --dump DIR writes the programs, --device "
                   "pjrt:PATH compiles them into the compile cache, --topology NAME --plugin PATH "
                   "for devices that are not here");
}

static hr_status check_devices(const hr_args *a)
{
    if (a->model)
        return hr_fail(HR_INVALID_ARGUMENT, "'%s': devices takes no model; --device names one",
                       a->model);
    if (!a->options.device && a->options.device_options)
        return hr_fail(HR_INVALID_ARGUMENT, "--device-option needs --device");
    return HR_OK;
}

/* What works on a server takes no model, and the other way round. */
static hr_status check_bench_serve(const hr_args *a)
{
    const hr_cli_bench *b = &a->bench;
    bool saves = b->save_result;
    if (a->model)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "'%s': bench serve loads no model; --model names the server's", a->model);
    if (b->serve.http.base_url && (b->serve.host || b->serve.port != 8000))
        return hr_fail(HR_INVALID_ARGUMENT, "--base-url already says host and port");
    if (b->serve.port < 1 || b->serve.port > 65535)
        return hr_fail(HR_INVALID_ARGUMENT, "--port must be 1..65535, not %d", b->serve.port);
    if (!saves && (b->result_dir || b->result_filename))
        return hr_fail(HR_INVALID_ARGUMENT, "%s needs --save-result",
                       b->result_dir ? "--result-dir" : "--result-filename");
    if (b->from_result && (b->serve.http.base_url || b->serve.host || b->serve.model || saves))
        return hr_fail(HR_INVALID_ARGUMENT, "--from-result asks no server and saves nothing");
    if (b->serve.save_detailed && !saves && !a->own.json)
        return hr_fail(HR_INVALID_ARGUMENT, "--save-detailed needs --save-result or --json");
    return HR_OK;
}

static hr_status check_bench_engine(const hr_args *a)
{
    if (a->model) return HR_OK;
    return hr_fail(HR_INVALID_ARGUMENT,
                   "which model? headrace %s MODEL; smollm2-135m is the packaged one", a->program);
}

/* chat and complete: a model here or a server there. */
static hr_status check_client(const hr_args *a)
{
    const hr_cli_bench *b = &a->bench;
    bool server = b->serve.http.base_url;
    if (!a->model == !server)
        return hr_fail(HR_INVALID_ARGUMENT, server ? "MODEL or --url, not both"
                                                   : "which model? give MODEL, or --url URL");
    const char *flag = b->serve.model           ? "--model"
                       : b->serve.http.api_key  ? "--api-key"
                       : b->headers.n           ? "--header"
                       : b->serve.http.insecure ? "--insecure"
                                                : NULL;
    if (server && a->own.logits_processors.n)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "--logits-processor needs MODEL: a server loads its own when it starts");
    if (!server && flag) return hr_fail(HR_INVALID_ARGUMENT, "%s needs --url", flag);
    return HR_OK;
}

static hr_status check_quantize(const hr_args *a)
{
    if (!a->model || !a->own.out)
        return hr_fail(HR_INVALID_ARGUMENT, "%s? headrace quantize MODEL OUT --scheme w8a8|w4a8",
                       a->model ? "into which folder" : "which model");
    if (!a->own.scheme)
        return hr_fail(HR_INVALID_ARGUMENT, "in which precision? --scheme w8a8 or w4a8");
    if (a->own.group_size && strcmp(a->own.scheme, "w4a8"))
        return hr_fail(HR_INVALID_ARGUMENT, "--group-size goes with --scheme w4a8");
    return HR_OK;
}

/* Precision flags speak of one model alone, so that either side's make a difference. */
static hr_status check_reference(const hr_args *a)
{
    const headrace_options *r = &a->eval.reference, *o = &a->options;
    const char *url = a->eval.reference_url;
    bool precision = r->dtype || r->kv_cache_dtype || r->quantization;
    bool own = o->dtype || o->kv_cache_dtype || o->quantization;
    if (!r->model && !url && !precision && !own)
        return hr_fail(HR_INVALID_ARGUMENT, "what to compare with? --reference MODEL, "
                                            "--reference-dtype NAME or --reference-url URL");
    if (url && (r->model || precision))
        return hr_fail(HR_INVALID_ARGUMENT, "--reference-url is a server's model: it takes no "
                                            "other --reference flag");
    if (!a->model && !r->model && !url)
        return hr_fail(HR_INVALID_ARGUMENT, "what to compare the server with? --reference MODEL or "
                                            "--reference-url URL");
    return HR_OK;
}

/* A model here or a server there, and what to look at. */
static hr_status check_eval(const hr_args *a)
{
    const hr_cli_eval *e = &a->eval;
    bool server = a->bench.serve.http.base_url;
    if (!a->model == !server)
        return hr_fail(HR_INVALID_ARGUMENT,
                       server ? "MODEL or --base-url, not both"
                              : "which model? headrace %s MODEL …, or "
                                "--base-url URL",
                       a->program);
    if (a->command == HR_CLI_EVAL_GSM8K) return HR_OK;
    if (!e->file)
        return hr_fail(HR_INVALID_ARGUMENT, "which text? --file FILE; - is standard input");
    return a->command == HR_CLI_EVAL_KL ? check_reference(a) : HR_OK;
}

static hr_status check_bench_tokenizer(const hr_args *a)
{
    if (!a->model)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "which tokenizer? headrace bench tokenizer MODEL|tokenizer.json …");
    if (!a->bench.texts) return hr_fail(HR_INVALID_ARGUMENT, "which texts? --texts FILE");
    return HR_OK;
}

hr_status hr_args_check(hr_args *a)
{
    HR_TRY(check_log_level(a));
    if (a->help) return HR_OK;
    if (a->command == HR_CLI_GENERATE) HR_TRY(check_generate(a));
    if (a->command == HR_CLI_REPLAY) HR_TRY(check_replay(a));
    if (a->command == HR_CLI_TOKENIZE) HR_TRY(check_tokenize(a));
    if (a->command == HR_CLI_RENDER) HR_TRY(check_render(a));
    if (a->command & (HR_CLI_SERVE | HR_CLI_PLAN | HR_CLI_COMPILE)) HR_TRY(check_serve(a));
    if (a->command == HR_CLI_COMPILE) HR_TRY(check_compile(a));
    if (a->command == HR_CLI_DEVICES) HR_TRY(check_devices(a));
    if (a->command == HR_CLI_BENCH_SERVE) HR_TRY(check_bench_serve(a));
    if (a->command & (HR_CLI_BENCH_THROUGHPUT | HR_CLI_BENCH_LATENCY | HR_CLI_BENCH_STARTUP))
        HR_TRY(check_bench_engine(a));
    if (a->command == HR_CLI_BENCH_SAMPLER && a->model)
        return hr_fail(HR_INVALID_ARGUMENT, "'%s': bench sampler takes no model", a->model);
    if (a->command == HR_CLI_BENCH_KERNELS && a->model)
        return hr_fail(HR_INVALID_ARGUMENT, "'%s': bench kernels takes no model", a->model);
    if (a->command == HR_CLI_BENCH_TOKENIZER) HR_TRY(check_bench_tokenizer(a));
    if (a->command & (HR_CLI_CHAT | HR_CLI_COMPLETE)) HR_TRY(check_client(a));
    if (a->command == HR_CLI_QUANTIZE) HR_TRY(check_quantize(a));
    if (a->command & (HR_CLI_EVAL_PERPLEXITY | HR_CLI_EVAL_KL | HR_CLI_EVAL_GSM8K))
        HR_TRY(check_eval(a));
    HR_TRY(check_choices(a));
    return check_companions(a);
}
