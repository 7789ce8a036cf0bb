/* Texts that are keys of a dict. While all keys are texts, dict's own traversal leaves them out: they
 * refer to nothing. They weigh all the same, and a cache keyed by long texts leaks by them.
 *
 * Source: CPython's Objects/dictobject.c, dict_traverse.
 */
#define Py_BUILD_CORE
#include "walk.h"

#if PY_VERSION_HEX >= 0x030B0000
#include <internal/pycore_dict.h>

static int leaves_keys_out(const PyDictObject *dict) {
    return dict->ma_values == NULL && DK_IS_UNICODE(dict->ma_keys);
}

/* Return the entries of a dict, key and value by turns, if its traversal leaves out the keys; else
 * NULL. A value may be NULL: that entry is none any more. */
PyObject *const *text_entries(PyObject *object, Py_ssize_t *count) {
    const PyDictObject *dict = (const PyDictObject *)object;
    if (!leaves_keys_out(dict))
        return NULL;
    *count = dict->ma_keys->dk_nentries;
    return (PyObject *const *)DK_UNICODE_ENTRIES(dict->ma_keys);
}

#else

PyObject *const *text_entries(PyObject *Py_UNUSED(dict), Py_ssize_t *Py_UNUSED(count)) {
    return NULL; /* their entries have hashes too */
}

struct keys {
    Py_ssize_t references, size;
    const void *lookup;
};

/* There the way to look up is what tells whether all keys are texts. */
static const void *lookup_of(const PyDictObject *dict) {
    return ((const struct keys *)dict->ma_keys)->lookup;
}

static int leaves_keys_out(const PyDictObject *dict) {
    static const void *general = NULL;
    if (general == NULL) {
        PyObject *number = PyLong_FromLong(0), *other = PyDict_New();
        if (number && other && PyDict_SetItem(other, number, number) == 0)
            general = lookup_of((PyDictObject *)other);
        Py_XDECREF(number);
        Py_XDECREF(other);
        PyErr_Clear();
    }
    return dict->ma_values == NULL && general != NULL && lookup_of(dict) != general;
}

#endif

/* Visit the texts to which only the dict refers: others are names of attributes, or held elsewhere. */
void visit_text_keys(PyObject *object, visitproc visitor, void *argument) {
    PyObject *key, *value;
    Py_ssize_t at = 0;
    if (!leaves_keys_out((PyDictObject *)object))
        return;
    while (PyDict_Next(object, &at, &key, &value))
        if (Py_REFCNT(key) == 1 && visitor(key, argument) < 0)
            return;
}
