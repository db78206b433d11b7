/* Enforcement and accounts, compiled: what enforcement.py and receive_budgets.py do in numpy, in one pass.
 *
 * The same bits as the numpy form: each function does its arithmetic in its order. The docstrings of the numpy form
 * explain the steps; here they are only numbered. Unknown is NaN, which only ``seen`` holds. What the numpy form calls by
 * a name, ``Settings`` has. What a condition chooses from is read before: the compiler makes vectors of loops in which
 * nothing is read or done only sometimes.
 */
#include "_measurement.h"

#include <stdlib.h>

#define NO_MEMORY (-2)

typedef struct { /* enforcement_native.py fills it in this order */
    double responsive_burst_s, unresponsive_burst_s, frames, min_burst_bits, min_burst_s, unresponsive_drop;
    double unresponsive_intervals, responsive_drop, responsive_intervals, budget_s, repay_s, most_repaid, most_owed;
    double most_unread_s, rate_step_bps, most_kilo;
} Settings;

INLINE double steps_of(double rate_bps, double step_bps)
{
    return most(floor(rate_bps / step_bps), 1.0);
}

INLINE double whole_rate(double rate_bps, double step_bps)
{
    return steps_of(rate_bps, step_bps) * step_bps;
}

INLINE double whole_burst(double burst_bits, double step_bits)
{
    return ceil(burst_bits / step_bits) * step_bits;
}

INLINE double burst_for(double rate_bps, double burst_s, double min_burst_bits, const Settings *s)
{
    return whole_burst(most(rate_bps * burst_s, 2.0 * min_burst_bits), s->rate_step_bps);
}

/* Columns of entries as they were, and as they are to be. */
typedef struct {
    const double *limit, *allowed;
    const uint32_t *rate_kbps, *burst_kbits;
    const double *modified, *level, *credit, *updated;
    const uint8_t *unresponsive;
    const int16_t *evidence;
} Before;

typedef struct {
    double *allowed, *modified, *level, *credit, *updated;
    uint32_t *rate_kbps, *burst_kbits;
    uint8_t *unresponsive;
    int16_t *evidence;
} After;

/* What is known of a block of entries while it is worked on; ``rate`` and ``burst`` are what their meters were set to, in
 * steps, ``min_burst`` is the least of each. */
typedef struct {
    double *rate, *burst, *limit, *level, *credit, *spent, *depth, *usable;
    i64 *silent;
    const double *min_burst;
} Block;

