/* Rotary positions: every spelling of their settings, and the frequency table that they mean.
 *
 * Runs on the thread that loads; the table goes to the model's arena. Formulas: Su et al. 2021
 * (RoPE), Peng et al. 2023 (YaRN), Ding et al. 2024 (LongRoPE), and the llama3 rule of Llama 3.1,
 * as Hugging Face computes them; here in double precision, rounded once to f32. All scaling is
 * folded into the table and one attention factor, so graphs know a single rope op. */
#include <inttypes.h>
#include <math.h>

#include "base/log.h"
#include "model/model_int.h"

#define PI 3.14159265358979323846

/* ---- the table ------------------------------------------------------------------------------ */

/* Long waves are slowed down by factor, short ones kept, those between blended. */
static double scale_llama3(const hr_rope *r, double freq)
{
    double length = (double)r->original_positions, wave = 2 * PI / freq;
    if (wave > length / r->low_freq_factor) return freq / r->factor;
    if (wave < length / r->high_freq_factor) return freq;
    double smooth =
        (length / wave - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
    return (1 - smooth) * freq / r->factor + smooth * freq;
}

/* The (fractional) column pair that turns `rotations` times over the pretrained context. */
static double yarn_dim(const hr_rope *r, double rotations, double head_dim)
{
    return head_dim * log((double)r->original_positions / (rotations * 2 * PI)) /
           (2 * log(r->theta));
}

static double scale_yarn(const hr_rope *r, double freq, int64_t i, double head_dim)
{
    double low = yarn_dim(r, r->beta_fast, head_dim), high = yarn_dim(r, r->beta_slow, head_dim);
    if (!r->no_truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, head_dim - 1);
    if (low == high) high += 0.001;
    double ramp = fmin(fmax(((double)i - low) / (high - low), 0), 1);
    return freq / r->factor * ramp + freq * (1 - ramp);
}

static double yarn_scale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

static float yarn_attention(const hr_rope *r)
{
    if (r->mscale != 0 && r->mscale_all_dim != 0)
        return (float)(yarn_scale(r->factor, r->mscale) / yarn_scale(r->factor, r->mscale_all_dim));
    return (float)yarn_scale(r->factor, 1);
}

static double scaled(const hr_rope *r, double freq, int64_t i, int64_t head_dim)
{
    switch (r->kind) {
    case HR_ROPE_DEFAULT:
    case HR_ROPE_LONG:
    case HR_ROPE_DYNAMIC: return freq;
    case HR_ROPE_LINEAR: return freq / r->factor;
    case HR_ROPE_LLAMA3: return scale_llama3(r, freq);
    case HR_ROPE_YARN: return scale_yarn(r, freq, i, (double)head_dim);
    }
    return freq;
}

hr_status hr_rope_columns(const hr_config *c, const char *where, int64_t *out)
{
    double share = c->rotary > 0 ? c->rotary : 1;
    *out = (int64_t)((double)c->head_dim * share);
    if (share <= 1 && *out >= 2 && *out % 2 == 0) return HR_OK;
    return hr_fail(HR_INVALID_ARGUMENT,
                   "%s: rope over %g of %" PRId64 " columns, which is no even number of them",
                   where, share, c->head_dim);
}

hr_status hr_rope_compute(hr_rope *r, int64_t head_dim, const float *factors, hr_arena *arena)
{
    r->n_freq = head_dim / 2;
    r->inv_freq = hr_arena_array(arena, (size_t)r->n_freq, sizeof *r->inv_freq);
    if (!r->inv_freq) return hr_fail(HR_RESOURCE_EXHAUSTED, "rope frequencies");
    if (r->beta_fast == 0) r->beta_fast = 32;
    if (r->beta_slow == 0) r->beta_slow = 1;
    for (int64_t i = 0; i < r->n_freq; i++) {
        double freq = pow(r->theta, -2.0 * (double)i / (double)head_dim);
        if (factors) freq /= (double)factors[i];
        r->inv_freq[i] = (float)scaled(r, freq, i, head_dim);
    }
    if (r->attention_factor == 0) /* not given */
        r->attention_factor = r->kind == HR_ROPE_YARN ? yarn_attention(r) : 1;
    return HR_OK;
}

hr_status hr_rope_compute_long(hr_rope *r, int64_t columns, const float *short_factors,
                               const float *long_factors, int64_t max_positions, hr_arena *arena)
{
    double n = (double)r->original_positions, reach = (double)max_positions / n;
    if (r->attention_factor == 0 && reach > 1)
        r->attention_factor = (float)sqrt(1 + log(reach) / log(n));
    HR_TRY(hr_rope_compute(r, columns, long_factors, arena));
    r->long_inv_freq = r->inv_freq;
    return hr_rope_compute(r, columns, short_factors, arena);
}

/* ---- spellings ------------------------------------------------------------------------------ */

static const hr_json *get(const hr_json *o, const char *key)
{
    const hr_json *v = hr_json_get(o, key);
    return v && v->type != HR_JSON_NULL ? v : NULL;
}

static hr_status read_f64(const hr_json *o, const char *key, hr_need need, double *out)
{
    const hr_json *v = get(o, key);
    if (!v && need == HR_OPTIONAL) return HR_OK;
    if (!v) return hr_fail(HR_INVALID_ARGUMENT, "config.json: rope settings lack %s", key);
    HR_TRY(hr_json_to_f64(v, key, out));
    if (*out > 0 && isfinite(*out)) return HR_OK;
    return hr_fail(HR_INVALID_ARGUMENT, "config.json: rope setting %s is %g", key, *out);
}

/* *out NULL when neither key is there. */
static hr_status find_settings(const hr_json *json, const hr_json **out)
{
    const hr_json *parameters = get(json, "rope_parameters"), *scaling = get(json, "rope_scaling");
    *out = parameters ? parameters : scaling;
    if (parameters && scaling)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "config.json: both rope_parameters and rope_scaling are given");
    if (*out && (*out)->type != HR_JSON_OBJECT)
        return hr_fail(HR_INVALID_ARGUMENT, "config.json: rope settings must be an object");
    return HR_OK;
}

