/* Meters between the wire and columns, compiled: what meters.py does in numpy, in one pass, with the same bytes and bits.
 *
 * Only the usual: meters of one band, and meter-mods that add or modify. The numpy form does everything else, and says
 * what is wrong with what cannot be.
 */
#include "../_module.h"

#include <arpa/inet.h>
#include <string.h>

#include "_meter_stats.h"

typedef int64_t i64;

enum { MOD_BYTES = 32 };
enum { XID_AT = 4, COMMAND_AT = 8, METER_AT = 12, RATE_AT = 20, BURST_AT = 24 };

static inline void put_2(uint8_t *at, i64 value) /* one store: a loop over octets is not made into one */
{
    uint16_t octets = htons((uint16_t)value);
    memcpy(at, &octets, sizeof octets);
}

static inline void put_4(uint8_t *at, i64 value)
{
    uint32_t octets = htonl((uint32_t)value);
    memcpy(at, &octets, sizeof octets);
}

/* Write the records of a meter-stats reply (octets,), all of them whole, into the next column; return how many in the beginning have
 * one band. */
i64 dets_decode_meters(PyObject *columns)
{
    if (!side_by_side(columns, 2))
        return NOT_SIDE_BY_SIDE;
    const uint8_t *from = column(columns, 0);
    return (decode_meter_stats(from, from + rows_of(columns, 0), column(columns, 1)) - from) / STATS_BYTES;
}

/* Order the meters to modify by switch, as they come within each, into ``mods`` (rows, 4) of command, meter_id, rate_kbps and
 * burst_kbits. ``rows`` are entries, each with its ``sender`` and what its meter is; ``switch_of`` is by sender. ``ends``
 * (switches,) begins at zero, and gets where those of each switch end. */
i64 dets_modify_meters(PyObject *columns, i64 command)
{
    if (!side_by_side(columns, 8))
        return NOT_SIDE_BY_SIDE;
    i64 n = rows_of(columns, 0), switches = rows_of(columns, 6), first = 0;
    const i64 *rows = column(columns, 0), *sender = column(columns, 3), *meter_id = column(columns, 4);
    const uint32_t *rate_kbps = column(columns, 1), *burst_kbits = column(columns, 2);
    const uint16_t *switch_of = column(columns, 5);
    i64 *ends = column(columns, 6);
    uint32_t (*mods)[4] = column(columns, 7);
    for (i64 i = 0; i < n; i++)
        ends[switch_of[sender[rows[i]]]]++;
    for (i64 s = 0; s < switches; s++) { /* where each begins: it ends where its last one has been put */
        i64 count = ends[s];
        ends[s] = first;
        first += count;
    }
    for (i64 i = 0; i < n; i++) {
        i64 row = rows[i];
        uint32_t *mod = mods[ends[switch_of[sender[row]]]++];
        mod[0] = (uint32_t)command;
        mod[1] = (uint32_t)meter_id[row];
        mod[2] = rate_kbps[row];
        mod[3] = burst_kbits[row];
    }
    return 0;
}

/* Write the meter-mods of one switch after the other, as ``template`` has them but for their values: those of switch s are the
 * rows command, meter_id, rate_kbps and burst_kbits of the column FIRST_SWITCH + s, have xids from ``xid[s]`` on, and the
 * switch's ``tail`` (a message of a header alone, or nothing) follows them with the next one. They go to the column that is as
 * many behind that as there are switches. Return how many rows can be so: all, or those before one with a value that its field
 * does not carry, or with another command than to add or to modify. */
enum { FIRST_SWITCH = 3 };
i64 dets_encode_meters(PyObject *columns, i64 last_command, i64 last_meter, i64 tail_bytes)
{
    i64 switches = rows_of(columns, 0), done = 0;
    if (!side_by_side(columns, FIRST_SWITCH + 2 * switches))
        return NOT_SIDE_BY_SIDE;
    const i64 *xid = column(columns, 0);
    const uint8_t *template = column(columns, 1), *tail = column(columns, 2);
    for (i64 s = 0; s < switches; s++) {
        uint8_t *to = column(columns, FIRST_SWITCH + (int)(switches + s));
        const uint32_t (*mod)[4] = column(columns, FIRST_SWITCH + (int)s);
        i64 next = xid[s];
        for (i64 i = 0, n = rows_of(columns, FIRST_SWITCH + (int)s); i < n; i++, done++, to += MOD_BYTES) {
            i64 command = mod[i][0], meter_id = mod[i][1], rate_kbps = mod[i][2], burst_kbits = mod[i][3];
            if ((command > last_command) | (meter_id < 1) | (meter_id > last_meter) | (rate_kbps < 1) | (burst_kbits < 1))
                return done;
            memcpy(to, template, MOD_BYTES);
            put_4(to + XID_AT, next++);
            put_2(to + COMMAND_AT, command);
            put_4(to + METER_AT, meter_id);
            put_4(to + RATE_AT, rate_kbps);
            put_4(to + BURST_AT, burst_kbits);
        }
        if (tail_bytes) {
            memcpy(to, tail, (size_t)tail_bytes);
            put_4(to + XID_AT, next);
        }
    }
    return done;
}

PASS(dets_decode_meters)
PASS(dets_modify_meters, WHOLE(1))
PASS(dets_encode_meters, WHOLE(1), WHOLE(2), WHOLE(3))
MODULE(_meter_codec, OF(dets_decode_meters), OF(dets_modify_meters), OF(dets_encode_meters))
