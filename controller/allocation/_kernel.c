/* The allocation algorithms, compiled: the same arithmetic as the numpy code beside this file, a receiver at a time.
 *
 * Plain C called by ctypes (kernel.py), not a Python module, so that one build serves every Python. The four algorithms of
 * the paper give the same bits as their numpy form: sums are taken in numpy's order, and -ffp-contract=off keeps the
 * compiler from fusing. The docstrings of the numpy form explain the steps; here they are only numbered.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define FULL_USE 0.95
#define SETTLED 1e-9
#define EQUAL_WITHIN 0.01
#define LEAST_FACTOR 0.5
#define BY_DEMAND (-1)
#define SMALL 24
#define OUT_OF_MEMORY 1

/* Nobody looks at floating-point exception flags here, and keeping them right keeps comparisons off the vector units. It
 * does not change a result. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math", "no-math-errno")
#endif

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__)
#define FOR_EACH_CPU __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define FOR_EACH_CPU
#endif
#define INLINE static inline __attribute__((always_inline))

typedef int64_t i64;

/* ---- sums in numpy's order: pairwise by blocks of 128, eight at a time ---- */

INLINE double block_sum(const double *a, i64 n)
{
    if (n < 8) {
        double sum = -0.0;
        for (i64 i = 0; i < n; i++)
            sum += a[i];
        return sum;
    }
    double r[8];
    i64 i;
    for (int j = 0; j < 8; j++)
        r[j] = a[j];
    for (i = 8; i < n - (n % 8); i += 8)
        for (int j = 0; j < 8; j++)
            r[j] += a[i + j];
    double sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
    for (; i < n; i++)
        sum += a[i];
    return sum;
}

FOR_EACH_CPU
static double pairwise_sum(const double *a, i64 n)
{
    if (n <= 128)
        return block_sum(a, n);
    i64 half = n / 2;
    half -= half % 8;
    return pairwise_sum(a, half) + pairwise_sum(a + half, n - half);
}

INLINE double sum_of(const double *a, i64 n) /* what np.add.reduceat gives for one group */
{
    return n == 0 ? 0.0 : a[0] + (n <= 129 ? block_sum(a + 1, n - 1) : pairwise_sum(a + 1, n - 1));
}

/* ---- one receiver's columns, and scratch for its rows ---- */

typedef struct {
    double key;
    int32_t row;
} Ranked;

typedef struct {
    double *room, *rest, *work, *other, *target;
    uint8_t *full;
    Ranked *upper, *lower, *spare;
    int32_t *counts;
    void *memory;
} Scratch;

static i64 largest_group(const i64 *offsets, i64 receivers)
{
    i64 most = 0;
    for (i64 r = 0; r < receivers; r++)
        if (offsets[r + 1] - offsets[r] > most)
            most = offsets[r + 1] - offsets[r];
    return most;
}

static int get_scratch(Scratch *s, i64 rows)
{
    size_t n = (size_t)rows + 8;
    char *memory = malloc(n * (5 * sizeof(double) + 3 * sizeof(Ranked) + 2 * sizeof(int32_t)));
    if (!memory)
        return OUT_OF_MEMORY;
    s->memory = memory;
    s->room = (double *)memory;
    s->rest = s->room + n;
    s->work = s->rest + n;
    s->other = s->work + n;
    s->target = s->other + n;
    s->upper = (Ranked *)(s->target + n);
    s->lower = s->upper + n;
    s->spare = s->lower + n;
    s->counts = (int32_t *)(s->spare + n);
    s->full = (uint8_t *)(s->counts + n);
    return 0;
}

/* ---- groups.fill_level for one group ---- */

