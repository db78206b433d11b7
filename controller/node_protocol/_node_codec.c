/* Frames, compiled: the same bytes and bits as encoder.py and decoder.py make in numpy.
 *
 * Columns of frames begin at any octet. What peers said is only compared here: whatever is not as it mostly is, the numpy form
 * looks at, and says what is wrong.
 */
#include "../_module.h"
#include "../_unaligned.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__)
#define FOR_EACH_CPU __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define FOR_EACH_CPU
#endif

/* Write the ``rows`` of columns, ascending, into ``to``, each column as a whole: first those of eight octets, then those of which
 * the lower four count, then those of one. The columns begin behind ``rows`` and ``to``. Return how many octets that were. */
i64 dets_say(PyObject *columns, i64 eights, i64 fours, i64 ones)
{
    i64 count = eights + fours + ones;
    if (!side_by_side(columns, 2 + count))
        return NOT_SIDE_BY_SIDE;
    i64 n = rows_of(columns, 0);
    const i64 *rows = column(columns, 0);
    uint8_t *to = column(columns, 1);
    for (i64 start = 0, end; start < n; start = end) {
        i64 side_by = run(rows, start, n);
        uint8_t *at = to;
        end = together(start, side_by, n);
        for (i64 c = 0; c < count; c++) {
            const void *from = column(columns, 2 + (int)c);
            if (c < eights && side_by) {
                memcpy(at + 8 * start, (const uint64_t *)from + rows[start], 8 * (size_t)side_by);
                at += 8 * n;
            } else if (c < eights) {
                for (i64 i = start; i < end; i++)
                    ((loose_u64 *)at)[i] = ((const uint64_t *)from)[rows[i]];
                at += 8 * n;
            } else if (c < eights + fours) {
                for (i64 i = start; i < end; i++)
                    ((loose_u32 *)at)[i] = (uint32_t)((const uint64_t *)from)[rows[i]];
                at += 4 * n;
            } else {
                for (i64 i = start; i < end; i++)
                    at[i] = ((const uint8_t *)from)[rows[i]];
                at += n;
            }
        }
    }
    return n * (8 * eights + 4 * fours + ones);
}

/* Numbers from 0 up are in the order of their bits, and others have the sign: so whole numbers tell which are rates. A negative
 * zero is one that the numpy form has to look at. */
FOR_EACH_CPU static int are_rates(i64 n, int unlimited, uint64_t most, const loose_u64 *rates)
{
    const uint64_t none = unlimited ? 0x7ff0000000000000 : 0; /* infinity */
    uint64_t wrong = 0;
    for (i64 i = 0; i < n; i++) {
        uint64_t bits = rates[i] == none ? 0 : rates[i];
        wrong |= bits | (most - bits);
    }
    return !(wrong >> 63);
}

/* Return 1 if so many columns from the ``first`` on hold nothing but 0 and 1. */
static int are_flags(PyObject *columns, int first, i64 count)
{
    uint8_t any = 0;
    for (int c = first; c < first + count; c++) {
        const uint8_t *flags = column(columns, c);
        for (i64 i = 0, n = rows_of(columns, c); i < n; i++)
            any |= flags[i];
    }
    return any <= 1;
}

FOR_EACH_CPU static int are_rows(i64 n, const loose_u32 *rows, const i64 *before)
{
    i64 other = 0;
    for (i64 i = 0; i < n; i++)
        other |= (i64)rows[i] ^ before[i];
    return !other;
}

/* Return 1 if the entries of a frame are as they mostly are: ``rates`` (columns, entries) are rates up to ``most_bps``, of the
 * column ``unlimited`` (-1: none) infinity too; ``named`` columns of rows are those of the frame before, which is behind each;
 * and the last ``flagged`` columns are of flags that are 0 or 1. */
