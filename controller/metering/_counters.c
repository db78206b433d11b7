/* From counters to what senders send, compiled: what counters.py and measurement.py do in numpy.
 *
 * The same bits as the numpy form: each function does its arithmetic in its order, and -ffp-contract=off keeps the compiler
 * from fusing. The docstrings of the numpy form explain the steps; here they are only numbered. Unknown is NaN, for which
 * every comparison is false, as in numpy. A round goes over the entries by blocks, so that what one step hands to the next
 * stays in the first cache.
 */
#include "../openflow/_meter_stats.h"
#include "_measurement.h"

typedef struct { /* MeterReadings */
    double *byte_in, *dropped, *duration_s, *received_s;
    uint8_t *present;
    double *confirmed_s;
} Readings;

typedef struct { /* ListedReadings; ``latest_s`` (switches,) is when the last of a switch's meters was modified */
    const int32_t *meter, *switch_of;
    const MeterStats *stats;
    const double *received_s, *confirmed_s, *modified_s;
    double *latest_s;
} Listed;

typedef struct { /* MeterCounters */
    double *byte_in, *dropped, *duration_s, *epoch_s, *received_s;
} Counters;

typedef struct { /* MeterRates */
    double *offered, *dropped, *passed;
    uint8_t *implausible;
    double *seen_s;
    uint8_t *too_soon; /* of Seen; NULL: nobody asks */
} Rates;

typedef struct { /* Measurement */
    double *offered, *dropped, *passed, *smoothed;
    int16_t *silent;
} Measured;

typedef struct {
    double least_elapsed_s, plausible, bits_per_byte;
} Plausible;

/* The meters of one receiver's entries lie apart, each in a line of its own. */
enum { LINES_AHEAD = 24, LINE = 8 };

/* A switch confirmed its last message, and so says nothing of meters that were modified before the latest of them. */
static void find_latest(i64 n, const Listed *from)
{
    for (i64 i = 0; from->modified_s && i < n; i++)
        if (from->meter[i] >= 0 && from->modified_s[i] > from->latest_s[from->switch_of[i]])
            from->latest_s[from->switch_of[i]] = from->modified_s[i];
}

/* What switches said of the meters of ``n`` rows from ``start`` on, of ``rows`` in all. Counters that are unavailable leave the
 * row unread. */
static void read_listed(i64 start, i64 n, i64 rows, const Listed *from, const Readings *to)
{
    double *restrict byte_in = to->byte_in, *restrict dropped = to->dropped, *restrict duration_s = to->duration_s;
    double *restrict received_s = to->received_s, *restrict confirmed_s = to->confirmed_s;
    uint8_t *restrict present = to->present;
    const int32_t *meter = from->meter + start, *switch_of = from->switch_of + start;
    const double *modified_s = from->modified_s ? from->modified_s + start : NULL;
    for (i64 i = 0; i < n; i++) {
        const MeterStats *ahead = &from->stats[meter[start + i + LINES_AHEAD < rows ? i + LINES_AHEAD : i]];
        AHEAD(&ahead->byte_in_count);
        AHEAD(&ahead->band_byte_count);
        const MeterStats *found = meter[i] < 0 ? NULL : &from->stats[meter[i]];
        int known = found && found->byte_in_count != UINT64_MAX && found->band_byte_count != UINT64_MAX;
        int earlier = !found || (modified_s && modified_s[i] < from->latest_s[switch_of[i]]);
        byte_in[i] = known ? (double)found->byte_in_count : (double)NAN;
        dropped[i] = known ? (double)found->band_byte_count : (double)NAN;
        duration_s[i] = known ? found->duration_s : (double)NAN;
        received_s[i] = known ? from->received_s[switch_of[i]] : (double)NAN;
        confirmed_s[i] = earlier ? (double)NAN : from->confirmed_s[switch_of[i]];
        present[i] = (uint8_t)known;
    }
}

