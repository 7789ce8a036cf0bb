/* Calls back when a function that the main module has called returned, before its variables go.

   While code of the main module itself runs, the interpreter's evaluator (PEP 523) is ours. It puts
   the default one back before it evaluates a function that was called there, so that whatever runs
   inside is evaluated as ever. Up to 3.11 it is the caller that clears a frame after it was
   evaluated: for that moment the frame is put on the stack again. From 3.12 on the evaluator clears
   it itself, and nothing is installed. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#if PY_VERSION_HEX < 0x030C0000
#include <frameobject.h>
#include <time.h>
#if PY_VERSION_HEX >= 0x030B0000
#define Py_BUILD_CORE
#include <internal/pycore_frame.h>
typedef struct _PyInterpreterFrame Frame;
#else
typedef PyFrameObject Frame;
#endif

static struct {
    PyThreadState *thread;    /* whose calls are looked at; NULL: nothing is installed */
    PyObject *callback;       /* called without arguments */
    PyObject *through;        /* tuple of namespaces whose functions are no work of the program's */
    PyObject *main;           /* the namespace of the main module */
    long long least_ns;       /* a call that took less is none to look at */
    long calls, foreign;      /* how many more are looked at, of this thread and of others */
} watch;

static PyObject *evaluate(PyThreadState *, Frame *, int);

static long long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void stop(PyInterpreterState *interpreter) {
    if (_PyInterpreterState_GetEvalFrameFunc(interpreter) == evaluate)
        _PyInterpreterState_SetEvalFrameFunc(interpreter, _PyEval_EvalFrameDefault);
    watch.thread = NULL;
    Py_CLEAR(watch.callback);
    Py_CLEAR(watch.through);
    Py_CLEAR(watch.main);
}

static PyCodeObject *code_of(Frame *frame) { return frame->f_code; }

/* Whether a frame belongs to a function whose variables are its own: no module, class, generator. */
static int is_of_a_function(Frame *frame) {
    int flags = code_of(frame)->co_flags;
    if (flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR))
        return 0;
    return (flags & CO_OPTIMIZED) != 0;
}

/* Whether it runs what is called there without being work itself: our launch, the main module, and
   wrappers, which have the function that they call under a name that functools gives. */
static int leads_on(Frame *frame) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(watch.through); i++)
        if (PyTuple_GET_ITEM(watch.through, i) == frame->f_globals)
            return 1;
    if (frame->f_globals == watch.main && !(code_of(frame)->co_flags & CO_OPTIMIZED))
        return PyUnicode_CompareWithASCIIString(code_of(frame)->co_name, "<module>") == 0;
#if PY_VERSION_HEX >= 0x030B0000
    PyObject *attributes = frame->f_func ? frame->f_func->func_dict : NULL;
    if (attributes != NULL && is_of_a_function(frame)) {
        PyObject *wrapped = PyDict_GetItemString(attributes, "__wrapped__"); /* clears its errors */
        return wrapped != NULL;
    }
#endif
    return 0;
}

/* Call back with the frame on the stack as if it still ran; 0 where the result is to be dropped. */
static int tell(PyThreadState *thread, Frame *frame) {
#if PY_VERSION_HEX >= 0x030B0000
    if (thread->cframe->current_frame != frame->previous)
        return 1;
    thread->cframe->current_frame = frame;
    PyThreadState_EnterTracing(thread);
#else
    if (thread->frame != frame->f_back)
        return 1;
    thread->frame = frame;
    int traced = thread->cframe->use_tracing;
    thread->tracing++;
    thread->cframe->use_tracing = 0;
#endif
    PyObject *callback = watch.callback;
    Py_INCREF(callback);
    PyObject *done = PyObject_CallNoArgs(callback);
    Py_DECREF(callback);
#if PY_VERSION_HEX >= 0x030B0000
    PyThreadState_LeaveTracing(thread);
    thread->cframe->current_frame = frame->previous;
#else
    thread->tracing--;
    thread->cframe->use_tracing = traced;
    thread->frame = frame->f_back;
#endif
    Py_XDECREF(done);
    return done != NULL;
}

static PyObject *evaluate(PyThreadState *thread, Frame *frame, int throws) {
    PyInterpreterState *interpreter = PyThreadState_GetInterpreter(thread);
    if (watch.thread == NULL || _PyInterpreterState_GetEvalFrameFunc(interpreter) != evaluate)
        return _PyEval_EvalFrameDefault(thread, frame, throws); /* called by another's evaluator */
    if (thread != watch.thread) {
        /* Calls that are not inlined take stack: a thread must not recurse in here. */
        if (watch.foreign-- <= 0)
            stop(interpreter);
        return _PyEval_EvalFrameDefault(thread, frame, throws);
    }
    if (watch.calls-- <= 0) {
        stop(interpreter);
        return _PyEval_EvalFrameDefault(thread, frame, throws);
    }
    if (leads_on(frame))
        return _PyEval_EvalFrameDefault(thread, frame, throws);
    int has_variables = is_of_a_function(frame);
    _PyInterpreterState_SetEvalFrameFunc(interpreter, _PyEval_EvalFrameDefault);
    long long began = now_ns();
    PyObject *result = _PyEval_EvalFrameDefault(thread, frame, throws);
    if (watch.thread != thread) /* stopped meanwhile */
        return result;
    if (result != NULL && has_variables && now_ns() - began >= watch.least_ns &&
        !tell(thread, frame))
        Py_CLEAR(result);
    if (watch.thread == thread &&
        _PyInterpreterState_GetEvalFrameFunc(interpreter) == _PyEval_EvalFrameDefault)
        _PyInterpreterState_SetEvalFrameFunc(interpreter, evaluate);
    return result;
}

PyDoc_STRVAR(watch_doc,
             "watch(callback, main, through, seconds, calls, foreign)\n--\n\n"
             "Call back as functions return that the main module called, their variables alive.");

static PyObject *watch_calls(PyObject *module, PyObject *arguments) {
    PyObject *callback, *main, *through;
    double seconds;
    long calls, foreign;
    if (!PyArg_ParseTuple(arguments, "OO!O!dll", &callback, &PyDict_Type, &main, &PyTuple_Type,
                          &through, &seconds, &calls, &foreign))
        return NULL;
    PyThreadState *thread = PyThreadState_Get();
    PyInterpreterState *interpreter = PyThreadState_GetInterpreter(thread);
    if (watch.thread != NULL || interpreter != PyInterpreterState_Main() ||
        _PyInterpreterState_GetEvalFrameFunc(interpreter) != _PyEval_EvalFrameDefault)
        Py_RETURN_FALSE;
    Py_INCREF(callback);
    Py_INCREF(main);
    Py_INCREF(through);
    watch.callback = callback, watch.main = main, watch.through = through;
    watch.least_ns = (long long)(seconds * 1e9), watch.calls = calls, watch.foreign = foreign;
    watch.thread = thread;
    _PyInterpreterState_SetEvalFrameFunc(interpreter, evaluate);
    Py_RETURN_TRUE;
}

PyDoc_STRVAR(stop_doc, "stop()\n--\n\nCall back no more.");

static PyObject *stop_calls(PyObject *module, PyObject *unused) {
    stop(PyThreadState_GetInterpreter(PyThreadState_Get()));
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"watch", watch_calls, METH_VARARGS, watch_doc},
    {"stop", stop_calls, METH_NOARGS, stop_doc},
    {NULL, NULL, 0, NULL},
};
#else
static PyMethodDef functions[] = {{NULL, NULL, 0, NULL}};
#endif

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_returning", NULL, -1, functions, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__returning(void) { return PyModule_Create(&definition); }
