/* Measuring, compiled: what counters.py, measurement.py and interval.py do in numpy, in one pass over the entries.
 *
 * The same bits as the numpy form: each function does its arithmetic in its order, and -ffp-contract=off keeps the compiler
 * from fusing. The docstrings of the numpy form explain the steps; here they are only numbered. Unknown is NaN, for which
 * every comparison is false, as in numpy.
 */
#include "../_columns.h"
#include "_measure.h"

typedef struct { /* METER_STATS of controller/openflow/meters.py */
    uint32_t meter_id, flow_count;
    uint64_t packet_in_count, byte_in_count;
    double duration_s;
    uint64_t band_packet_count, band_byte_count;
} MeterStats;

/* Write what switches said of their meters to the ``rows`` of these, -1 for meters of no interest. The meters of switch s end
 * at ``ends[s]``. Counters that are unavailable leave the row unread. A switch confirmed its last message at ``confirmed_s``,
 * and so says nothing of meters that were modified before the latest of them: ``modified_s`` (entries,), which is not looked at
 * where no meter is ever ``modified``. */
static void spread(i64 switches, const i64 *ends, const int32_t *rows, const MeterStats *stats, const double *received_s,
                 const double *confirmed_s, i64 modified, const double *modified_s, double *byte_in, double *dropped,
                 double *duration_s, double *received, double *confirmed, uint8_t *present)
{
    for (i64 s = 0, start = 0; s < switches; start = ends[s++]) {
        double latest_s = -(double)INFINITY;
        for (i64 i = start; modified && i < ends[s]; i++)
            if (rows[i] >= 0)
                latest_s = modified_s[rows[i]] > latest_s ? modified_s[rows[i]] : latest_s;
        for (i64 i = start; i < ends[s]; i++) {
            const MeterStats *meter = &stats[i];
            i64 row = rows[i];
            if (row < 0)
                continue;
            confirmed[row] = modified && modified_s[row] < latest_s ? (double)NAN : confirmed_s[s];
            if (meter->byte_in_count == UINT64_MAX || meter->band_byte_count == UINT64_MAX)
                continue;
            byte_in[row] = (double)meter->byte_in_count;
            dropped[row] = (double)meter->band_byte_count;
            duration_s[row] = meter->duration_s;
            received[row] = received_s[s];
            present[row] = 1;
        }
    }
}

/* Add what the n meters of one switch counted since its last reading to its window; unavailable counts as 0. A meter that counts
 * less than before was modified and began again: it may pass what it is set to now as well, which nobody knows of a meter
 * without a row. Return whether any meter has counted, or -1 if these are other meters. */
static i64 watch(i64 n, const MeterStats *stats, const int32_t *rows, const uint32_t *meter_id, double *was_in,
                 double *was_dropped, double *in_sum, double *dropped_sum, double *most_bps, double *most_bits,
                 const double *rate_bps, const double *burst_bits)
{
    int same = 1;
    uint64_t counted = 0;
    for (i64 i = 0; i < n; i++)
        same &= stats[i].meter_id == meter_id[i];
    if (!same)
        return -1;
    for (i64 i = 0; i < n; i++) {
        double in = stats[i].byte_in_count == UINT64_MAX ? 0.0 : (double)stats[i].byte_in_count;
        double dropped = stats[i].band_byte_count == UINT64_MAX ? 0.0 : (double)stats[i].band_byte_count;
        int again = (in < was_in[i]) | (dropped < was_dropped[i]);
        in_sum[i] += in - (again ? 0.0 : was_in[i]);
        dropped_sum[i] += dropped - (again ? 0.0 : was_dropped[i]);
        was_in[i] = in;
        was_dropped[i] = dropped;
        counted |= stats[i].byte_in_count;
        if (again) {
            double now_bps = rows[i] < 0 ? (double)INFINITY : rate_bps[rows[i]];
            most_bps[i] = now_bps > most_bps[i] ? now_bps : most_bps[i];
            most_bits[i] += rows[i] < 0 ? (double)INFINITY : burst_bits[rows[i]];
        }
    }
    return counted != 0;
}

/* ``watch`` for one switch after the other; the meters of switch s end at ``ends[s]``. Its window is the two columns of meter ids
 * and of six rows of meters, behind the first COLUMNS_OF_WATCH. ``found`` is what ``watch`` returns. */
enum { COLUMNS_OF_WATCH = 6 };
i64 dets_watch(const char *columns)
{
    i64 switches = rows_of(columns, 0);
    if (!side_by_side(columns, COLUMNS_OF_WATCH + 2 * (int)switches))
        return NOT_SIDE_BY_SIDE;
    const i64 *ends = column(columns, 0);
    const MeterStats *stats = column(columns, 1);
    const int32_t *rows = column(columns, 2);
    const double *rate_bps = column(columns, 3), *burst_bits = column(columns, 4);
    i64 *found = column(columns, 5);
    for (i64 s = 0, start = 0; s < switches; start = ends[s++]) {
        i64 n = ends[s] - start;
        int window = COLUMNS_OF_WATCH + 2 * (int)s;
        double *six = column(columns, window + 1);
        found[s] = n != rows_of(columns, window)
                       ? -1
                       : watch(n, stats + start, rows + start, column(columns, window), six, six + n, six + 2 * n,
                               six + 3 * n, six + 4 * n, six + 5 * n, rate_bps, burst_bits);
    }
    return 0;
}

