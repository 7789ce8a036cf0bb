/* Counts the blocks that Python hands out, which nothing of Python's tells: what tracemalloc would
 * cost depends on how many there are, not on how many stay.
 *
 * The counting layer (layers.h) hands every call on, for a nanosecond or two.
 *
 * A limit may be set: where it is reached the main thread calls a function as soon as it runs
 * bytecode (Py_AddPendingCall). So a window of tracing ends in the middle of a step that allocates
 * more than was expected, without a thread or a timer.
 */
#define PY_SSIZE_T_CLEAN
#include "layers.h"

#define RETRY 1000 /* blocks until the function is called again where there was no room for it */

static unsigned long long blocks, limit;
static PyObject *on_limit;

static int limit_reached(void *Py_UNUSED(nothing)) {
    if (limit == 0 || blocks < limit || on_limit == NULL)
        return 0; /* disarmed meanwhile */
    PyObject *function = Py_NewRef(on_limit);
    limit = 0;
    PyObject *result = PyObject_CallNoArgs(function);
    Py_DECREF(function);
    if (result != NULL) {
        Py_DECREF(result);
        return 0;
    }
    limit = blocks + RETRY;
    if (PyErr_ExceptionMatches(PyExc_Exception)) {
        PyErr_Clear(); /* near the recursion limit, say: not the program's business */
        return 0;
    }
    return -1; /* Ctrl-C struck in there: it is the program's */
}

static inline void count(void) {
    if (++blocks == limit)
        (void)Py_AddPendingCall(limit_reached, NULL);
}

static void *counted_malloc(void *layer, size_t size) {
    PyMemAllocatorEx *inner = &((Layer *)layer)->inner;
    count();
    return inner->malloc(inner->ctx, size);
}

static void *counted_calloc(void *layer, size_t number, size_t size) {
    PyMemAllocatorEx *inner = &((Layer *)layer)->inner;
    count();
    return inner->calloc(inner->ctx, number, size);
}

static void *counted_realloc(void *layer, void *block, size_t size) {
    PyMemAllocatorEx *inner = &((Layer *)layer)->inner;
    count();
    return inner->realloc(inner->ctx, block, size);
}

static void uncounted_free(void *layer, void *block) {
    PyMemAllocatorEx *inner = &((Layer *)layer)->inner;
    inner->free(inner->ctx, block);
}

static PyObject *start(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
    const PyMemAllocatorEx counting = {NULL, counted_malloc, counted_calloc, counted_realloc,
                                       uncounted_free};
    layers_install(&counting, &blocks);
    Py_RETURN_NONE;
}

static PyObject *stop(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
    limit = 0;
    Py_CLEAR(on_limit);
    layers_remove();
    Py_RETURN_NONE;
}

static PyObject *counted(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
    return PyLong_FromUnsignedLongLong(blocks);
}

static PyObject *arm(PyObject *Py_UNUSED(module), PyObject *args) {
    unsigned long long more;
    PyObject *function;
    if (!PyArg_ParseTuple(args, "KO", &more, &function))
        return NULL;
    Py_XSETREF(on_limit, Py_NewRef(function));
    limit = blocks + (more ? more : 1);
    Py_RETURN_NONE;
}

static PyObject *disarm(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
    limit = 0;
    Py_CLEAR(on_limit);
    Py_RETURN_NONE;
}

PyObject *long_lived(PyObject *module, PyObject *nothing); /* collector.c */
PyObject *watch_collections(PyObject *module, PyObject *args); /* pauses.c, with the others */
PyObject *unwatch_collections(PyObject *module, PyObject *nothing);
PyObject *mute_collections(PyObject *module, PyObject *flag);
PyObject *collections(PyObject *module, PyObject *nothing);
PyObject *collect_calls(PyObject *module, PyObject *nothing);

static PyMethodDef methods[] = {
    {"start", start, METH_NOARGS, "Count from now on."},
    {"stop", stop, METH_NOARGS, "Count no more."},
    {"counted", counted, METH_NOARGS, "How many blocks were handed out while it counted."},
    {"arm", arm, METH_VARARGS, "After so many more blocks have the main thread call a function."},
    {"disarm", disarm, METH_NOARGS, "Have no function called."},
    {"long_lived", long_lived, METH_NOARGS, "How far the collector is on its way to a full collection."},
    {"watch_collections", watch_collections, METH_VARARGS, "Time collections from now on."},
    {"unwatch_collections", unwatch_collections, METH_NOARGS, "Time no more."},
    {"mute_collections", mute_collections, METH_O, "Leave out what is collected meanwhile."},
    {"collections", collections, METH_NOARGS, "How long collections took."},
    {"collect_calls", collect_calls, METH_NOARGS, "Which lines have called the collector."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_counting", NULL, -1, methods,
                                        NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__counting(void) {
    return PyModule_Create(&definition);
}
