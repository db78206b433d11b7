/* Meters between the wire and columns, compiled: what meters.py does in numpy, in one pass, with the same bytes and bits.
 *
 * Only the usual: meters of one band, and meter-mods that add or modify. The numpy form does everything else, and says
 * what is wrong with what cannot be.
 */
#include <stdint.h>
#include <string.h>

#include "../_columns.h"

typedef int64_t i64;

typedef struct { /* METER_STATS of meters.py */
    uint32_t meter_id, flow_count;
    uint64_t packet_in_count, byte_in_count;
    double duration_s;
    uint64_t band_packet_count, band_byte_count;
} MeterStats;

enum { TORN = -2, STATS_BYTES = 56, MOD_BYTES = 32, LENGTH_AT = 4 };
enum { XID_AT = 4, COMMAND_AT = 8, METER_AT = 12, RATE_AT = 20, BURST_AT = 24 };

static uint64_t get(const uint8_t *at, int octets)
{
    uint64_t value = 0;
    for (int i = 0; i < octets; i++)
        value = value << 8 | at[i];
    return value;
}

static void put(uint8_t *at, uint64_t value, int octets)
{
    for (int i = octets - 1; i >= 0; i--, value >>= 8)
        at[i] = (uint8_t)value;
}

/* Write the records of meter-stats replies, the first ``parts`` columns, into the last one; return how many in the beginning
 * have one band, or TORN where a part ends within a record. */
i64 dets_decode_meters(i64 parts, const char *columns)
{
    if (!side_by_side(columns, (int)parts + 1))
        return NOT_SIDE_BY_SIDE;
    MeterStats *out = column(columns, (int)parts), *to = out;
    for (i64 p = 0; p < parts; p++) {
        const uint8_t *from = column(columns, (int)p), *end = from + rows_of(columns, (int)p);
        for (; from < end; from += STATS_BYTES, to++) {
            if (end - from < STATS_BYTES)
                return TORN;
            if (get(from + LENGTH_AT, 2) != STATS_BYTES)
                return to - out;
            to->meter_id = (uint32_t)get(from, 4);
            to->flow_count = (uint32_t)get(from + 12, 4);
            to->packet_in_count = get(from + 16, 8);
            to->byte_in_count = get(from + 24, 8);
            to->duration_s = (double)get(from + 32, 4) + (double)get(from + 36, 4) * 1e-9;
            to->band_packet_count = get(from + 40, 8);
            to->band_byte_count = get(from + 48, 8);
        }
    }
    return to - out;
}

/* Write the meter-mods of one switch after the other into ``out``, as ``template`` has them but for their values: those of
 * switch s end before row ``ends[s]``, have xids from ``xid[s]`` on, and the switch's ``tail`` (a message of a header alone, or
 * nothing) follows them with the next one. Return how many rows can be so: all, or those before one with a value that its field
 * does not carry, or with another command than to add or to modify. */
i64 dets_encode_meters(i64 last_command, i64 last_meter, i64 tail_bytes, const char *columns)
{
    if (!side_by_side(columns, 9))
        return NOT_SIDE_BY_SIDE;
    i64 switches = rows_of(columns, 0);
    const i64 *ends = column(columns, 0), *xid = column(columns, 1), *command = column(columns, 2);
    const i64 *meter_id = column(columns, 3), *rate_kbps = column(columns, 4), *burst_kbits = column(columns, 5);
    const uint8_t *template = column(columns, 6), *tail = column(columns, 7);
    uint8_t *to = column(columns, 8);
    i64 i = 0;
    for (i64 s = 0; s < switches; s++) {
        uint64_t next = (uint64_t)xid[s];
        for (; i < ends[s]; i++, to += MOD_BYTES) {
            if (command[i] < 0 || command[i] > last_command || meter_id[i] < 1 || meter_id[i] > last_meter ||
                rate_kbps[i] < 1 || rate_kbps[i] > UINT32_MAX || burst_kbits[i] < 1 || burst_kbits[i] > UINT32_MAX)
                return i;
            memcpy(to, template, MOD_BYTES);
            put(to + XID_AT, next++ & UINT32_MAX, 4);
            put(to + COMMAND_AT, (uint64_t)command[i], 2);
            put(to + METER_AT, (uint64_t)meter_id[i], 4);
            put(to + RATE_AT, (uint64_t)rate_kbps[i], 4);
            put(to + BURST_AT, (uint64_t)burst_kbits[i], 4);
        }
        if (tail_bytes) {
            memcpy(to, tail, (size_t)tail_bytes);
            put(to + XID_AT, next & UINT32_MAX, 4);
            to += tail_bytes;
        }
    }
    return i;
}
