/* Numbers that begin at any octet, as in what others sent, and rows that are side by side. */
#ifndef DETS_OCTETS_H
#define DETS_OCTETS_H

#include <stdint.h>

typedef int64_t i64;
typedef uint32_t loose_u32 __attribute__((aligned(1), may_alias));
typedef uint64_t loose_u64 __attribute__((aligned(1), may_alias));

enum { MIN_RUN = 16 }; /* rows side by side that are worth copying as a whole */

/* Return how many of ``rows``, which ascend, are side by side from the one at ``i`` on, up to ``end``: 0 for less than MIN_RUN.
 * Those of one peer mostly are: VNs of a switch follow each other. So few of the numbers are looked at. */
static inline i64 run(const i64 *rows, i64 i, i64 end)
{
    i64 n = MIN_RUN, step = MIN_RUN, doubles = 1;
    if (end - i < n || rows[i + n - 1] - rows[i] != n - 1)
        return 0;
    for (; step; step = doubles ? 2 * step : step / 2) {
        if (end - i >= n + step && rows[i + n + step - 1] - rows[i] == n + step - 1)
            n += step;
        else
            doubles = 0;
    }
    return n;
}

/* Return where the rows end that can be done together with the one at ``i``: so many ``side_by`` side, or else a few. */
static inline i64 together(i64 i, i64 side_by, i64 end)
{
    i64 n = side_by ? side_by : MIN_RUN;
    return n < end - i ? i + n : end;
}

#endif
