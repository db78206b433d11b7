/* What crosses between shards, compiled: the same bits as receiver_table.py, merged_reports.py, pair_partition.py and
 * received_grants.py make in numpy. Columns of frames begin at any octet. */
#include "../_module.h"
#include "../_unaligned.h"

/* Return 1 if every one of the rows, which ascend, is in another state than ``idle``, or silent for less than ``idle_intervals``. */
i64 dets_all_told(PyObject *columns, i64 idle, i64 idle_intervals)
{
    if (!side_by_side(columns, 3))
        return NOT_SIDE_BY_SIDE;
    i64 n = rows_of(columns, 0);
    const i64 *rows = column(columns, 0);
    const int8_t *control = column(columns, 1);
    const int16_t *silent = column(columns, 2);
    int untold = 0;
    for (i64 i = 0, end; i < n; i = end) {
        i64 side_by = run(rows, i, n);
        end = together(i, side_by, n);
        for (i64 k = i; k < end && !side_by; k++)
            untold |= (control[rows[k]] == idle) & (silent[rows[k]] >= idle_intervals);
        for (i64 row = rows[i]; row < rows[i] + side_by; row++)
            untold |= (control[row] == (int8_t)idle) & (silent[row] >= (int16_t)idle_intervals);
    }
    return !untold;
}

/* Put rates in force that peers grant. Columns are: which receivers are wanted under control (vns,); receivers and states of all
 * entries, their limits and unheard intervals, and those after it, which are written; for each peer the rows that lead to it,
 * those that it grants a rate, and the rates; and the rows that are ``kept`` as they were, several columns. The others are taken
 * to be written already. Return 1 if all that lead to a peer are idle or not as is wanted, and all that it grants a rate
 * limited. Where these are the same column, their receivers are wanted. */
i64 dets_obey(PyObject *columns, i64 idle, i64 limited, i64 parts, i64 kept)
{
    const int first_part = 7, first_kept = first_part + 3 * (int)parts;
    if (!side_by_side(columns, first_kept + kept))
        return NOT_SIDE_BY_SIDE;
    const uint8_t *wanted = column(columns, 0);
    const i64 *receiver = column(columns, 1);
    const int8_t *control = column(columns, 2);
    const uint64_t *before_bps = column(columns, 3);
    const int16_t *unheard_before = column(columns, 4);
    uint64_t *limit_bps = column(columns, 5);
    int16_t *unheard = column(columns, 6);
    i64 other = 0;
    for (int p = 0; p < parts; p++) {
        int first = first_part + 3 * p;
        const i64 *theirs = column(columns, first), *rows = column(columns, first + 1);
        const loose_u64 *rate_bps = column(columns, first + 2);
        for (i64 i = 0; theirs != rows && i < rows_of(columns, first); i++)
            other |= wanted[receiver[theirs[i]]] ^ (control[theirs[i]] != idle);
        for (i64 i = 0, n = rows_of(columns, first + 1), end; i < n; i = end) {
            i64 side_by = run(rows, i, n);
            end = together(i, side_by, n);
            if (side_by) {
                int8_t unlimited = 0;
                for (i64 row = rows[i]; row < rows[i] + side_by; row++)
                    unlimited |= control[row] ^ (int8_t)limited;
                other |= unlimited;
                memcpy(limit_bps + rows[i], rate_bps + i, 8 * (size_t)side_by);
                memset(unheard + rows[i], 0, sizeof *unheard * (size_t)side_by);
                continue;
            }
            for (i64 k = i; k < end; k++) {
                other |= control[rows[k]] ^ limited;
                limit_bps[rows[k]] = rate_bps[k];
                unheard[rows[k]] = 0;
            }
        }
    }
    for (int p = first_kept; p < first_kept + kept; p++) {
        const i64 *rows = column(columns, p);
        for (i64 i = 0, n = rows_of(columns, p), end; i < n; i = end) {
            i64 side_by = run(rows, i, n);
            end = together(i, side_by, n);
            if (side_by) {
                memcpy(limit_bps + rows[i], before_bps + rows[i], 8 * (size_t)side_by);
                memcpy(unheard + rows[i], unheard_before + rows[i], sizeof *unheard * (size_t)side_by);
                continue;
            }
            for (i64 k = i; k < end; k++) {
                limit_bps[rows[k]] = before_bps[rows[k]];
                unheard[rows[k]] = unheard_before[rows[k]];
            }
        }
    }
    return !other;
}

