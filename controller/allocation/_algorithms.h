/* RAA-FS, SP, FP and Fair Level, as ``_allocation.c`` includes them twice: for one receiver, and for LANES receivers of
 * equally many rows, side by side.
 *
 * ``Real`` is a double, or a vector with a lane for each receiver; ``Truth`` is what a comparison of two gives, ``Flag``
 * what a column of truths holds. So row i of a column is one value, and each lane does what a receiver alone would do,
 * in the same order.
 */

typedef struct {
    const Real *measured, *granted, *available, *weight;
    const Flag *drops, *active;
    Real *grants;
} FORM(Columns);

typedef struct {
    Real *room, *rest, *work, *other, *target;
    Count *place;
    Flag *full;
    Ranking ranking;
} FORM(Scratch);

INLINE Real FORM(lesser)(Real x, Real y) { return EITHER(x < y, x, y); }
INLINE Real FORM(greater)(Real x, Real y) { return EITHER(x > y, x, y); }
INLINE Real FORM(quotient)(Real x, Real y) { return EITHER(y > 0, x / y, ALL(0.0)); } /* 0 where y is not above 0 */

/* ---- sums in numpy's order: pairwise by blocks of 128, eight at a time ---- */

INLINE Real FORM(block_sum)(const Real *a, i64 n)
{
    if (n < 8) {
        Real sum = ALL(-0.0);
        for (i64 i = 0; i < n; i++)
            sum += a[i];
        return sum;
    }
    Real r[8];
    i64 i;
    for (int j = 0; j < 8; j++)
        r[j] = a[j];
    for (i = 8; i < n - (n % 8); i += 8)
        for (int j = 0; j < 8; j++)
            r[j] += a[i + j];
    Real sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
    for (; i < n; i++)
        sum += a[i];
    return sum;
}

FOR_EACH_CPU
static void FORM(pairwise_sum)(const Real *a, i64 n, Real *sum)
{
    if (n <= 128) {
        *sum = FORM(block_sum)(a, n);
        return;
    }
    i64 half = n / 2;
    half -= half % 8;
    Real other;
    FORM(pairwise_sum)(a, half, sum);
    FORM(pairwise_sum)(a + half, n - half, &other);
    *sum += other;
}

INLINE Real FORM(sum_of)(const Real *a, i64 n) /* what np.add.reduceat gives for one group */
{
    Real sum;
    if (n == 0)
        return ALL(0.0);
    if (MAX_ROWS <= 129 || n <= 129)
        sum = FORM(block_sum)(a + 1, n - 1);
    else
        FORM(pairwise_sum)(a + 1, n - 1, &sum);
    return a[0] + sum;
}

/* ---- groups.fill_level for one group ---- */

typedef struct {
    Real held, open;
} FORM(Sums);

INLINE FORM(Sums) FORM(sums_of_row)(Real weight, Real room, Real guess)
{
    Truth full = room <= weight * guess;
    return (FORM(Sums)){EITHER(full, room, ALL(0.0)), EITHER(full, ALL(0.0), weight)};
}

INLINE FORM(Sums) FORM(block_sums)(const Real *weight, const Real *room, i64 n, Real guess)
{
    Real held = ALL(-0.0), open = ALL(-0.0);
    i64 i = 0;
    if (n >= 8) {
        Real h[8], o[8];
        for (int j = 0; j < 8; j++)
            h[j] = o[j] = ALL(0.0);
        for (; i < n - (n % 8); i += 8)
_Pragma("GCC unroll 1")
            for (int j = 0; j < 8; j++) {
                FORM(Sums) row = FORM(sums_of_row)(weight[i + j], room[i + j], guess);
                h[j] += row.held;
                o[j] += row.open;
            }
        held = ((h[0] + h[1]) + (h[2] + h[3])) + ((h[4] + h[5]) + (h[6] + h[7]));
        open = ((o[0] + o[1]) + (o[2] + o[3])) + ((o[4] + o[5]) + (o[6] + o[7]));
    }
    for (; i < n; i++) {
        FORM(Sums) row = FORM(sums_of_row)(weight[i], room[i], guess);
        held += row.held;
        open += row.open;
    }
    return (FORM(Sums)){held, open};
}

