/* The variables and the value stack of a function that runs, read in place: frame.f_locals would make
   and keep a dict, and of the stack nothing tells. */
#include "walk.h"

#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030E0000
#define Py_BUILD_CORE
#include <internal/pycore_code.h>
#include <internal/pycore_frame.h>
#elif PY_VERSION_HEX < 0x030B0000
#include <frameobject.h>
#endif

#if PY_VERSION_HEX < 0x030D0000

static int add_local(PyObject *list, PyObject *name, PyObject *value) {
    if (value == NULL)
        return 0;
    PyObject *pair = PyTuple_Pack(2, name, value);
    int result = pair ? PyList_Append(list, pair) : -1;
    Py_XDECREF(pair);
    return result;
}

static PyObject *in_cell(PyObject *value) {
    return value && PyCell_Check(value) ? PyCell_GET(value) : value;
}

#if PY_VERSION_HEX >= 0x030B0000

static int add_locals(PyObject *list, PyFrameObject *frame, PyCodeObject *code) {
    PyObject **values = frame->f_frame->localsplus;
    for (int i = 0; i < code->co_nlocalsplus; i++) {
        unsigned char kind = (unsigned char)PyBytes_AS_STRING(code->co_localspluskinds)[i];
        PyObject *value = values[i];
        if (kind & (CO_FAST_CELL | CO_FAST_FREE))
            value = in_cell(value);
        if (add_local(list, PyTuple_GET_ITEM(code->co_localsplusnames, i), value) < 0)
            return -1;
    }
    return 0;
}

#else

static int add_named(PyObject *list, PyObject *names, PyObject **values, int cells) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++)
        if (add_local(list, PyTuple_GET_ITEM(names, i),
                      cells ? in_cell(values[i]) : values[i]) < 0)
            return -1;
    return 0;
}

static int add_locals(PyObject *list, PyFrameObject *frame, PyCodeObject *code) {
    PyObject **values = frame->f_localsplus, **cells = values + code->co_nlocals;
    PyObject **free = cells + PyTuple_GET_SIZE(code->co_cellvars);
    return add_named(list, code->co_varnames, values, 0) < 0 ||
                   add_named(list, code->co_cellvars, cells, 1) < 0 ||
                   add_named(list, code->co_freevars, free, 1) < 0
               ? -1
               : 0;
}

#endif

PyObject *frame_locals(PyObject *Py_UNUSED(module), PyObject *frame) {
    if (!PyFrame_Check(frame)) {
        PyErr_SetString(PyExc_TypeError, "a frame is needed");
        return NULL;
    }
    PyCodeObject *code = PyFrame_GetCode((PyFrameObject *)frame);
    PyObject *list = PyList_New(0);
    if (list != NULL && add_locals(list, (PyFrameObject *)frame, code) < 0)
        Py_CLEAR(list);
    Py_DECREF(code);
    return list;
}

#endif

#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030E0000

/* What was unwound keeps its variables and nothing of its stack. */
static int is_under_way(PyFrameObject *frame) {
    return frame->f_frame->owner != FRAME_OWNED_BY_FRAME_OBJECT;
}

static PyObject **value_stack(PyFrameObject *frame, PyCodeObject *code) {
    return frame->f_frame->localsplus + code->co_nlocalsplus;
}

#elif PY_VERSION_HEX < 0x030B0000

static int is_under_way(PyFrameObject *frame) {
    return frame->f_state == FRAME_EXECUTING || frame->f_state == FRAME_SUSPENDED;
}

static int PyFrame_GetLasti(PyFrameObject *frame) {
    return frame->f_lasti < 0 ? -1 : frame->f_lasti * (int)sizeof(_Py_CODEUNIT);
}

static PyObject **value_stack(PyFrameObject *frame, PyCodeObject *code) {
    return frame->f_localsplus + code->co_nlocals + PyTuple_GET_SIZE(code->co_cellvars) +
           PyTuple_GET_SIZE(code->co_freevars);
}

#endif

#if PY_VERSION_HEX < 0x030E0000

#define MOST_LOOPS 64 /* of one function */

typedef struct {
    PyObject *values[MOST_LOOPS];
    int is_alive[MOST_LOOPS];
    Py_ssize_t count, left;
} Candidates;

static int find_candidate(PyObject *object, void *argument) {
    Candidates *candidates = argument;
    for (Py_ssize_t i = 0; i < candidates->count; i++)
        if (candidates->values[i] == object && !candidates->is_alive[i]) {
            candidates->is_alive[i] = 1;
            candidates->left--;
        }
    return candidates->left > 0 ? 0 : -1;
}

/* Where the frame stands and what lies there in one call: its thread may go on between two. Nothing
   tells how much of the stack is in use: while an exception unwinds it, and after a loop was left,
   what lay there is gone, and what a dying iterator calls may ask for it. So an address counts only
   if it is that of an object that the collector tracks, and is followed no sooner. */
PyObject *looped_over(PyObject *Py_UNUSED(module), PyObject *arguments) {
    PyFrameObject *frame;
    PyObject *loops;
    if (!PyArg_ParseTuple(arguments, "O!O!", &PyFrame_Type, &frame, &PyList_Type, &loops))
        return NULL;
    Candidates candidates = {.count = Py_MIN(PyList_GET_SIZE(loops), MOST_LOOPS)};
    PyObject *found = PyList_New(candidates.count); /* first: it may start a collection */
    if (!found)
        return NULL;
    for (Py_ssize_t i = 0; i < candidates.count; i++)
        PyList_SET_ITEM(found, i, Py_NewRef(Py_None));
    PyCodeObject *code = PyFrame_GetCode(frame);
    int at = is_under_way(frame) ? PyFrame_GetLasti(frame) : -1;
    for (Py_ssize_t i = 0; i < candidates.count; i++) {
        int begin, end, depth;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(loops, i), "iii", &begin, &end, &depth)) {
            Py_DECREF(code);
            Py_DECREF(found);
            return NULL;
        }
        if (begin <= at && at < end && depth >= 0 && depth < code->co_stacksize) {
            candidates.values[i] = value_stack(frame, code)[depth];
            candidates.left += candidates.values[i] != NULL;
        }
    }
    Py_DECREF(code);
    if (candidates.left > 0)
        visit_tracked(find_candidate, &candidates);
    for (Py_ssize_t i = 0; i < candidates.count; i++)
        if (candidates.is_alive[i] && Py_REFCNT(candidates.values[i]) > 0)
            PyList_SetItem(found, i, Py_NewRef(candidates.values[i]));
    return found;
}

#endif
