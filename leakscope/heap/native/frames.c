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

static PyObject **value_stack(PyFrameObject *frame, PyCodeObject *code) {
    return frame->f_localsplus + code->co_nlocals + PyTuple_GET_SIZE(code->co_cellvars) +
           PyTuple_GET_SIZE(code->co_freevars);
}

#endif

#if PY_VERSION_HEX < 0x030E0000

/* What is let go of while a loop ends may still lie there, with no reference left. */
PyObject *stacked(PyObject *Py_UNUSED(module), PyObject *arguments) {
    PyFrameObject *frame;
    int index;
    if (!PyArg_ParseTuple(arguments, "O!i", &PyFrame_Type, &frame, &index))
        return NULL;
    PyCodeObject *code = PyFrame_GetCode(frame);
    PyObject *value = NULL;
    if (is_under_way(frame) && index >= 0 && index < code->co_stacksize)
        value = value_stack(frame, code)[index];
    Py_DECREF(code);
    return Py_NewRef(value && Py_REFCNT(value) > 0 ? value : Py_None);
}

#endif
