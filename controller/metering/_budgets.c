/* The accounts of VNs, compiled, with the same bits as the numpy form: what came to them and what may come, in one pass over the
 * slots each (receive_budgets.py), and what they get of what they were promised (guarantees.py). */
#include "_measurement.h"

enum { MAX_SLOTS = 64 };

typedef struct { /* receive_budgets.py fills it in this order */
    double most_allowed, allowed_pressed, pressed, excess_s, excess, window_s, saved_s, slot_s, dip, idle, dip_slots, uneven_s;
} Settings;

/* Steps 7 and 8: when senders were last pressed and what VNs received above their limits; ``allowed`` is how much of its limit a
 * window may bring to a VN. */
FOR_EACH_CPU
static void allow(i64 vns, double now_s, double elapsed_s, const Settings *s, const double *restrict received_bits,
                  const double *restrict dropped_bps, const double *restrict counted_bps, const double *restrict limit_bps,
                  const double *restrict pressed_before, const double *restrict excess_before, double *restrict pressed_s,
                  double *restrict excess_bits, double *restrict allowed)
{
    const Settings set = *s;
    for (i64 i = 0; i < vns; i++) {
        double pressed = dropped_bps[i] > set.pressed * limit_bps[i] ? now_s : pressed_before[i];
        double excess = excess_before[i] + received_bits[i] - counted_bps[i] * elapsed_s; /* 8 */
        excess = least(most(excess, 0.0), set.excess_s * counted_bps[i]);
        double part = set.most_allowed - set.excess / set.excess_s * excess / most(counted_bps[i], 1.0);
        allowed[i] = least(part, now_s - pressed <= set.window_s ? set.allowed_pressed : set.most_allowed); /* 7 */
        pressed_s[i] = pressed;
        excess_bits[i] = excess;
    }
}

/* ``slots`` (count, vns), newest first; ``since_s`` (count,) is their age; ``allowed`` (vns,) is as above. The first ``later`` of
 * them are still in the window after the horizon: ``free_bits`` (later + 1, vns) has what they leave at the horizon, and then what
 * each does when it leaves the window, at ``ahead_s``. */
FOR_EACH_CPU
static void rooms(i64 vns, i64 count, i64 later, const Settings *s, const double *restrict slots,
                const double *restrict since_s, const double *restrict ahead_s, const double *restrict limit_bps,
                const double *restrict allowed,
                double *restrict free_bits, double *restrict saved_bits, double *restrict lasting_bits)
{
    const double horizon_s = ahead_s[0];
    for (i64 first = 0; first < vns; first += BLOCK) {
        i64 n = block_end(first, vns) - first;
        const double *limit = limit_bps + first, *part = allowed + first;
        double above[BLOCK], highest[BLOCK], lasting[BLOCK];
        i64 waits[BLOCK] = {0}, dipped[BLOCK] = {0};
        for (i64 i = 0; i < n; i++)
            lasting[i] = (double)INFINITY;
        for (i64 slot = 0; slot < count; slot++) {
            const double *bits = slots + slot * vns + first;
            for (i64 i = 0; i < n; i++)
                above[i] = slot ? bits[i] + above[i] : bits[i];
            for (i64 i = 0; i < n; i++)
                highest[i] = slot ? most(above[i], highest[i]) : above[i];
            double newer_s = slot ? since_s[slot - 1] : 0.0, lasted_s = since_s[slot] - newer_s;
            i64 recent = (slot < (i64)s->dip_slots) & (lasted_s > 0.0), wait = (i64)s->dip_slots - 1;
            for (i64 i = 0; i < n; i++) {
                dipped[i] |= (waits[i] > 0) & (bits[i] > -(s->idle * limit[i] * lasted_s));
                i64 low = recent & (bits[i] < -(s->dip * limit[i] * lasted_s)), fewer = waits[i] > 0 ? waits[i] - 1 : 0;
                waits[i] = low ? wait : fewer;
            }
            if (slot >= later)
                continue;
            /* When the slot has left; of the last one also at the horizon. */
            double *left = free_bits + (slot + 1) * vns + first, *freed[] = {left, free_bits + first};
            double at_s[] = {ahead_s[slot + 1], horizon_s};
            for (int at = 0; at < (slot == later - 1 ? 2 : 1); at++) {
                double stays_s = least(lasted_s, s->window_s - at_s[at] - newer_s + s->uneven_s);
                double gone = lasted_s > 0.0 ? 1.0 - stays_s / lasted_s : 0.0;
                for (i64 i = 0; i < n; i++) {
                    double in_window_bits = (above[i] + limit[i] * since_s[slot]) - gone * (bits[i] + limit[i] * lasted_s);
                    freed[at][i] = part[i] * limit[i] * s->window_s - in_window_bits;
                }
            }
            double after_s = ahead_s[slot + 1] - horizon_s;
            for (i64 i = 0; i < n; i++)
                lasting[i] = least(left[i] - limit[i] * after_s, lasting[i]);
        }
        const double *last = free_bits + first;
        for (i64 i = 0; i < n; i++) {
            saved_bits[first + i] = s->saved_s * limit[i] - most(highest[i], 0.0);
            lasting[i] = least(last[i], lasting[i]) - most(part[i] - s->allowed_pressed, 0.0) * limit[i] * s->window_s;
            lasting_bits[first + i] = dipped[i] ? last[i] : lasting[i];
        }
    }
}

/* Write what VNs received over ``elapsed_s``, above their limits, into the newest slot of their accounts, or into a new one. Of a
 * time longer than the window, the part within the window counts, as if all came evenly. */