static hr_status read_theta(const hr_json *json, const hr_json *settings, hr_rope *r)
{
    double top = 0, inner = 0, usual = r->theta > 0 ? r->theta : 10000;
    HR_TRY(read_f64(json, "rope_theta", HR_OPTIONAL, &top));
    HR_TRY(read_f64(settings, "rope_theta", HR_OPTIONAL, &inner));
    if (top != 0 && inner != 0 && top != inner)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "config.json: rope_theta is %g at top level and %g in the rope settings",
                       top, inner);
    r->theta = inner != 0 ? inner : top != 0 ? top : usual;
    if (r->theta <= 1)
        return hr_fail(HR_INVALID_ARGUMENT, "config.json: rope_theta %g must be above 1", r->theta);
    return HR_OK;
}

static hr_status read_kind(const hr_json *settings, hr_rope *r)
{
    static const struct {
        const char *name;
        hr_rope_kind kind;
    } kinds[] = { { "default", HR_ROPE_DEFAULT }, { "linear", HR_ROPE_LINEAR },
                  { "dynamic", HR_ROPE_DYNAMIC }, { "llama3", HR_ROPE_LLAMA3 },
                  { "yarn", HR_ROPE_YARN },       { "longrope", HR_ROPE_LONG },
                  { "su", HR_ROPE_LONG } };
    hr_str text = HR_STR("default"), other;
    const hr_json *rope_type = get(settings, "rope_type"), *type = get(settings, "type");
    if (rope_type || type)
        HR_TRY(hr_json_to_str(rope_type ? rope_type : type, "config.json: rope_type", &text));
    else if (get(settings, "factor"))
        return hr_fail(HR_INVALID_ARGUMENT, "config.json: rope settings lack rope_type");
    if (rope_type && type) {
        HR_TRY(hr_json_to_str(type, "config.json: rope type", &other));
        if (!hr_str_eq(text, other))
            return hr_fail(HR_INVALID_ARGUMENT, "config.json: rope_type is '%.*s' and type '%.*s'",
                           HR_STR_ARG(text), HR_STR_ARG(other));
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!hr_str_eq_c(text, kinds[i].name)) continue;
        r->kind = kinds[i].kind;
        return HR_OK;
    }
    return hr_fail(HR_INVALID_ARGUMENT, "config.json: unknown rope type '%.*s'", HR_STR_ARG(text));
}