INLINE double fill_level(i64 n, double amount, const double *weight, const double *room, Scratch *s)
{
    double *work = s->work, *other = s->other;
    if (!(sum_of(room, n) > amount))
        return INFINITY;
    for (i64 i = 0; i < n; i++)
        work[i] = room[i] > 0 ? weight[i] : 0.0;
    double open = sum_of(work, n);
    double guess = open > 0 ? amount / open : INFINITY; /* 1 */
    for (;;) {
        for (i64 i = 0; i < n; i++) {
            int held = room[i] <= weight[i] * guess;
            work[i] = held ? room[i] : 0.0;
            other[i] = held ? 0.0 : weight[i];
        }
        double missing = amount - sum_of(work, n);
        open = sum_of(other, n);
        double better = open > 0 ? missing / open : 0.0; /* 2 */
        if (!(better > guess))
            return guess;
        guess = better; /* 3 */
    }
}

/* ---- RAA-FS ---- */

FOR_EACH_CPU
int dets_fair_share(i64 receivers, const i64 *offsets, const double *limit, const double *available, const double *weight,
                    const uint8_t *active, double *grants)
{
    Scratch s;
    if (get_scratch(&s, largest_group(offsets, receivers)))
        return OUT_OF_MEMORY;
    for (i64 r = 0; r < receivers; r++) {
        i64 first = offsets[r], n = offsets[r + 1] - first;
        for (i64 i = 0; i < n; i++)
            s.room[i] = active[first + i] ? available[first + i] : 0.0;
        double level = fill_level(n, limit[r], weight + first, s.room, &s);
        for (i64 i = 0; i < n; i++) {
            double share = level * weight[first + i];
            grants[first + i] = share < s.room[i] ? share : s.room[i];
        }
    }
    free(s.memory);
    return 0;
}

/* ---- RAA-SP and RAA-FP ---- */

typedef struct {
    i64 n;
    double limit;
    const double *measured, *granted, *available, *dropped, *weight;
    const uint8_t *active;
    double *grants;
} Receiver;

INLINE void slow_probe(const Receiver *v, double inflation, double floor_part, double headroom, Scratch *s)
{
    i64 n = v->n;
    const double *weight = v->weight;
    double *grants = v->grants, inflated = 1.0 + inflation;
    for (i64 i = 0; i < n; i++) {
        int unlimited = v->granted[i] == INFINITY;
        int full = (v->measured[i] >= FULL_USE * v->granted[i]) | (v->dropped[i] > 0) | unlimited;
        s->full[i] = (uint8_t)(full & v->active[i]);
    }
    for (i64 i = 0; i < n; i++) {
        s->room[i] = v->active[i] ? v->available[i] : 0.0;
        s->work[i] = v->active[i] ? weight[i] : 0.0;
    }
    double total_weight = sum_of(s->work, n);
    double share = total_weight > 0 ? v->limit / total_weight : 0.0, least = floor_part * share;
    for (i64 i = 0; i < n; i++) { /* every value is loaded whatever is chosen: only so can this run on vectors */
        double measured = v->measured[i], granted = v->granted[i], lowest = least * weight[i];
        double more = (granted == INFINITY ? measured : granted) * inflated;
        double wanted = s->full[i] ? more : measured; /* 1 */
        wanted = wanted > lowest ? wanted : lowest;
        s->rest[i] = v->active[i] ? wanted : 0.0;
    }
    double total = sum_of(s->rest, n); /* 2 */
    double ratio = total > 0 ? v->limit / total : 0.0; /* 3 */
    if (headroom > 0) {
        double near = 1.0 + 2.0 * headroom, above = 1.0 + headroom;
        int some_full = 0;
        for (i64 i = 0; i < n; i++)
            some_full |= s->full[i];
        for (i64 i = 0; i < n; i++) { /* what is kept goes to target, what takes part in the ratio to other */
            double measured = v->measured[i], granted = v->granted[i], wanted = s->rest[i];
            double keep = measured * near >= granted ? granted : measured * above;
            keep = keep > wanted ? keep : wanted;
            int kept = v->active[i] & !s->full[i] & (keep <= share * weight[i]) & some_full;
            keep = keep < s->room[i] ? keep : s->room[i];
            s->target[i] = kept ? keep : 0.0;
            s->other[i] = kept ? 0.0 : wanted;
        }
        double left = v->limit - sum_of(s->target, n), others = sum_of(s->other, n);
        ratio = others > 0 ? left / others : 0.0;
        for (i64 i = 0; i < n; i++)
            s->work[i] = s->target[i] > 0 ? s->target[i] : s->other[i] * ratio;
    } else
        for (i64 i = 0; i < n; i++)
            s->work[i] = s->rest[i] * ratio;
    for (i64 i = 0; i < n; i++) {
        double grant = s->work[i]; /* 4 */
        grant = grant < s->room[i] ? grant : s->room[i];
        grants[i] = grant;
        s->rest[i] = s->room[i] - grant;
    }
    double extra = v->limit - sum_of(grants, n);
    double level = fill_level(n, extra > 0 ? extra : 0.0, weight, s->rest, s);
    for (i64 i = 0; i < n; i++) {
        double more = level * weight[i];
        grants[i] += more < s->rest[i] ? more : s->rest[i];
    }
}

