/* Columns as Python has them: a tuple of numpy arrays. Taking them over here costs a tenth of what ctypes takes for an
 * argument each. A function that takes ``columns`` returns NOT_SIDE_BY_SIDE before it does anything, or what it says.
 *
 * Where CPython keeps the items of a tuple and numpy the fields of an array (PyTupleObject; PyArrayObject_fields) is
 * documented in their C interfaces. compiled.py says where the first is, and checks both before anything is called.
 */
#ifndef DETS_COLUMNS_H
#define DETS_COLUMNS_H

#include <stddef.h>
#include <stdint.h>

#define NOT_SIDE_BY_SIDE (-1) /* a column's rows are not: it must be copied first */
#define C_CONTIGUOUS 1

#define ONE_OF_ALL __attribute__((weak)) /* in one library, however many of its files include this */

ONE_OF_ALL size_t dets_items_at, dets_fields_at; /* bytes before a tuple's items, and before an array's own fields */

typedef struct {
    void *data;
    int dimensions;
    intptr_t *shape, *strides;
    void *base, *type;
    int flags;
} ArrayFields;

static inline const ArrayFields *fields_of(const char *columns, int number)
{
    return (const ArrayFields *)(((const char *const *)(columns + dets_items_at))[number] + dets_fields_at);
}

static inline void *column(const char *columns, int number) { return fields_of(columns, number)->data; }

static inline int64_t rows_of(const char *columns, int number) { return fields_of(columns, number)->shape[0]; }

static inline int side_by_side(const char *columns, int count)
{
    int flags = C_CONTIGUOUS;
    for (int i = 0; i < count; i++)
        flags &= fields_of(columns, i)->flags;
    return flags;
}

/* For compiled.py's check: what is found of the first column. */
ONE_OF_ALL int dets_find_column(const char *columns, void **address, int64_t *rows)
{
    *address = column(columns, 0);
    *rows = rows_of(columns, 0);
    return side_by_side(columns, 1) ? 0 : NOT_SIDE_BY_SIDE;
}

#endif
