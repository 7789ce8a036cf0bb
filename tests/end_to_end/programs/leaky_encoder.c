/* Encodes a number as a list of numbers, in three ways: encode() leaks a reference to what it returns,
 * encode_well() doesn't, and enqueue() keeps the latest of them in a queue that C alone knows. */
#include <Python.h>

#define ITEMS 150
#define ROOM 64

static PyObject *queue[ROOM];
static size_t n_queued;

static PyObject *encoded(PyObject *number) {
    long first = PyLong_AsLong(number);
    if (first == -1 && PyErr_Occurred())
        return NULL;
    PyObject *list = PyList_New(ITEMS);
    for (int i = 0; list && i < ITEMS; i++)
        PyList_SET_ITEM(list, i, PyLong_FromLong(100000 + first + i));
    return list;
}

static PyObject *encode(PyObject *module, PyObject *number) { return Py_XNewRef(encoded(number)); }

static PyObject *encode_well(PyObject *module, PyObject *number) { return encoded(number); }

static PyObject *enqueue(PyObject *module, PyObject *number) {
    PyObject *list = encoded(number);
    if (list == NULL)
        return NULL;
    PyObject **place = &queue[n_queued++ % ROOM];
    Py_XSETREF(*place, Py_NewRef(list));
    return list;
}

static PyMethodDef methods[] = {
    {"encode", encode, METH_O, "Return a list, and leak a reference to it."},
    {"encode_well", encode_well, METH_O, "Return a list."},
    {"enqueue", enqueue, METH_O, "Return a list that is kept until 64 others came."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "leaky_encoder", NULL, -1, methods};

PyMODINIT_FUNC PyInit_leaky_encoder(void) { return PyModule_Create(&definition); }
