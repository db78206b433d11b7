/* RAA-FS, SP, FP and Fair Level for one receiver, row by row. */
#include "_kernel.h"

#define SMALL 24

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

typedef struct {
    double held, open;
} Sums;

INLINE Sums block_sums(const double *weight, const double *room, i64 n, double guess)
{
    Sums sums = {-0.0, -0.0};
    i64 i = 0;
    if (n >= 8) {
        Lanes held[2] = {EVERY(0.0), EVERY(0.0)}, open[2] = {EVERY(0.0), EVERY(0.0)};
        for (; i < n - (n % 8); i += 8)
            for (int half = 0; half < 2; half++) {
                Lanes r = *(const Loose *)(room + i + LANES * half), w = *(const Loose *)(weight + i + LANES * half);
                Mask full = r <= w * guess;
                held[half] += AND(full, r);
                open[half] += AND(~full, w);
            }
        sums.held = TOTAL(held[0]) + TOTAL(held[1]);
        sums.open = TOTAL(open[0]) + TOTAL(open[1]);
    }
    for (; i < n; i++) {
        int full = room[i] <= weight[i] * guess;
        sums.held += full ? room[i] : 0.0;
        sums.open += full ? 0.0 : weight[i];
    }
    return sums;
}

FOR_EACH_CPU
static Sums pairwise_sums(const double *weight, const double *room, i64 n, double guess)
{
    if (n <= 128)
        return block_sums(weight, room, n, guess);
    i64 half = n / 2;
    half -= half % 8;
    Sums one = pairwise_sums(weight, room, half, guess);
    Sums other = pairwise_sums(weight + half, room + half, n - half, guess);
    return (Sums){one.held + other.held, one.open + other.open};
}

INLINE Sums sums_of(const double *weight, const double *room, i64 n, double guess)
{
    int full = room[0] <= weight[0] * guess;
    Sums rest = n <= 129 ? block_sums(weight + 1, room + 1, n - 1, guess)
                         : pairwise_sums(weight + 1, room + 1, n - 1, guess);
    return (Sums){(full ? room[0] : 0.0) + rest.held, (full ? 0.0 : weight[0]) + rest.open};
}

INLINE double fill_level(i64 n, double amount, const double *weight, const double *room)
{
    if (!(sum_of(room, n) > amount))
        return INFINITY;
    for (double guess = 0.0;;) { /* 1: the first round finds the level without bounds */
        Sums sums = sums_of(weight, room, n, guess);
        double better = sums.open > 0 ? (amount - sums.held) / sums.open : 0.0; /* 2 */
        if (!(better > guess))
            return guess;
        guess = better; /* 3 */
    }
}

/* ---- RAA-FS ---- */

INLINE void fair_share(i64 n, double limit, const double *available, const double *weight, const uint8_t *active,
                       double *grants, Scratch *s)
{
    for (i64 i = 0; i < n; i++)
        s->room[i] = active[i] ? available[i] : 0.0;
    double level = fill_level(n, limit, weight, s->room);
    for (i64 i = 0; i < n; i++) {
        double share = level * weight[i];
        grants[i] = share < s->room[i] ? share : s->room[i];
    }
}

/* ---- Fair Level ---- */

INLINE void fair_level(i64 n, double shared, const Columns *v, Scratch *s)
{
    double highest = 0.0;
    for (i64 i = 0; i < n; i++) {
        int full = (v->measured[i] >= FULL_USE * v->granted[i]) | (v->dropped[i] > 0) | (v->granted[i] == INFINITY);
        double room = v->active[i] ? v->available[i] : 0.0, sent = v->measured[i] < room ? v->measured[i] : room;
        s->room[i] = room;
        s->rest[i] = full ? room : sent; /* 1 */
        s->work[i] = v->active[i] ? v->weight[i] : 0.0;
        double rate = s->rest[i] / v->weight[i];
        highest = rate > highest ? rate : highest;
    }
    double level = fill_level(n, shared, v->weight, s->rest); /* 3 */
    if (level == INFINITY) {
        double over = shared - sum_of(s->rest, n), weight = sum_of(s->work, n);
        level = highest + (weight > 0 ? (over > 0 ? over : 0.0) / weight : 0.0); /* 5 */
    }
    for (i64 i = 0; i < n; i++) {
        double share = level * v->weight[i];
        v->grants[i] = share < s->room[i] ? share : s->room[i]; /* 4 */
    }
}

