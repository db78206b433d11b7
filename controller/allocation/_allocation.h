/* What the files of the kernel share. */
#ifndef DETS_KERNEL_H
#define DETS_KERNEL_H

#include "../_columns.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../_loops.h"

#define OUT_OF_MEMORY 1
#define NO_MEMORY (-2)

i64 dets_max_min(PyObject *columns);

#endif
