/* strftime with English names whatever the process's locale is: the directives of Python on glibc,
 * with the flags "-" (no padding), "_" (blanks), "0" (zeros), "^" (capitals). A format that came in
 * as data gives text that is data. */
#include <stdio.h>

#include "text/jinja/jinja_int.h"

static const char *const days[] = { "Sunday",   "Monday", "Tuesday", "Wednesday",
                                    "Thursday", "Friday", "Saturday" };
static const char *const months[] = { "January",   "February", "March",    "April",
                                      "May",       "June",     "July",     "August",
                                      "September", "October",  "November", "December" };

typedef struct directive {
    char flag; /* 0 = none */
    char what;
} directive;

/* A number to `width` places, padded as the flag says or with `pad`. */
static void number(char out[64], const directive *d, long v, int width, char pad)
{
    if (d->flag == '-') width = 0;
    if (d->flag == '_') pad = ' ';
    if (d->flag == '0') pad = '0';
    snprintf(out, 64, pad == ' ' ? "%*ld" : "%0*ld", width, v);
}

static bool leap(long y)
{
    return (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
}

/* ISO 8601: weeks begin on Monday, week 1 holds the first Thursday. */
static long iso_week(const struct tm *tm, long *year)
{
    long weekday = (tm->tm_wday + 6) % 7, week = (tm->tm_yday - weekday + 10) / 7;
    *year = 1900L + tm->tm_year;
    if (week < 1) {
        --*year;
        long days_before = leap(*year) ? 366 : 365;
        return (tm->tm_yday + days_before - weekday + 10) / 7;
    }
    long left = (leap(*year) ? 366 : 365) - tm->tm_yday; /* with today */
    if (week == 53 && weekday + left <= 3) {
        ++*year;
        return 1;
    }
    return week;
}

static bool put_name(char out[64], const directive *d, const struct tm *tm)
{
    const char *day = days[(unsigned)tm->tm_wday % 7], *month = months[(unsigned)tm->tm_mon % 12];
    switch (d->what) {
    case 'a': snprintf(out, 64, "%.3s", day); return true;
    case 'A': snprintf(out, 64, "%s", day); return true;
    case 'b':
    case 'h': snprintf(out, 64, "%.3s", month); return true;
    case 'B': snprintf(out, 64, "%s", month); return true;
    case 'p': snprintf(out, 64, "%s", tm->tm_hour < 12 ? "AM" : "PM"); return true;
    case 'P': snprintf(out, 64, "%s", tm->tm_hour < 12 ? "am" : "pm"); return true;
    case 'n': snprintf(out, 64, "\n"); return true;
    case 't': snprintf(out, 64, "\t"); return true;
    case '%': snprintf(out, 64, "%%"); return true;
    case 'z':
    case 'Z': out[0] = '\0'; return true; /* the time carries no zone */
    default: return false;
    }
}

static bool put_number(char out[64], const directive *d, const struct tm *tm)
{
    long year = 1900L + tm->tm_year, iso_year, week = iso_week(tm, &iso_year);
    long hour12 = (tm->tm_hour + 11) % 12 + 1;
    switch (d->what) {
    case 'd': number(out, d, tm->tm_mday, 2, '0'); return true;
    case 'e': number(out, d, tm->tm_mday, 2, ' '); return true;
    case 'm': number(out, d, tm->tm_mon + 1L, 2, '0'); return true;
    case 'y': number(out, d, year % 100, 2, '0'); return true;
    case 'Y': number(out, d, year, 0, '0'); return true;
    case 'C': number(out, d, year / 100, 2, '0'); return true;
    case 'H': number(out, d, tm->tm_hour, 2, '0'); return true;
    case 'k': number(out, d, tm->tm_hour, 2, ' '); return true;
    case 'I': number(out, d, hour12, 2, '0'); return true;
    case 'l': number(out, d, hour12, 2, ' '); return true;
    case 'M': number(out, d, tm->tm_min, 2, '0'); return true;
    case 'S': number(out, d, tm->tm_sec, 2, '0'); return true;
    case 'j': number(out, d, tm->tm_yday + 1L, 3, '0'); return true;
    case 'u': number(out, d, (tm->tm_wday + 6) % 7 + 1L, 1, '0'); return true;
    case 'w': number(out, d, tm->tm_wday, 1, '0'); return true;
    case 'U': number(out, d, (tm->tm_yday + 7L - tm->tm_wday) / 7, 2, '0'); return true;
    case 'W': number(out, d, (tm->tm_yday + 7L - (tm->tm_wday + 6) % 7) / 7, 2, '0'); return true;
    case 'G': number(out, d, iso_year, 0, '0'); return true;
    case 'g': number(out, d, iso_year % 100, 2, '0'); return true;
    case 'V': number(out, d, week, 2, '0'); return true;
    default: return false;
    }
}

/* Directives that stand for others, as in the C locale. */
static const char *composite(char what)
{
    switch (what) {
    case 'c': return "%a %b %e %H:%M:%S %Y";
    case 'D':
    case 'x': return "%m/%d/%y";
    case 'F': return "%Y-%m-%d";
    case 'R': return "%H:%M";
    case 'r': return "%I:%M:%S %p";
    case 'T':
    case 'X': return "%H:%M:%S";
    default: return NULL;
    }
}

static void capitals(char *text)
{
    for (; *text; text++)
        if (*text >= 'a' && *text <= 'z') *text = (char)(*text - 32);
}

static void put_directive(hr_jbuilder *b, const directive *d, hr_str spelt, const struct tm *tm,
                          int microseconds, bool data)
{
    char out[64];
    if (d->what == 'f') {
        snprintf(out, sizeof out, "%06d", microseconds);
    } else if (!put_name(out, d, tm) && !put_number(out, d, tm)) {
        hr_jinja_put(b, spelt, data);
        return;
    }
    if (d->flag == '^') capitals(out);
    hr_jinja_put(b, hr_str_c(out), data);
}

static void put_format(hr_jbuilder *b, hr_str f, const struct tm *tm, int microseconds, bool data)
{
    for (size_t i = 0; i < f.n && !b->status; i++) {
        size_t from = i;
        directive d = { 0 };
        if (f.p[i] != '%' || i + 1 == f.n) {
            hr_jinja_put(b, hr_str_slice(f, i, i + 1), data);
            continue;
        }
        if (strchr("-_0^", f.p[i + 1]) && f.p[i + 1] && i + 2 < f.n) d.flag = f.p[++i];
        d.what = f.p[++i];
        const char *others = composite(d.what);
        if (others) put_format(b, hr_str_c(others), tm, microseconds, data);
        else put_directive(b, &d, hr_str_slice(f, from, i + 1), tm, microseconds, data);
    }
}

/* Characters are copied byte by byte, so counting is left to the whole. */
hr_status hr_jinja_strftime(hr_jbuilder *b, const hr_jstr *format, const struct tm *tm,
                            int microseconds)
{
    put_format(b, hr_jinja_text(format), tm, microseconds, format->n_marks > 0);
    return b->status;
}