/* ---- RAA-SP and RAA-FP ---- */

INLINE void slow_probe(i64 n, double limit, const Columns *v, double inflation, double floor_part, double headroom,
                       Scratch *s)
{
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
    double share = total_weight > 0 ? limit / total_weight : 0.0, least = floor_part * share;
    for (i64 i = 0; i < n; i++) { /* every value is loaded whatever is chosen: only so can this run on vectors */
        double measured = v->measured[i], granted = v->granted[i], lowest = least * weight[i];
        double more = (granted == INFINITY ? measured : granted) * inflated;
        double wanted = s->full[i] ? more : measured; /* 1 */
        wanted = wanted > lowest ? wanted : lowest;
        s->rest[i] = v->active[i] ? wanted : 0.0;
    }
    double total = sum_of(s->rest, n); /* 2 */
    double ratio = total > 0 ? limit / total : 0.0; /* 3 */
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
        double left = limit - sum_of(s->target, n), others = sum_of(s->other, n);
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
    double extra = limit - sum_of(grants, n);
    double level = fill_level(n, extra > 0 ? extra : 0.0, weight, s->rest);
    for (i64 i = 0; i < n; i++) {
        double more = level * weight[i];
        double grant = grants[i] + (more < s->rest[i] ? more : s->rest[i]); /* may round to just above the room */
        grants[i] = grant < s->room[i] ? grant : s->room[i];
    }
}

INLINE void keep_settled(i64 n, double limit, const Columns *v, Scratch *s)
{
    int moved = 0;
    for (i64 i = 0; i < n; i++) {
        double in_force = v->active[i] ? v->granted[i] : 0.0;
        s->work[i] = in_force;
        moved |= (fabs(v->grants[i] - in_force) > SETTLED * v->grants[i]) | (in_force > v->available[i]);
    }
    if (!moved && !(sum_of(s->work, n) > limit))
        memcpy(v->grants, s->work, (size_t)n * sizeof(double));
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

/* Step 3 of Algorithm 2: ``upper`` and ``lower`` are rows, the highest and the lowest first; upper is used up. */
INLINE void pair_up(int32_t *upper, i64 uppers, const int32_t *lower, i64 lowers, double d, double *grants,
                    const double *target, const double *room, const double *weight)
{
    for (i64 done = 0; uppers && done < lowers;) {
        i64 pairs = uppers < lowers - done ? uppers : lowers - done, still = 0;
        for (i64 k = 0; k < pairs; k++) {
            i64 high = upper[k], low = lower[done + k];
            double both = grants[high] + grants[low], raised = grants[low] * d;
            raised = raised < room[low] ? raised : room[low]; /* 3a */
            double average = both * (weight[low] / (weight[low] + weight[high]));
            average = average < room[low] ? average : room[low];
            double next[2] = {raised, average};
            int apart = both - raised < target[high]; /* 3b, without a branch */
            double rest = both - next[apart];
            grants[low] = next[apart];
            grants[high] = rest < room[high] ? rest : room[high];
            upper[still] = upper[k];
            still += grants[high] > target[high];
        }
        done += pairs;
        uppers = still; /* those without a partner are done with the last lower */
    }
}

INLINE void reallocate(i64 n, double d, const Columns *v, Scratch *s)
{
    i64 uppers = 0, lowers = 0;
    const double *weight = v->weight;
    double *grants = v->grants, *target = s->target;
    for (i64 i = 0; i < n; i++) {
        s->rest[i] = s->full[i] ? grants[i] : 0.0;
        s->room[i] = s->full[i] ? v->available[i] : 0.0;
    }
    double mean = fill_level(n, sum_of(s->rest, n), weight, s->room); /* 2 */
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
    Ranked *first = sort_ranked(s->upper, uppers, uppers < lowers ? uppers : lowers, s->spare, s->counts);
    Ranked *second = sort_ranked(s->lower, lowers, lowers, first == s->spare ? s->upper : s->spare, s->counts);
    int32_t *upper = s->counts, *lower = (int32_t *)s->work;
    for (i64 k = 0; k < uppers; k++)
        upper[k] = first[k].row;
    for (i64 k = 0; k < lowers; k++)
        lower[k] = second[k].row;
    pair_up(upper, uppers, lower, lowers, d, grants, target, s->room, weight);
}
