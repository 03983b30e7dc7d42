/* Help: the overview, a command's flags, and manual pages of both.
 *
 * Main thread. Everything comes from the tables of commands and of flags, so that no page can say
 * what the parser does not do. Pages are in man(7)'s macros, which groff and mandoc both read. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/utf8.h"
#include "cli/cli.h"

/* ---- troff ----------------------------------------------------------------------------------- */

/* One line of text, nothing in it a request or an escape; a hyphen is what can be typed again. */
static void add_text(hr_buf *out, hr_str s)
{
    if (s.n && (s.p[0] == '.' || s.p[0] == '\'')) hr_buf_add_c(out, "\\&");
    for (size_t i = 0, len; i < s.n; i += len) {
        uint32_t c = hr_utf8_decode(hr_str_slice(s, i, s.n), &len);
        if (c == '\\') hr_buf_add_c(out, "\\e");
        else if (c == '-') hr_buf_add_c(out, "\\-");
        else if (c < 0x80) hr_buf_add_byte(out, (char)c);
        else hr_buf_printf(out, "\\[u%04X]", c);
    }
}

static void add_line(hr_buf *out, const char *macro, hr_str s)
{
    hr_buf_add_c(out, macro);
    add_text(out, s);
    hr_buf_add_byte(out, '\n');
}

/* headrace-bench-serve for "bench serve", headrace alone for NULL. */
static void add_name(hr_buf *out, const char *command)
{
    hr_buf_add_c(out, "headrace");
    if (command) hr_buf_add_byte(out, '-');
    for (const char *c = command ? command : ""; *c; c++)
        hr_buf_add_byte(out, *c == ' ' ? '-' : *c);
}

static void add_title(hr_buf *out, const char *command, const char *summary)
{
    hr_buf name = { 0 };
    add_name(&name, command);
    hr_buf_add_c(out, ".TH ");
    for (size_t i = 0; i < name.n; i++) {
        char c = name.p[i];
        if (c == '-') hr_buf_add_byte(out, '\\');
        hr_buf_add_byte(out, c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c);
    }
    hr_buf_add_c(out, " 1 \"\" \"headrace " HR_VERSION "\" \"headrace\"\n.SH NAME\n");
    add_text(out, hr_buf_str(&name));
    hr_buf_add_c(out, " \\- ");
    add_text(out, hr_str_c(summary));
    hr_buf_add_byte(out, '\n');
    hr_buf_deinit(&name);
}

/* ---- a command's page ------------------------------------------------------------------------ */

/* "usage: headrace …" and what is indented as that is. */
static bool usage_line(hr_str line, hr_str *rest)
{
    bool usage = hr_str_starts(line, HR_STR("usage: ")) || hr_str_starts(line, HR_STR("       "));
    *rest = usage ? hr_str_slice(line, strlen("usage: "), line.n) : line;
    return usage;
}

/* Lines that are indented are examples and stay as they are; an empty one ends a paragraph. */
static void add_prose(hr_buf *out, hr_str text)
{
    bool example = false, gap = false;
    for (hr_str line; hr_str_next(&text, '\n', &line);) {
        bool indented = hr_str_starts(line, HR_STR("  "));
        if (line.n && indented != example)
            hr_buf_add_c(out, indented ? ".PP\n.RS\n.nf\n" : ".fi\n.RE\n");
        if (line.n && gap && indented == example) hr_buf_add_c(out, indented ? "\n" : ".PP\n");
        else if (line.n && gap && !indented) hr_buf_add_c(out, ".PP\n");
        if (line.n) example = indented;
        gap = !line.n;
        if (line.n) add_line(out, "", indented ? hr_str_slice(line, 2, line.n) : line);
    }
    if (example) hr_buf_add_c(out, ".fi\n.RE\n");
}

static void add_option(void *to, const hr_cli_flag *f)
{
    hr_buf *out = to;
    hr_buf_add_c(out, ".TP\n");
    hr_buf_add_c(out, "\\fB");
    add_text(out, hr_str_c(f->name));
    hr_buf_add_c(out, "\\fR");
    if (f->value) {
        hr_buf_add_c(out, " \\fI");
        add_text(out, hr_str_c(f->value));
        hr_buf_add_c(out, "\\fR");
    }
    hr_buf_add_byte(out, '\n');
    add_line(out, "", hr_str_c(f->help));
}

