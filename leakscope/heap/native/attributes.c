/* The attributes of an instance that has no dict yet, read in place: asking for __dict__ would make
 * one, which the instance keeps. It would then be one step further to all that it refers to, and the
 * next walk might prefer other names. */
#include "walk.h"

#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030D0000
/* As pycore_dict.h of these versions lays them out. */
typedef struct {
    PyObject *key, *value;
} Entry;

typedef struct {
    Py_ssize_t refcount;
    uint8_t log2_size, log2_index_bytes, kind;
    uint32_t version;
    Py_ssize_t usable, count;
    char indices[];
} Keys;

/* Return the array of values, or NULL of an object that has none or a dict instead. */
static PyObject **values_of(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    if (!(type->tp_flags & Py_TPFLAGS_MANAGED_DICT) || !(type->tp_flags & Py_TPFLAGS_HEAPTYPE))
        return NULL;
#if PY_VERSION_HEX >= 0x030C0000
    uintptr_t slot = (uintptr_t)((PyObject **)object)[-3];
    return slot & 1 ? (PyObject **)(slot + 1) : NULL;
#else
    return (PyObject **)((PyObject **)object)[-4];
#endif
}

/* Return a new dict of the attributes, or None where the object has no such values. */
PyObject *inline_attributes(PyObject *Py_UNUSED(module), PyObject *object) {
    PyObject **values = values_of(object);
    const Keys *keys = values ? (Keys *)((PyHeapTypeObject *)Py_TYPE(object))->ht_cached_keys : NULL;
    if (keys == NULL)
        Py_RETURN_NONE;
    const Entry *entries = (const Entry *)(keys->indices + ((size_t)1 << keys->log2_index_bytes));
    PyObject *found = PyDict_New();
    for (Py_ssize_t i = 0; found && i < keys->count; i++)
        if (values[i] && PyDict_SetItem(found, entries[i].key, values[i]) < 0)
            Py_CLEAR(found);
    return found;
}

#endif
