/* Enforcement and accounts, compiled: what enforcement.py and receiver_accounts.py do in numpy, in few passes.
 *
 * The same bits as the numpy form: each function does its arithmetic in its order. The docstrings of the numpy form
 * explain the steps; here they are only numbered. Unknown is NaN, which only ``seen`` holds. What the numpy form calls by
 * a name, ``Settings`` has. What a condition chooses from is read before: the compiler makes vectors of loops in which
 * nothing is read or done only sometimes.
 */
#include "../_columns.h"
#include "_measure.h"

typedef struct { /* enforce_kernel.py fills it in this order */
    double responsive_burst_s, unresponsive_burst_s, frame_bits, min_burst_bits, min_burst_s, unresponsive_drop;
    double unresponsive_intervals, responsive_drop, responsive_intervals, budget_s, repay_s, most_repaid, most_owed;
    double most_unread_s, rate_step_bps;
} Settings;

INLINE double least(double a, double b)
{
    return a < b ? a : b;
}

INLINE double most(double a, double b)
{
    return a > b ? a : b;
}

INLINE double whole_rate(double rate_bps, double step_bps)
{
    return most(floor(rate_bps / step_bps), 1.0) * step_bps;
}

INLINE double whole_burst(double burst_bits, double step_bits)
{
    return ceil(burst_bits / step_bits) * step_bits;
}

INLINE double burst_for(double rate_bps, double burst_s, const Settings *s)
{
    return whole_burst(most(rate_bps * burst_s, 2.0 * s->min_burst_bits), s->rate_step_bps);
}

/* taken_bits, summed up by receiver into ``sums`` (vns,), which begins at zero. */
static void taken(i64 n, double now_s, const double *rate_bps, const double *modified_s, const double *updated_s,
                const double *passed_bps, const double *dropped_bps, const double *seen_s, const i64 *receiver,
                double *sums)
{
    for (i64 i = 0; i < n; i++) {
        double unseen_s = modified_s[i] >= updated_s[i] ? now_s - updated_s[i] - seen_s[i] : 0.0;
        double unseen_bps = least(passed_bps[i], dropped_bps[i] > 0.0 ? rate_bps[i] : (double)INFINITY);
        double bits = passed_bps[i] * seen_s[i] + unseen_bps * most(unseen_s, 0.0);
        sums[receiver[i]] += seen_s[i] == seen_s[i] ? bits : 0.0;
    }
}

/* Steps 1 and 2 of enforce: judge and account. ``after`` is level, credit and spent, one column after the other. */
FOR_EACH_CPU
static void account(i64 n, const Settings *s, double now_s, const double *new_limit_bps, const double *limit_bps,
                  const double *allowed_bps, const double *rate_bps, const double *burst_bits,
                  const double *modified_s, const double *level_bits, const double *credit_bits,
                  const double *updated_s, const uint8_t *was_unresponsive, const i64 *was_evidence,
                  const double *offered, const double *dropped, const double *passed, const double *seen,
                  double *restrict after_limit_bps, double *restrict after, double *restrict depth_bits,
                  uint8_t *restrict unresponsive, i64 *restrict evidence)
{
    i64 convicted = (i64)s->unresponsive_intervals, acquitted = -(i64)s->responsive_intervals;
    const Settings set = *s;
    i64 wide[BLOCK];
    for (i64 first = 0, end; first < n; first = end) {
        end = block_end(first, n);
        widen(wide, was_unresponsive + first, end - first);
        ONE_BY_ONE
        for (i64 i = first; i < end; i++) {
            double offered_bps = offered[i], dropped_bps = dropped[i], now_passed_bps = passed[i], read_s = seen[i];
            double limit = limit_bps[i], allowed = allowed_bps[i], rate = rate_bps[i], burst = burst_bits[i];
            double updated = updated_s[i], new_limit = new_limit_bps[i];
            i64 was = was_evidence[i];
            double part = dropped_bps / most(offered_bps, 1.0);
            i64 against = (was > 0 ? was : 0) + 1, in_favour = (was < 0 ? was : 0) - 1;
            i64 proof = part > set.unresponsive_drop ? against : 0;
            proof = part < set.responsive_drop ? in_favour : proof;
            i64 deaf = (wide[i - first] | (proof >= convicted)) & (proof > acquitted);
            evidence[i] = proof;
            wide[i - first] = deaf;
            /* account */
            i64 known = read_s == read_s;
            i64 dropping = known & (dropped_bps > 0.0);
            double since_s = most(now_s - updated, 0.0);
            double seen_s = known ? read_s : since_s;
            i64 modified = modified_s[i] >= updated;
            double elapsed_s = modified ? since_s : seen_s;
            double unread_s = most(elapsed_s - seen_s, 0.0);
            double unseen_s = modified ? unread_s : 0.0;
            double passed_bps = known ? now_passed_bps : limit;
            double passed_bits = passed_bps * seen_s;
            double filled_bits = rate * (elapsed_s - unseen_s);
            double left_bits = least(level_bits[i] + filled_bits - passed_bits, burst);
            i64 held_back = dropping | (known & (left_bits < -set.min_burst_bits));
            double held_bps = least(passed_bps, rate);
            double unseen_bps = held_back ? held_bps : passed_bps;
            double since_bits = (deaf ? 0.0 : filled_bits) + set.frame_bits;
            double level = least(most(left_bits, 0.0), dropping ? since_bits : (double)INFINITY);
            double lost_bits = left_bits - level;
            double missing_bits = deaf ? 0.0 : lost_bits;
            i64 pressing = known & (dropped_bps > set.unresponsive_drop * offered_bps);
            double filled_bps = pressing ? allowed : limit;
            double credit = credit_bits[i] + filled_bps * elapsed_s - passed_bits - unseen_bps * unseen_s;
            double burst_s = deaf ? set.unresponsive_burst_s : set.responsive_burst_s;
            credit = least(credit, burst_for(limit, burst_s, &set)) - missing_bits;
            /* enforce */
            double depth = burst_for(whole_rate(new_limit, set.rate_step_bps), burst_s, &set);
            double spent = credit - (known ? 0.0 : level);
            depth_bits[i] = depth;
            after_limit_bps[i] = most(new_limit, set.rate_step_bps);
            after[i] = level;
            after[n + i] = least(most(credit, -set.most_owed * depth), depth);
            after[2 * n + i] = least(most(spent, -set.most_owed * depth), depth);
        }
        narrow(unresponsive + first, wide, end - first);
    }
}