i64 dets_as_before(PyObject *columns, i64 unlimited, i64 named, i64 flagged, double most_bps)
{
    int behind = 1 + 2 * (int)named;
    if (!side_by_side(columns, behind + flagged))
        return NOT_SIDE_BY_SIDE;
    i64 rates = rows_of(columns, 0), n = width_of(columns, 0);
    const loose_u64 *rates_of = column(columns, 0);
    uint64_t most;
    memcpy(&most, &most_bps, sizeof most);
    int good = are_flags(columns, behind, flagged);
    for (i64 c = 0; c < rates; c++)
        good &= are_rates(n, c == unlimited, most, rates_of + c * n);
    for (int c = 1; c < behind; c += 2)
        good &= rows_of(columns, c + 1) == n && are_rows(n, column(columns, c), column(columns, c + 1));
    return good;
}

/* Return 1 if the first table of a frame is right: ``rates`` (columns, rows) are rates up to ``most_bps``, the rows are ascending
 * and below ``bound``, and the last ``flagged`` columns are of flags that are 0 or 1. */
i64 dets_listed(PyObject *columns, i64 bound, i64 flagged, double most_bps)
{
    if (!side_by_side(columns, 2 + flagged))
        return NOT_SIDE_BY_SIDE;
    i64 n = rows_of(columns, 1);
    const loose_u32 *rows = column(columns, 1);
    uint64_t most;
    memcpy(&most, &most_bps, sizeof most);
    int good = are_rates(n * rows_of(columns, 0), 0, most, column(columns, 0)) & are_flags(columns, 2, flagged);
    for (i64 i = 1; i < n; i++)
        good &= rows[i - 1] < rows[i];
    return good & (!n || (i64)rows[n - 1] < bound);
}

/* Look at a whole frame that does not name its pairs. Its first table begins at octet ``at`` and has so many ``rows``, columns of rates,
 * of rows of which the first is ascending and below ``bound``, and of flags; so has its second, of whose rates those of the column
 * ``unlimited`` (-1: none) may be infinite. Columns are the frame's octets, and the first column of rows of a frame before. Return
 * 1 if everything is right, 2 if that column is as before, too, else 0. */
i64 dets_right(PyObject *columns, i64 at, i64 rows, i64 eights, i64 fours, i64 ones, i64 entries, i64 entries_eights,
               i64 entries_fours, i64 entries_ones, i64 bound, i64 unlimited, double most_bps)
{
    if (!side_by_side(columns, 2))
        return NOT_SIDE_BY_SIDE;
    const uint8_t *octets = column(columns, 0);
    i64 behind = at + rows * (8 * eights + 4 * fours + ones);
    i64 flags = behind + entries * (8 * entries_eights + 4 * entries_fours), end = flags + entries * entries_ones;
    if (end != rows_of(columns, 0))
        return 0;
    const loose_u32 *named = (const loose_u32 *)(octets + at + 8 * rows * eights);
    uint64_t most;
    memcpy(&most, &most_bps, sizeof most);
    uint8_t any_flag = 0;
    int good = are_rates(rows * eights, 0, most, (const loose_u64 *)(octets + at));
    for (i64 c = 0; c < entries_eights; c++)
        good &= are_rates(entries, c == unlimited, most, (const loose_u64 *)(octets + behind) + c * entries);
    for (i64 i = 1; i < rows; i++)
        good &= named[i - 1] < named[i];
    good &= !rows || (i64)named[rows - 1] < bound;
    for (i64 i = behind - rows * ones; i < behind; i++)
        any_flag |= octets[i];
    for (i64 i = flags; i < end; i++)
        any_flag |= octets[i];
    if (!good || any_flag > 1)
        return 0;
    return rows_of(columns, 1) == rows && are_rows(rows, named, column(columns, 1)) ? 2 : 1;
}

PASS(dets_say, WHOLE(1), WHOLE(2), WHOLE(3))
PASS(dets_as_before, WHOLE(1), WHOLE(2), WHOLE(3), REAL(4))
PASS(dets_listed, WHOLE(1), WHOLE(2), REAL(3))
PASS(dets_right, WHOLE(1), WHOLE(2), WHOLE(3), WHOLE(4), WHOLE(5), WHOLE(6), WHOLE(7), WHOLE(8), WHOLE(9), WHOLE(10), WHOLE(11),
     REAL(12))
MODULE(_node_codec, OF(dets_say), OF(dets_as_before), OF(dets_listed), OF(dets_right))