/* Steps 1 and 2 of enforce for the entries from ``start`` on: judge and account. Return whether a limit is below a step. */
FOR_EACH_CPU
static i64 account(i64 start, i64 n, const Settings *s, double now_s, const double *limits, const Before *before,
                    const double *offered, const double *dropped, const double *passed, const double *seen,
                    const After *after, const Block *block)
{
    const double *restrict limit_bps = before->limit + start, *restrict allowed_bps = before->allowed + start;
    const uint32_t *rate_kbps = before->rate_kbps + start, *burst_kbits = before->burst_kbits + start;
    double *restrict rate_steps = block->rate, *restrict burst_steps = block->burst;
    const double *restrict modified_s = before->modified + start, *restrict level_bits = before->level + start;
    const double *restrict credit_bits = before->credit + start, *restrict updated_s = before->updated + start;
    const uint8_t *restrict was_unresponsive = before->unresponsive + start;
    const int16_t *restrict was_evidence = before->evidence + start;
    const double *restrict new_limit_bps = limits + start;
    double *restrict limit_after = block->limit, *restrict level_after = block->level;
    double *restrict credit_after = block->credit, *restrict spent_after = block->spent;
    double *restrict depth_bits = block->depth;
    const double *restrict min_bursts = block->min_burst;
    uint8_t *restrict unresponsive = after->unresponsive + start;
    int16_t *restrict evidence = after->evidence + start;
    offered += start, dropped += start, passed += start, seen += start;
    i64 convicted = (i64)s->unresponsive_intervals, acquitted = -(i64)s->responsive_intervals;
    const Settings set = *s;
    i64 wide[BLOCK], proofs[BLOCK], below = 0;
    for (i64 first = 0, end; first < n; first = end) {
        end = block_end(first, n);
        widen_counts(proofs, was_evidence + first, end - first);
        widen(wide, was_unresponsive + first, end - first);
        widen_steps(rate_steps + first, rate_kbps + first, end - first);
        widen_steps(burst_steps + first, burst_kbits + first, end - first);
        ONE_BY_ONE
        for (i64 i = first; i < end; i++) {
            double offered_bps = offered[i], dropped_bps = dropped[i], now_passed_bps = passed[i], read_s = seen[i];
            double limit = limit_bps[i], allowed = allowed_bps[i], rate = rate_steps[i] * set.rate_step_bps;
            double burst = burst_steps[i] * set.rate_step_bps;
            double updated = updated_s[i], new_limit = new_limit_bps[i], min_burst = min_bursts[i];
            i64 was = proofs[i - first];
            double part = dropped_bps / most(offered_bps, 1.0);
            i64 against = one_more(was > 0 ? was : 0), in_favour = -one_more(was < 0 ? -was : 0);
            i64 proof = part > set.unresponsive_drop ? against : 0;
            proof = part < set.responsive_drop ? in_favour : proof;
            i64 deaf = (wide[i - first] | (proof >= convicted)) & (proof > acquitted);
            proofs[i - first] = proof;
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
            i64 held_back = dropping | (known & (left_bits < -min_burst));
            double held_bps = least(passed_bps, rate);
            double unseen_bps = held_back ? held_bps : passed_bps;
            double since_bits = (deaf ? 0.0 : filled_bits) + min_burst / set.frames;
            double level = least(most(left_bits, 0.0), dropping ? since_bits : (double)INFINITY);
            double lost_bits = left_bits - level;
            double missing_bits = deaf ? 0.0 : lost_bits;
            i64 pressing = known & (dropped_bps > set.unresponsive_drop * offered_bps);
            double filled_bps = pressing ? allowed : limit;
            double credit = credit_bits[i] + filled_bps * elapsed_s - passed_bits - unseen_bps * unseen_s;
            double burst_s = deaf ? set.unresponsive_burst_s : set.responsive_burst_s;
            credit = least(credit, burst_for(limit, burst_s, min_burst, &set)) - missing_bits;
            /* enforce */
            double depth = burst_for(whole_rate(new_limit, set.rate_step_bps), burst_s, min_burst, &set);
            double spent = credit - (known ? 0.0 : level);
            depth_bits[i] = depth;
            limit_after[i] = most(new_limit, set.rate_step_bps);
            below |= new_limit < set.rate_step_bps;
            level_after[i] = level;
            credit_after[i] = least(most(credit, -set.most_owed * depth), depth);
            spent_after[i] = least(most(spent, -set.most_owed * depth), depth);
        }
        narrow(unresponsive + first, wide, end - first);
        narrow_counts(evidence + first, proofs, end - first);
    }
    return below;
}

/* What Rooms holds; ``free_bits`` (times, vns). */
typedef struct {
    i64 vns, times, idle_intervals;
    const double *limit_bps, *ahead_s, *free_bits, *saved_bits, *lasting_bits;
    double reserve_s;
} Rooms;

/* Rooms.share for the ``n`` entries of one receiver, from ``start`` on. Its steps 3 to 5 need what is used, wanted and idle of
 * all of them. What the meters may have goes to ``meter_bps`` and ``usable_bits``. */
