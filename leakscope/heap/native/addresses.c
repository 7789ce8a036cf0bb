/* Where the objects lie to which an object refers, without a reference to any of them: in a forked
 * process even that would copy the page. */
#include "walk.h"

typedef struct {
    PyObject *found; /* list of addresses */
    Py_ssize_t seen, stride;
} Gathered;

static int count(PyObject *Py_UNUSED(object), void *argument) {
    ((Gathered *)argument)->seen++;
    return 0;
}

static int gather(PyObject *object, void *argument) {
    Gathered *g = argument;
    if (g->seen++ % g->stride)
        return 0;
    PyObject *address = PyLong_FromVoidPtr(object);
    if (address == NULL)
        return -1;
    int failed = PyList_Append(g->found, address);
    Py_DECREF(address);
    return failed;
}

PyObject *referent_addresses(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *object;
    Py_ssize_t most;
    if (!PyArg_ParseTuple(args, "On:referent_addresses", &object, &most))
        return NULL;
    if (most < 1) {
        PyErr_SetString(PyExc_ValueError, "at least one address must be asked for");
        return NULL;
    }
    Gathered g = {PyList_New(0), 0, 1};
    traverseproc traverse = Py_TYPE(object)->tp_traverse;
    if (g.found == NULL || traverse == NULL || !PyObject_IS_GC(object))
        return g.found;
    traverse(object, count, &g);
    g.stride = (g.seen + most - 1) / most;
    g.seen = 0;
    if (g.stride > 0 && traverse(object, gather, &g) < 0)
        Py_CLEAR(g.found);
    return g.found;
}