/* Counters to rates. Columns of n rows: first the last readings and the new ones, then what is written: in ``rates`` offered,
 * dropped and passed, one column after the other, in ``after`` the five columns of the next readings in their order. */
FOR_EACH_CPU
static void meter_rates(i64 n, double least_elapsed_s, double plausible, double bits_per_byte, const double *was_in,
                      const double *was_dropped, const double *was_duration_s, const double *epoch_s,
                      const double *was_received_s, const double *byte_in, const double *dropped,
                      const double *duration_s, const double *received_s, const uint8_t *present,
                      const double *capacity_bps, double *restrict rates, uint8_t *restrict implausible,
                      double *restrict after)
{
    for (i64 i = 0; i < n; i++) {
        /* 1 */
        int restarted = duration_s[i] < was_duration_s[i];
        double start_s = restarted ? 0.0 : epoch_s[i];
        double start_in = restarted ? 0.0 : was_in[i];
        double start_dropped = restarted ? 0.0 : was_dropped[i];
        /* 2 */
        double elapsed_s = duration_s[i] - start_s;
        int newer = present[i] & (elapsed_s >= least_elapsed_s);
        double per_second = bits_per_byte / (newer ? elapsed_s : (double)NAN);
        double offered_bps = (byte_in[i] - start_in) * per_second;
        double dropped_bps = (dropped[i] - start_dropped) * per_second;
        /* 3 */
        int bad = (offered_bps < 0.0) | (dropped_bps < 0.0) | (offered_bps > plausible * capacity_bps[i]);
        offered_bps = bad ? (double)NAN : offered_bps;
        dropped_bps = bad ? (double)NAN : dropped_bps;
        double passed_bps = offered_bps - dropped_bps;
        rates[i] = offered_bps;
        rates[n + i] = dropped_bps;
        rates[2 * n + i] = passed_bps < 0.0 ? 0.0 : passed_bps;
        implausible[i] = (uint8_t)bad;
        int read = newer | (present[i] & (elapsed_s != elapsed_s));
        after[i] = read ? byte_in[i] : was_in[i];
        after[n + i] = read ? dropped[i] : was_dropped[i];
        after[2 * n + i] = read ? duration_s[i] : was_duration_s[i];
        after[3 * n + i] = read ? duration_s[i] : epoch_s[i];
        after[4 * n + i] = read ? received_s[i] : was_received_s[i];
    }
}

/* Rates to what each sender sends; ``after`` is offered, dropped, passed and smoothed, one column after the other. */
FOR_EACH_CPU
static void measure(i64 n, double memory, const double *was_offered, const double *was_dropped,
                  const double *was_passed, const double *was_smoothed, const i64 *was_silent, const double *offered,
                  const double *dropped, const double *passed, double *restrict after, i64 *restrict silent)
{
    for (i64 i = 0; i < n; i++) {
        int known = offered[i] == offered[i];
        double offered_bps = known ? offered[i] : was_offered[i];
        double passed_bps = known ? passed[i] : was_passed[i];
        after[i] = offered_bps;
        after[n + i] = known ? dropped[i] : was_dropped[i];
        after[2 * n + i] = passed_bps;
        after[3 * n + i] = was_smoothed[i] + (passed_bps - was_smoothed[i]) / memory;
        i64 now_silent = offered_bps > 0.0 ? 0 : was_silent[i] + 1;
        silent[i] = known ? now_silent : was_silent[i];
    }
}

#define C(number) column(columns, number)

i64 dets_spread(i64 modified, const char *columns)
{
    if (!side_by_side(columns, 12))
        return NOT_SIDE_BY_SIDE;
    spread(rows_of(columns, 0), C(0), C(1), C(2), C(3), C(4), modified, C(5), C(6), C(7), C(8), C(9), C(10), C(11));
    return 0;
}

i64 dets_meter_rates(double least_elapsed_s, double plausible, double bits_per_byte, const char *columns)
{
    if (!side_by_side(columns, 14))
        return NOT_SIDE_BY_SIDE;
    meter_rates(rows_of(columns, 0), least_elapsed_s, plausible, bits_per_byte, C(0), C(1), C(2), C(3), C(4), C(5), C(6),
                C(7), C(8), C(9), C(10), C(11), C(12), C(13));
    return 0;
}

i64 dets_measure(double memory, const char *columns)
{
    if (!side_by_side(columns, 10))
        return NOT_SIDE_BY_SIDE;
    measure(rows_of(columns, 0), memory, C(0), C(1), C(2), C(3), C(4), C(5), C(6), C(7), C(8), C(9));
    return 0;
}
