/* Finding a filter by its name. */
#include "text/jinja/jinja_int.h"

const hr_jfilter *hr_jinja_find_filter(hr_str name)
{
    const hr_jfilter *const tables[] = { hr_jinja_text_filters, hr_jinja_list_filters,
                                         hr_jinja_pick_filters };
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        for (const hr_jfilter *f = tables[i]; f->f.name; f++)
            if (hr_str_eq_c(name, f->f.name)) return f;
    return NULL;
}