/* Steps 3 to 5 of Rooms.share, what is summed up by receiver: ``sums`` (3, vns) of what is used, wanted and how many are
 * idle, ``count`` (vns,) of all; they begin at zero. */
static void share_sums(i64 n, i64 vns, double horizon_s, i64 idle_intervals, const i64 *receiver, const double *grant_bps,
                     const double *credit_bits, const double *passed_bps, const double *smoothed_bps,
                     const i64 *silent, double *sums, i64 *count)
{
    for (i64 i = 0; i < n; i++) {
        i64 r = receiver[i];
        double grant = grant_bps[i], measured_bps = most(passed_bps[i], smoothed_bps[i]);
        double used = least(grant, measured_bps), kept = most(credit_bits[i], 0.0);
        i64 active = (silent[i] < idle_intervals) & (measured_bps > 0.0);
        double used_bps = active ? used : 0.0, kept_bits = active ? kept : 0.0;
        double growth_bps = active ? grant - used : 0.0;
        sums[r] += used_bps;
        sums[vns + r] += growth_bps * horizon_s + kept_bits;
        sums[2 * vns + r] += !active;
        count[r]++;
    }
}

/* Rooms.share, the rest: ``of_vn`` (3, vns) is the scale, the part and the bits of each idle sender. */
static void share(i64 n, i64 vns, double horizon_s, i64 idle_intervals, const i64 *receiver, const double *grant_bps,
                const double *credit_bits, const double *passed_bps, const double *smoothed_bps, const i64 *silent,
                const double *of_vn, const i64 *count, double *restrict after_bps, double *restrict after_bits)
{
    ONE_BY_ONE
    for (i64 i = 0; i < n; i++) {
        i64 r = receiver[i];
        double grant = grant_bps[i], credit = credit_bits[i], measured_bps = most(passed_bps[i], smoothed_bps[i]);
        double scale = of_vn[r], part = of_vn[vns + r], each_bits = of_vn[2 * vns + r];
        i64 active = (silent[i] < idle_intervals) & (measured_bps > 0.0);
        double used_bps = least(grant, measured_bps);
        double busy_bps = used_bps * scale + part * (grant - used_bps), busy_bits = part * most(credit, 0.0);
        double idle_bps = least(grant, each_bits / (2.0 * horizon_s));
        double idle_bits = each_bits - idle_bps * horizon_s;
        double rate_bps = active ? busy_bps : idle_bps;
        double saved_bits = least(credit, active ? busy_bits : idle_bits);
        i64 alone = count[r] < 2; /* 6 */
        after_bps[i] = alone ? grant : rate_bps;
        after_bits[i] = alone ? credit : saved_bits;
    }
}

/* Steps 3 and 4 of enforce. ``given`` is what the buckets may be filled to; ``after`` are rate, burst, modified, level,
 * credit and updated, one column after the other. ``rows`` gets whom to modify, decreases first; return how many. ``what``
 * is scratch: of each entry whether it is modified (1), and to a higher rate (3). */
