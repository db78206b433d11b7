/* The allocation algorithms, compiled: the same arithmetic as the numpy code next to this file, a receiver at a time.
 *
 * Plain C called by ctypes (kernel.py), not a Python module, so that one build serves every Python. The four algorithms of
 * the paper give the same bits as their numpy form: sums are taken in numpy's order, and -ffp-contract=off keeps the
 * compiler from fusing. The docstrings of the numpy form explain the steps; here they are only numbered.
 */
#include "_rows.h"

#define LEAST_FACTOR 0.5

static int get_scratch_for(Scratch *scratch, const i64 *offsets, i64 receivers)
{
    i64 largest = 0;
    for (i64 r = 0; r < receivers; r++) {
        i64 n = offsets[r + 1] - offsets[r];
        largest = n > largest ? n : largest;
    }
    return get_scratch(scratch, largest);
}

/* ---- RAA-FS, SP and FP ---- */

FOR_EACH_CPU
int dets_fair_share(i64 receivers, const i64 *offsets, const double *limit, const double *available, const double *weight,
                    const uint8_t *active, double *grants)
{
    Scratch scratch;
    if (get_scratch_for(&scratch, offsets, receivers))
        return OUT_OF_MEMORY;
    for (i64 r = 0; r < receivers; r++) {
        i64 f = offsets[r], n = offsets[r + 1] - f;
        fair_share(n, limit[r], available + f, weight + f, active + f, grants + f, &scratch);
    }
    free(scratch.memory);
    return 0;
}

/* With d of 0, RAA-SP; else RAA-FP. */
FOR_EACH_CPU
int dets_probe(i64 receivers, const i64 *offsets, const double *limit, const double *measured, const double *granted,
               const double *available, const double *dropped, const double *weight, const uint8_t *active,
               double inflation, double floor_part, double headroom, double d, double *grants)
{
    Scratch scratch;
    if (get_scratch_for(&scratch, offsets, receivers))
        return OUT_OF_MEMORY;
    for (i64 r = 0; r < receivers; r++) {
        i64 f = offsets[r], n = offsets[r + 1] - f;
        Columns own = {measured + f, granted + f, available + f, dropped + f, weight + f, active + f, grants + f};
        slow_probe(n, limit[r], &own, inflation, floor_part, headroom, &scratch);
        if (d > 0)
            reallocate(n, d, &own, &scratch);
        keep_settled(n, limit[r], &own, &scratch);
    }
    free(scratch.memory);
    return 0;
}

/* ---- Fair Level: ``shared`` is its step 2 ---- */

FOR_EACH_CPU
int dets_fair_level(i64 receivers, const i64 *offsets, const double *shared, const double *measured,
                    const double *granted, const double *available, const double *dropped, const double *weight,
                    const uint8_t *active, double *grants)
{
    Scratch scratch;
    if (get_scratch_for(&scratch, offsets, receivers))
        return OUT_OF_MEMORY;
    for (i64 r = 0; r < receivers; r++) {
        i64 f = offsets[r];
        Columns own = {measured + f, granted + f, available + f, dropped + f, weight + f, active + f, grants + f};
        fair_level(offsets[r + 1] - f, shared[r], &own, &scratch);
    }
    free(scratch.memory);
    return 0;
}

/* ---- RAA-FE ---- */

FOR_EACH_CPU
int dets_forward_explicit(i64 receivers, const i64 *offsets, const double *limit, const double *received,
                          const double *available, const uint8_t *active, const double *rate, double k,
                          double floor_part, double *grants, double *next)
{
    for (i64 r = 0; r < receivers; r++) {
        i64 first = offsets[r], last = offsets[r + 1], count = 0;
        for (i64 i = first; i < last; i++)
            count += active[i];
        next[r] = rate[r];
        if (count) {
            double fair = limit[r] / (double)count, factor = 1.0 - k * (received[r] - limit[r]) / limit[r];
            double stepped = rate[r] * (factor > LEAST_FACTOR ? factor : LEAST_FACTOR), least = floor_part * fair; /* 1 */
            stepped = stepped > least ? stepped : least;
            stepped = stepped < limit[r] ? stepped : limit[r];
            next[r] = isnan(rate[r]) ? fair : stepped;
        }
        for (i64 i = first; i < last; i++) { /* 2 */
            double grant = next[r] < available[i] ? next[r] : available[i];
            grants[i] = active[i] ? grant : 0.0;
        }
    }
    return 0;
}
