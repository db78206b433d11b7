/* The entries of a flow-stats reply without what changes by itself, compiled: what switch/flow_stats_reader.py does in numpy. */
#include "../_module.h"

typedef int64_t i64;

enum { TORN = -2, SMALLEST = 56, AGE_AT = 4, AGE_BYTES = 8, COUNTERS_AT = 32, COUNTERS_BYTES = 16 };

/* ``columns`` are the body of the reply and as much room. Copies whole entries from ``offset`` on, ``most`` of them if there are
 * as many, ages and counters as zeros; returns how many octets that are, TORN where a length is wrong. */
int64_t dets_still(PyObject *columns, int64_t offset, int64_t most)
{
    if (!side_by_side(columns, 2))
        return NOT_SIDE_BY_SIDE;
    const uint8_t *body = column(columns, 0);
    uint8_t *to = column(columns, 1);
    i64 octets = rows_of(columns, 0), room = rows_of(columns, 1), done = 0;
    for (i64 entry = 0; entry < most && offset < octets; entry++) {
        if (octets - offset < SMALLEST)
            return TORN;
        i64 length = body[offset] << 8 | body[offset + 1];
        if (length < SMALLEST || length > octets - offset)
            return TORN;
        if (length > room - done)
            break;
        memcpy(to + done, body + offset, (size_t)length);
        memset(to + done + AGE_AT, 0, AGE_BYTES);
        memset(to + done + COUNTERS_AT, 0, COUNTERS_BYTES);
        offset += length;
        done += length;
    }
    return done;
}

PASS(dets_still, WHOLE(1), WHOLE(2))
MODULE(_flow_stats, OF(dets_still))
