/* The allocation algorithms, compiled: the same arithmetic as the numpy code next to this file.
 *
 * The four algorithms of the paper and Fair Level give the same bits as their numpy form: sums are taken in numpy's order, and
 * -ffp-contract=off keeps the compiler from fusing. The docstrings of the numpy form explain the steps; here they are only
 * numbered.
 */
#include "../_module.h"
#include "_allocation.h"
#include "_pairing.h"

#define FULL_USE 0.95
#define SETTLED 1e-9
#define EQUAL_WITHIN 0.01
#define MIN_FACTOR 0.5
#define GAIN 0.5

/* ---- one receiver ---- */

#define FORM(name) one_##name
#define MAX_ROWS INT64_MAX
#define ALL(x) (x)
#define EITHER(truth, x, y) ((truth) ? (x) : (y))
#define NOT(truth) (!(truth))
#define MAGNITUDE(x) fabs(x)
#define ANY(truth) (truth)
#define COUNT(truth) (truth)
#define NEVER 0
#define Real double
#define Truth int
#define Count i64
#define Flag uint8_t
#include "_algorithms.h"
#undef FORM
#undef MAX_ROWS
#undef ALL
#undef EITHER
#undef NOT
#undef MAGNITUDE
#undef ANY
#undef COUNT
#undef NEVER
#undef Real
#undef Truth
#undef Count
#undef Flag

/* ---- LANES receivers of equally many rows: GCC and clang turn vectors into what the processor has ---- */

#define LANES 4

typedef double Lanes __attribute__((vector_size(LANES * sizeof(double))));
typedef i64 Mask __attribute__((vector_size(LANES * sizeof(i64)))); /* of each lane all bits or none */

#define FORM(name) lanes_##name
#define MAX_ROWS 32
#define ALL(x) ((Lanes){(x), (x), (x), (x)})
#define EITHER(truth, x, y) ((Lanes)(((truth) & (Mask)(x)) | (~(truth) & (Mask)(y))))
#define NOT(truth) (~(truth))
#define MAGNITUDE(x) ((Lanes)((Mask)(x) & INT64_MAX)) /* all bits but the sign's */
#define ANY(truth) (((truth)[0] | (truth)[1] | (truth)[2] | (truth)[3]) != 0)
#define COUNT(truth) (-(truth))
#define NEVER ((Mask){0, 0, 0, 0})
#define Real Lanes
#define Truth Mask
#define Count Mask
#define Flag Mask
#include "_algorithms.h"

typedef struct {
    Lanes measured[MAX_ROWS], granted[MAX_ROWS], available[MAX_ROWS], weight[MAX_ROWS], grants[MAX_ROWS], room[MAX_ROWS],
        rest[MAX_ROWS], work[MAX_ROWS], other[MAX_ROWS], target[MAX_ROWS];
    Mask drops[MAX_ROWS], active[MAX_ROWS], place[MAX_ROWS], full[MAX_ROWS];
} Batch;

/* ---- all receivers ---- */

/* The columns of Requests in their order, the algorithm's parameters, its grants, and what it keeps of each receiver, if
 * anything: ``before`` this interval and ``after`` it. */
typedef struct {
    const i64 *offsets;
    const double *limit, *received, *measured, *granted, *available, *weight;
    const uint8_t *drops, *active;
    const double *parameters;
    double *grants;
    const double *before;
    double *after;
    i64 receivers;
} Table;

static int get_table(Table *t, PyObject *columns)
{
    if (!side_by_side(columns, 13))
        return NOT_SIDE_BY_SIDE;
    *t = (Table){
        .offsets = column(columns, 0),
        .limit = column(columns, 1),
        .received = column(columns, 2),
        .measured = column(columns, 3),
        .granted = column(columns, 4),
        .available = column(columns, 5),
        .drops = column(columns, 6),
        .weight = column(columns, 7),
        .active = column(columns, 8),
        .parameters = column(columns, 9),
        .grants = column(columns, 10),
        .before = column(columns, 11),
        .after = column(columns, 12),
        .receivers = rows_of(columns, 0) - 1,
    };
    return 0;
}

typedef enum { FAIR_SHARE, PROBE, FAIR_LEVEL } Algorithm;

/* The receivers in the order in which they are worked on: ``batches`` of LANES each that have equally many rows, few
 * enough; then the others one by one. */
typedef struct {
    i64 batches, *receiver;
    one_Scratch one;
    lanes_Scratch lanes;
    Batch batch;
    char *memory;
    _Alignas(max_align_t) char small[4096]; /* where this is enough, none is asked for: that is a tenth of a call */
} Work;