/* Counters to rates. */
FOR_EACH_CPU
static void find_rates(i64 n, const Plausible *plausible, const Counters *before, const Readings *now,
                       const double *restrict capacity_bps, const Rates *rates, const Counters *after)
{
    const double *was_in = before->byte_in, *was_dropped = before->dropped, *was_duration_s = before->duration_s;
    const double *was_epoch_s = before->epoch_s, *was_received_s = before->received_s, *confirmed_s = now->confirmed_s;
    const double *byte_in = now->byte_in, *dropped = now->dropped, *duration_s = now->duration_s;
    const double *received_s = now->received_s;
    double *restrict offered_to = rates->offered, *restrict dropped_to = rates->dropped;
    double *restrict passed_to = rates->passed, *restrict seen_to = rates->seen_s, *restrict in_to = after->byte_in;
    double *restrict lost_to = after->dropped, *restrict duration_to = after->duration_s;
    double *restrict epoch_to = after->epoch_s, *restrict received_to = after->received_s;
    const double least_elapsed_s = plausible->least_elapsed_s, most_load = plausible->plausible;
    const double bits_per_byte = plausible->bits_per_byte;
    i64 there[BLOCK], soon[BLOCK];
    for (i64 first = 0, end; first < n; first = end) {
        end = block_end(first, n);
        widen(there, now->present + first, end - first);
        ONE_BY_ONE
        for (i64 i = first; i < end; i++) {
            double now_in = byte_in[i], now_dropped = dropped[i], now_s = duration_s[i], came_s = received_s[i];
            double last_in = was_in[i], last_dropped = was_dropped[i], last_s = was_duration_s[i];
            double last_came_s = was_received_s[i], epoch_s = was_epoch_s[i];
            /* 1 */
            double done_s = last_s + (confirmed_s[i] - last_came_s);
            i64 late = (epoch_s > last_s) & (done_s > epoch_s);
            epoch_s = late ? done_s : epoch_s;
            /* 2 */
            i64 restarted = now_s < last_s;
            double start_s = restarted ? 0.0 : epoch_s;
            double start_in = restarted ? 0.0 : last_in;
            double start_dropped = restarted ? 0.0 : last_dropped;
            /* 3 */
            double elapsed_s = now_s - start_s;
            i64 newer = there[i - first] & (elapsed_s >= least_elapsed_s);
            double per_second = bits_per_byte / (newer ? elapsed_s : (double)NAN);
            double offered_bps = (now_in - start_in) * per_second;
            double dropped_bps = (now_dropped - start_dropped) * per_second;
            /* 4 */
            i64 bad = (offered_bps < 0.0) | (dropped_bps < 0.0) | (offered_bps > most_load * capacity_bps[i]);
            offered_bps = bad ? (double)NAN : offered_bps;
            dropped_bps = bad ? (double)NAN : dropped_bps;
            double passed_bps = offered_bps - dropped_bps;
            offered_to[i] = offered_bps;
            dropped_to[i] = dropped_bps;
            passed_to[i] = passed_bps < 0.0 ? 0.0 : passed_bps;
            i64 known = offered_bps == offered_bps;
            seen_to[i] = known ? elapsed_s : (double)NAN;
            i64 read = newer | (there[i - first] & (elapsed_s != elapsed_s));
            in_to[i] = read ? now_in : last_in;
            lost_to[i] = read ? now_dropped : last_dropped;
            epoch_to[i] = read ? now_s : epoch_s;
            duration_to[i] = read ? now_s : last_s;
            received_to[i] = read ? came_s : last_came_s;
            soon[i - first] = there[i - first] & (bad ^ 1) & (known ^ 1);
            there[i - first] = bad;
        }
        narrow(rates->implausible + first, there, end - first);
        if (rates->too_soon)
            narrow(rates->too_soon + first, soon, end - first);
    }
}