FOR_EACH_CPU
static void share(i64 start, i64 n, i64 receiver, const Rooms *rooms, const double *restrict grant_bps, const double *passed,
                  const double *smoothed, const i64 *restrict silence, const double *restrict credit_bits,
                  double *restrict meter_bps, double *restrict usable_bits)
{
    const double *passed_bps = passed + start, *smoothed_bps = smoothed + start;
    const i64 idle_intervals = rooms->idle_intervals;
    double horizon_s = rooms->ahead_s[0], limit_bps = rooms->limit_bps[receiver];
    double used_sum = 0.0, wanted_bits = 0.0, idle = 0.0;
    i64 still = 0;
    if (n < 2) { /* 6 */
        meter_bps[0] = grant_bps[0];
        usable_bits[0] = credit_bits[0];
        return;
    }
    for (i64 i = 0; i < n; i++) {
        double grant = grant_bps[i], measured_bps = most(passed_bps[i], smoothed_bps[i]);
        double used = least(grant, measured_bps), kept = most(credit_bits[i], 0.0);
        i64 active = (silence[i] < idle_intervals) & (measured_bps > 0.0);
        double used_bps = active ? used : 0.0, kept_bits = active ? kept : 0.0;
        double growth_bps = active ? grant - used : 0.0;
        used_sum += used_bps;
        wanted_bits += growth_bps * horizon_s + kept_bits;
        idle += !active;
        still |= active & (silence[i] > 0);
    }
    /* 2 */
    const double *free_bits = rooms->free_bits + receiver;
    double most_bps = free_bits[0] / horizon_s;
    for (i64 t = 1; t < rooms->times; t++)
        most_bps = least(free_bits[t * rooms->vns] / rooms->ahead_s[t], most_bps);
    most_bps = most(most_bps, 0.0);
    /* 3 */
    double scale = least(most_bps / most(used_sum, 1.0), 1.0);
    double now_bits = still ? free_bits[0] : rooms->lasting_bits[receiver], left_bits = now_bits - scale * used_sum * horizon_s;
    /* 4 */
    double reserve_bits = idle > 0.0 ? least(most(left_bits, 0.0), rooms->reserve_s * limit_bps) : 0.0;
    double each_bits = reserve_bits / most(idle, 1.0);
    /* 5 */
    left_bits = least(left_bits - reserve_bits, rooms->saved_bits[receiver]);
    double part = least(most(left_bits / most(wanted_bits, 1.0), 0.0), 1.0);
    ONE_BY_ONE
    for (i64 i = 0; i < n; i++) {
        double grant = grant_bps[i], credit = credit_bits[i], measured_bps = most(passed_bps[i], smoothed_bps[i]);
        i64 active = (silence[i] < idle_intervals) & (measured_bps > 0.0);
        double used_bps = least(grant, measured_bps);
        double busy_bps = used_bps * scale + part * (grant - used_bps), busy_bits = part * most(credit, 0.0);
        double idle_bps = least(grant, each_bits / (2.0 * horizon_s));
        double idle_bits = each_bits - idle_bps * horizon_s;
        meter_bps[i] = active ? busy_bps : idle_bps;
        usable_bits[i] = least(credit, active ? busy_bits : idle_bits);
    }
}

/* Steps 3 and 4 of enforce for the entries from ``start`` on, whose meters are to have ``meter_bps``. ``what`` gets of each
 * whether its meter is modified (1), and to a higher rate (3). */
