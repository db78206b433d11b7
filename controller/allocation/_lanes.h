/* RAA-FS, SP, FP and Fair Level for several receivers of equally many rows at once: a lane each.
 *
 * A receiver with few rows costs more for its sums, divisions and loop ends than for its rows. Four of them, side by side
 * in vectors, share that. Row i of column c of the four is one vector, so that each lane does what the scalar code does,
 * in its order.
 */
#include "_kernel.h"

#define MOST_ROWS 32

typedef struct {
    Lanes weight[MOST_ROWS], room[MOST_ROWS], rest[MOST_ROWS], work[MOST_ROWS], other[MOST_ROWS], grant[MOST_ROWS],
        in_force[MOST_ROWS], target[MOST_ROWS], available[MOST_ROWS], measured[MOST_ROWS];
    Mask full[MOST_ROWS], active[MOST_ROWS], place[MOST_ROWS];
} Batch;

INLINE Lanes lanes_sum(const Lanes *a, i64 n) /* sum_of, of each lane */
{
    if (n == 0)
        return EVERY(0.0);
    const Lanes *b = a + 1;
    Lanes sum = EVERY(-0.0);
    i64 i = 0, m = n - 1;
    if (m >= 8) {
        Lanes r[8];
        for (int j = 0; j < 8; j++)
            r[j] = b[j];
        for (i = 8; i < m - (m % 8); i += 8)
            for (int j = 0; j < 8; j++)
                r[j] += b[i + j];
        sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
    }
    for (; i < m; i++)
        sum += b[i];
    return a[0] + sum;
}

INLINE Lanes lanes_quotient(Lanes x, Lanes y) { return AND(y > 0, x / y); } /* 0 where y is not above 0 */

INLINE Lanes lanes_fill_level(i64 n, Lanes amount, const Lanes *weight, const Lanes *room, Batch *b)
{
    Mask finite = lanes_sum(room, n) > amount;
    for (Lanes guess = EVERY(0.0);;) { /* 1 */
        for (i64 i = 0; i < n; i++) {
            Mask held = room[i] <= weight[i] * guess;
            b->work[i] = AND(held, room[i]);
            b->other[i] = AND(~held, weight[i]);
        }
        Lanes better = lanes_quotient(amount - lanes_sum(b->work, n), lanes_sum(b->other, n)); /* 2 */
        Mask rising = (better > guess) & finite;
        if (!ANY(rising))
            return CHOSEN(finite, guess, EVERY(INFINITY));
        guess = CHOSEN(rising, better, guess); /* 3 */
    }
}

INLINE void lanes_fair_share(i64 n, const i64 *at, Lanes limit, const double *available, const double *weight,
                             const uint8_t *active, double *grants, Batch *b)
{
    for (i64 i = 0; i < n; i++) {
        b->weight[i] = LOADED(weight, at, i);
        b->room[i] = AND(ACTIVE(active, at, i), LOADED(available, at, i));
    }
    Lanes level = lanes_fill_level(n, limit, b->weight, b->room, b);
    for (i64 i = 0; i < n; i++) {
        Lanes share = level * b->weight[i], grant = LESSER(share, b->room[i]);
        for (int l = 0; l < LANES; l++)
            grants[at[l] + i] = grant[l];
    }
}

INLINE void lanes_fair_level(i64 n, const i64 *at, Lanes shared, const Columns *c, Batch *b)
{
    Lanes highest = EVERY(0.0);
    for (i64 i = 0; i < n; i++) {
        Lanes measured = LOADED(c->measured, at, i), granted = LOADED(c->granted, at, i);
        Lanes dropped = LOADED(c->dropped, at, i);
        Mask active = ACTIVE(c->active, at, i);
        Mask full = (measured >= FULL_USE * granted) | (dropped > 0) | (granted == EVERY(INFINITY));
        b->weight[i] = LOADED(c->weight, at, i);
        b->in_force[i] = AND(active, b->weight[i]);
        b->room[i] = AND(active, LOADED(c->available, at, i));
        b->rest[i] = CHOSEN(full | (measured > b->room[i]), b->room[i], measured); /* 1 */
        Lanes rate = b->rest[i] / b->weight[i];
        highest = GREATER(highest, rate);
    }
    Lanes level = lanes_fill_level(n, shared, b->weight, b->rest, b); /* 3 */
    Lanes over = shared - lanes_sum(b->rest, n);
    Lanes fitting = highest + lanes_quotient(AND(over > 0, over), lanes_sum(b->in_force, n));
    level = CHOSEN(level == EVERY(INFINITY), fitting, level); /* 5 */
    for (i64 i = 0; i < n; i++) {
        Lanes share = level * b->weight[i], grant = LESSER(share, b->room[i]); /* 4 */
        for (int l = 0; l < LANES; l++)
            c->grants[at[l] + i] = grant[l];
    }
}

/* ---- RAA-SP and RAA-FP ---- */