FOR_EACH_CPU
static void account(i64 vns, i64 count, double elapsed_s, double window_s, i64 begins, const double *restrict received_bits,
                  const double *restrict limit_bps, const double *restrict before, double *restrict after)
{
    if (begins)
        memcpy(after + vns, before, (size_t)((count - 1) * vns) * sizeof *after);
    else
        memcpy(after, before, (size_t)(count * vns) * sizeof *after);
    double in_window = window_s / most(elapsed_s, window_s), lasted_s = least(elapsed_s, window_s);
    for (i64 i = 0; i < vns; i++) {
        double above = received_bits[i] * in_window - limit_bps[i] * lasted_s;
        after[i] = begins ? above : before[i] + above;
    }
}

/* The ages of ``count`` slots; those that are as good as empty count as the oldest of the others. When they have left the window
 * goes to ``ahead_s``, behind the horizon, for those that are still there then; return how many these are. */
static i64 ages(i64 count, const Settings *s, double updated_s, const double *start_s, double horizon_s, double *since_s,
                double *ahead_s)
{
    double oldest_s = 0.0, gone_s = s->window_s;
    for (i64 i = 0; i < count; i++) {
        since_s[i] = updated_s - start_s[i];
        if (since_s[i] <= 2.0 * s->window_s && since_s[i] > oldest_s)
            oldest_s = since_s[i];
    }
    i64 later = 0;
    ahead_s[0] = horizon_s;
    for (i64 i = 0; i < count; i++) {
        since_s[i] = since_s[i] > 2.0 * s->window_s ? oldest_s : since_s[i];
        if (gone_s > horizon_s)
            later++;
        ahead_s[i + 1] = gone_s;
        gone_s = s->window_s - since_s[i];
    }
    return later;
}

/* ``ReceiveBudgets.received``: the budgets after an interval and what they leave. Return how many times there are behind the
 * horizon. */
int64_t dets_receive(PyObject *columns, double now_s, double horizon_s)
{
    if (!side_by_side(columns, 19))
        return NOT_SIDE_BY_SIDE;
    const Settings *s = column(columns, 0);
    const double *received_bits = column(columns, 1), *dropped_bps = column(columns, 2);
    const double *counted_bps = column(columns, 3), *limit_bps = column(columns, 4);
    i64 vns = rows_of(columns, 1), count = rows_of(columns, 6);
    const double *start_s = column(columns, 6);
    double updated_s = *(const double *)column(columns, 7), since_s[MAX_SLOTS];
    double *slots = column(columns, 10), *starts_s = column(columns, 11), *allowed = column(columns, 14);
    allow(vns, now_s, now_s - updated_s, s, received_bits, dropped_bps, counted_bps, limit_bps, column(columns, 8),
          column(columns, 9), column(columns, 12), column(columns, 13), allowed);
    i64 begins = !(updated_s < start_s[0] + s->slot_s);
    memcpy(starts_s + begins, start_s, (size_t)(count - begins) * sizeof *starts_s);
    if (begins)
        starts_s[0] = most(updated_s, now_s - s->window_s);
    account(vns, count, now_s - updated_s, s->window_s, begins, received_bits, counted_bps, column(columns, 5), slots);
    i64 later = ages(count, s, now_s, starts_s, horizon_s, since_s, column(columns, 15));
    rooms(vns, count, later, s, slots, since_s, column(columns, 15), limit_bps, allowed, column(columns, 16),
          column(columns, 17), column(columns, 18));
    return later;
}

/* How VNs fare by what they are owed: ``Guarantees.after``. Return whether another VN misses what it was promised than before. */
typedef struct { /* guarantees.py fills it in this order */
    double missed_below, met_above, least_owed_bps;
} Promise;

FOR_EACH_CPU
static i64 fare(i64 vns, double share, const Promise *promise, const double *restrict offered,
                const double *restrict got, const double *restrict limit, const double *restrict owed_before,
                const double *restrict got_before, const uint8_t *restrict was_missing, const i64 *restrict missed_before,
                double *restrict owed, double *restrict received, uint8_t *restrict missing, i64 *restrict missed)
{
    double missed_below = promise->missed_below, met_above = promise->met_above, least_owed = promise->least_owed_bps;
    i64 state[BLOCK], changed = 0;
    for (i64 first = 0, end; first < vns; first = end) {
        end = block_end(first, vns);
        widen(state, was_missing + first, end - first);
        for (i64 i = first; i < end; i++) {
            double wants = (offered[i] < limit[i]) | (offered[i] != offered[i]) ? offered[i] : limit[i];
            double entitled_bps = owed_before[i] + share * (wants - owed_before[i]);
            double received_bps = got_before[i] + share * (got[i] - got_before[i]);
            i64 was = state[i - first];
            i64 is = (received_bps < (was ? met_above : missed_below) * entitled_bps) & (entitled_bps >= least_owed);
            owed[i] = entitled_bps;
            received[i] = received_bps;
            missed[i] = missed_before[i] + is;
            changed |= is ^ was;
            state[i - first] = is;
        }
        narrow(missing + first, state, end - first);
    }
    return changed;
}

int64_t dets_fare(PyObject *columns, double share)
{
    if (!side_by_side(columns, 12))
        return NOT_SIDE_BY_SIDE;
    return fare(rows_of(columns, 1), share, column(columns, 0), column(columns, 1), column(columns, 2), column(columns, 3),
                column(columns, 4), column(columns, 5), column(columns, 6), column(columns, 7), column(columns, 8),
                column(columns, 9), column(columns, 10), column(columns, 11));
}
