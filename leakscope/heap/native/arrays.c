/* Data that tp_traverse can't see: NumPy's arrays and Pillow's pixels. */
#include "walk.h"

#include <string.h>

/* NumPy's public array struct; its layout is the same in NumPy 1 and 2. */
typedef struct {
    PyObject_HEAD
    char *data;
    int nd;
    Py_ssize_t *dimensions, *strides;
    PyObject *base;
    struct { PyObject_HEAD PyObject *typeobj; char kind, type, byteorder, former_flags; int type_num; } *descr;
    int flags;
} Array;

enum { ARRAY_CONTIGUOUS = 1 | 2, ARRAY_OWNS = 4, ARRAY_OF_OBJECTS = 17 };

uint64_t array_bytes(Walk *w, PyObject *object) {
    if (!(((Array *)object)->flags & ARRAY_OWNS) || w->array_nbytes == NULL)
        return 0;
    return read_size(read_getset(w->array_nbytes, object));
}

uint64_t image_bytes(PyObject *core) {
    PyObject *mode_of = getset_of(Py_TYPE(core), "mode"), *size_of = getset_of(Py_TYPE(core), "size");
    PyObject *mode = mode_of ? read_getset(mode_of, core) : NULL;
    PyObject *size = size_of ? read_getset(size_of, core) : NULL;
    uint64_t bytes = 0;
    if (mode && size && PyUnicode_Check(mode) && PyTuple_CheckExact(size) && PyTuple_GET_SIZE(size) == 2) {
        const char *name = PyUnicode_AsUTF8(mode);
        uint64_t pixel = 4;
        if (name && (!strcmp(name, "1") || !strcmp(name, "L") || !strcmp(name, "P")))
            pixel = 1;
        else if (name && !strncmp(name, "I;16", 4))
            pixel = 2;
        for (int i = 0; i < 2; i++) {
            PyObject *side = PyTuple_GET_ITEM(size, i);
            pixel *= PyLong_Check(side) ? (uint64_t)PyLong_AsLongLong(side) : 0;
        }
        bytes = pixel;
    }
    Py_XDECREF(mode);
    Py_XDECREF(size);
    PyErr_Clear();
    return bytes;
}

/* Visit what an array refers to: whose memory it shares, and the elements of an array of objects. */
void traverse_array(PyObject *object, visitproc visitor, void *argument, uint64_t bytes) {
    Array *array = (Array *)object;
    if (array->base != NULL && visitor(array->base, argument) < 0)
        return;
    if (bytes == 0 || array->descr->type_num != ARRAY_OF_OBJECTS ||
        !(array->flags & ARRAY_CONTIGUOUS))
        return;
    PyObject **items = (PyObject **)array->data;
    for (uint64_t i = 0; i < bytes / sizeof *items; i++)
        if (items[i] != NULL && visitor(items[i], argument) < 0)
            return;
}