static int get_work(Work *work, const i64 *offsets, i64 receivers)
{
    i64 next[MAX_ROWS + 1] = {0}, end[MAX_ROWS + 1], at = 0, largest = MAX_ROWS;
    for (i64 r = 0; r < receivers; r++) {
        i64 n = offsets[r + 1] - offsets[r];
        largest = n > largest ? n : largest;
        if (n <= MAX_ROWS)
            next[n]++;
    }
    for (int n = 0; n <= MAX_ROWS; n++) {
        i64 together = next[n] / LANES * LANES;
        next[n] = at;
        end[n] = at += together;
    }
    work->batches = at / LANES;
    size_t n = (size_t)largest + 1, row = 6 * sizeof(double) + 3 * sizeof(Ranked) + 2 * sizeof(int32_t) + 1;
    size_t size = (size_t)receivers * sizeof(i64) + n * row;
    work->memory = size <= sizeof work->small ? work->small : malloc(size);
    if (!work->memory)
        return OUT_OF_MEMORY;
    work->receiver = (i64 *)work->memory;
    for (i64 r = 0; r < receivers; r++) {
        i64 rows = offsets[r + 1] - offsets[r];
        work->receiver[rows <= MAX_ROWS && next[rows] < end[rows] ? next[rows]++ : at++] = r;
    }
    double *column = (double *)(work->receiver + receivers);
    Ranked *ranked = (Ranked *)(column + 6 * n);
    int32_t *rows = (int32_t *)(ranked + 3 * n);
    Ranking ranking = {ranked, ranked + n, ranked + 2 * n, rows, rows + n};
    work->one = (one_Scratch){column, column + n, column + 2 * n, column + 3 * n, column + 4 * n, (i64 *)(column + 5 * n),
                              (uint8_t *)(rows + 2 * n), ranking};
    Batch *b = &work->batch;
    work->lanes = (lanes_Scratch){b->room, b->rest, b->work, b->other, b->target, b->place, b->full, ranking};
    return 0;
}

INLINE double amount(const Table *t, Algorithm algorithm, i64 r) /* what a receiver shares out */
{
    return algorithm == FAIR_LEVEL ? t->limit[r] * t->after[r] : t->limit[r];
}

INLINE Lanes four(const double *column, const i64 *at, i64 i)
{
    return (Lanes){column[at[0] + i], column[at[1] + i], column[at[2] + i], column[at[3] + i]};
}

INLINE void allocate_lanes(const Table *t, Algorithm algorithm, const i64 *of, Work *work)
{
    const i64 at[LANES] = {t->offsets[of[0]], t->offsets[of[1]], t->offsets[of[2]], t->offsets[of[3]]};
    i64 n = t->offsets[of[0] + 1] - at[0];
    Lanes shared = {amount(t, algorithm, of[0]), amount(t, algorithm, of[1]), amount(t, algorithm, of[2]),
                    amount(t, algorithm, of[3])};
    Batch *b = &work->batch;
    for (i64 i = 0; i < n; i++) {
        const uint8_t *a = t->active + i;
        b->active[i] = -(Mask){a[at[0]], a[at[1]], a[at[2]], a[at[3]]};
        b->available[i] = four(t->available, at, i);
        b->weight[i] = four(t->weight, at, i);
        if (algorithm != FAIR_SHARE) {
            b->measured[i] = four(t->measured, at, i);
            b->granted[i] = four(t->granted, at, i);
            const uint8_t *d = t->drops + i;
            b->drops[i] = -(Mask){d[at[0]], d[at[1]], d[at[2]], d[at[3]]};
        }
    }
    lanes_Columns columns = {b->measured, b->granted, b->available, b->weight, b->drops, b->active, b->grants};
    if (algorithm == FAIR_SHARE)
        lanes_fair_share(n, shared, &columns, &work->lanes);
    else if (algorithm == PROBE)
        lanes_probe(n, shared, &columns, t->parameters, &work->lanes);
    else
        lanes_fair_level(n, shared, &columns, &work->lanes);
    for (i64 i = 0; i < n; i++)
        for (int lane = 0; lane < LANES; lane++)
            t->grants[at[lane] + i] = b->grants[i][lane];
}

INLINE void allocate_one(const Table *t, Algorithm algorithm, i64 r, const Work *work)
{
    i64 f = t->offsets[r], n = t->offsets[r + 1] - f;
    double shared = amount(t, algorithm, r);
    one_Columns columns = {t->measured + f, t->granted + f, t->available + f, t->weight + f,
                           t->drops + f,    t->active + f,  t->grants + f};
    one_Scratch scratch = work->one; /* a copy: what the compiler must think that writes to columns may change is slow */
    if (algorithm == FAIR_SHARE)
        one_fair_share(n, shared, &columns, &scratch);
    else if (algorithm == PROBE)
        one_probe(n, shared, &columns, t->parameters, &scratch);
    else
        one_fair_level(n, shared, &columns, &scratch);
}

