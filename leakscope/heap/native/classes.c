/* Classes: those among the values of a dict, and which of them, and of modules, a program makes while it
 * runs. */
#include "walk.h"

#include <string.h>

/* Python would count a reference to every value, and a forked process would copy the pages of all of them. */
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

static PyObject *module_dict_of(PyObject *name) {
    PyObject *module = PyUnicode_CheckExact(name) ? PyDict_GetItem(PyImport_GetModuleDict(), name) : NULL;
    return module && PyModule_Check(module) ? PyModule_GetDict(module) : NULL;
}

static PyObject *text_in(PyObject *dict, const char *key) {
    PyObject *found = dict && PyDict_Check(dict) ? PyDict_GetItemString(dict, key) : NULL;
    return found && PyUnicode_CheckExact(found) ? found : NULL;
}

/* Say whether a module has the class, or the class that it is defined in, under its name. */
static int is_in_module(PyTypeObject *class) {
    PyObject *module = text_in(class->tp_dict, "__module__");
    PyObject *names = module ? module_dict_of(module) : NULL;
    PyObject *qualname = ((PyHeapTypeObject *)class)->ht_qualname;
    if (names == NULL || qualname == NULL || !PyUnicode_CheckExact(qualname))
        return 0;
    const char *text = PyUnicode_AsUTF8(qualname), *dot = text ? strchr(text, '.') : NULL;
    if (text == NULL) {
        PyErr_Clear();
        return 1;
    }
    if (dot == NULL)
        return PyDict_GetItem(names, qualname) == (PyObject *)class;
    if (strstr(text, ".<locals>.")) /* of a call of a method, too */
        return 0;
    PyObject *outer = PyUnicode_FromStringAndSize(text, dot - text);
    PyObject *found = outer ? PyDict_GetItem(names, outer) : NULL;
    Py_XDECREF(outer);
    PyErr_Clear();
    return found != NULL && PyType_Check(found);
}

/* Say whether a class, a module or a namespace came while the program ran and nobody can import it: who
 * refers to it then keeps it alive, and all that it has. Of others the way is cut, for any instance and any
 * function leads to them. Where nothing tells what was there when measuring began none is. */
int is_made_at_run_time(const Walk *w, PyObject *object) {
    const Baseline *baseline = w->baseline ? w->baseline : w->since;
    if (baseline == NULL || !has_begun(baseline) || is_known(baseline, object))
        return 0;
    if (PyType_Check(object))
        return PyType_HasFeature((PyTypeObject *)object, Py_TPFLAGS_HEAPTYPE) &&
               !is_in_module((PyTypeObject *)object);
    PyObject *names = PyModule_Check(object) ? PyModule_GetDict(object) : object;
    PyObject *name = text_in(names, "__name__");
    return name == NULL || module_dict_of(name) != names;
}
