/* Meter statistics as the switch sends them, to METER_STATS of meters.py. */
#ifndef DETS_METER_STATS_H
#define DETS_METER_STATS_H

#include <stdint.h>

typedef struct {
    uint32_t meter_id, band_packet_count; /* of which the low 32 bits */
    uint64_t byte_in_count;
    double duration_s;
    uint64_t band_byte_count;
} MeterStats;

enum { STATS_BYTES = 56, LENGTH_AT = 4 };

static inline uint64_t get(const uint8_t *at, int octets)
{
    uint64_t value = 0;
    for (int i = 0; i < octets; i++)
        value = value << 8 | at[i];
    return value;
}

/* Write the records of a body up to one that has not one band; return where that is, or the end. The body is whole records. */
static inline const uint8_t *decode_meter_stats(const uint8_t *from, const uint8_t *end, MeterStats *to)
{
    for (; from < end && get(from + LENGTH_AT, 2) == STATS_BYTES; from += STATS_BYTES, to++) {
        to->meter_id = (uint32_t)get(from, 4);
        to->band_packet_count = (uint32_t)get(from + 44, 4);
        to->byte_in_count = get(from + 24, 8);
        to->duration_s = (double)get(from + 32, 4) + (double)get(from + 36, 4) * 1e-9;
        to->band_byte_count = get(from + 48, 8);
    }
    return from;
}

#endif