/* Add what each of several parts brings to receivers to what these get, three columns. For each part come the receivers, and what it
 * brings to them, three columns again. */
i64 dets_bring(PyObject *columns, i64 parts)
{
    if (!side_by_side(columns, 3 + 4 * parts))
        return NOT_SIDE_BY_SIDE;
    for (int p = 0; p < parts; p++) {
        int first = 3 + 4 * p;
        const i64 *row = column(columns, first);
        for (int c = 0; c < 3; c++) {
            double *whole = column(columns, c);
            const char *brought = column(columns, first + 1 + c);
            for (i64 i = 0; i < rows_of(columns, first); i++) {
                double more;
                memcpy(&more, brought + 8 * i, sizeof more);
                whole[row[i]] += more;
            }
        }
    }
    return 0;
}

enum { TABLE_BLOCK = 4096 }; /* rows of a table that stay in the second cache while part after part is put there */

/* The columns that one part puts in a table, and where its rows are there. A column that is as long as the table, ``rows``, has its
 * own where the table has them. */
typedef struct {
    PyObject *columns;
    int first, whole, eights, count; /* the first of this part's columns, of the table's; how many of eight octets, and in all */
    i64 rows;
    const i64 *place, *own; /* ``own``: which of its rows they are, NULL: all */
} Part;

/* Put the rows from ``start`` to ``end`` there; all are ``side_by`` side both here and there, or it is 0. */
static inline void put(const Part *part, i64 start, i64 end, i64 side_by)
{
    const i64 *place = part->place, *own = part->own;
    for (int c = 0; c < part->count; c++) {
        void *whole = column(part->columns, part->whole + c);
        const void *from = column(part->columns, part->first + c);
        i64 width = c < part->eights ? 8 : 1, there = place[start];
        int placed = !own && c < part->eights && rows_of(part->columns, part->first + c) == part->rows;
        i64 here = own ? own[start] : placed ? there : start;
        if (side_by)
            memcpy((char *)whole + width * there, (const char *)from + width * here, (size_t)(width * side_by));
        else if (c >= part->eights)
            for (i64 i = start; i < end; i++)
                ((uint8_t *)whole)[place[i]] = ((const uint8_t *)from)[own ? own[i] : i];
        else
            for (i64 i = start; i < end; i++)
                ((uint64_t *)whole)[place[i]] = ((const loose_u64 *)from)[own ? own[i] : placed ? place[i] : i];
    }
}

/* Put ``columns`` of several parts together in one table. First come the whole table's columns; then for each part where its rows
 * are in the table, ascending, and its columns. Those of the first part are picked by ``own``, ascending, which comes before all.
 * Columns of eight octets are before those of one; such a one that is as long as the table has its rows where the table has them. */
i64 dets_merge(PyObject *columns, i64 parts, i64 eights, i64 ones)
{
    int count = (int)(eights + ones);
    if (!side_by_side(columns, 1 + count + parts * (1 + count)))
        return NOT_SIDE_BY_SIDE;
    const i64 *own = column(columns, 0);
    i64 rows = count ? rows_of(columns, 1) : 0;
    i64 done[parts];
    memset(done, 0, sizeof done);
    for (i64 to = TABLE_BLOCK; to - TABLE_BLOCK < rows; to += TABLE_BLOCK) {
        for (int p = 0; p < parts; p++) {
            int first = 1 + count + p * (1 + count);
            const i64 *place = column(columns, first);
            i64 i = done[p], n = rows_of(columns, first);
            Part part = {columns, first + 1, 1, (int)eights, count, rows, place, p ? NULL : own};
            for (i64 end; i < n && place[i] < to; i = end) {
                i64 side_by = run(place, i, n);
                if (side_by && !p)
                    side_by = run(own, i, i + side_by);
                end = together(i, side_by, n);
                put(&part, i, end, side_by);
            }
            done[p] = i;
        }
    }
    return 0;
}

