/* The messages between senders and receivers, compiled: the same bits as the numpy form of send_rate_controller.py and
 * rate_allocator.py, in one pass each. It is part of the measurement library. Columns are as in messages_native.py. */
#include "../metering/_measurement.h"

enum { IDLE, REPORTING, LIMITED }; /* MachineState */

#define C(number) column(columns, number)

FOR_EACH_CPU
static i64 count(i64 n, int16_t longest, const int8_t *restrict control, const int16_t *restrict unheard, int16_t *restrict after)
{
    int16_t lost = 0;
    for (i64 i = 0; i < n; i++) {
        int16_t more = (int16_t)(unheard[i] + (unheard[i] < INT16_MAX));
        after[i] = more;
        lost |= (int16_t)((control[i] != IDLE) & (more > longest));
    }
    return lost;
}

/* Count an interval; return whether a machine under control has waited longer than ``longest`` for a message. */
i64 dets_count(PyObject *columns, i64 longest)
{
    if (!side_by_side(columns, 3))
        return NOT_SIDE_BY_SIDE;
    return count(rows_of(columns, 0), (int16_t)longest, C(0), C(1), C(2));
}

/* watch_congestion; return whether the congested VNs are others than before. */
i64 dets_watch_congestion(PyObject *columns, double above, double calm_below, i64 calm_intervals)
{
    if (!side_by_side(columns, 8))
        return NOT_SIDE_BY_SIDE;
    const double *passed_bps = C(0), *smoothed_bps = C(1), *dropped_bps = C(2), *most_bps = C(3);
    const uint8_t *was = C(4);
    const i64 *calm_before = C(5);
    uint8_t *is = C(6);
    i64 *calm_after = C(7), vns = rows_of(columns, 0), changed = 0;
    for (i64 i = 0; i < vns; i++) {
        i64 exceeded = passed_bps[i] > above * most_bps[i]; /* 1 */
        i64 calm = !exceeded & !(dropped_bps[i] > 0.0) & (smoothed_bps[i] < calm_below * most_bps[i]); /* 2 */
        calm_after[i] = calm ? calm_before[i] + 1 : 0;
        is[i] = (uint8_t)(exceeded | (was[i] & (calm_after[i] < calm_intervals)));
        changed |= is[i] ^ was[i];
    }
    return changed;
}

/* Traffic Reports of the pairs ``rows``; what VNs send, ``sent_bps``, begins at zero and is summed up here. */
i64 dets_reports(PyObject *columns, i64 idle_intervals)
{
    if (!side_by_side(columns, 13))
        return NOT_SIDE_BY_SIDE;
    i64 n = rows_of(columns, 0), pairs = rows_of(columns, 1);
    const i64 *rows = C(0), *sender = C(1);
    const double *passed_bps = C(2), *smoothed_bps = C(3), *dropped_bps = C(4), *limit_bps = C(6), *send_limit_bps = C(7);
    const int16_t *silent = C(5);
    double *restrict sent_bps = C(8), *restrict measured_bps = C(9), *restrict available_bps = C(10);
    uint8_t *restrict drops = C(11), *restrict active = C(12);
    for (i64 i = 0; n && i < pairs; i++)
        sent_bps[sender[i]] += smoothed_bps[i];
    for (i64 i = 0; i < n; i++) {
        i64 row = rows[i], from = sender[row];
        double elsewhere = most(sent_bps[from] - smoothed_bps[row], 0.0);
        measured_bps[i] = least(most(passed_bps[row], smoothed_bps[row]), limit_bps[row]);
        available_bps[i] = most(send_limit_bps[from] - elsewhere, 0.0);
        drops[i] = dropped_bps[row] > 0.0;
        active[i] = silent[row] < idle_intervals;
    }
    return 0;
}

/* Part the pairs whose grants differ from their limits, with these grants, from the others, which come behind them; return how
 * many they are. */
i64 dets_answers(PyObject *columns, double same)
{
    if (!side_by_side(columns, 5))
        return NOT_SIDE_BY_SIDE;
    i64 n = rows_of(columns, 0), count = 0;
    const i64 *entry = C(0);
    const double *grant_bps = C(1), *limit_bps = C(2);
    i64 *parted = C(3);
    double *rate_bps = C(4);
    for (i64 i = 0; i < n; i++) { /* the others from the end on */
        double grant = grant_bps[i], limit = limit_bps[i];
        parted[count] = parted[n - 1 - (i - count)] = entry[i];
        rate_bps[count] = grant;
        count += fabs(grant - limit) > same * least(grant, limit);
    }
    reverse(parted + count, n - count);
    return count;
}

FOR_EACH_CPU
static void lower_of(i64 n, const double *restrict a, const double *restrict b, double *restrict to)
{
    for (i64 i = 0; i < n; i++)
        to[i] = least(a[i], b[i]);
}

/* Set Rate, then Keep Alive, and the effective rates. Where no rate is set, states and limits are the columns of before. Return
 * whether a machine has another state then. */
i64 dets_obey(PyObject *columns)
{
    if (!side_by_side(columns, 11))
        return NOT_SIDE_BY_SIDE;
    i64 n = rows_of(columns, 0), rates = rows_of(columns, 3), alive = rows_of(columns, 5), moved = 0;
    const i64 *set_row = C(3), *alive_row = C(5);
    const double *rate_bps = C(4);
    int8_t *control = C(7);
    double *limit_bps = C(8);
    int16_t *unheard = C(9);
    if (rates) {
        memcpy(control, C(0), (size_t)n);
        memcpy(limit_bps, C(1), (size_t)n * sizeof *limit_bps);
    }
    memcpy(unheard, C(2), (size_t)n * sizeof *unheard);
    for (i64 i = 0; i < rates; i++) {
        i64 row = set_row[i];
        if (control[row] == IDLE)
            continue;
        moved |= control[row] != LIMITED;
        control[row] = LIMITED;
        limit_bps[row] = rate_bps[i];
        unheard[row] = 0;
    }
    for (i64 i = 0; i < alive; i++)
        unheard[alive_row[i]] = 0;
    lower_of(n, limit_bps, C(6), C(10));
    return moved;
}
