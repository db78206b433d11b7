/* Weighted max-min: progressive filling, the lowest constraint first.
 *
 * A constraint's level only rises, so a key in the heap that has become too low is found out when it is taken, and put
 * back. Nothing is updated before that but what is left of each constraint.
 */

#include "_allocation.h"

#define BY_DEMAND (-1)

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

/* Returns how many times a constraint was looked at, or NO_MEMORY. */
i64 dets_max_min(PyObject *columns)
{
    if (!side_by_side(columns, 7))
        return NOT_SIDE_BY_SIDE;
    i64 flows = rows_of(columns, 3), constraints = rows_of(columns, 2);
    const i64 *offsets = column(columns, 0), *uses = column(columns, 1);
    const double *capacity = column(columns, 2), *demand = column(columns, 3), *weight = column(columns, 4);
    double *rate = column(columns, 5);
    i64 *bound = column(columns, 6);
    size_t c = (size_t)constraints, total = (size_t)offsets[flows];
    double *left = malloc((c + 1) * sizeof(double));
    i64 *start = calloc(c + 2, sizeof(i64)), *count = calloc(c + 1, sizeof(i64)), looked = 0, size = 0;
    int32_t *users = malloc((total + 1) * sizeof(int32_t));
    uint8_t *open = malloc((size_t)flows + 1);
    Waiting *heap = malloc((c + 1) * sizeof(Waiting));
    if (!left || !start || !count || !users || !open || !heap) {
        looked = NO_MEMORY;
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