FOR_EACH_CPU
static void FORM(pairwise_sums)(const Real *weight, const Real *room, i64 n, const Real *guess, FORM(Sums) *sums)
{
    if (n <= 128) {
        *sums = FORM(block_sums)(weight, room, n, *guess);
        return;
    }
    i64 half = n / 2;
    half -= half % 8;
    FORM(Sums) other;
    FORM(pairwise_sums)(weight, room, half, guess, sums);
    FORM(pairwise_sums)(weight + half, room + half, n - half, guess, &other);
    sums->held += other.held;
    sums->open += other.open;
}

INLINE FORM(Sums) FORM(sums_of)(const Real *weight, const Real *room, i64 n, Real guess)
{
    FORM(Sums) first = FORM(sums_of_row)(weight[0], room[0], guess), rest;
    if (MAX_ROWS <= 129 || n <= 129)
        rest = FORM(block_sums)(weight + 1, room + 1, n - 1, guess);
    else
        FORM(pairwise_sums)(weight + 1, room + 1, n - 1, &guess, &rest);
    return (FORM(Sums)){first.held + rest.held, first.open + rest.open};
}

INLINE Real FORM(fill_level)(i64 n, Real amount, const Real *weight, const Real *room)
{
    Truth finite = FORM(sum_of)(room, n) > amount;
    if (!ANY(finite))
        return ALL(INFINITY);
    for (Real guess = ALL(0.0);;) { /* 1: the first round finds the level without bounds */
        FORM(Sums) sums = FORM(sums_of)(weight, room, n, guess);
        Real better = FORM(quotient)(amount - sums.held, sums.open); /* 2 */
        Truth rising = finite & (better > guess);
        if (!ANY(rising))
            return EITHER(finite, guess, ALL(INFINITY));
        guess = EITHER(rising, better, guess); /* 3 */
    }
}

/* ---- RAA-FS ---- */

INLINE void FORM(fair_share)(i64 n, Real limit, const FORM(Columns) *v, FORM(Scratch) *s)
{
    for (i64 i = 0; i < n; i++)
        s->room[i] = EITHER(v->active[i], v->available[i], ALL(0.0));
    Real level = FORM(fill_level)(n, limit, v->weight, s->room);
    for (i64 i = 0; i < n; i++)
        v->grants[i] = FORM(lesser)(level * v->weight[i], s->room[i]);
}

/* ---- Fair Level ---- */

INLINE void FORM(fair_level)(i64 n, Real shared, const FORM(Columns) *v, FORM(Scratch) *s)
{
    Real highest = ALL(0.0);
    for (i64 i = 0; i < n; i++) {
        Truth unlimited = v->granted[i] == ALL(INFINITY);
        Truth full = (v->measured[i] >= FULL_USE * v->granted[i]) | v->drops[i] | unlimited;
        Real room = EITHER(v->active[i], v->available[i], ALL(0.0));
        s->room[i] = room;
        s->rest[i] = EITHER(full, room, FORM(lesser)(v->measured[i], room)); /* 1 */
        s->work[i] = EITHER(v->active[i], v->weight[i], ALL(0.0));
        highest = FORM(greater)(s->rest[i] / v->weight[i], highest);
    }
    Real level = FORM(fill_level)(n, shared, v->weight, s->rest); /* 3 */
    Truth fitting = level == ALL(INFINITY);
    if (ANY(fitting)) {
        Real over = FORM(greater)(shared - FORM(sum_of)(s->rest, n), ALL(0.0));
        level = EITHER(fitting, highest + FORM(quotient)(over, FORM(sum_of)(s->work, n)), level); /* 5 */
    }
    for (i64 i = 0; i < n; i++)
        v->grants[i] = FORM(lesser)(level * v->weight[i], s->room[i]); /* 4 */
}

/* ---- RAA-SP and RAA-FP ---- */