INLINE int allocate(const Table *t, Algorithm algorithm)
{
    Work work;
    if (get_work(&work, t->offsets, t->receivers))
        return OUT_OF_MEMORY;
    for (i64 k = 0; k < work.batches; k++)
        allocate_lanes(t, algorithm, work.receiver + k * LANES, &work);
    for (i64 k = work.batches * LANES; k < t->receivers; k++)
        if (t->offsets[work.receiver[k]] < t->offsets[work.receiver[k] + 1])
            allocate_one(t, algorithm, work.receiver[k], &work);
    if (work.memory != work.small)
        free(work.memory);
    return 0;
}

FOR_EACH_CPU
i64 dets_fair_share(PyObject *columns)
{
    Table t;
    return get_table(&t, columns) ? NOT_SIDE_BY_SIDE : allocate(&t, FAIR_SHARE);
}

/* ``parameters`` are inflation, floor, headroom and d; RAA-SP has a d of 0. */
FOR_EACH_CPU
i64 dets_probe(PyObject *columns)
{
    Table t;
    return get_table(&t, columns) ? NOT_SIDE_BY_SIDE : allocate(&t, PROBE);
}

/* The parameter is booking. */
FOR_EACH_CPU
i64 dets_fair_level(PyObject *columns)
{
    Table table, *t = &table;
    if (get_table(t, columns))
        return NOT_SIDE_BY_SIDE;
    double most = 1.0 + t->parameters[0];
    for (i64 r = 0; r < t->receivers; r++) { /* 2 */
        double factor = 1.0 - GAIN * (t->received[r] - t->limit[r]) / t->limit[r];
        double stepped = t->before[r] * (factor > MIN_FACTOR ? factor : MIN_FACTOR);
        stepped = stepped > 1.0 ? stepped : 1.0;
        stepped = stepped < most ? stepped : most;
        t->after[r] = isnan(t->before[r]) ? 1.0 : stepped;
    }
    return allocate(t, FAIR_LEVEL);
}

/* The parameters are k and floor. */
FOR_EACH_CPU
i64 dets_forward_explicit(PyObject *columns)
{
    Table table, *t = &table;
    if (get_table(t, columns))
        return NOT_SIDE_BY_SIDE;
    double k = t->parameters[0], floor_part = t->parameters[1];
    const uint8_t *active = t->active;
    for (i64 r = 0; r < t->receivers; r++) {
        i64 first = t->offsets[r], last = t->offsets[r + 1], count = 0;
        double limit = t->limit[r], rate = t->before[r];
        for (i64 i = first; i < last; i++)
            count += active[i];
        double next = rate;
        if (count) {
            double fair = limit / (double)count, factor = 1.0 - k * (t->received[r] - limit) / limit;
            double stepped = rate * (factor > MIN_FACTOR ? factor : MIN_FACTOR), least = floor_part * fair; /* 1 */
            stepped = stepped > least ? stepped : least;
            stepped = stepped < limit ? stepped : limit;
            next = isnan(rate) ? fair : stepped;
        }
        t->after[r] = next;
        for (i64 i = first; i < last; i++) { /* 2 */
            double grant = next < t->available[i] ? next : t->available[i];
            t->grants[i] = active[i] ? grant : 0.0;
        }
    }
    return 0;
}

/* What silent senders may start with: an equal share, as if each were one more active sender. Where there are any, all grants
 * go to the last column with these in their place; return whether there are. */
FOR_EACH_CPU
i64 dets_standing(PyObject *columns)
{
    if (!side_by_side(columns, 6))
        return NOT_SIDE_BY_SIDE;
    const i64 *offsets = column(columns, 0);
    const double *limit = column(columns, 1), *available = column(columns, 2), *grants = column(columns, 4);
    const uint8_t *active = column(columns, 3);
    double *after = column(columns, 5);
    i64 receivers = rows_of(columns, 1);
    if (!memchr(active, 0, (size_t)rows_of(columns, 3)))
        return 0;
    for (i64 r = 0; r < receivers; r++) {
        i64 first = offsets[r], last = offsets[r + 1], count = 0;
        for (i64 i = first; i < last; i++)
            count += active[i];
        double share = limit[r] / (double)(count + 1);
        for (i64 i = first; i < last; i++) {
            double standing = share < available[i] ? share : available[i];
            after[i] = active[i] ? grants[i] : standing;
        }
    }
    return 1;
}

PASS(dets_fair_share)
PASS(dets_probe)
PASS(dets_fair_level)
PASS(dets_forward_explicit)
PASS(dets_standing)
PASS(dets_max_min)
MODULE(_allocation, OF(dets_fair_share), OF(dets_probe), OF(dets_fair_level), OF(dets_forward_explicit), OF(dets_standing),
       OF(dets_max_min))