INLINE void keep_settled(const Receiver *v, Scratch *s)
{
    int moved = 0;
    for (i64 i = 0; i < v->n; i++) {
        double in_force = v->active[i] ? v->granted[i] : 0.0;
        s->work[i] = in_force;
        moved |= (fabs(v->grants[i] - in_force) > SETTLED * v->grants[i]) | (in_force > v->available[i]);
    }
    if (!moved && !(sum_of(s->work, v->n) > v->limit))
        memcpy(v->grants, s->work, (size_t)v->n * sizeof(double));
}

INLINE void insertion_sort(Ranked *a, i64 n)
{
    for (i64 i = 1; i < n; i++) {
        Ranked x = a[i];
        i64 j = i;
        for (; j > 0 && a[j - 1].key > x.key; j--)
            a[j] = a[j - 1];
        a[j] = x;
    }
}

static void merge_sort(Ranked *a, Ranked *spare, i64 n)
{
    if (n <= SMALL) {
        insertion_sort(a, n);
        return;
    }
    i64 half = n / 2, i = 0, j = half, k = 0;
    merge_sort(a, spare, half);
    merge_sort(a + half, spare, n - half);
    memcpy(spare, a, (size_t)half * sizeof(Ranked));
    while (i < half)
        a[k++] = (j < n && a[j].key < spare[i].key) ? a[j++] : spare[i++];
}

/* Sorts so much that the first ``needed`` are right, stably; returns where they are: at a or in the spare. Rates of one
 * receiver are spread enough for as many buckets as rows to leave about one in each; where they are not, the full
 * bucket is merge sorted. */
static Ranked *sort_ranked(Ranked *a, i64 n, i64 needed, Ranked *spare, int32_t *ends)
{
    if (n <= SMALL) {
        insertion_sort(a, n);
        return a;
    }
    double low = a[0].key, high = a[0].key;
    for (i64 i = 1; i < n; i++) {
        low = a[i].key < low ? a[i].key : low;
        high = a[i].key > high ? a[i].key : high;
    }
    double scale = (double)(n - 1) / (high - low);
    if (!(scale > 0 && scale < INFINITY)) {
        merge_sort(a, spare, n);
        return a;
    }
    memset(ends, 0, (size_t)(n + 1) * sizeof(int32_t));
    for (i64 i = 0; i < n; i++)
        ends[(i64)((a[i].key - low) * scale) + 1]++;
    for (i64 b = 1; b <= n; b++)
        ends[b] += ends[b - 1];
    for (i64 i = 0; i < n; i++)
        spare[ends[(i64)((a[i].key - low) * scale)]++] = a[i];
    i64 start = 0;
    for (i64 b = 0; start < needed; start = ends[b++])
        if (ends[b] - start > SMALL)
            merge_sort(spare + start, a, ends[b] - start);
    insertion_sort(spare, start);
    return spare;
}

