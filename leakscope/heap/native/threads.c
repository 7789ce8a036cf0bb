/* What other threads do to autograd while this one has the interpreter's lock.
 *
 * A backward pass fills and replaces gradients, and frees saved tensors, without that lock. So does
 * `tensor.grad = None`: torch lets go of the lock while it frees the old gradient, to which the tensor
 * still points. Whoever reads a gradient then gets memory that is being freed.
 *
 * A thread that waits for the lock between two instructions is no danger: it can't go on before this
 * one lets go. Source: torch/csrc/autograd/engine.cpp, python_variable.cpp (THPVariable_set_grad),
 * c10/util/intrusive_ptr.h (reset_).
 */
#include "walk.h"

static int store_attribute = -1, delete_attribute = -1, extended_argument = -1;
static PyObject *name_grad;

static int number_of(PyObject *numbers, const char *name) {
    PyObject *number = PyDict_GetItemString(numbers, name);
    return number ? (int)PyLong_AsLong(number) : -1;
}

/* Learn the numbers of instructions, which differ by version; returns -1 with an error set. */
int prepare_threads(void) {
    PyObject *module = PyImport_ImportModule("opcode");
    PyObject *numbers = module ? PyObject_GetAttrString(module, "opmap") : NULL;
    Py_XDECREF(module);
    if (numbers == NULL || (name_grad = PyUnicode_InternFromString("grad")) == NULL)
        return -1;
    store_attribute = number_of(numbers, "STORE_ATTR");
    delete_attribute = number_of(numbers, "DELETE_ATTR");
    extended_argument = number_of(numbers, "EXTENDED_ARG");
    Py_DECREF(numbers);
    return PyErr_Occurred() ? -1 : 0;
}

/* Say whether an instruction stores or deletes an attribute `grad`. */
static int replaces_gradient(PyObject *instructions, PyObject *names, Py_ssize_t at) {
    Py_ssize_t size = PyBytes_GET_SIZE(instructions);
    const unsigned char *bytes = (const unsigned char *)PyBytes_AS_STRING(instructions);
    if (at < 0 || at + 1 >= size || (bytes[at] != store_attribute && bytes[at] != delete_attribute))
        return 0;
    Py_ssize_t name = bytes[at + 1];
    if (at >= 2 && bytes[at - 2] == extended_argument)
        name |= bytes[at - 1] << 8;
    return name < PyTuple_GET_SIZE(names) &&
           PyUnicode_Compare(PyTuple_GET_ITEM(names, name), name_grad) == 0;
}

static int has_text(PyObject *texts, const char *text) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(texts); i++) {
        PyObject *item = PyTuple_GET_ITEM(texts, i);
        if (PyUnicode_Check(item) && PyUnicode_CompareWithASCIIString(item, text) == 0)
            return 1;
    }
    return 0;
}

/* Say whether a function may be inside `setattr(tensor, "grad", ...)`, whatever it is at. */
static int may_set_by_name(PyObject *names, PyObject *constants) {
    return has_text(constants, "grad") && (has_text(names, "setattr") || has_text(names, "delattr"));
}

/* Say whether the innermost function of a thread is replacing a gradient. */
static int is_replacing(PyObject *frame, PyObject *code) {
    PyObject *at = PyObject_GetAttrString(frame, "f_lasti");
    PyObject *instructions = PyObject_GetAttrString(code, "co_code");
    PyObject *names = PyObject_GetAttrString(code, "co_names");
    PyObject *constants = PyObject_GetAttrString(code, "co_consts");
    int found = 1; /* where that can't be read, nothing is known */
    if (at && instructions && names && constants)
        found = replaces_gradient(instructions, names, PyLong_AsSsize_t(at)) ||
                may_set_by_name(names, constants);
    PyErr_Clear();
    Py_XDECREF(at);
    Py_XDECREF(instructions);
    Py_XDECREF(names);
    Py_XDECREF(constants);
    return found;
}

static int ends_with(const char *text, const char *end) {
    size_t length = strlen(text), size = strlen(end);
    return length >= size && strcmp(text + length - size, end) == 0;
}

/* Say whether a function starts backward passes: those of these files call the engine. */
static int is_of_autograd(PyObject *code) {
    PyObject *file = PyObject_GetAttrString(code, "co_filename");
    const char *text = file ? PyUnicode_AsUTF8(file) : NULL;
    int found = text != NULL && (ends_with(text, "torch/autograd/graph.py") ||
                                 ends_with(text, "torch/autograd/__init__.py"));
    PyErr_Clear();
    Py_XDECREF(file);
    return found;
}

/* Say whether a thread whose innermost frame is given replaces a gradient (1), or runs a
 * backward pass (2). */
static int state_of(PyObject *innermost) {
    PyObject *frame = Py_NewRef(innermost);
    int found = 0;
    while (frame != NULL && frame != Py_None && !found) {
        PyObject *code = PyObject_GetAttrString(frame, "f_code");
        if (code == NULL)
            break;
        if (frame == innermost && is_replacing(frame, code))
            found = 1;
        else if (is_of_autograd(code))
            found = 2;
        Py_DECREF(code);
        PyObject *caller = PyObject_GetAttrString(frame, "f_back");
        Py_DECREF(frame);
        frame = caller;
    }
    Py_XDECREF(frame);
    PyErr_Clear();
    return found;
}

/* Say whether threads but the calling one change gradients or graphs at this moment. `own` of the
 * passes under way are the calling thread's, which a worker of autograd's may run for another. */
int others_change_autograd(Py_ssize_t own) {
    PyObject *function = PySys_GetObject("_current_frames");
    PyObject *frames = function ? PyObject_CallNoArgs(function) : NULL;
    PyObject *key, *frame;
    Py_ssize_t at = 0, passes = 0;
    int found = 0;
    if (frames == NULL) {
        PyErr_Clear();
        return 0;
    }
    unsigned long me = PyThread_get_thread_ident();
    while (!found && PyDict_Next(frames, &at, &key, &frame)) {
        if (PyLong_AsUnsignedLong(key) == me)
            continue;
        int state = state_of(frame);
        passes += state == 2;
        found = state == 1 || passes > own;
    }
    Py_DECREF(frames);
    return found;
}
