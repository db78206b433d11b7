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
#define FOUR(column, at, i) {(column)[(at)[0] + (i)], (column)[(at)[1] + (i)], (column)[(at)[2] + (i)], (column)[(at)[3] + (i)]}
#define LOADED(column, at, i) ((Lanes)FOUR(column, at, i))
#define ACTIVE(column, at, i) (-(Mask)FOUR(column, at, i)) /* of a column of 0 and 1 */
#define AND(mask, x) ((Lanes)((mask) & (Mask)(x)))
#define CHOSEN(mask, x, y) ((Lanes)(((mask) & (Mask)(x)) | (~(mask) & (Mask)(y))))
#define LESSER(x, y) CHOSEN((x) < (y), x, y)
#define GREATER(x, y) CHOSEN((x) > (y), x, y)
#define TOTAL(x) (((x)[0] + (x)[1]) + ((x)[2] + (x)[3]))
#define ANY(mask) (((mask)[0] | (mask)[1] | (mask)[2] | (mask)[3]) != 0)

/* ---- the rows of RAA-SP and FP: of one receiver, or of all ---- */

typedef struct {
    const double *measured, *granted, *available, *dropped, *weight;
    const uint8_t *active;
    double *grants;
} Columns;

#endif