INLINE void reallocate(const Receiver *v, double d, Scratch *s)
{
    i64 n = v->n, uppers = 0, lowers = 0;
    const double *weight = v->weight;
    double *grants = v->grants, *target = s->target;
    for (i64 i = 0; i < n; i++) {
        s->rest[i] = s->full[i] ? grants[i] : 0.0;
        s->room[i] = s->full[i] ? v->available[i] : 0.0;
    }
    double mean = fill_level(n, sum_of(s->rest, n), weight, s->room, s); /* 2 */
    int unequal = 0;
    for (i64 i = 0; i < n; i++) {
        double share = mean * weight[i];
        target[i] = share < s->room[i] ? share : s->room[i];
        unequal |= s->full[i] & (fabs(grants[i] - target[i]) > EQUAL_WITHIN * target[i]);
    }
    if (!unequal) {
        for (i64 i = 0; i < n; i++)
            grants[i] = s->full[i] ? target[i] : grants[i];
        return;
    }
    for (i64 i = 0; i < n; i++)
        s->work[i] = grants[i] / weight[i];
    for (i64 i = 0; i < n; i++) { /* without branches: which way a rate goes cannot be foretold */
        double rate = s->work[i];
        s->upper[uppers] = (Ranked){-rate, (int32_t)i};
        s->lower[lowers] = (Ranked){rate, (int32_t)i};
        uppers += s->full[i] & (grants[i] > target[i]);
        lowers += s->full[i] & (grants[i] < target[i]);
    }
    if (!uppers || !lowers)
        return;
    Ranked *upper = sort_ranked(s->upper, uppers, uppers < lowers ? uppers : lowers, s->spare, s->counts);
    Ranked *lower = sort_ranked(s->lower, lowers, lowers, upper == s->spare ? s->upper : s->spare, s->counts);
    for (i64 done = 0; uppers && done < lowers;) { /* 3 */
        i64 pairs = uppers < lowers - done ? uppers : lowers - done, still = 0;
        for (i64 k = 0; k < pairs; k++) {
            i64 high = upper[k].row, low = lower[done + k].row;
            double both = grants[high] + grants[low], raised = grants[low] * d;
            raised = raised < s->room[low] ? raised : s->room[low]; /* 3a */
            double average = both * (weight[low] / (weight[low] + weight[high]));
            average = average < s->room[low] ? average : s->room[low];
            double next = both - raised < target[high] ? average : raised; /* 3b */
            grants[low] = next;
            grants[high] = both - next;
            upper[still] = upper[k];
            still += grants[high] > target[high];
        }
        done += pairs;
        uppers = still; /* those without a partner are done with the last lower */
    }
}

