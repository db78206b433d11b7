/* Passes as functions of a Python module: PASS makes a function of each, MODULE the module of them. One file of each library
 * includes this.
 *
 * A function takes the tuple of columns and then its numbers, and returns what the pass does. Other arguments raise TypeError.
 * Columns whose rows are not side by side are copied first: a pass never writes to those.
 */
#ifndef DETS_MODULE_H
#define DETS_MODULE_H

#include "_columns.h"

#include <numpy/arrayobject.h>

enum { MAX_NUMBERS = 15 };

typedef struct {
    PyObject *const *given; /* the columns and numbers, as Python has them */
    PyObject *columns, *copies;
    int is_taken; /* the numbers are */
    union {
        double real;
        int64_t whole;
    } number[1 + MAX_NUMBERS];
} Call;

/* A number is taken with Python's lock, and then there without it. */
static inline double real_at(Call *call, int at)
{
    return call->is_taken ? call->number[at].real : (call->number[at].real = PyFloat_AsDouble(call->given[at]));
}

static inline int64_t whole_at(Call *call, int at)
{
    return call->is_taken ? call->number[at].whole : (call->number[at].whole = PyLong_AsLongLong(call->given[at]));
}

static inline int are_columns(PyObject *columns)
{
    if (!PyTuple_Check(columns)) {
        PyErr_Format(PyExc_TypeError, "columns are no tuple of arrays, but a %s", Py_TYPE(columns)->tp_name);
        return 0;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(columns); i++) {
        PyObject *one = PyTuple_GET_ITEM(columns, i);
        if (!PyArray_Check(one) || !PyArray_NDIM((PyArrayObject *)one)) {
            PyErr_Format(PyExc_TypeError, "column %zd is no array with rows, but a %s", i, Py_TYPE(one)->tp_name);
            return 0;
        }
    }
    return 1;
}

static inline int begin_call(Call *call, Py_ssize_t count, Py_ssize_t wanted)
{
    if (count != wanted) {
        PyErr_Format(PyExc_TypeError, "a tuple of columns and %zd numbers, not %zd arguments", wanted - 1, count);
        return 0;
    }
    call->columns = call->given[0];
    return are_columns(call->columns);
}

/* Put copies in the place of columns whose rows are not side by side; return whether the pass can be tried with them. */
static int copy_columns(Call *call)
{
    if (call->copies) {
        PyErr_Format(PyExc_TypeError, "%zd columns are too few", PyTuple_GET_SIZE(call->columns));
        return 0;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(call->columns);
    PyObject *copies = call->copies = PyTuple_New(count);
    for (int i = 0; copies && i < count; i++) {
        PyArrayObject *whole = PyArray_GETCONTIGUOUS(array(call->columns, i));
        if (!whole)
            return 0;
        PyTuple_SET_ITEM(copies, i, (PyObject *)whole);
    }
    call->columns = copies;
    return copies != NULL;
}

static inline PyObject *end_call(Call *call, int64_t found)
{
    Py_XDECREF(call->copies);
    return found == NOT_SIDE_BY_SIDE ? NULL : PyLong_FromLongLong(found);
}

/* A pass and its numbers after the columns: PASS(dets_x, REAL(1), WHOLE(2)). */
#define REAL(at) real_at(&call, at)
#define WHOLE(at) whole_at(&call, at)
#define PASS(name, ...)                                                                                                   \
    static PyObject *call_##name(PyObject *module, PyObject *const *given, Py_ssize_t count)                              \
    {                                                                                                                     \
        Call call = {.given = given};                                                                                     \
        const Py_ssize_t wanted = sizeof((double[]){0, ##__VA_ARGS__}) / sizeof(double);                                  \
        int64_t found;                                                                                                    \
        (void)module;                                                                                                     \
        if (!begin_call(&call, count, wanted))                                                                            \
            return NULL;                                                                                                  \
        (void)(double[]){0, ##__VA_ARGS__};                                                                               \
        if (wanted > 1 && PyErr_Occurred())                                                                               \
            return NULL;                                                                                                  \
        call.is_taken = 1;                                                                                                \
        do {                                                                                                              \
            Py_BEGIN_ALLOW_THREADS                                                                                        \
            found = name(call.columns, ##__VA_ARGS__);                                                                    \
            Py_END_ALLOW_THREADS                                                                                          \
        } while (found == NOT_SIDE_BY_SIDE && copy_columns(&call));                                                       \
        return end_call(&call, found);                                                                                    \
    }

#define OF(name) {#name, (PyCFunction)(void (*)(void))call_##name, METH_FASTCALL, NULL}
#define MODULE(name, ...)                                                                                                 \
    static PyMethodDef functions[] = {__VA_ARGS__, {NULL, NULL, 0, NULL}};                                                \
    static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = #name, .m_size = -1, .m_methods = functions};\
    PyMODINIT_FUNC PyInit_##name(void)                                                                                    \
    {                                                                                                                     \
        import_array();                                                                                                   \
        return PyModule_Create(&definition);                                                                              \
    }

#endif
