/* What the files of the kernel of measuring share. */
#ifndef DETS_MEASURE_H
#define DETS_MEASURE_H

#include <math.h>
#include <stdint.h>

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math", "no-math-errno")
#endif

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__)
#define FOR_EACH_CPU __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define FOR_EACH_CPU
#endif

/* Columns do not overlap: what is written for one entry is read for no other. */
#if defined(__GNUC__) && !defined(__clang__)
#define ONE_BY_ONE _Pragma("GCC ivdep")
#else
#define ONE_BY_ONE
#endif

#define INLINE static inline __attribute__((always_inline))

typedef int64_t i64;

#endif