static void add_command_page(hr_buf *out, const hr_cli_entry *c)
{
    add_title(out, c->name, c->summary);
    hr_buf_add_c(out, ".SH SYNOPSIS\n.nf\n");
    hr_str text = hr_str_c(c->usage), line, rest = text;
    while (hr_str_next(&rest, '\n', &line) && usage_line(line, &line)) {
        add_line(out, "", line);
        text = rest;
    }
    hr_buf_add_c(out, ".fi\n.SH DESCRIPTION\n");
    add_prose(out, hr_str_trim(text));
    hr_buf_add_c(out, ".SH OPTIONS\n");
    hr_args_each(c->bit, add_option, out);
    hr_buf_add_c(out, ".SH EXIT STATUS\n0: done, 1: failed, 2: the command line was wrong.\n"
                      ".SH SEE ALSO\n.BR headrace (1)\n");
}

static void add_overview_page(hr_buf *out)
{
    add_title(out, NULL, "serves large language models on graphs compiled ahead of time");
    hr_buf_add_c(out, ".SH SYNOPSIS\n.nf\nheadrace COMMAND [arguments]\nheadrace help "
                      "[\\-\\-man] [COMMAND]\nheadrace \\-\\-version\n.fi\n.SH COMMANDS\n");
    for (size_t i = 0; i < hr_cli_n_entries; i++) {
        hr_buf_add_c(out, ".TP\n.BR ");
        hr_buf name = { 0 };
        add_name(&name, hr_cli_entries[i].name);
        add_text(out, hr_buf_str(&name));
        hr_buf_deinit(&name);
        hr_buf_add_c(out, " (1)\n");
        add_line(out, "", hr_str_c(hr_cli_entries[i].summary));
    }
    hr_buf_add_c(out, ".SH EXIT STATUS\n0: done, 1: failed, 2: the command line was wrong.\n");
}

/* ---- the command ----------------------------------------------------------------------------- */

void hr_cli_overview(hr_buf *out)
{
    hr_buf_add_c(out, "headrace " HR_VERSION
                      ": serves large language models on graphs compiled ahead of time\n"
                      "\nusage: headrace COMMAND [arguments]\n\n");
    for (size_t i = 0; i < hr_cli_n_entries; i++)
        hr_buf_printf(out, "  %-16s %s\n", hr_cli_entries[i].name, hr_cli_entries[i].summary);
    hr_buf_add_c(
        out, "\n'headrace COMMAND --help' lists a command's flags, 'headrace help --man COMMAND' "
             "prints its manual page;\n--version prints the version.\n");
}

/* The text asked for; NULL is the overview. */
static void add_help(hr_buf *out, const hr_cli_entry *c, bool manual)
{
    if (manual && c) add_command_page(out, c);
    else if (manual) add_overview_page(out);
    else if (c) hr_args_help(c->bit, c->usage, out);
    else hr_cli_overview(out);
}

static hr_status write_page(const char *folder, const hr_cli_entry *c)
{
    hr_buf name = { 0 }, path = { 0 }, page = { 0 };
    add_name(&name, c ? c->name : NULL);
    hr_buf_add_c(&name, ".1");
    add_help(&page, c, true);
    hr_status st = hr_buf_status(&name);
    if (!st) st = hr_buf_status(&page);
    if (!st) st = hr_path_join(folder, hr_buf_str(&name), &path);
    if (!st) st = hr_file_write_atomic(hr_buf_c(&path), hr_buf_str(&page));
    hr_buf_deinit(&name);
    hr_buf_deinit(&path);
    hr_buf_deinit(&page);
    return st;
}

static int write_pages(const char *folder)
{
    hr_status st = hr_make_dirs(folder, 0755);
    if (!st) st = write_page(folder, NULL);
    for (size_t i = 0; !st && i < hr_cli_n_entries; i++)
        st = write_page(folder, &hr_cli_entries[i]);
    return st ? hr_cli_complain() : 0;
}

int hr_cli_help(int argc, char **argv)
{
    bool manual = argc && !strcmp(argv[0], "--man");
    if (argc && !strcmp(argv[0], "--man-pages")) {
        if (argc == 2) return write_pages(argv[1]);
        fputs("headrace: usage: headrace help --man-pages FOLDER\n", stderr);
        return 2;
    }
    argc -= manual, argv += manual;
    size_t words;
    const hr_cli_entry *c = argc ? hr_cli_find(argc, argv, &words) : NULL;
    if (argc && (!c || words != (size_t)argc)) {
        fprintf(stderr, "headrace: help: no command %s%s%s\n", argv[0], argc > 1 ? " " : "",
                argc > 1 ? argv[1] : "");
        return 2;
    }
    hr_buf text = { 0 };
    add_help(&text, c, manual);
    fputs(hr_buf_c(&text), stdout);
    hr_buf_deinit(&text);
    return 0;
}
