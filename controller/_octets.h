/* Numbers that begin at any octet, as in what others sent, and rows by blocks. */
#ifndef DETS_OCTETS_H
#define DETS_OCTETS_H

#include <stdint.h>

typedef int64_t i64;
typedef uint32_t loose_u32 __attribute__((aligned(1), may_alias));
typedef uint64_t loose_u64 __attribute__((aligned(1), may_alias));

enum { BLOCK = 512 }; /* rows whose numbers stay in the first cache while column after column follows them */

static inline i64 until(i64 start, i64 n) { return start + BLOCK < n ? start + BLOCK : n; }

#endif
