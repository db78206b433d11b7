/* Measuring, compiled: what counters.py, measurement.py and interval.py do in numpy, in one pass over the entries.
 *
 * The same bits as the numpy form: each function does its arithmetic in its order, and -ffp-contract=off keeps the compiler
 * from fusing. The docstrings of the numpy form explain the steps; here they are only numbered. Unknown is NaN, for which
 * every comparison is false, as in numpy.
 */
#include "_measure.h"

typedef struct { /* METER_STATS of controller/openflow/meters.py */
    uint32_t meter_id, flow_count;
    uint64_t packet_in_count, byte_in_count;
    double duration_s;
    uint64_t band_packet_count, band_byte_count;
} MeterStats;

/* Write what one switch said of n meters to their entries. Counters that are unavailable leave the entry unread. The switch
 * confirmed its last message at ``confirmed_s``, and so says nothing of meters that were modified before the latest of
 * them: ``modified_s`` (entries,), which is not looked at where no meter is ever ``modified``. */
void dets_spread(i64 n, const i64 *mine, const i64 *rows, const MeterStats *stats, double received_s,
                 double confirmed_s, i64 modified, const double *modified_s, double *byte_in, double *dropped,
                 double *duration_s, double *received, double *confirmed, uint8_t *present)
{
    double latest_s = -(double)INFINITY;
    for (i64 i = 0; modified && i < n; i++)
        latest_s = modified_s[rows[i]] > latest_s ? modified_s[rows[i]] : latest_s;
    for (i64 i = 0; i < n; i++) {
        const MeterStats *meter = &stats[mine[i]];
        i64 row = rows[i];
        confirmed[row] = modified && modified_s[row] < latest_s ? (double)NAN : confirmed_s;
        if (meter->byte_in_count == UINT64_MAX || meter->band_byte_count == UINT64_MAX)
            continue;
        byte_in[row] = (double)meter->byte_in_count;
        dropped[row] = (double)meter->band_byte_count;
        duration_s[row] = meter->duration_s;
        received[row] = received_s;
        present[row] = 1;
    }
}

/* What one switch's n meters counted since its last reading, added to the sums of a window; unavailable counts as 0. A meter
 * that counts less than before was modified and began again. Return how many were, or -1 if these are other meters. */
i64 dets_watch(i64 n, const MeterStats *stats, const uint32_t *meter_id, const double *was_in, const double *was_dropped,
               double *restrict now_in, double *restrict now_dropped, double *restrict in_sum,
               double *restrict dropped_sum, uint8_t *restrict modified)
{
    i64 count = 0;
    int same = 1;
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
        now_in[i] = in;
        now_dropped[i] = dropped;
        modified[i] = (uint8_t)again;
        count += again;
    }
    return count;
}

/* Counters to rates. Columns of n rows: first the last readings and the new ones, then what is written: in ``rates`` offered,
 * dropped and passed, one column after the other, in ``after`` the five columns of the next readings in their order. */
FOR_EACH_CPU
void dets_meter_rates(i64 n, double least_elapsed_s, double plausible, double bits_per_byte, const double *was_in,
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
void dets_measure(i64 n, double memory, const double *was_offered, const double *was_dropped,
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
