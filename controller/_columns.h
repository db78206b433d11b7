/* Columns as Python has them: a tuple of numpy arrays. A pass that takes ``columns`` returns NOT_SIDE_BY_SIDE before it does
 * anything, or what it says. It runs without Python's lock: who called it holds the tuple and its arrays.
 */
#ifndef DETS_COLUMNS_H
#define DETS_COLUMNS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include <numpy/ndarraytypes.h>
#include <stddef.h>
#include <stdint.h>

#define NOT_SIDE_BY_SIDE (-1) /* a column's rows are not, and it must be copied first; or there are too few columns */

static inline PyArrayObject *array(PyObject *columns, int number) { return (PyArrayObject *)PyTuple_GET_ITEM(columns, number); }

static inline void *column(PyObject *columns, int number) { return PyArray_DATA(array(columns, number)); }

/* Of a column that there is not, none. */
static inline int64_t rows_of(PyObject *columns, int number)
{
    return number < PyTuple_GET_SIZE(columns) ? PyArray_DIM(array(columns, number), 0) : 0;
}

static inline int64_t width_of(PyObject *columns, int number) /* how many numbers a row has */
{
    PyArrayObject *one = number < PyTuple_GET_SIZE(columns) ? array(columns, number) : NULL;
    return one && PyArray_NDIM(one) > 1 ? PyArray_DIM(one, 1) : 1;
}

static inline int side_by_side(PyObject *columns, int64_t count)
{
    int flags = count <= PyTuple_GET_SIZE(columns) ? NPY_ARRAY_C_CONTIGUOUS : 0;
    for (int i = 0; flags && i < count; i++)
        flags &= PyArray_FLAGS(array(columns, i));
    return flags;
}

#endif
