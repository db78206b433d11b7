/* What the files of the kernel share. */
#ifndef DETS_KERNEL_H
#define DETS_KERNEL_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define FULL_USE 0.95
#define SETTLED 1e-9
#define EQUAL_WITHIN 0.01
#define OUT_OF_MEMORY 1

/* Nobody looks at floating-point exception flags here, and keeping them right keeps comparisons off the vector units. It
 * does not change a result. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math", "no-math-errno")
#endif

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__)
#define FOR_EACH_CPU __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define FOR_EACH_CPU
#endif
#define INLINE static inline __attribute__((always_inline))

typedef int64_t i64;

/* ---- vectors: GCC and clang turn them into what the processor has ---- */

#define LANES 4

typedef double Lanes __attribute__((vector_size(LANES * sizeof(double))));
typedef i64 Mask __attribute__((vector_size(LANES * sizeof(i64)))); /* of each lane all bits or none */
typedef Lanes Loose __attribute__((aligned(8), may_alias));         /* anywhere in a column */

#define EVERY(x) ((Lanes){(x), (x), (x), (x)})
#define AND(mask, x) ((Lanes)((mask) & (Mask)(x)))
#define TOTAL(x) (((x)[0] + (x)[1]) + ((x)[2] + (x)[3]))

/* ---- the columns of RAA-SP, FP and Fair Level: those of one receiver ---- */

typedef struct {
    const double *measured, *granted, *available, *dropped, *weight;
    const uint8_t *active;
    double *grants;
} Columns;

#endif
