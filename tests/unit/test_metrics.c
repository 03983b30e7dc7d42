/* Prometheus text: numbers, labels, histograms; and what the metrics count without an engine. The
 * e2e test reads the same page with Prometheus' own parser. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "server/metrics.h"
#include "server/process.h"
#include "server/prometheus.h"

static void assert_number(double v, const char *want)
{
    hr_buf b = { 0 };
    hr_prometheus_number(&b, v);
    assert_string_equal(hr_buf_c(&b), want);
    hr_buf_deinit(&b);
}

/* The right column is what prometheus_client.utils.floatToGoString prints. */
static void numbers_are_spelt_as_python_does(void **state)
{
    (void)state;
    assert_number(0, "0.0");
    assert_number(1, "1.0");
    assert_number(.001, "0.001");
    assert_number(.0001, "0.0001");
    assert_number(1e-5, "1e-05");
    assert_number(7680, "7680.0");
    assert_number(100000, "100000.0");
    assert_number(999999.5, "999999.5");
    assert_number(1e6, "1e+06");
    assert_number(2e6, "2e+06");
    assert_number(1234567, "1.234567e+06");
    assert_number(1234567.25, "1.23456725e+06");
    assert_number(12345678901., "1.2345678901e+10");
    assert_number(9007199254740992., "9.007199254740992e+15");
    assert_number(1e16, "1e+16");
    assert_number(1e300, "1e+300");
    assert_number(-1234567, "-1234567.0");
    assert_number(INFINITY, "+Inf");
    assert_number(-INFINITY, "-Inf");
    assert_number(NAN, "NaN");
}

static void labels_are_escaped(void **state)
{
    (void)state;
    hr_buf b = { 0 };
    hr_prometheus_label(&b, "a", HR_STR("back\\slash \"quoted\"\nnext, {line}"));
    hr_prometheus_label(&b, "b", HR_STR(""));
    assert_string_equal(hr_buf_c(&b), "a=\"back\\\\slash \\\"quoted\\\"\\nnext, {line}\",b=\"\"");
    hr_buf_deinit(&b);
}

static void histogram_is_cumulative(void **state)
{
    (void)state;
    static const double bounds[] = { .5, 1, 10 };
    hr_histogram h;
    assert_int_equal(hr_histogram_init(&h, bounds, 3), HR_OK);
    hr_histogram_observe(&h, .5); /* a bound belongs to its bucket */
    hr_histogram_observe(&h, .75);
    hr_histogram_observe_times(&h, 2, 3);
    hr_histogram_observe(&h, 1000);
    hr_buf b = { 0 };
    hr_prometheus_histogram(&b, "x", HR_STR("l=\"1\""), &h);
    hr_prometheus_histogram(&b, "y", (hr_str){ 0 }, &h);
    assert_string_equal(hr_buf_c(&b), "x_bucket{l=\"1\",le=\"0.5\"} 1.0\n"
                                      "x_bucket{l=\"1\",le=\"1.0\"} 2.0\n"
                                      "x_bucket{l=\"1\",le=\"10.0\"} 5.0\n"
                                      "x_bucket{l=\"1\",le=\"+Inf\"} 6.0\n"
                                      "x_count{l=\"1\"} 6.0\n"
                                      "x_sum{l=\"1\"} 1007.25\n"
                                      "y_bucket{le=\"0.5\"} 1.0\n"
                                      "y_bucket{le=\"1.0\"} 2.0\n"
                                      "y_bucket{le=\"10.0\"} 5.0\n"
                                      "y_bucket{le=\"+Inf\"} 6.0\n"
                                      "y_count 6.0\n"
                                      "y_sum 1007.25\n");
    hr_buf_deinit(&b);
    hr_histogram_deinit(&h);
}

static bool page_has(const hr_metrics *m, const char *line)
{
    hr_buf b = { 0 };
    hr_metrics_write(m, NULL, &b);
    assert_int_equal(hr_buf_status(&b), HR_OK);
    bool has = strstr(hr_buf_c(&b), line) != NULL;
    hr_buf_deinit(&b);
    return has;
}

#define LABELS "model_name=\"m\",engine=\"0\""