FOR_EACH_CPU
static void meters(i64 start, i64 n, const Settings *s, double now_s, const Before *before,
                   const double *restrict meter_bps, const double *seen_s, const uint8_t *soon_read, int bounded,
                   const Block *block, const After *after, uint8_t *restrict what)
{
    const double *restrict was_rate_steps = block->rate, *restrict was_burst_steps = block->burst;
    const double *restrict modified_s = before->modified + start, *restrict level_bits = before->level + start;
    const double *restrict credit_bits = before->credit + start, *restrict updated_s = before->updated + start;
    const double *restrict seen = seen_s + start;
    const double *restrict usable_bits = block->usable, *restrict now_level = block->level;
    const double *restrict now_credit = block->credit, *restrict spent_bits = block->spent;
    const double *restrict depth_bits = block->depth, *restrict min_bursts = block->min_burst;
    const uint8_t *restrict unresponsive = after->unresponsive + start, *restrict too_soon = soon_read + start;
    uint32_t *rate_after = after->rate_kbps + start, *burst_after = after->burst_kbits + start;
    double *restrict modified_after = after->modified + start, *restrict level_after = after->level + start;
    double *restrict credit_after = after->credit + start, *restrict updated_after = after->updated + start;
    const Settings set = *s;
    double most_given = bounded ? 0.0 : (double)INFINITY; /* of usable bits: all that is spent may be given */
    i64 deaf[BLOCK], soon[BLOCK];
    double rate_is[BLOCK], burst_is[BLOCK];
    for (i64 first = 0, end; first < n; first = end) {
        end = block_end(first, n);
        widen(deaf, unresponsive + first, end - first);
        widen(soon, too_soon + first, end - first);
        ONE_BY_ONE
        for (i64 i = first; i < end; i++) {
            double was_rate_step = was_rate_steps[i], was_burst_step = was_burst_steps[i];
            double was_rate = was_rate_step * set.rate_step_bps, was_burst = was_burst_step * set.rate_step_bps;
            double was_level = level_bits[i], was_credit = credit_bits[i];
            double updated = updated_s[i], modified = modified_s[i], read_s = seen[i], meter = meter_bps[i];
            double usable = usable_bits[i], level = now_level[i], credit = now_credit[i], spent = spent_bits[i];
            double min_burst = min_bursts[i];
            i64 known = read_s == read_s;
            double given = least(spent, usable + most_given);
            /* 4 */
            double exact = whole_rate(meter, set.rate_step_bps);
            double least_burst = most(given, most(set.min_burst_s * exact, min_burst));
            double burst_step = ceil(least_burst / set.rate_step_bps), burst = burst_step * set.rate_step_bps;
            double excess = most(burst - given - set.rate_step_bps, 0.0);
            double lowered = exact - least(excess / set.repay_s, set.most_repaid * exact);
            double rate_step = steps_of(lowered, set.rate_step_bps), rate = rate_step * set.rate_step_bps;
            /* 3 */
            double elapsed_s = most(now_s - updated, 0.0);
            double ahead = level - usable + (was_rate - meter) * elapsed_s;
            double budget = most(set.budget_s * meter, min_burst);
            double stands_s = most(now_s - modified, set.repay_s);
            i64 saves = (was_rate - rate) * stands_s > burst - level;
            i64 too_deep = deaf[i - first] & (was_burst > 2.0 * depth_bits[i]);
            i64 waits = soon[i - first] & (now_s - modified < set.most_unread_s);
            i64 wanted = (((ahead > budget) & saves) | (known & (ahead < -budget)) | too_deep) & (waits ^ 1);
            rate_is[i - first] = wanted ? least(rate_step, set.most_kilo) : was_rate_step;
            burst_is[i - first] = wanted ? least(burst_step, set.most_kilo) : was_burst_step;
            modified_after[i] = wanted ? now_s : modified;
            double kept_level = known ? level : was_level, kept_credit = known ? credit : was_credit;
            level_after[i] = wanted ? burst : kept_level;
            credit_after[i] = wanted ? spent : kept_credit;
            updated_after[i] = wanted | known ? now_s : updated;
            i64 raised = rate > was_rate;
            deaf[i - first] = wanted + 2 * (wanted & raised);
        }
        narrow(what + first, deaf, end - first);
        narrow_steps(rate_after + first, rate_is, end - first);
        narrow_steps(burst_after + first, burst_is, end - first);
    }
}

/* The end of a block: whole receivers, as many as it has room for, and at least one. Entries are in the order of receivers. */
static i64 end_of_block(const i64 *receiver, i64 first, i64 n)
{
    for (i64 end = first;;) {
        i64 next = end + 1;
        while (next < n && receiver[next] == receiver[end])
            next++;
        if (end > first && next - first > BLOCK)
            return end;
        end = next;
        if (end == n || end - first >= BLOCK)
            return end;
    }
}

/* The longest block there is. */
static i64 longest_block(const i64 *receiver, i64 n)
{
    i64 longest = BLOCK;
    for (i64 first = 0, end; first < n; first = end) {
        end = end_of_block(receiver, first, n);
        longest = end - first > longest ? end - first : longest;
    }
    return longest;
}

