/* The machines of senders and the messages between them and the allocators, compiled: the same bits as the numpy form of
 * send_rate_controller.py and rate_allocator.py, in one pass each. Calling numpy ten times for a column of a thousand
 * costs more than what is done to it.
 */
#include "../_module.h"
#include "../metering/_measure.h"

enum { IDLE, REPORTING, LIMITED }; /* Control */

#define C(number) column(columns, number)

FOR_EACH_CPU
static i64 count(i64 n, i64 longest, const int8_t *restrict control, const int16_t *restrict unheard,
                 int16_t *restrict after)
{
    int16_t lost = 0, longest_wait = (int16_t)longest;
    for (i64 i = 0; i < n; i++) {
        int16_t more = (int16_t)(unheard[i] + (unheard[i] < INT16_MAX));
        after[i] = more;
        lost |= (int16_t)((control[i] != IDLE) & (more > longest_wait));
    }
    return lost;
}

/* Count an interval in which no machine was heard; return whether one under control has waited longer than ``longest``. */
i64 dets_count(PyObject *columns, i64 longest)
{
    if (!side_by_side(columns, 3))
        return NOT_SIDE_BY_SIDE;
    return count(rows_of(columns, 0), longest, C(0), C(1), C(2));
}

FOR_EACH_CPU
static i64 watch(i64 vns, double above, double calm_below, i64 calm_intervals, const double *restrict passed,
                 const double *restrict smoothed, const double *restrict dropped, const double *restrict most_bps,
                 const uint8_t *restrict before, const i64 *restrict calm_before, uint8_t *restrict after,
                 i64 *restrict calm_after)
{
    i64 changed = 0, state[BLOCK];
    for (i64 first = 0, end; first < vns; first = end) {
        end = block_end(first, vns);
        widen(state, before + first, end - first);
        for (i64 i = first; i < end; i++) {
            i64 was = state[i - first], exceeded = passed[i] > above * most_bps[i]; /* 1 */
            i64 calm = !exceeded & !(dropped[i] > 0.0) & (smoothed[i] < calm_below * most_bps[i]); /* 2 */
            i64 calm_for = calm ? calm_before[i] + 1 : 0, is = exceeded | (was & (calm_for < calm_intervals));
            calm_after[i] = calm_for;
            changed |= is ^ was;
            state[i - first] = is;
        }
        narrow(after + first, state, end - first);
    }
    return changed;
}

/* What watch_congestion declares; return whether a VN is congested that was not, or the other way round. */
i64 dets_watch_congestion(PyObject *columns, double above, double calm_below, i64 calm_intervals)
{
    if (!side_by_side(columns, 8))
        return NOT_SIDE_BY_SIDE;
    return watch(rows_of(columns, 0), above, calm_below, calm_intervals, C(0), C(1), C(2), C(3), C(4), C(5), C(6), C(7));
}

/* How many entries' control begins, and how many's ends: ``counts``. */
i64 dets_count_first(PyObject *columns)
{
    if (!side_by_side(columns, 5))
        return NOT_SIDE_BY_SIDE;
    i64 n = rows_of(columns, 0), beginning = 0, ending = 0;
    const i64 *receiver = C(0);
    const uint8_t *controlled = C(1), *congested = C(2), *always = C(3);
    i64 *counts = C(4);
    for (i64 i = 0; i < n;) {
        i64 r = receiver[i], wanted = congested[r] | always[r], first = i, is = 0;
        do
            is += controlled[i];
        while (++i < n && receiver[i] == r);
        beginning += wanted ? i - first - is : 0;
        ending += wanted ? 0 : is;
    }
    counts[0] = beginning;
    counts[1] = ending;
    return 0;
}

/* Whose control begins and whose ends, of ``controlled`` entries and others. The columns written to have room for one more row
 * each. */