/* With d of 0, RAA-SP; else RAA-FP. */
FOR_EACH_CPU
int dets_probe(i64 receivers, const i64 *offsets, const double *limit, const double *measured, const double *granted,
               const double *available, const double *dropped, const double *weight, const uint8_t *active,
               double inflation, double floor_part, double headroom, double d, double *grants)
{
    Scratch s;
    if (get_scratch(&s, largest_group(offsets, receivers)))
        return OUT_OF_MEMORY;
    for (i64 r = 0; r < receivers; r++) {
        i64 f = offsets[r];
        Receiver v = {offsets[r + 1] - f, limit[r],    measured + f, granted + f, available + f,
                      dropped + f,        weight + f, active + f,   grants + f};
        slow_probe(&v, inflation, floor_part, headroom, &s);
        if (d > 0)
            reallocate(&v, d, &s);
        keep_settled(&v, &s);
    }
    free(s.memory);
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

/* ---- weighted max-min: progressive filling, the lowest constraint first ----
 *
 * A constraint's level only rises, so a key in the heap that has become too low is found out when it is taken, and put
 * back. Nothing is updated before that but what is left of each constraint.
 */

typedef struct {
    double key;
    int32_t constraint;
} Waiting;

static void sift_down(Waiting *heap, i64 size, i64 i)
{
    Waiting x = heap[i];
    for (i64 child; (child = 2 * i + 1) < size; i = child) {
        if (child + 1 < size && heap[child + 1].key < heap[child].key)
            child++;
        if (!(heap[child].key < x.key))
            break;
        heap[i] = heap[child];
    }
    heap[i] = x;
}

typedef struct {
    const i64 *offsets, *uses;
    const double *demand, *weight;
    double *rate, *left;
    i64 *bound;
    uint8_t *open;
} Flows;

INLINE void fix(Flows *f, i64 flow, double rate, i64 bound)
{
    f->rate[flow] = rate;
    f->bound[flow] = bound;
    f->open[flow] = 0;
    for (i64 u = f->offsets[flow]; u < f->offsets[flow + 1]; u++)
        f->left[f->uses[u]] -= rate;
}

/* Returns how many times a constraint was looked at, or -1 without memory. */
i64 dets_max_min(i64 flows, i64 constraints, const i64 *offsets, const i64 *uses, const double *capacity,
                 const double *demand, const double *weight, double *rate, i64 *bound)
{
    size_t c = (size_t)constraints, total = (size_t)offsets[flows];
    double *left = malloc((c + 1) * sizeof(double));
    i64 *start = calloc(c + 2, sizeof(i64)), *count = calloc(c + 1, sizeof(i64)), looked = 0, size = 0;
    int32_t *users = malloc((total + 1) * sizeof(int32_t));
    uint8_t *open = malloc((size_t)flows + 1);
    Waiting *heap = malloc((c + 1) * sizeof(Waiting));
    if (!left || !start || !count || !users || !open || !heap) {
        looked = -1;
        goto done;
    }
    Flows f = {offsets, uses, demand, weight, rate, left, bound, open};
    memset(open, 1, (size_t)flows);
    memcpy(left, capacity, c * sizeof(double));
    for (size_t u = 0; u < total; u++)
        start[uses[u] + 1]++;
    for (size_t i = 0; i < c; i++)
        start[i + 1] += start[i];
    for (i64 flow = 0; flow < flows; flow++)
        for (i64 u = offsets[flow]; u < offsets[flow + 1]; u++)
            users[start[uses[u]] + count[uses[u]]++] = (int32_t)flow;
    for (i64 i = 0; i < constraints; i++) {
        double sum = 0.0;
        for (i64 j = start[i]; j < start[i + 1]; j++)
            sum += weight[users[j]];
        if (count[i] && capacity[i] < INFINITY)
            heap[size++] = (Waiting){capacity[i] / sum, (int32_t)i};
    }
    for (i64 i = size / 2 - 1; i >= 0; i--)
        sift_down(heap, size, i);
    while (size) {
        i64 at = heap[0].constraint, kept = 0, satisfied = 0;
        int32_t *mine = users + start[at];
        double sum = 0.0;
        looked++;
        for (i64 j = 0; j < count[at]; j++) { /* those still open move to the front */
            int32_t flow = mine[j];
            mine[kept] = flow;
            kept += open[flow];
            sum += open[flow] ? weight[flow] : 0.0;
        }
        count[at] = kept;
        double level = kept ? (left[at] > 0 ? left[at] : 0.0) / sum : INFINITY; /* 1 */
        double second = size > 1 ? heap[1].key : INFINITY;
        if (size > 2 && heap[2].key < second)
            second = heap[2].key;
        if (kept && !(level > second)) {
            for (i64 j = 0; j < kept; j++) /* 3 */
                if (demand[mine[j]] <= level * weight[mine[j]]) {
                    fix(&f, mine[j], demand[mine[j]], BY_DEMAND);
                    satisfied++;
                }
            if (satisfied)
                continue;
            for (i64 j = 0; j < kept; j++) /* 4 */
                fix(&f, mine[j], level * weight[mine[j]], at);
            kept = 0;
        }
        if (kept)
            heap[0].key = level;
        else
            heap[0] = heap[--size];
        sift_down(heap, size, 0); /* 5 */
    }
    for (i64 flow = 0; flow < flows; flow++)
        if (open[flow])
            fix(&f, flow, demand[flow], BY_DEMAND);
done:
    free(left);
    free(start);
    free(count);
    free(users);
    free(open);
    free(heap);
    return looked;
}
