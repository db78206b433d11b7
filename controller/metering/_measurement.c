/* Measuring, compiled: sums by VN, where meters are listed, whether they count, and messages, in one pass over the entries each.
 *
 * The same bits as the numpy form: each function does its arithmetic in its order, and -ffp-contract=off keeps the compiler
 * from fusing. The docstrings of the numpy form explain the steps; here they are only numbered. Unknown is NaN, for which
 * every comparison is false, as in numpy.
 */
#include "../_module.h"
#include "../openflow/_meter_stats.h"
#include "_measurement.h"

/* The next meters whose rates and bursts, which lie apart, are looked at. */
enum { METERS_AHEAD = 16 };

/* Add what the n meters of one switch counted since its last reading to its window; unavailable counts as 0. A meter that counts
 * less than before was modified and began again: it may pass what it is set to now as well, which nobody knows of a meter
 * without a row (UINT32_MAX). What one has let in that dropped some is NaN. Return whether any meter has counted, or -1 if these
 * are other meters: then the window begins again, whatever has been added to it. */
static i64 watch(i64 n, const MeterStats *stats, const int32_t *rows, const uint32_t *meter_id, double *was_in,
                 double *was_dropped, double *in_sum, uint32_t *most_kbps, uint32_t *most_kbits,
                 const uint32_t *rate_kbps, const uint32_t *burst_kbits)
{
    int same = 1;
    uint64_t counted = 0;
    for (i64 i = 0; i < n; i++) {
        i64 ahead = i + METERS_AHEAD < n ? i + METERS_AHEAD : i;
        if (rows[ahead] >= 0 && (double)stats[ahead].byte_in_count < was_in[ahead]) {
            AHEAD(&rate_kbps[rows[ahead]]);
            AHEAD(&burst_kbits[rows[ahead]]);
        }
        same &= stats[i].meter_id == meter_id[i];
        double in = stats[i].byte_in_count == UINT64_MAX ? 0.0 : (double)stats[i].byte_in_count;
        double dropped = stats[i].band_byte_count == UINT64_MAX ? 0.0 : (double)stats[i].band_byte_count;
        int again = (in < was_in[i]) | (dropped < was_dropped[i]);
        double passed = in_sum[i] + (in - (again ? 0.0 : was_in[i]));
        in_sum[i] = dropped > (again ? 0.0 : was_dropped[i]) ? (double)NAN : passed;
        was_in[i] = in;
        was_dropped[i] = dropped;
        counted |= stats[i].byte_in_count;
        if (again) {
            uint32_t now_kbps = rows[i] < 0 ? UINT32_MAX : rate_kbps[rows[i]];
            uint32_t now_kbits = rows[i] < 0 ? UINT32_MAX : burst_kbits[rows[i]], room = UINT32_MAX - most_kbits[i];
            most_kbps[i] = now_kbps > most_kbps[i] ? now_kbps : most_kbps[i];
            most_kbits[i] += now_kbits < room ? now_kbits : room;
        }
    }
    return same ? counted != 0 : -1;
}

/* ``watch`` for one switch after the other; the meters of switch s end at ``ends[s]``. Its window is three columns, of meter
 * ids, of three and of two rows of meters, behind the first COLUMNS_OF_WATCH. ``found`` is what ``watch`` returns. */
enum { COLUMNS_OF_WATCH = 6, COLUMNS_OF_WINDOW = 3 };
i64 dets_watch(PyObject *columns)
{
    i64 switches = rows_of(columns, 0);
    if (!side_by_side(columns, COLUMNS_OF_WATCH + COLUMNS_OF_WINDOW * switches))
        return NOT_SIDE_BY_SIDE;
    const i64 *ends = column(columns, 0);
    const MeterStats *stats = column(columns, 1);
    const int32_t *rows = column(columns, 2);
    const uint32_t *rate_kbps = column(columns, 3), *burst_kbits = column(columns, 4);
    i64 *found = column(columns, 5);
    for (i64 s = 0, start = 0; s < switches; start = ends[s++]) {
        i64 n = ends[s] - start;
        int window = COLUMNS_OF_WATCH + COLUMNS_OF_WINDOW * (int)s;
        double *counts = column(columns, window + 1);
        uint32_t *most = column(columns, window + 2);
        found[s] = n != rows_of(columns, window)
                       ? -1
                       : watch(n, stats + start, rows + start, column(columns, window), counts, counts + n, counts + 2 * n,
                               most, most + n, rate_kbps, burst_kbits);
    }
    return 0;
}

/* taken_bits, summed up by receiver into ``sums`` (vns,), which begins at zero. */
static void taken(i64 n, double now_s, double step_bps, const uint32_t *rate, const double *modified_s, const double *updated_s,
                const double *passed_bps, const double *dropped_bps, const double *seen_s, const i64 *receiver,
                double *sums)
{
    for (i64 i = 0; i < n; i++) {
        double unseen_s = modified_s[i] >= updated_s[i] ? now_s - updated_s[i] - seen_s[i] : 0.0;
        double unseen_bps = least(passed_bps[i], dropped_bps[i] > 0.0 ? rate[i] * step_bps : (double)INFINITY);
        double bits = passed_bps[i] * seen_s[i] + unseen_bps * most(unseen_s, 0.0);
        sums[receiver[i]] += seen_s[i] == seen_s[i] ? bits : 0.0;
    }
}