INLINE void lanes_slow_probe(i64 n, const i64 *at, Lanes limit, const Columns *c, double inflation, double floor_part,
                             double headroom, Batch *b)
{
    double inflated = 1.0 + inflation;
    Lanes *wanted = b->rest, *room = b->room;
    for (i64 i = 0; i < n; i++) {
        Lanes measured = LOADED(c->measured, at, i), granted = LOADED(c->granted, at, i);
        Lanes available = LOADED(c->available, at, i), dropped = LOADED(c->dropped, at, i);
        Mask active = ACTIVE(c->active, at, i), unlimited = granted == EVERY(INFINITY);
        Mask full = ((measured >= FULL_USE * granted) | (dropped > 0) | unlimited) & active;
        b->weight[i] = LOADED(c->weight, at, i);
        b->work[i] = AND(active, b->weight[i]);
        b->active[i] = active;
        b->full[i] = full;
        room[i] = AND(active, available);
        b->in_force[i] = AND(active, granted);
        b->available[i] = available;
        b->measured[i] = measured;
        wanted[i] = CHOSEN(full, CHOSEN(unlimited, measured, granted) * inflated, measured); /* 1 */
    }
    Lanes share = lanes_quotient(limit, lanes_sum(b->work, n)), least = floor_part * share;
    for (i64 i = 0; i < n; i++) {
        Lanes lowest = least * b->weight[i];
        wanted[i] = AND(b->active[i], GREATER(wanted[i], lowest));
    }
    Lanes ratio = lanes_quotient(limit, lanes_sum(wanted, n)); /* 2, 3 */
    if (headroom > 0) {
        double near = 1.0 + 2.0 * headroom, above = 1.0 + headroom;
        Mask some_full = b->full[0] ^ b->full[0];
        for (i64 i = 0; i < n; i++)
            some_full |= b->full[i];
        for (i64 i = 0; i < n; i++) {
            Lanes measured = b->measured[i], granted = b->in_force[i];
            Lanes keep = CHOSEN(measured * near >= granted, granted, measured * above);
            keep = GREATER(keep, wanted[i]);
            Mask kept = b->active[i] & ~b->full[i] & (keep <= share * b->weight[i]) & some_full;
            b->target[i] = AND(kept, LESSER(keep, room[i]));
            b->other[i] = AND(~kept, wanted[i]);
        }
        ratio = lanes_quotient(limit - lanes_sum(b->target, n), lanes_sum(b->other, n));
        for (i64 i = 0; i < n; i++)
            b->work[i] = CHOSEN(b->target[i] > 0, b->target[i], b->other[i] * ratio);
    } else
        for (i64 i = 0; i < n; i++)
            b->work[i] = wanted[i] * ratio;
    for (i64 i = 0; i < n; i++) {
        b->grant[i] = LESSER(b->work[i], room[i]); /* 4 */
        b->rest[i] = room[i] - b->grant[i];
    }
    Lanes extra = limit - lanes_sum(b->grant, n);
    Lanes level = lanes_fill_level(n, AND(extra > 0, extra), b->weight, b->rest, b);
    for (i64 i = 0; i < n; i++) {
        Lanes more = level * b->weight[i];
        b->grant[i] += LESSER(more, b->rest[i]);
    }
}

INLINE void lanes_keep_settled(i64 n, const i64 *at, Lanes limit, double *grants, Batch *b)
{
    Mask moved = lanes_sum(b->in_force, n) > limit;
    for (i64 i = 0; i < n; i++) {
        Lanes apart = b->grant[i] - b->in_force[i];
        apart = GREATER(apart, -apart);
        moved |= (apart > SETTLED * b->grant[i]) | (b->in_force[i] > b->available[i]);
    }
    for (i64 i = 0; i < n; i++) {
        Lanes grant = CHOSEN(moved, b->grant[i], b->in_force[i]);
        for (int l = 0; l < LANES; l++)
            grants[at[l] + i] = grant[l];
    }
}

INLINE void lanes_reallocate(i64 n, double d, Batch *b)
{
    for (i64 i = 0; i < n; i++) {
        b->rest[i] = AND(b->full[i], b->grant[i]);
        b->room[i] = AND(b->full[i], b->room[i]);
    }
    Lanes mean = lanes_fill_level(n, lanes_sum(b->rest, n), b->weight, b->room, b); /* 2 */
    Mask unequal = b->full[0] ^ b->full[0];
    for (i64 i = 0; i < n; i++) {
        Lanes share = mean * b->weight[i];
        b->target[i] = LESSER(share, b->room[i]);
        Lanes apart = b->grant[i] - b->target[i];
        unequal |= b->full[i] & (GREATER(apart, -apart) > EQUAL_WITHIN * b->target[i]);
    }
    Mask uppers = unequal ^ unequal, lowers = uppers;
    for (i64 i = 0; i < n; i++) {
        Mask above = unequal & b->full[i] & (b->grant[i] > b->target[i]);
        Mask below = unequal & b->full[i] & (b->grant[i] < b->target[i]);
        Lanes rate = b->grant[i] / b->weight[i];
        b->grant[i] = CHOSEN(b->full[i] & ~unequal, b->target[i], b->grant[i]);
        b->rest[i] = CHOSEN(above, -rate, CHOSEN(below, rate, EVERY(INFINITY)));
        b->place[i] = uppers ^ uppers;
        uppers -= above;
        lowers -= below;
    }
    if (!ANY(uppers))
        return;
    /* All by their key, stably: first the uppers, whose keys are negative, the highest first, then the lowers. */
    for (i64 j = 1; j < n; j++) {
        Lanes key = b->rest[j];
        Mask place = b->place[j];
        for (i64 i = 0; i < j; i++) {
            Mask after = b->rest[i] <= key;
            place -= after;
            b->place[i] -= ~after;
        }
        b->place[j] = place;
    }
    int32_t row[LANES][MOST_ROWS];
    for (i64 i = 0; i < n; i++)
        for (int l = 0; l < LANES; l++)
            row[l][b->place[i][l]] = (int32_t)(i * LANES + l);
    for (int l = 0; l < LANES; l++)
        pair_up(row[l], uppers[l], row[l] + uppers[l], lowers[l], d, (double *)b->grant, (const double *)b->target,
                (const double *)b->room, (const double *)b->weight); /* 3 */
}
