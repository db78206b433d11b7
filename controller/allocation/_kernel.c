/* The allocation algorithms, compiled: the same arithmetic as the numpy code beside this file, a receiver at a time.
 *
 * Plain C called by ctypes (kernel.py), not a Python module, so that one build serves every Python. The four algorithms of
 * the paper give the same bits as their numpy form: sums are taken in numpy's order, and -ffp-contract=off keeps the
 * compiler from fusing. The docstrings of the numpy form explain the steps; here they are only numbered.
 */
#include "_rows.h"
#include "_lanes.h"

#define LEAST_FACTOR 0.5

/* The receivers in the order in which they are worked on: ``batches`` of LANES each that have equally many rows, few
 * enough; then the others one by one. */
typedef struct {
    i64 batches, *receiver;
    Scratch scratch;
    Batch batch;
} Work;

static int get_work(Work *work, const i64 *offsets, i64 receivers)
{
    i64 next[MOST_ROWS + 1] = {0}, end[MOST_ROWS + 1], at = 0, largest = 0;
    for (i64 r = 0; r < receivers; r++) {
        i64 n = offsets[r + 1] - offsets[r];
        largest = n > largest ? n : largest;
        if (n <= MOST_ROWS)
            next[n]++;
    }
    for (int n = 0; n <= MOST_ROWS; n++) {
        i64 together = next[n] / LANES * LANES;
        next[n] = at;
        end[n] = at += together;
    }
    work->batches = at / LANES;
    work->receiver = malloc(((size_t)receivers + 1) * sizeof(i64));
    if (!work->receiver || get_scratch(&work->scratch, largest)) {
        free(work->receiver);
        return OUT_OF_MEMORY;
    }
    for (i64 r = 0; r < receivers; r++) {
        i64 n = offsets[r + 1] - offsets[r];
        work->receiver[n <= MOST_ROWS && next[n] < end[n] ? next[n]++ : at++] = r;
    }
    return 0;
}

static void free_work(Work *work)
{
    free(work->scratch.memory);
    free(work->receiver);
}

/* ---- RAA-FS, SP and FP ---- */

FOR_EACH_CPU
int dets_fair_share(i64 receivers, const i64 *offsets, const double *limit, const double *available, const double *weight,
                    const uint8_t *active, double *grants)
{
    Work work;
    if (get_work(&work, offsets, receivers))
        return OUT_OF_MEMORY;
    for (i64 k = 0; k < work.batches; k++) {
        const i64 *of = work.receiver + k * LANES, at[LANES] = FOUR(offsets, of, 0);
        i64 n = offsets[of[0] + 1] - offsets[of[0]];
        lanes_fair_share(n, at, LOADED(limit, of, 0), available, weight, active, grants, &work.batch);
    }
    for (i64 k = work.batches * LANES; k < receivers; k++) {
        i64 r = work.receiver[k], f = offsets[r], n = offsets[r + 1] - f;
        fair_share(n, limit[r], available + f, weight + f, active + f, grants + f, &work.scratch);
    }
    free_work(&work);
    return 0;
}

/* With d of 0, RAA-SP; else RAA-FP. */
FOR_EACH_CPU
int dets_probe(i64 receivers, const i64 *offsets, const double *limit, const double *measured, const double *granted,
               const double *available, const double *dropped, const double *weight, const uint8_t *active,
               double inflation, double floor_part, double headroom, double d, double *grants)
{
    Columns c = {measured, granted, available, dropped, weight, active, grants};
    Work work;
    if (get_work(&work, offsets, receivers))
        return OUT_OF_MEMORY;
    for (i64 k = 0; k < work.batches; k++) {
        const i64 *of = work.receiver + k * LANES, at[LANES] = FOUR(offsets, of, 0);
        i64 n = offsets[of[0] + 1] - offsets[of[0]];
        Lanes limits = LOADED(limit, of, 0);
        lanes_slow_probe(n, at, limits, &c, inflation, floor_part, headroom, &work.batch);
        if (d > 0)
            lanes_reallocate(n, d, &work.batch);
        lanes_keep_settled(n, at, limits, grants, &work.batch);
    }
    for (i64 k = work.batches * LANES; k < receivers; k++) {
        i64 r = work.receiver[k], f = offsets[r], n = offsets[r + 1] - f;
        Columns own = {measured + f, granted + f, available + f, dropped + f, weight + f, active + f, grants + f};
        slow_probe(n, limit[r], &own, inflation, floor_part, headroom, &work.scratch);
        if (d > 0)
            reallocate(n, d, &own, &work.scratch);
        keep_settled(n, limit[r], &own, &work.scratch);
    }
    free_work(&work);
    return 0;
}

/* ---- Fair Level: ``shared`` is its step 2 ---- */

FOR_EACH_CPU
int dets_fair_level(i64 receivers, const i64 *offsets, const double *shared, const double *measured,
                    const double *granted, const double *available, const double *dropped, const double *weight,
                    const uint8_t *active, double *grants)
{
    Columns c = {measured, granted, available, dropped, weight, active, grants};
    Work work;
    if (get_work(&work, offsets, receivers))
        return OUT_OF_MEMORY;
    for (i64 k = 0; k < work.batches; k++) {
        const i64 *of = work.receiver + k * LANES, at[LANES] = FOUR(offsets, of, 0);
        lanes_fair_level(offsets[of[0] + 1] - offsets[of[0]], at, LOADED(shared, of, 0), &c, &work.batch);
    }
    for (i64 k = work.batches * LANES; k < receivers; k++) {
        i64 r = work.receiver[k], f = offsets[r];
        Columns own = {measured + f, granted + f, available + f, dropped + f, weight + f, active + f, grants + f};
        fair_level(offsets[r + 1] - f, shared[r], &own, &work.scratch);
    }
    free_work(&work);
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