i64 dets_first_messages(PyObject *columns)
{
    if (!side_by_side(columns, 6))
        return NOT_SIDE_BY_SIDE;
    i64 n = rows_of(columns, 0), beginning = 0, ending = 0;
    const i64 *receiver = C(0);
    const uint8_t *controlled = C(1), *congested = C(2), *always = C(3);
    i64 *begin = C(4), *end = C(5);
    for (i64 i = 0; i < n; i++) {
        i64 wanted = congested[receiver[i]] | always[receiver[i]], is = controlled[i];
        begin[beginning] = end[ending] = i;
        beginning += wanted & !is;
        ending += is & !wanted;
    }
    return 0;
}

/* What traffic_reports says of the entries ``rows``; ``to`` is measured and available rates, one column after the other, and ``flags``
 * whose meter drops and who is active. What
 * VNs send, ``sent_bps``, is zeros, and summed up here. */
static void reports(i64 n, i64 entries, i64 idle_intervals, const i64 *rows, const i64 *sender, const double *passed_bps,
                    const double *smoothed_bps, const double *dropped_bps, const int16_t *silent, const double *limit_bps,
                    const double *send_limit_bps, double *restrict sent_bps, double *restrict to,
                    uint8_t *restrict flags)
{
    for (i64 i = 0; i < entries; i++)
        sent_bps[sender[i]] += smoothed_bps[i];
    for (i64 i = 0; i < n; i++) {
        i64 row = rows[i], from = sender[row];
        double passed = passed_bps[row], smoothed = smoothed_bps[row], limit = limit_bps[row];
        double measured = passed > smoothed ? passed : smoothed;
        double elsewhere = sent_bps[from] - smoothed;
        double available = send_limit_bps[from] - (elsewhere > 0.0 ? elsewhere : 0.0);
        to[i] = measured < limit ? measured : limit;
        to[n + i] = available > 0.0 ? available : 0.0;
        flags[i] = dropped_bps[row] > 0.0;
        flags[n + i] = silent[row] < idle_intervals;
    }
}

i64 dets_reports(PyObject *columns, i64 idle_intervals)
{
    if (!side_by_side(columns, 11))
        return NOT_SIDE_BY_SIDE;
    i64 n = rows_of(columns, 0);
    if (n)
        reports(n, rows_of(columns, 1), idle_intervals, C(0), C(1), C(2), C(3), C(4), C(5), C(6), C(7), C(8), C(9), C(10));
    return 0;
}

/* Part entries whose grant is another than the limit, with their grants, from the others, which stand behind them; return how
 * many they are. */
i64 dets_changed(PyObject *columns, double same)
{
    if (!side_by_side(columns, 5))
        return NOT_SIDE_BY_SIDE;
    i64 n = rows_of(columns, 0), count = 0;
    const i64 *entry = C(0);
    const double *grant_bps = C(1), *limit_bps = C(2);
    i64 *moved = C(3);
    double *rate_bps = C(4);
    for (i64 i = 0; i < n; i++) { /* those that stay from the end on */
        double grant = grant_bps[i], limit = limit_bps[i];
        moved[count] = moved[n - 1 - (i - count)] = entry[i];
        rate_bps[count] = grant;
        count += fabs(grant - limit) > same * (grant < limit ? grant : limit);
    }
    reverse(moved + count, n - count);
    return count;
}

FOR_EACH_CPU
static void least_of(i64 n, const double *restrict a, const double *restrict b, double *restrict to)
{
    for (i64 i = 0; i < n; i++)
        to[i] = least(a[i], b[i]);
}

/* Set Rate, then Keep Alive, and what is in force: the limit, or the ceiling if that is lower. Where no rate is set, states and
 * limits are the columns of before. Return whether a machine is in another state then. */
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
    least_of(n, limit_bps, C(6), C(10));
    return moved;
}

PASS(dets_count, WHOLE(1))
PASS(dets_watch_congestion, REAL(1), REAL(2), WHOLE(3))
PASS(dets_count_first)
PASS(dets_first_messages)
PASS(dets_reports, WHOLE(1))
PASS(dets_changed, REAL(1))
PASS(dets_obey)
MODULE(_machines, OF(dets_count), OF(dets_watch_congestion), OF(dets_count_first), OF(dets_first_messages), OF(dets_reports),
       OF(dets_changed), OF(dets_obey))
