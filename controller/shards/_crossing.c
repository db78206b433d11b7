/* What crosses between shards, compiled: the same bits as receiver_table.py, gathering.py, crossing.py and told.py make in
 * numpy. Columns of frames begin at any octet. */
#include "../_module.h"
#include "../_octets.h"

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
 * entries, their limits and unheard intervals, which are written; and for each peer the rows that lead to it, those that it
 * grants a rate, and the rates. Return 1 if all of the first are idle or not as is wanted, and all of the second limited. Where
 * the rows are the same column, the receivers of all of them are wanted. */
i64 dets_obey(PyObject *columns, i64 idle, i64 limited, i64 parts)
{
    if (!side_by_side(columns, 5 + 3 * parts))
        return NOT_SIDE_BY_SIDE;
    const uint8_t *wanted = column(columns, 0);
    const i64 *receiver = column(columns, 1);
    const int8_t *control = column(columns, 2);
    uint64_t *limit_bps = column(columns, 3);
    int16_t *unheard = column(columns, 4);
    i64 other = 0;
    for (int p = 0; p < parts; p++) {
        int first = 5 + 3 * p;
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

PASS(dets_all_told, WHOLE(1), WHOLE(2))
PASS(dets_obey, WHOLE(1), WHOLE(2), WHOLE(3))
PASS(dets_bring, WHOLE(1))
PASS(dets_merge, WHOLE(1), WHOLE(2), WHOLE(3))
MODULE(_crossing, OF(dets_all_told), OF(dets_obey), OF(dets_bring), OF(dets_merge))
