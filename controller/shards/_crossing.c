/* What crosses between shards, compiled: the same bits as receiver_table.py, gathering.py, crossing.py and told.py make in
 * numpy. Columns of frames begin at any octet. */
#include <stdint.h>
#include <string.h>

#include "../_columns.h"
#include "../_octets.h"

/* Return 1 if every row is in another state than ``idle``, or silent for less than ``idle_intervals``. */
i64 dets_all_told(i64 idle, i64 idle_intervals, const char *columns)
{
    if (!side_by_side(columns, 3))
        return NOT_SIDE_BY_SIDE;
    i64 n = rows_of(columns, 0);
    const i64 *rows = column(columns, 0);
    const int8_t *control = column(columns, 1);
    const int16_t *silent = column(columns, 2);
    i64 untold = 0;
    for (i64 i = 0; i < n; i++)
        untold |= (control[rows[i]] == idle) & (silent[rows[i]] >= idle_intervals);
    return !untold;
}

/* Put rates in force that peers grant. Columns are: which receivers are wanted under control (vns,); receivers and states of all
 * entries, their limits and unheard intervals, which are written; and for each peer the rows that lead to it, those that it
 * grants a rate, and the rates. Return 1 if all of the first are idle or not as is wanted, and all of the second limited. Where
 * the rows are the same column, the receivers of all of them are wanted. */
i64 dets_obey(i64 idle, i64 limited, i64 parts, const char *columns)
{
    if (!side_by_side(columns, 5 + 3 * (int)parts))
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
        for (i64 i = 0; i < rows_of(columns, first + 1); i++) {
            other |= control[rows[i]] ^ limited;
            limit_bps[rows[i]] = rate_bps[i];
            unheard[rows[i]] = 0;
        }
    }
    return !other;
}

/* Add what each of several parts brings to receivers to what these get, three columns. For each part come the receivers, and what it
 * brings to them, three columns again. */
i64 dets_bring(i64 parts, const char *columns)
{
    if (!side_by_side(columns, 3 + 4 * (int)parts))
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

/* Put ``columns`` of several parts together in one table. First come the whole table's columns; then for each part where its rows
 * are in the table, and its columns. Those of the first part are picked by ``own``, which comes before all. Columns of eight
 * octets are before those of one; such a one that is as long as the table has its rows where the table has them. Each part's rows
 * ascend in the table; in another order they are put there later, but right. */
i64 dets_merge(i64 parts, i64 eights, i64 ones, const char *columns)
{
    int count = (int)(eights + ones);
    if (!side_by_side(columns, 1 + count + (int)parts * (1 + count)))
        return NOT_SIDE_BY_SIDE;
    const i64 *own = column(columns, 0);
    i64 rows = count ? rows_of(columns, 1) : 0;
    i64 done[parts];
    memset(done, 0, sizeof done);
    for (i64 to = TABLE_BLOCK; to - TABLE_BLOCK < rows; to += TABLE_BLOCK) {
        for (int p = 0; p < parts; p++) {
            int first = 1 + count + p * (1 + count);
            const i64 *place = column(columns, first);
            i64 n = rows_of(columns, first), start = done[p], end = start;
            while (end < n && place[end] < to)
                end++;
            for (int c = 0; c < count && start < end; c++) {
                void *whole = column(columns, 1 + c);
                const void *from = column(columns, first + 1 + c);
                if (c < eights && p && rows_of(columns, first + 1 + c) == rows)
                    for (i64 i = start; i < end; i++)
                        ((uint64_t *)whole)[place[i]] = ((const loose_u64 *)from)[place[i]];
                else if (c < eights && p)
                    for (i64 i = start; i < end; i++)
                        ((uint64_t *)whole)[place[i]] = ((const loose_u64 *)from)[i];
                else if (c < eights)
                    for (i64 i = start; i < end; i++)
                        ((uint64_t *)whole)[place[i]] = ((const uint64_t *)from)[own[i]];
                else if (p)
                    for (i64 i = start; i < end; i++)
                        ((uint8_t *)whole)[place[i]] = ((const uint8_t *)from)[i];
                else
                    for (i64 i = start; i < end; i++)
                        ((uint8_t *)whole)[place[i]] = ((const uint8_t *)from)[own[i]];
            }
            done[p] = end;
        }
    }
    return 0;
}