#define C(number) column(columns, number)

/* All of enforce, receiver by receiver: what belongs to one stays in the first cache. Rooms bound what the senders of a receiver
 * have together where the times are not 0; else what is allowed is the limit, and not written. ``below`` tells whether a limit
 * granted is below a step, which is the least. The last column has the least burst of each; empty: the settings'. Rows to modify go to ``rows``, decreases first; return how many, or NO_MEMORY. */
enum { COLUMNS_OF_ENFORCE = 37 };
i64 dets_enforce(PyObject *columns, double now_s, double reserve_s, i64 idle_intervals)
{
    if (!side_by_side(columns, COLUMNS_OF_ENFORCE))
        return NOT_SIDE_BY_SIDE;
    const Settings *set = C(0);
    const double *limit_bps = C(1), *offered = C(12), *dropped = C(13), *passed = C(14), *smoothed = C(15);
    const Before before = {C(2), C(3), C(4), C(5), C(6), C(7), C(8), C(9), C(10), C(11)};
    const int16_t *silent = C(16);
    const i64 *receiver = C(19);
    const double *seen_s = C(17);
    const uint8_t *too_soon = C(18);
    const Rooms rooms = {rows_of(columns, 20), rows_of(columns, 21), idle_intervals, C(20), C(21), C(22), C(23), C(24), reserve_s};
    const After after = {C(25), C(26), C(27), C(28), C(29), C(30), C(31), C(32), C(33)};
    i64 *below = C(34), *rows = C(35), n = rows_of(columns, 1), lowered_count = 0, raised_from = n - 1;
    int bounded = rooms.times > 0;
    i64 room = bounded ? longest_block(receiver, n) : BLOCK;
    const double *min_burst = rows_of(columns, 36) ? C(36) : NULL;
    double *memory = malloc((size_t)room * (10 * sizeof(double) + 1));
    if (!memory)
        return NO_MEMORY;
    double *usual = memory + 9 * room;
    for (i64 i = 0; i < room; i++)
        usual[i] = set->min_burst_bits;
    Block block = {memory,
                   memory + room,
                   memory + 2 * room,
                   memory + 3 * room,
                   memory + 4 * room,
                   memory + 5 * room,
                   memory + 6 * room,
                   memory + 7 * room,
                   (i64 *)(memory + 8 * room),
                   usual};
    if (!bounded)
        block.usable = block.credit;
    uint8_t *what = (uint8_t *)(memory + 10 * room);
    *below = 0;
    for (i64 first = 0, end; first < n; first = end) {
        end = bounded ? end_of_block(receiver, first, n) : block_end(first, n);
        block.min_burst = min_burst ? min_burst + first : usual;
        *below |= account(first, end - first, set, now_s, limit_bps, &before, offered, dropped, passed, seen_s, &after, &block);
        widen_counts(block.silent, silent + first, end - first);
        for (i64 i = first, next; bounded && i < end; i = next) {
            for (next = i + 1; next < end && receiver[next] == receiver[i];)
                next++;
            share(i, next - i, receiver[i], &rooms, block.limit + (i - first), passed, smoothed, block.silent + (i - first),
                  block.credit + (i - first), after.allowed + i, block.usable + (i - first));
        }
        meters(first, end - first, set, now_s, &before, bounded ? after.allowed + first : block.limit, seen_s, too_soon, bounded,
               &block, &after, what);
        for (i64 i = first; i < end; i++) { /* raised ones from the end on; what is put between both counts once it is passed */
            rows[lowered_count] = rows[raised_from] = i;
            lowered_count += what[i - first] == 1;
            raised_from -= what[i - first] == 3;
        }
    }
    free(memory);
    i64 raised_count = n - 1 - raised_from;
    reverse(rows + raised_from + 1, raised_count);
    memmove(rows + lowered_count, rows + raised_from + 1, (size_t)raised_count * sizeof(i64));
    return lowered_count + raised_count;
}