/* Settings that this reader knows; another one that could change the positions is refused. */
static hr_status check_keys(const hr_json *settings, hr_rope_kind kind)
{
    static const char *const known[] = { "rope_type",
                                         "type",
                                         "rope_theta",
                                         "factor",
                                         "low_freq_factor",
                                         "high_freq_factor",
                                         "original_max_position_embeddings",
                                         "attention_factor",
                                         "beta_fast",
                                         "beta_slow",
                                         "mscale",
                                         "mscale_all_dim",
                                         "truncate",
                                         "partial_rotary_factor" };
    for (size_t i = 0; settings && i < settings->count; i++) {
        const hr_json *v = &settings->items[i];
        bool found = v->type == HR_JSON_NULL;
        for (size_t k = 0; k < sizeof known / sizeof *known && !found; k++)
            found = hr_str_eq_c(v->key, known[k]);
        bool list = hr_str_eq_c(v->key, "short_factor") || hr_str_eq_c(v->key, "long_factor");
        if (found || (list && kind == HR_ROPE_LONG)) continue;
        bool scale = hr_str_eq_c(v->key, "short_mscale") || hr_str_eq_c(v->key, "long_mscale");
        if (scale || v->type == HR_JSON_OBJECT || v->type == HR_JSON_ARRAY)
            return hr_fail(HR_UNIMPLEMENTED, "config.json: rope setting '%.*s' is not supported",
                           HR_STR_ARG(v->key));
        hr_log(HR_LOG_WARNING, "model: config.json: rope setting '%.*s' is not known and not used",
               HR_STR_ARG(v->key));
    }
    return HR_OK;
}

static hr_status read_llama3(const hr_json *settings, hr_rope *r)
{
    HR_TRY(read_f64(settings, "low_freq_factor", HR_REQUIRED, &r->low_freq_factor));
    HR_TRY(read_f64(settings, "high_freq_factor", HR_REQUIRED, &r->high_freq_factor));
    if (r->high_freq_factor <= r->low_freq_factor)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "config.json: high_freq_factor %g is not above "
                       "low_freq_factor %g",
                       r->high_freq_factor, r->low_freq_factor);
    if (r->original_positions == 0)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "config.json: rope settings lack original_max_position_embeddings");
    return HR_OK;
}

static hr_status read_yarn(const hr_json *settings, hr_config *c)
{
    hr_rope *r = &c->rope;
    double attention = 0;
    bool truncate = true;
    HR_TRY(read_f64(settings, "attention_factor", HR_OPTIONAL, &attention));
    HR_TRY(read_f64(settings, "beta_fast", HR_OPTIONAL, &r->beta_fast));
    HR_TRY(read_f64(settings, "beta_slow", HR_OPTIONAL, &r->beta_slow));
    HR_TRY(read_f64(settings, "mscale", HR_OPTIONAL, &r->mscale));
    HR_TRY(read_f64(settings, "mscale_all_dim", HR_OPTIONAL, &r->mscale_all_dim));
    if (get(settings, "truncate"))
        HR_TRY(hr_json_to_bool(get(settings, "truncate"), "config.json: truncate", &truncate));
    r->no_truncate = !truncate;
    r->attention_factor = (float)attention;
    if (r->original_positions == 0) r->original_positions = c->max_positions;
    double reach = (double)r->original_positions * r->factor;
    if (reach > (double)c->max_positions && reach < INT32_MAX) c->max_positions = (int64_t)reach;
    return HR_OK;
}

/* One list of [F] positive numbers. */
static hr_status read_factors(const hr_json *settings, const char *key, int64_t n, hr_arena *arena,
                              const float **out)
{
    const hr_json *list = get(settings, key);
    *out = NULL;
    if (!list || list->type != HR_JSON_ARRAY || list->count != (size_t)n)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "config.json: rope setting %s must list %" PRId64 " numbers", key, n);
    float *factors = hr_arena_array(arena, (size_t)n, sizeof *factors);
    if (!factors) return hr_fail(HR_RESOURCE_EXHAUSTED, "rope factors");
    for (int64_t i = 0; i < n; i++) {
        double x;
        HR_TRY(hr_json_to_f64(&list->items[i], key, &x));
        if (!(x > 0) || !isfinite(x))
            return hr_fail(HR_INVALID_ARGUMENT, "config.json: rope setting %s holds %g", key, x);
        factors[i] = (float)x;
    }
    *out = factors;
    return HR_OK;
}

