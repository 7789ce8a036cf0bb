/* The classes among the values of a dict. Python would count a reference to every value, and a forked
 * process would copy the pages of all of them. */
#include "walk.h"

PyObject *classes_in(PyObject *Py_UNUSED(module), PyObject *names) {
    if (!PyDict_Check(names)) {
        PyErr_SetString(PyExc_TypeError, "a dict is needed");
        return NULL;
    }
    PyObject *found = PyList_New(0), *value;
    Py_ssize_t at = 0;
    while (found && PyDict_Next(names, &at, NULL, &value))
        if (PyType_Check(value) && PyList_Append(found, value) < 0)
            Py_CLEAR(found);
    return found;
}
