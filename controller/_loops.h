/* How loops over columns are compiled: for the vector units of each processor, and whole into their callers. */
#ifndef DETS_LOOPS_H
#define DETS_LOOPS_H

#include <stdint.h>

/* Nobody looks at floating-point exception flags here, and keeping them right keeps comparisons off the vector units. It
 * does not change a result. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math", "no-math-errno")
#endif

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__)
#define FOR_EACH_CPU __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EACH_CPU
#endif

#define INLINE static inline __attribute__((always_inline))

typedef int64_t i64;

#endif