INLINE void FORM(slow_probe)(i64 n, Real limit, const FORM(Columns) *v, double inflation, double floor_part,
                             double headroom, FORM(Scratch) *s)
{
    const Real *weight = v->weight;
    double inflated = 1.0 + inflation;
    for (i64 i = 0; i < n; i++) {
        Truth unlimited = v->granted[i] == ALL(INFINITY);
        Truth full = (v->measured[i] >= FULL_USE * v->granted[i]) | v->drops[i] | unlimited;
        s->full[i] = (Flag)(full & v->active[i]);
    }
    for (i64 i = 0; i < n; i++) {
        s->room[i] = EITHER(v->active[i], v->available[i], ALL(0.0));
        s->work[i] = EITHER(v->active[i], weight[i], ALL(0.0));
    }
    Real share = FORM(quotient)(limit, FORM(sum_of)(s->work, n)), least = floor_part * share;
    for (i64 i = 0; i < n; i++) { /* every value is loaded whatever is chosen: only so can this run on vectors */
        Real measured = v->measured[i], granted = v->granted[i], lowest = least * weight[i];
        Real more = EITHER(granted == ALL(INFINITY), measured, granted) * inflated;
        Real wanted = EITHER(s->full[i], more, measured); /* 1 */
        wanted = FORM(greater)(wanted, lowest);
        s->rest[i] = EITHER(v->active[i], wanted, ALL(0.0));
    }
    Real ratio = FORM(quotient)(limit, FORM(sum_of)(s->rest, n)); /* 2, 3 */
    if (headroom > 0) {
        double near = 1.0 + 2.0 * headroom, above = 1.0 + headroom;
        Truth some_full = s->full[0];
        for (i64 i = 1; i < n; i++)
            some_full |= s->full[i];
        for (i64 i = 0; i < n; i++) { /* what is kept goes to target, what takes part in the ratio to other */
            Real measured = v->measured[i], granted = v->granted[i], wanted = s->rest[i];
            Real keep = EITHER(measured * near >= granted, granted, measured * above);
            keep = FORM(greater)(keep, wanted);
            Truth kept = v->active[i] & NOT(s->full[i]) & (keep <= share * weight[i]) & some_full;
            s->target[i] = EITHER(kept, FORM(lesser)(keep, s->room[i]), ALL(0.0));
            s->other[i] = EITHER(kept, ALL(0.0), wanted);
        }
        ratio = FORM(quotient)(limit - FORM(sum_of)(s->target, n), FORM(sum_of)(s->other, n));
        for (i64 i = 0; i < n; i++)
            s->work[i] = EITHER(s->target[i] > 0, s->target[i], s->other[i] * ratio);
    } else
        for (i64 i = 0; i < n; i++)
            s->work[i] = s->rest[i] * ratio;
    for (i64 i = 0; i < n; i++) {
        Real grant = FORM(lesser)(s->work[i], s->room[i]); /* 4 */
        v->grants[i] = grant;
        s->rest[i] = s->room[i] - grant;
    }
    Real extra = FORM(greater)(limit - FORM(sum_of)(v->grants, n), ALL(0.0));
    Real level = FORM(fill_level)(n, extra, weight, s->rest);
    for (i64 i = 0; i < n; i++) {
        Real more = level * weight[i], grant = FORM(lesser)(v->grants[i] + more, s->room[i]);
        v->grants[i] = EITHER(more >= s->rest[i], s->room[i], grant); /* to the bit: see slow_probe.py */
    }
}

INLINE void FORM(keep_settled)(i64 n, Real limit, const FORM(Columns) *v, FORM(Scratch) *s)
{
    Truth moved = NEVER;
    for (i64 i = 0; i < n; i++) {
        Real in_force = EITHER(v->active[i], v->granted[i], ALL(0.0));
        s->work[i] = in_force;
        moved |= (MAGNITUDE(v->grants[i] - in_force) > SETTLED * v->grants[i]) | (in_force > v->available[i]);
    }
    if (!ANY(NOT(moved)))
        return;
    moved |= FORM(sum_of)(s->work, n) > limit;
    for (i64 i = 0; i < n; i++)
        v->grants[i] = EITHER(moved, v->grants[i], s->work[i]);
}

/* A pair of Step 3 of RAA-FP, where it is ``paired``. */
INLINE void FORM(bring_two_together)(i64 high, i64 low, Truth paired, double d, const FORM(Columns) *v,
                                     const FORM(Scratch) *s)
{
    Real both = v->grants[high] + v->grants[low], raised = FORM(lesser)(v->grants[low] * d, s->room[low]); /* 3a */
    Real average = FORM(lesser)(both * (v->weight[low] / (v->weight[low] + v->weight[high])), s->room[low]);
    Real next = EITHER(both - raised < s->target[high], average, raised); /* 3b */
    Real rest = FORM(lesser)(both - next, s->room[high]);
    v->grants[low] = EITHER(paired, next, v->grants[low]);
    v->grants[high] = EITHER(paired, rest, v->grants[high]);
}

