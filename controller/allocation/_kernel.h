/* What the files of the kernel share. */
#ifndef DETS_KERNEL_H
#define DETS_KERNEL_H

#include "../_columns.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define OUT_OF_MEMORY 1
#define NO_MEMORY (-2)

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

i64 dets_max_min(PyObject *columns);

#endif