/* Rates to what each sender sends, and for how many intervals its meter was not read, of a block. */
FOR_EACH_CPU
static void measure(i64 n, double memory, const Measured *before, const int16_t *restrict was_unread, const Rates *rates,
                    const Measured *after, int16_t *restrict unread)
{
    const double *was_offered = before->offered, *was_dropped = before->dropped, *was_passed = before->passed;
    const double *was_smoothed = before->smoothed, *offered = rates->offered, *dropped = rates->dropped;
    const double *passed = rates->passed;
    double *restrict offered_to = after->offered, *restrict dropped_to = after->dropped;
    double *restrict passed_to = after->passed, *restrict smoothed_to = after->smoothed;
    i64 silence[BLOCK], unread_for[BLOCK];
    widen_counts(silence, before->silent, n);
    widen_counts(unread_for, was_unread, n);
    ONE_BY_ONE
    for (i64 i = 0; i < n; i++) {
        double now_offered = offered[i], now_dropped = dropped[i], now_passed = passed[i];
        double last_offered = was_offered[i], last_dropped = was_dropped[i], last_passed = was_passed[i];
        double smoothed = was_smoothed[i];
        i64 known = now_offered == now_offered, silent = silence[i], more = one_more(unread_for[i]);
        double offered_bps = chosen(known, now_offered, last_offered), passed_bps = chosen(known, now_passed, last_passed);
        i64 now_silent = offered_bps > 0.0 ? 0 : one_more(silent);
        offered_to[i] = offered_bps;
        dropped_to[i] = chosen(known, now_dropped, last_dropped);
        passed_to[i] = passed_bps;
        smoothed_to[i] = smoothed + (passed_bps - smoothed) / memory;
        silence[i] = known ? now_silent : silent;
        unread_for[i] = known ? 0 : more;
    }
    narrow_counts(after->silent, silence, n);
    narrow_counts(unread, unread_for, n);
}

/* Add what the ``n`` entries send to the sums of their receivers, (4, vns): passed, smoothed, dropped and offered. They stay in
 * registers while the receiver is the same. */
static void add_up(i64 n, i64 vns, const i64 *receiver, const Measured *measured, double *sums)
{
    const double *passed = measured->passed, *smoothed = measured->smoothed;
    const double *dropped = measured->dropped, *offered = measured->offered;
    for (i64 i = 0; i < n;) {
        i64 r = receiver[i];
        double passed_sum = sums[r], smoothed_sum = sums[vns + r], dropped_sum = sums[2 * vns + r];
        double offered_sum = sums[3 * vns + r];
        do {
            passed_sum += passed[i];
            smoothed_sum += smoothed[i];
            dropped_sum += dropped[i];
            offered_sum += offered[i];
        } while (++i < n && receiver[i] == r);
        sums[r] = passed_sum;
        sums[vns + r] = smoothed_sum;
        sums[2 * vns + r] = dropped_sum;
        sums[3 * vns + r] = offered_sum;
    }
}

#define C(number) column(columns, number)

/* Fetch the rows ``first`` to ``end`` of columns of eight octets, which are more than the hardware follows. Those that are written to
 * are fetched as well before they are. */
static void fetch(PyObject *columns, int from, int to, i64 first, i64 end)
{
    for (int number = from; number <= to; number++) {
        const double *rows = C(number);
        for (i64 i = first; i < end; i += LINE)
            AHEAD(rows + i);
    }
}

static Listed listed_at(PyObject *columns, int first, i64 modified)
{
    return (Listed){C(first),     C(first + 1), C(first + 2), C(first + 3), C(first + 4), modified ? C(first + 5) : NULL,
                    C(first + 6)};
}

static Readings readings_at(PyObject *columns, int first)
{
    return (Readings){C(first), C(first + 1), C(first + 2), C(first + 3), C(first + 4), C(first + 5)};
}

/* The readings of all rows; meters are ``modified``, or never are. */
i64 dets_read(PyObject *columns, i64 modified)
{
    if (!side_by_side(columns, 13))
        return NOT_SIDE_BY_SIDE;
    const Listed from = listed_at(columns, 0, modified);
    const Readings to = readings_at(columns, 7);
    i64 n = rows_of(columns, 0);
    find_latest(n, &from);
    read_listed(0, n, n, &from, &to);
    return 0;
}