FOR_EACH_CPU
static i64 meters(i64 n, const Settings *s, double now_s, const double *rate_bps, const double *burst_bits,
                const double *modified_s, const double *level_bits, const double *credit_bits, const double *updated_s,
                const double *meter_bps, const double *usable_bits, const double *now_level, const double *now_credit,
                const double *spent_bits, const double *depth_bits, const uint8_t *unresponsive, const double *seen,
                const uint8_t *too_soon, i64 bounded, double *restrict after, i64 *restrict rows,
                uint8_t *restrict what)
{
    const Settings set = *s;
    double most_given = bounded ? 0.0 : (double)INFINITY; /* of usable bits: all that is spent may be given */
    i64 deaf[BLOCK], soon[BLOCK];
    for (i64 first = 0, end; first < n; first = end) {
        end = block_end(first, n);
        widen(deaf, unresponsive + first, end - first);
        widen(soon, too_soon + first, end - first);
        ONE_BY_ONE
        for (i64 i = first; i < end; i++) {
            double was_rate = rate_bps[i], was_burst = burst_bits[i], was_level = level_bits[i], was_credit = credit_bits[i];
            double updated = updated_s[i], modified = modified_s[i], read_s = seen[i], meter = meter_bps[i];
            double usable = usable_bits[i], level = now_level[i], credit = now_credit[i], spent = spent_bits[i];
            i64 known = read_s == read_s;
            double given = least(spent, usable + most_given);
            /* 4 */
            double exact = whole_rate(meter, set.rate_step_bps);
            double burst = whole_burst(most(given, most(set.min_burst_s * exact, set.min_burst_bits)), set.rate_step_bps);
            double excess = most(burst - given - set.rate_step_bps, 0.0);
            double rate = whole_rate(exact - least(excess / set.repay_s, set.most_repaid * exact), set.rate_step_bps);
            /* 3 */
            double elapsed_s = most(now_s - updated, 0.0);
            double ahead = level - usable + (was_rate - meter) * elapsed_s;
            double budget = most(set.budget_s * meter, set.min_burst_bits);
            double stands_s = most(now_s - modified, set.repay_s);
            i64 saves = (was_rate - rate) * stands_s > burst - level;
            i64 too_deep = deaf[i - first] & (was_burst > 2.0 * depth_bits[i]);
            i64 waits = soon[i - first] & (now_s - modified < set.most_unread_s);
            i64 wanted = (((ahead > budget) & saves) | (known & (ahead < -budget)) | too_deep) & (waits ^ 1);
            after[i] = wanted ? rate : was_rate;
            after[n + i] = wanted ? burst : was_burst;
            after[2 * n + i] = wanted ? now_s : modified;
            double kept_level = known ? level : was_level, kept_credit = known ? credit : was_credit;
            after[3 * n + i] = wanted ? burst : kept_level;
            after[4 * n + i] = wanted ? spent : kept_credit;
            after[5 * n + i] = wanted | known ? now_s : updated;
            i64 raised = rate > was_rate;
            deaf[i - first] = wanted + 2 * (wanted & raised);
        }
        narrow(what + first, deaf, end - first);
    }
    i64 count = 0;
    for (uint8_t which = 1; which <= 3; which += 2)
        for (i64 i = 0; i < n; i++) {
            rows[count] = i; /* and one more than there are, at most */
            count += what[i] == which;
        }
    return count;
}

#define C(number) column(columns, number)

i64 dets_taken(double now_s, const char *columns)
{
    if (!side_by_side(columns, 8))
        return NOT_SIDE_BY_SIDE;
    taken(rows_of(columns, 0), now_s, C(0), C(1), C(2), C(3), C(4), C(5), C(6), C(7));
    return 0;
}

i64 dets_account(double now_s, const char *columns)
{
    if (!side_by_side(columns, 21))
        return NOT_SIDE_BY_SIDE;
    account(rows_of(columns, 1), C(0), now_s, C(1), C(2), C(3), C(4), C(5), C(6), C(7), C(8), C(9), C(10), C(11), C(12),
            C(13), C(14), C(15), C(16), C(17), C(18), C(19), C(20));
    return 0;
}

i64 dets_share_sums(double horizon_s, i64 idle_intervals, const char *columns)
{
    if (!side_by_side(columns, 8))
        return NOT_SIDE_BY_SIDE;
    share_sums(rows_of(columns, 0), rows_of(columns, 7), horizon_s, idle_intervals, C(0), C(1), C(2), C(3), C(4), C(5), C(6),
               C(7));
    return 0;
}

i64 dets_share(double horizon_s, i64 idle_intervals, const char *columns)
{
    if (!side_by_side(columns, 10))
        return NOT_SIDE_BY_SIDE;
    share(rows_of(columns, 0), rows_of(columns, 7), horizon_s, idle_intervals, C(0), C(1), C(2), C(3), C(4), C(5), C(6), C(7),
          C(8), C(9));
    return 0;
}

i64 dets_meters(double now_s, i64 bounded, const char *columns)
{
    if (!side_by_side(columns, 19))
        return NOT_SIDE_BY_SIDE;
    return meters(rows_of(columns, 1), C(0), now_s, C(1), C(2), C(3), C(4), C(5), C(6), C(7), C(8), C(9), C(10), C(11), C(12),
                  C(13), C(14), C(15), bounded, C(16), C(17), C(18));
}