/* The stretch is of max_position_embeddings over the pretrained context, where that is told. */
static hr_status read_long(const hr_json *settings, int64_t columns, hr_arena *arena, hr_config *c)
{
    hr_rope *r = &c->rope;
    const float *near, *far;
    double attention = 0;
    HR_TRY(read_f64(settings, "attention_factor", HR_OPTIONAL, &attention));
    r->attention_factor = (float)attention;
    if (r->original_positions < 2)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "config.json: longrope lacks original_max_position_embeddings");
    HR_TRY(read_factors(settings, "short_factor", columns / 2, arena, &near));
    HR_TRY(read_factors(settings, "long_factor", columns / 2, arena, &far));
    return hr_rope_compute_long(r, columns, near, far, c->max_positions, arena);
}

/* At the top or among the settings; both may say it, the same. */
static hr_status read_rotary(const hr_json *json, const hr_json *settings, hr_config *c)
{
    double top = 0, inner = 0;
    HR_TRY(read_f64(json, "partial_rotary_factor", HR_OPTIONAL, &top));
    HR_TRY(read_f64(settings, "partial_rotary_factor", HR_OPTIONAL, &inner));
    if (top != 0 && inner != 0 && top != inner)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "config.json: partial_rotary_factor is %g at top level and %g in the rope "
                       "settings",
                       top, inner);
    c->rotary = inner != 0 ? inner : top != 0 ? top : 1;
    if (c->rotary == 1 || c->partial_rotary) return HR_OK;
    return hr_fail(HR_UNIMPLEMENTED,
                   "config.json: partial_rotary_factor %g is not supported for %s; 1 is", c->rotary,
                   c->architecture);
}

static hr_status read_original(const hr_json *json, const hr_json *settings, hr_rope *r)
{
    static const char key[] = "original_max_position_embeddings";
    const hr_json *v = get(settings, key);
    if (!v && r->kind == HR_ROPE_LONG) v = get(json, key);
    if (v)
        HR_TRY(hr_json_to_i64(v, "config.json: original_max_position_embeddings",
                              &r->original_positions));
    if (r->original_positions < 0 || r->original_positions > INT32_MAX)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "config.json: original_max_position_embeddings %" PRId64,
                       r->original_positions);
    return HR_OK;
}

/* Layers with a window have a table of their own: plain, of another base. */
static hr_status read_local(const hr_json *json, const hr_json *local, hr_arena *arena,
                            hr_config *c)
{
    hr_rope *r = &c->local_rope;
    double theta = r->theta;
    HR_TRY(read_f64(json, "rope_local_base_freq", HR_OPTIONAL, &theta));
    r->theta = theta;
    HR_TRY(read_theta(NULL, local, r));
    HR_TRY(read_kind(local, r));
    HR_TRY(check_keys(local, r->kind));
    if (r->kind != HR_ROPE_DEFAULT)
        return hr_fail(
            HR_UNIMPLEMENTED,
            "config.json: rope settings of sliding_attention: only default is supported");
    return hr_rope_compute(r, c->head_dim, NULL, arena);
}

static hr_status read_main(const hr_json *json, const hr_json *settings, hr_arena *arena,
                           hr_config *c)
{
    hr_rope *r = &c->rope;
    int64_t columns;
    HR_TRY(read_theta(json, settings, r));
    HR_TRY(read_kind(settings, r));
    HR_TRY(check_keys(settings, r->kind));
    HR_TRY(read_rotary(json, settings, c));
    HR_TRY(hr_rope_columns(c, "config.json", &columns));
    HR_TRY(read_original(json, settings, r));
    r->factor = 1;
    if (r->kind == HR_ROPE_LONG) return read_long(settings, columns, arena, c);
    if (r->kind != HR_ROPE_DEFAULT) HR_TRY(read_f64(settings, "factor", HR_REQUIRED, &r->factor));
    if (r->kind == HR_ROPE_LLAMA3) HR_TRY(read_llama3(settings, r));
    if (r->kind == HR_ROPE_YARN) HR_TRY(read_yarn(settings, c));
    return hr_rope_compute(r, columns, NULL, arena);
}

/* Where layers with a window have their own table, the settings may be two objects, one for each
 * kind of layer. */
hr_status hr_rope_from_json(const hr_json *json, hr_arena *arena, hr_config *c)
{
    const hr_json *settings, *local = NULL;
    HR_TRY(find_settings(json, &settings));
    if (c->local_rope.theta > 0 && get(settings, "full_attention")) {
        local = get(settings, "sliding_attention");
        settings = get(settings, "full_attention");
    }
    HR_TRY(read_main(json, settings, arena, c));
    return c->local_rope.theta > 0 ? read_local(json, local, arena, c) : HR_OK;
}
