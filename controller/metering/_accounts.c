/* What may come to receiving VNs, compiled: ``ReceiverAccounts.rooms`` in one pass over the slots, with the same bits. */
#include "../_columns.h"
#include "_measure.h"

typedef struct { /* receiver_accounts.py fills it in this order */
    double allowed, window_s, saved_s;
} Settings;

/* ``slots`` (count, vns), newest first; ``since_s`` (count,) is their age. The first ``later`` of them are still in the window
 * after the horizon: ``free_bits`` (later + 1, vns) has what the last of these leaves, and then what each does. */
FOR_EACH_CPU
static void rooms(i64 vns, i64 count, i64 later, const Settings *s, const double *restrict slots,
                const double *restrict since_s, const double *restrict limit_bps, double *restrict free_bits,
                double *restrict saved_bits)
{
    for (i64 first = 0; first < vns; first += BLOCK) {
        i64 n = block_end(first, vns) - first;
        const double *limit = limit_bps + first;
        double above[BLOCK], highest[BLOCK];
        for (i64 slot = 0; slot < count; slot++) {
            const double *bits = slots + slot * vns + first;
            for (i64 i = 0; i < n; i++)
                above[i] = slot ? bits[i] + above[i] : bits[i];
            for (i64 i = 0; i < n; i++)
                highest[i] = slot ? most(above[i], highest[i]) : above[i];
            if (slot >= later)
                continue;
            double *left = free_bits + (slot + 1) * vns + first;
            for (i64 i = 0; i < n; i++)
                left[i] = s->allowed * limit[i] * s->window_s - (above[i] + limit[i] * since_s[slot]);
        }
        const double *last = free_bits + later * vns + first;
        for (i64 i = 0; i < n; i++) {
            free_bits[first + i] = last[i];
            saved_bits[first + i] = s->saved_s * limit[i] - most(highest[i], 0.0);
        }
    }
}

int64_t dets_rooms(const char *columns)
{
    if (!side_by_side(columns, 6))
        return NOT_SIDE_BY_SIDE;
    rooms(rows_of(columns, 3), rows_of(columns, 2), rows_of(columns, 4) - 1, column(columns, 0), column(columns, 1),
        column(columns, 2), column(columns, 3), column(columns, 4), column(columns, 5));
    return 0;
}
