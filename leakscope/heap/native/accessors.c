/* Reading what C getters tell; whatever they raise is dropped. */
#include "walk.h"

/* Return a new reference or NULL. */
PyObject *read_getset(PyObject *descriptor, PyObject *object) {
    PyGetSetDef *def = ((PyGetSetDescrObject *)descriptor)->d_getset;
    PyObject *found = def->get(object, def->closure);
    if (found == NULL)
        PyErr_Clear();
    return found;
}

uint64_t read_size(PyObject *number) { /* steals */
    if (number == NULL) {
        PyErr_Clear();
        return 0;
    }
    long long value = PyLong_Check(number) ? PyLong_AsLongLong(number) : 0;
    Py_DECREF(number);
    if (value < 0) {
        PyErr_Clear();
        return 0;
    }
    return (uint64_t)value;
}

int is_true(PyObject *answer) { /* steals */
    int yes = answer == Py_True;
    Py_XDECREF(answer);
    return yes;
}