/* Step 3 of RAA-FP, where ``work`` is the grant over the weight: who is above the target is paired with who is below. */
INLINE void FORM(bring_together)(i64 n, double d, const FORM(Columns) *v, FORM(Scratch) *s)
{
    double *grants = (double *)v->grants;
    const double *target = (double *)s->target, *room = (double *)s->room, *weight = (const double *)v->weight;
    const i64 lanes = sizeof(Real) / sizeof(double);
    int32_t *row = s->ranking.row;
    if (n == 2) { /* one pair or none, whichever is higher */
        Truth first_above = v->grants[0] > s->target[0], first_below = v->grants[0] < s->target[0];
        Truth second_above = v->grants[1] > s->target[1], second_below = v->grants[1] < s->target[1];
        FORM(bring_two_together)(0, 1, first_above & second_below, d, v, s);
        FORM(bring_two_together)(1, 0, second_above & first_below, d, v, s);
        return;
    }
    if (MAX_ROWS > MAX_COUNTED && n > MAX_COUNTED) {
        Sides many = rank_many((double *)s->work, grants, target, n, &s->ranking);
        pair_up(row, many.uppers, row + many.uppers, many.lowers, d, grants, target, room, weight);
        return;
    }
    Count uppers = NEVER, lowers = NEVER;
    for (i64 i = 0; i < n; i++) {
        Truth above = v->grants[i] > s->target[i], below = v->grants[i] < s->target[i];
        s->rest[i] = EITHER(above, -s->work[i], EITHER(below, s->work[i], ALL(INFINITY)));
        uppers += COUNT(above);
        lowers += COUNT(below);
    }
    for (i64 j = 0; j < n; j++) { /* each row's place by its key: first the uppers, the highest first, then the lowers */
        Count place = NEVER;
        for (i64 i = 0; i < j; i++) {
            Truth before = s->rest[i] <= s->rest[j];
            place += COUNT(before);
            s->place[i] += COUNT(NOT(before));
        }
        s->place[j] = place;
    }
    for (i64 lane = 0; lane < lanes; lane++) {
        i64 upper = ((const i64 *)&uppers)[lane], lower = ((const i64 *)&lowers)[lane];
        for (i64 i = lane; i < n * lanes; i += lanes)
            row[((const i64 *)s->place)[i]] = (int32_t)i;
        pair_up(row, upper, row + upper, lower, d, grants, target, room, weight);
    }
}

INLINE void FORM(reallocate)(i64 n, double d, const FORM(Columns) *v, FORM(Scratch) *s)
{
    for (i64 i = 0; i < n; i++) {
        s->rest[i] = EITHER(s->full[i], v->grants[i], ALL(0.0));
        s->room[i] = EITHER(s->full[i], v->available[i], ALL(0.0));
    }
    Real mean = FORM(fill_level)(n, FORM(sum_of)(s->rest, n), v->weight, s->room); /* 2 */
    Truth unequal = NEVER;
    for (i64 i = 0; i < n; i++) { /* a row that does not fully use its rate is at its target */
        Real target = FORM(lesser)(mean * v->weight[i], s->room[i]);
        s->target[i] = target = EITHER(s->full[i], target, v->grants[i]);
        unequal |= MAGNITUDE(v->grants[i] - target) > EQUAL_WITHIN * target;
    }
    for (i64 i = 0; i < n; i++) {
        v->grants[i] = EITHER(unequal, v->grants[i], s->target[i]);
        s->work[i] = v->grants[i] / v->weight[i];
    }
    if (ANY(unequal))
        FORM(bring_together)(n, d, v, s);
}

INLINE void FORM(probe)(i64 n, Real limit, const FORM(Columns) *v, const double *parameters, FORM(Scratch) *s)
{
    double inflation = parameters[0], floor_part = parameters[1], headroom = parameters[2], d = parameters[3];
    FORM(slow_probe)(n, limit, v, inflation, floor_part, headroom, s);
    if (d > 0) /* 0 is RAA-SP */
        FORM(reallocate)(n, d, v, s);
    FORM(keep_settled)(n, limit, v, s);
}
