/* Data that tp_traverse can't see: NumPy's arrays and Pillow's pixels. */
#include "walk.h"

#include <string.h>

/* The beginning of NumPy's public struct of a kind of items; the same in NumPy 1 and 2. */
typedef struct {
    PyObject_HEAD
    PyObject *scalar;
    char kind, type, byteorder, former_flags;
    int type_num;
} Descr;

/* NumPy's public array struct; its layout is the same in NumPy 1 and 2. */
typedef struct {
    PyObject_HEAD
    char *data;
    int nd;
    Py_ssize_t *dimensions, *strides;
    PyObject *base;
    PyObject *descr;
    int flags;
} Array;

/* NumPy's public struct of a record, an item of a structured array; likewise. */
typedef struct {
    PyObject_VAR_HEAD
    char *data;
    PyObject *descr;
    int flags;
    PyObject *base;
} Record;

enum { ARRAY_CONTIGUOUS = 1 | 2, ARRAY_OWNS = 4, ARRAY_OF_OBJECTS = 17, ARRAY_OF_RECORDS = 20 };
#define MOST_FIELDS 64

uint64_t array_bytes(Walk *w, PyObject *object) {
    const Array *array = (const Array *)object;
    if (!(array->flags & ARRAY_OWNS) || array->data == NULL || w->array_nbytes == NULL)
        return 0;
    return read_size(read_getset(w->array_nbytes, object));
}

/* What an array takes beside its struct: numbers for each of its dimensions. */
uint64_t array_frame_bytes(PyObject *object) {
    return 2 * sizeof(Py_ssize_t) * (uint64_t)((const Array *)object)->nd;
}

uintptr_t array_address(PyObject *object) {
    return (uintptr_t)((const Array *)object)->data;
}

/* Return whose memory an array is part of, borrowed; NULL where it is its own. */
PyObject *array_base(PyObject *object) {
    return ((const Array *)object)->base;
}

int array_owns(PyObject *object) {
    return (((const Array *)object)->flags & ARRAY_OWNS) != 0;
}

uint64_t record_bytes(PyObject *object) {
    const Record *record = (const Record *)object;
    return record->flags & ARRAY_OWNS && Py_SIZE(object) > 0 ? (uint64_t)Py_SIZE(object) : 0;
}

/* Return whose memory a record is part of: most often that of the array it was taken from. */
PyObject *record_base(PyObject *object) {
    return Py_XNewRef(((const Record *)object)->base);
}

/* An array over memory that a capsule keeps has it from a library: nothing else tells of it. */
void follow_array(Walk *w, uint32_t node, PyObject *object) {
    const Array *array = (const Array *)object;
    if (array->base != NULL && PyCapsule_CheckExact(array->base) && w->array_nbytes != NULL &&
        (array->flags & ARRAY_CONTIGUOUS))
        follow_memory(w, node, (uintptr_t)array->data,
                      read_size(read_getset(w->array_nbytes, object)));
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

/* Where in an item of a structured array its objects lie. */
typedef struct {
    Py_ssize_t at[MOST_FIELDS];
    int count;
} Places;

static void find_objects(PyObject *descr, Py_ssize_t offset, Places *places);

/* Look into one field, `(descr, offset)`. */
static void find_in_field(PyObject *field, Py_ssize_t offset, Places *places) {
    if (PyTuple_CheckExact(field) && PyTuple_GET_SIZE(field) >= 2 &&
        PyLong_Check(PyTuple_GET_ITEM(field, 1)))
        find_objects(PyTuple_GET_ITEM(field, 0),
                     offset + PyLong_AsSsize_t(PyTuple_GET_ITEM(field, 1)), places);
}

static void find_objects(PyObject *descr, Py_ssize_t offset, Places *places) {
    if (((const Descr *)descr)->type_num == ARRAY_OF_OBJECTS) {
        if (places->count < MOST_FIELDS)
            places->at[places->count++] = offset;
        return;
    }
    PyObject *getter = getset_of(Py_TYPE(descr), "fields");
    PyObject *fields = getter ? read_getset(getter, descr) : NULL;
    PyObject *values = fields && fields != Py_None ? PyMapping_Values(fields) : NULL;
    for (Py_ssize_t i = 0; values && i < PyList_GET_SIZE(values); i++)
        find_in_field(PyList_GET_ITEM(values, i), offset, places);
    Py_XDECREF(values);
    Py_XDECREF(fields);
    PyErr_Clear();
}

static uint64_t item_bytes_of(const Array *array, uint64_t bytes) {
    uint64_t count = 1;
    for (int i = 0; i < array->nd; i++)
        count *= (uint64_t)array->dimensions[i];
    return count ? bytes / count : 0;
}

/* Find from which address to which an array reads, and how many bytes of that at most; say whether
 * it reads any. */
int array_reach(Walk *w, PyObject *object, Reach *reach) {
    const Array *array = (const Array *)object;
    uint64_t item = item_bytes_of(array, read_size(read_getset(w->array_nbytes, object)));
    uint64_t distinct = item;
    Py_ssize_t below = 0, above = 0;
    for (int i = 0; i < array->nd; i++) {
        Py_ssize_t stride = array->strides[i], span = (array->dimensions[i] - 1) * stride;
        below += span < 0 ? span : 0;
        above += span > 0 ? span : 0;
        distinct *= stride ? (uint64_t)array->dimensions[i] : 1;
    }
    reach->begin = (uint64_t)((intptr_t)array->data + below);
    reach->end = (uint64_t)((intptr_t)array->data + above) + item;
    reach->bytes = distinct;
    return item != 0;
}

/* Whether an array's own items fill its memory from the first to the last. */
static int is_dense(const Array *array, uint64_t bytes, uint64_t item_bytes) {
    uint64_t last = 0;
    for (int i = 0; i < array->nd; i++) {
        if (array->strides[i] < 0 || array->dimensions[i] < 1)
            return 0;
        last += (uint64_t)(array->dimensions[i] - 1) * (uint64_t)array->strides[i];
    }
    return item_bytes != 0 && last + item_bytes == bytes;
}

/* Visit what an array refers to: whose memory it shares, and the objects among its own items. */
void traverse_array(PyObject *object, visitproc visitor, void *argument, uint64_t bytes) {
    const Array *array = (const Array *)object;
    Places places = {.count = 0};
    if (array->base != NULL && visitor(array->base, argument) < 0)
        return;
    int kind = ((const Descr *)array->descr)->type_num;
    if (bytes == 0 || (kind != ARRAY_OF_OBJECTS && kind != ARRAY_OF_RECORDS))
        return;
    find_objects(array->descr, 0, &places);
    uint64_t item_bytes = places.count ? item_bytes_of(array, bytes) : 0;
    if (!is_dense(array, bytes, item_bytes))
        return;
    for (const char *item = array->data; item < array->data + bytes; item += item_bytes)
        for (int i = 0; i < places.count; i++) {
            PyObject *value;
            memcpy(&value, item + places.at[i], sizeof value);
            if (value != NULL && visitor(value, argument) < 0)
                return;
        }
}