#define C(number) column(columns, number)

/* Where the meter of each row is listed, and by which switch, whose meters end at ``ends``; rows that no meter stands for stay as
 * they are. Return how many meters were placed: all, or those before one of a row that is not there. */
i64 dets_places(PyObject *columns)
{
    if (!side_by_side(columns, 4))
        return NOT_SIDE_BY_SIDE;
    i64 switches = rows_of(columns, 0), rows = rows_of(columns, 2), i = 0;
    const i64 *ends = C(0);
    const int32_t *row = C(1);
    int32_t *meter = C(2), *switch_of = C(3);
    for (i64 s = 0; s < switches; s++)
        for (; i < ends[s]; i++) {
            if (row[i] < 0)
                continue;
            if (row[i] >= rows)
                return i;
            meter[row[i]] = (int32_t)i;
            switch_of[row[i]] = (int32_t)s;
        }
    return i;
}

/* Columns of n rows summed up by ``row``, one after the other: the ``rows`` sums of each stand behind those of the one before it.
 * The sums of several, in the order of their rows, stay in registers while the row is the same. */
INLINE void sum_up(i64 n, i64 rows, const i64 *row, double *sums, const double *const *from, int count)
{
    for (i64 i = 0; i < n;) {
        i64 r = row[i];
        double sum[4];
        for (int c = 0; c < count; c++)
            sum[c] = sums[c * rows + r];
        do
            for (int c = 0; c < count; c++)
                sum[c] += from[c][i];
        while (++i < n && row[i] == r);
        for (int c = 0; c < count; c++)
            sums[c * rows + r] = sum[c];
    }
}

i64 dets_sums(PyObject *columns)
{
    i64 n = rows_of(columns, 0), count = rows_of(columns, 1), rows = width_of(columns, 1);
    if (!side_by_side(columns, count + 2))
        return NOT_SIDE_BY_SIDE;
    double *sums = C(1);
    for (int c = 0; c < count; c++) {
        const double *from[] = {C(c + 2), c + 1 < count ? C(c + 3) : NULL, c + 2 < count ? C(c + 4) : NULL};
        if (from[2])
            sum_up(n, rows, C(0), sums + c * rows, from, 3), c += 2;
        else if (from[1])
            sum_up(n, rows, C(0), sums + c * rows, from, 2), c += 1;
        else
            sum_up(n, rows, C(0), sums + c * rows, from, 1);
    }
    return 0;
}

/* Let the counters of meters that are modified begin at zero and at the modify. */
i64 dets_modify(PyObject *columns, double sent_s)
{
    if (!side_by_side(columns, 6))
        return NOT_SIDE_BY_SIDE;
    i64 changed = rows_of(columns, 0);
    const i64 *rows = C(0);
    const double *duration_s = C(1), *received_s = C(2);
    double *byte_in = C(3), *dropped = C(4), *epoch_s = C(5);
    for (i64 i = 0; i < changed; i++) {
        i64 row = rows[i];
        double since_s = sent_s - received_s[row];
        byte_in[row] = dropped[row] = 0.0;
        epoch_s[row] = duration_s[row] + (since_s < 0.0 ? 0.0 : since_s);
    }
    return 0;
}

i64 dets_taken(PyObject *columns, double now_s, double step_bps)
{
    if (!side_by_side(columns, 8))
        return NOT_SIDE_BY_SIDE;
    taken(rows_of(columns, 0), now_s, step_bps, C(0), C(1), C(2), C(3), C(4), C(5), C(6), C(7));
    return 0;
}

PASS(dets_sums)
PASS(dets_places)
PASS(dets_read, WHOLE(1))
PASS(dets_watch)
PASS(dets_meter_rates, REAL(1), REAL(2), REAL(3))
PASS(dets_modify, REAL(1))
PASS(dets_look, REAL(1), REAL(2), REAL(3), REAL(4), WHOLE(5))
PASS(dets_taken, REAL(1), REAL(2))
PASS(dets_enforce, REAL(1), REAL(2), WHOLE(3))
PASS(dets_receive, REAL(1), REAL(2))
PASS(dets_fare, REAL(1))
PASS(dets_count, WHOLE(1))
PASS(dets_watch_congestion, REAL(1), REAL(2), WHOLE(3))
PASS(dets_reports, WHOLE(1))
PASS(dets_answers, REAL(1))
PASS(dets_obey)
MODULE(_measurement, OF(dets_sums), OF(dets_places), OF(dets_read), OF(dets_watch), OF(dets_meter_rates), OF(dets_modify),
       OF(dets_look), OF(dets_taken), OF(dets_enforce), OF(dets_receive), OF(dets_fare),
       OF(dets_count), OF(dets_watch_congestion), OF(dets_reports), OF(dets_answers), OF(dets_obey))