i64 dets_meter_rates(PyObject *columns, double least_elapsed_s, double plausible, double bits_per_byte)
{
    if (!side_by_side(columns, 22))
        return NOT_SIDE_BY_SIDE;
    const Plausible set = {least_elapsed_s, plausible, bits_per_byte};
    const Counters before = {C(0), C(1), C(2), C(3), C(4)}, after = {C(17), C(18), C(19), C(20), C(21)};
    const Readings now = readings_at(columns, 5);
    const Rates rates = {C(12), C(13), C(14), C(15), C(16), NULL};
    find_rates(rows_of(columns, 0), &set, &before, &now, C(11), &rates, &after);
    return 0;
}

/* All of look, block by block; the next block is fetched while one is worked on. Behind COLUMNS_OF_LOOK come ListedReadings, if
 * ``listed``, or MeterReadings. */
enum { COLUMNS_OF_LOOK = 29 };
i64 dets_look(PyObject *columns, double least_elapsed_s, double plausible, double bits_per_byte, double memory, i64 listed)
{
    if (!side_by_side(columns, COLUMNS_OF_LOOK + (listed ? 7 : 6)))
        return NOT_SIDE_BY_SIDE;
    const Plausible set = {least_elapsed_s, plausible, bits_per_byte};
    const i64 *sender = C(0), *receiver = C(1);
    const int16_t *was_unread = C(13);
    const double *capacity_of = C(2);
    const Counters before = {C(3), C(4), C(5), C(6), C(7)}, after = {C(14), C(15), C(16), C(17), C(18)};
    const Measured was = {C(8), C(9), C(10), C(11), C(12)}, is = {C(19), C(20), C(21), C(22), C(23)};
    int16_t *unread = C(24);
    i64 n = rows_of(columns, 0), vns = rows_of(columns, 2);
    double *seen_s = C(25), *sums = C(28);
    uint8_t *implausible = C(26), *too_soon = C(27);
    const Listed from = listed ? listed_at(columns, COLUMNS_OF_LOOK, 1) : (Listed){0};
    const Readings given = readings_at(columns, COLUMNS_OF_LOOK);
    double column_of[9][BLOCK];
    uint8_t there[BLOCK];
    const Readings held = {column_of[0], column_of[1], column_of[2], column_of[3], there, column_of[4]};
    double *capacity_bps = column_of[8];
    if (listed)
        find_latest(n, &from);
    for (i64 f = 0, end; f < n; f = end) {
        end = block_end(f, n);
        i64 next_end = block_end(end, n);
        fetch(columns, 0, 1, end, next_end);
        fetch(columns, 3, 11, end, next_end);
        fetch(columns, 14, 22, end, next_end);
        fetch(columns, 25, 25, end, next_end);
        Readings now = held;
        if (listed)
            read_listed(f, end - f, n, &from, &now);
        else
            now = (Readings){given.byte_in + f,    given.dropped + f, given.duration_s + f,
                             given.received_s + f, given.present + f, given.confirmed_s + f};
        for (i64 i = f; i < end; i++)
            capacity_bps[i - f] = capacity_of[sender[i]];
        const Rates rates = {column_of[5], column_of[6], column_of[7], implausible + f, seen_s + f, too_soon + f};
        const Counters last = {before.byte_in + f, before.dropped + f, before.duration_s + f, before.epoch_s + f,
                               before.received_s + f};
        const Counters next = {after.byte_in + f, after.dropped + f, after.duration_s + f, after.epoch_s + f,
                               after.received_s + f};
        find_rates(end - f, &set, &last, &now, capacity_bps, &rates, &next);
        const Measured then = {was.offered + f, was.dropped + f, was.passed + f, was.smoothed + f, was.silent + f};
        const Measured here = {is.offered + f, is.dropped + f, is.passed + f, is.smoothed + f, is.silent + f};
        measure(end - f, memory, &then, was_unread + f, &rates, &here, unread + f);
        add_up(end - f, vns, receiver + f, &here, sums);
    }
    return 0;
}