/* Write what all rows are granted, and which of them have another rate: ``rows``, ascending, ``rows_bps``, the others what is in force. */
i64 dets_granted(PyObject *columns)
{
    if (!side_by_side(columns, 5))
        return NOT_SIDE_BY_SIDE;
    i64 n = rows_of(columns, 0), granted = rows_of(columns, 1), done = 0;
    const uint64_t *in_force = column(columns, 0), *rows_bps = column(columns, 2);
    const i64 *rows = column(columns, 1);
    uint64_t *rate_bps = column(columns, 3);
    uint8_t *changed = column(columns, 4);
    for (i64 from = 0, to; from < n; from = to) {
        to = from + TABLE_BLOCK < n ? from + TABLE_BLOCK : n;
        memcpy(rate_bps + from, in_force + from, 8 * (size_t)(to - from));
        memset(changed + from, 0, (size_t)(to - from));
        while (done < granted && rows[done] < to) {
            i64 side_by = run(rows, done, granted), end = together(done, side_by, granted);
            if (side_by) {
                end = rows[done] + side_by > to ? done + to - rows[done] : end;
                memcpy(rate_bps + rows[done], rows_bps + done, 8 * (size_t)(end - done));
                memset(changed + rows[done], 1, (size_t)(end - done));
                done = end;
            }
            for (; done < end && rows[done] < to; done++) {
                rate_bps[rows[done]] = rows_bps[done];
                changed[rows[done]] = 1;
            }
        }
    }
    return 0;
}

/* Part the rows ``own`` whose rate at ``place``, ascending, has changed, with their rates, from those whose has not; those without one
 * (NaN) are in neither. ``counts`` are how many there are of each. The columns written to have room for one more row each. */
i64 dets_to_own(PyObject *columns)
{
    if (!side_by_side(columns, 8))
        return NOT_SIDE_BY_SIDE;
    i64 n = rows_of(columns, 2), moving = 0, staying = 0;
    const double *rate_bps = column(columns, 0);
    const uint8_t *changed = column(columns, 1);
    const i64 *place = column(columns, 2), *own = column(columns, 3);
    i64 *moved = column(columns, 4), *stay = column(columns, 6), *counts = column(columns, 7);
    double *moved_bps = column(columns, 5);
    for (i64 i = 0; i < n; i++) {
        double rate = rate_bps[place[i]];
        i64 moves = changed[place[i]];
        moved[moving] = stay[staying] = own[i];
        moved_bps[moving] = rate;
        moving += moves;
        staying += !moves & (rate == rate);
    }
    counts[0] = moving;
    counts[1] = staying;
    return 0;
}

/* Return 1 if the rates at ``place`` are those of the rows ``own``, both ascending. */
i64 dets_same(PyObject *columns)
{
    if (!side_by_side(columns, 4))
        return NOT_SIDE_BY_SIDE;
    i64 n = rows_of(columns, 1);
    const double *rate_bps = column(columns, 0), *own_bps = column(columns, 2);
    const i64 *place = column(columns, 1), *own = column(columns, 3);
    int other = 0;
    for (i64 i = 0, end; i < n && !other; i = end) {
        i64 side_by = run(place, i, n);
        side_by = side_by ? run(own, i, i + side_by) : 0;
        end = together(i, side_by, n);
        for (i64 k = 0; k < side_by; k++)
            other |= rate_bps[place[i] + k] != own_bps[own[i] + k];
        for (i64 k = i; k < end && !side_by; k++)
            other |= rate_bps[place[k]] != own_bps[own[k]];
    }
    return !other;
}

PASS(dets_all_told, WHOLE(1), WHOLE(2))
PASS(dets_obey, WHOLE(1), WHOLE(2), WHOLE(3), WHOLE(4))
PASS(dets_bring, WHOLE(1))
PASS(dets_merge, WHOLE(1), WHOLE(2), WHOLE(3))
PASS(dets_granted)
PASS(dets_to_own)
PASS(dets_same)
MODULE(_shard, OF(dets_all_told), OF(dets_obey), OF(dets_bring), OF(dets_merge), OF(dets_granted), OF(dets_to_own), OF(dets_same))
