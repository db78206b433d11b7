/* Step 3 of RAA-FP for one receiver: the highest and the lowest rates are found and paired. */
#ifndef DETS_PAIRING_H
#define DETS_PAIRING_H

#include "_allocation.h"

#define SMALL 24         /* rows that are sorted by insertion */
#define MAX_COUNTED 32  /* rows of a receiver whose places are counted */

typedef struct {
    double key;
    int32_t row;
} Ranked;

typedef struct {
    Ranked *upper, *lower, *spare;
    int32_t *ends, *row;
} Ranking; /* room for as many as the largest receiver has rows, and one more */

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

/* ``upper`` and ``lower`` are rows, the highest and the lowest first; upper is used up. */
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

typedef struct {
    i64 uppers, lowers;
} Sides;

/* Writes the rows of one receiver: uppers by falling rate, then lowers by rising rate; ``rate`` is that of a weight. */
INLINE Sides rank_many(const double *rate, const double *grants, const double *target, i64 n, Ranking *r)
{
    i64 uppers = 0, lowers = 0;
    for (i64 i = 0; i < n; i++) { /* without branches: which way a rate goes cannot be foretold */
        r->upper[uppers] = (Ranked){-rate[i], (int32_t)i};
        r->lower[lowers] = (Ranked){rate[i], (int32_t)i};
        uppers += grants[i] > target[i];
        lowers += grants[i] < target[i];
    }
    if (!uppers || !lowers)
        return (Sides){0, 0};
    Ranked *first = sort_ranked(r->upper, uppers, uppers < lowers ? uppers : lowers, r->spare, r->ends);
    for (i64 k = 0; k < uppers; k++)
        r->row[k] = first[k].row;
    Ranked *second = sort_ranked(r->lower, lowers, lowers, r->spare, r->ends);
    for (i64 k = 0; k < lowers; k++)
        r->row[uppers + k] = second[k].row;
    return (Sides){uppers, lowers};
}

#endif