static void requests_are_counted(void **state)
{
    (void)state;
    hr_metrics *m;
    assert_int_equal(hr_metrics_create("m", 100, &m), HR_OK);
    hr_metrics_first_token(m, .003);
    hr_metrics_inter_token(m, .05, 3);
    hr_metrics_inter_token(m, .05, 0); /* nothing came */
    hr_metrics_finished(m, "stop");
    hr_metrics_finished(m, "stop");
    hr_metrics_finished(m, "error");
    hr_metrics_finished(m, "something else");
    hr_metrics_observe(m, &(hr_metrics_request){ .prompt_tokens = 7,
                                                 .generation_tokens = 150,
                                                 .n = 2,
                                                 .max_tokens = -1,
                                                 .e2e_s = 1.2,
                                                 .queue_s = .1,
                                                 .prefill_s = .2,
                                                 .decode_s = 9000 });
    static const char *const lines[] = {
        "vllm:time_to_first_token_seconds_bucket{" LABELS ",le=\"0.001\"} 0.0\n",
        "vllm:time_to_first_token_seconds_bucket{" LABELS ",le=\"0.005\"} 1.0\n",
        "vllm:inter_token_latency_seconds_count{" LABELS "} 3.0\n",
        "vllm:request_success_total{" LABELS ",finished_reason=\"stop\"} 2.0\n",
        "vllm:request_success_total{" LABELS ",finished_reason=\"length\"} 0.0\n",
        "vllm:request_success_total{" LABELS ",finished_reason=\"error\"} 1.0\n",
        /* a 1-2-5 series up to the longest request: 100 is its last */
        "vllm:request_prompt_tokens_bucket{" LABELS ",le=\"5.0\"} 0.0\n",
        "vllm:request_prompt_tokens_bucket{" LABELS ",le=\"10.0\"} 1.0\n",
        "vllm:request_generation_tokens_bucket{" LABELS ",le=\"100.0\"} 0.0\n"
        "vllm:request_generation_tokens_bucket{" LABELS ",le=\"+Inf\"} 1.0\n",
        "vllm:request_params_n_sum{" LABELS "} 2.0\n",
        "vllm:request_params_max_tokens_count{" LABELS "} 0.0\n",
        "vllm:request_decode_time_seconds_bucket{" LABELS ",le=\"7680.0\"} 0.0\n"
        "vllm:request_decode_time_seconds_bucket{" LABELS ",le=\"+Inf\"} 1.0\n",
        "vllm:num_requests_running{" LABELS "} 0.0\n",
        "headrace:late_compilations_total{" LABELS "} 0.0\n",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (!page_has(m, lines[i])) fail_msg("not on the page: %s", lines[i]);
    hr_metrics_destroy(m);
}

/* While the model loads: whatever depends on it is not there, and is not made up. */
static void tokens_wait_for_the_model(void **state)
{
    (void)state;
    hr_metrics *m;
    assert_int_equal(hr_metrics_create("m", 0, &m), HR_OK);
    hr_metrics_observe(m, &(hr_metrics_request){ .prompt_tokens = 7, .n = 1 });
    assert_false(page_has(m, "vllm:request_prompt_tokens_bucket"));
    assert_false(page_has(m, "vllm:cache_config_info{"));
    assert_true(page_has(m, "# TYPE vllm:request_prompt_tokens histogram\n"));
    assert_true(page_has(m, "vllm:kv_cache_usage_perc{" LABELS "} 0.0\n"));
    hr_metrics_destroy(m);
    hr_metrics_destroy(NULL);
}

static void memory_may_run_out(void **state)
{
    (void)state;
    hr_metrics *m;
    assert_int_equal(hr_metrics_create("m", 8192, &m), HR_OK);
    hr_buf b = { .limit = 1000 };
    hr_metrics_write(m, NULL, &b);
    assert_int_equal(hr_buf_status(&b), HR_RESOURCE_EXHAUSTED);
    hr_buf_deinit(&b);
    hr_metrics_destroy(m);
}

static void process_is_told(void **state)
{
    (void)state;
    hr_process p;
    hr_process_get(&p);
    assert_true(p.resident_bytes > 100000 && p.virtual_bytes > p.resident_bytes);
    assert_true(p.open_fds >= 3 && p.max_fds > p.open_fds);
    double age = (double)time(NULL) - p.start_time_s;
    assert_true(age > -2 && age < 600);
    assert_true(p.cpu_s > 0 && p.cpu_s < 600);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_spelt_as_python_does),
        cmocka_unit_test(labels_are_escaped),
        cmocka_unit_test(histogram_is_cumulative),
        cmocka_unit_test(requests_are_counted),
        cmocka_unit_test(tokens_wait_for_the_model),
        cmocka_unit_test(memory_may_run_out),
        cmocka_unit_test(process_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
