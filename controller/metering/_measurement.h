/* What the files of the kernel of measuring share. */
#ifndef DETS_MEASURE_H
#define DETS_MEASURE_H

#include "../_columns.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "../_loops.h"

/* Columns do not overlap: what is written for one entry is read for no other. */
#if defined(__GNUC__) && !defined(__clang__)
#define ONE_BY_ONE _Pragma("GCC ivdep")
#else
#define ONE_BY_ONE
#endif

/* What is looked at soon, and lies apart. */
#if defined(__GNUC__)
#define AHEAD(address) __builtin_prefetch(address)
#else
#define AHEAD(address) ((void)(address))
#endif

/* of _counters.c, _enforcement.c, _budgets.c and ../dets/_messages.c */
i64 dets_read(PyObject *columns, i64 modified);
i64 dets_meter_rates(PyObject *columns, double least_elapsed_s, double plausible, double bits_per_byte);
i64 dets_look(PyObject *columns, double least_elapsed_s, double plausible, double bits_per_byte, double memory, i64 listed);
i64 dets_enforce(PyObject *columns, double now_s, double reserve_s, i64 idle_intervals);
i64 dets_receive(PyObject *columns, double now_s, double horizon_s);
i64 dets_fare(PyObject *columns, double share);
i64 dets_count(PyObject *columns, i64 longest);
i64 dets_watch_congestion(PyObject *columns, double above, double calm_below, i64 calm_intervals);
i64 dets_reports(PyObject *columns, i64 idle_intervals);
i64 dets_answers(PyObject *columns, double same);
i64 dets_obey(PyObject *columns);

/* A loop over columns of one width of numbers keeps them in registers, which one over flags as well does not: those are widened
 * and made narrow again by the block. */
enum { BLOCK = 256 };

INLINE double least(double a, double b)
{
    return a < b ? a : b;
}

INLINE double most(double a, double b)
{
    return a > b ? a : b;
}

INLINE i64 block_end(i64 first, i64 n)
{
    return n - first < BLOCK ? n : first + BLOCK;
}

INLINE void widen(i64 *restrict to, const uint8_t *restrict flags, i64 n)
{
    for (i64 i = 0; i < n; i++)
        to[i] = flags[i];
}

INLINE void narrow(uint8_t *restrict to, const i64 *restrict flags, i64 n)
{
    for (i64 i = 0; i < n; i++)
        to[i] = (uint8_t)flags[i];
}

INLINE void widen_counts(i64 *restrict to, const int16_t *restrict counts, i64 n)
{
    for (i64 i = 0; i < n; i++)
        to[i] = counts[i];
}

INLINE void narrow_counts(int16_t *restrict to, const i64 *restrict counts, i64 n)
{
    for (i64 i = 0; i < n; i++)
        to[i] = (int16_t)counts[i];
}

/* Whole steps of a rate or a burst. */
INLINE void widen_steps(double *restrict to, const uint32_t *restrict steps, i64 n)
{
    for (i64 i = 0; i < n; i++)
        to[i] = (double)steps[i];
}

INLINE void narrow_steps(uint32_t *restrict to, const double *restrict steps, i64 n)
{
    for (i64 i = 0; i < n; i++)
        to[i] = (uint32_t)steps[i];
}

INLINE i64 one_more(i64 count) /* of columns.py */
{
    return count < INT16_MAX ? count + 1 : count;
}

/* Rows that were put from the end on stand in their order then. */
static inline void reverse(i64 *rows, i64 n)
{
    for (i64 i = 0, last = n - 1; i < last; i++, last--) {
        i64 row = rows[i];
        rows[i] = rows[last];
        rows[last] = row;
    }
}

/* What is chosen by a truth of 1 or 0. A conditional may be compiled to loads and stores under a mask, which are slow. */
INLINE double chosen(i64 truth, double yes, double no)
{
    i64 of_yes, of_no;
    memcpy(&of_yes, &yes, sizeof yes);
    memcpy(&of_no, &no, sizeof no);
    of_yes = (of_yes & -truth) | (of_no & (truth - 1));
    memcpy(&yes, &of_yes, sizeof yes);
    return yes;
}

#endif
