/* What one object occupies, as sys.getsizeof says it, and what that leaves out. */
#include "walk.h"

#include <stddef.h>

#if PY_VERSION_HEX >= 0x030D0000
/* Attributes that live in an array within the instance, behind the part that sys.getsizeof tells of:
 * a prefix that begins with the number of places and is rounded up to words, a word, the places. */
static uint64_t inline_values_bytes(PyObject *object) {
    uint64_t places = ((const uint8_t *)object)[Py_TYPE(object)->tp_basicsize];
    return (places + 7) / 8 * 8 + 8 * (1 + places);
}
#elif PY_VERSION_HEX >= 0x030B0000
/* Return the array of an instance's attributes; NULL where it has a dict. */
const void *attribute_values(PyObject *object) {
#if PY_VERSION_HEX >= 0x030C0000
    uintptr_t slot = (uintptr_t)((PyObject **)object)[-3];
    return slot & 1 ? (const void *)(slot + 1) : NULL;
#else
    return ((PyObject **)object)[-4];
#endif
}

/* Attributes that live in an array of their own, which sys.getsizeof leaves out. */
static uint64_t inline_values_bytes(PyObject *object) {
    struct keys { Py_ssize_t refcount; uint8_t small[4]; uint32_t version; Py_ssize_t usable, used; };
    const uint8_t *values = attribute_values(object);
    struct keys *keys = (struct keys *)((PyHeapTypeObject *)Py_TYPE(object))->ht_cached_keys;
    if (values == NULL || keys == NULL)
        return 0;
    Py_ssize_t prefix = values[-1], size = keys->usable + keys->used;
    if (size > prefix - 2)
        size = prefix - 2;
    if (size < prefix - 9)
        size = prefix - 9;
    return (uint64_t)(prefix + 8 * (size > 0 ? size : 0));
}
#endif

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030D0000
const void *attribute_values(PyObject *Py_UNUSED(object)) { return NULL; }
#endif

/* Return what a number takes; 0 of zero, of which versions tell differently. */
static uint64_t int_bytes(PyObject *object) {
#if PY_VERSION_HEX >= 0x030C0000
    uint64_t digits = ((PyLongObject *)object)->long_value.lv_tag >> 3; /* the low bits are its sign */
    return digits ? offsetof(PyLongObject, long_value.ob_digit) + sizeof(digit) * digits : 0;
#else
    Py_ssize_t digits = Py_SIZE(object);
    return digits ? offsetof(PyLongObject, ob_digit) + sizeof(digit) * (uint64_t)(digits < 0 ? -digits : digits) : 0;
#endif
}

#define MOST_BYTES ((uint64_t)1 << 40)

/* Some types of extensions declare items and keep something else, such as a pointer, where their number
 * belongs: sys.getsizeof says terabytes of them. */
static uint64_t believed(uint64_t bytes, const PyTypeObject *type) {
    return bytes < MOST_BYTES ? bytes : (uint64_t)type->tp_basicsize;
}

uint64_t shallow_bytes(PyObject *object, const TypeFacts *facts) {
    PyTypeObject *type = facts->type;
    uint64_t bytes = facts->header;
    if ((facts->flags & TYPE_MAY_LACK_HEADER) && !PyObject_IS_GC(object))
        bytes = 0;
    if (type == &PyTuple_Type)
        return bytes + sizeof(PyTupleObject) - 8 + 8 * (uint64_t)Py_SIZE(object);
    if (type == &PyList_Type)
        return bytes + (uint64_t)type->tp_basicsize +
               8 * (uint64_t)((PyListObject *)object)->allocated;
    if (type == &PyUnicode_Type && PyUnicode_IS_COMPACT_ASCII(object))
        return bytes + sizeof(PyASCIIObject) + (uint64_t)PyUnicode_GET_LENGTH(object) + 1;
    uint64_t of_int = type == &PyLong_Type ? int_bytes(object) : 0;
    if (of_int)
        return of_int;
#if PY_VERSION_HEX < 0x030D0000
    if (type == &PyDict_Type) /* without the number object that its __sizeof__ would return */
        return bytes + (uint64_t)_PyDict_SizeOf((PyDictObject *)object);
#endif
    if (facts->sizer == NULL) {
        Py_ssize_t items = type->tp_itemsize ? Py_SIZE(object) : 0;
        uint64_t count = (uint64_t)(items < 0 ? -items : items);
        bytes += believed((uint64_t)type->tp_basicsize + count * (uint64_t)type->tp_itemsize, type);
    } else {
        PyObject *size = facts->sizer(object, NULL);
        Py_ssize_t value = size ? PyLong_AsSsize_t(size) : 0;
        Py_XDECREF(size);
        PyErr_Clear();
        bytes += value > 0 ? believed((uint64_t)value, type) : 0;
    }
    if (facts->flags & TYPE_ARRAY)
        bytes += array_frame_bytes(object);
#if PY_VERSION_HEX >= 0x030B0000
    if (facts->flags & TYPE_INLINE_VALUES)
        bytes += inline_values_bytes(object);
#endif
    return bytes;
}
