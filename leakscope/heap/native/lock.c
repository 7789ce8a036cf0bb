/* Keeping the interpreter's lock, while the answer of a walk refers to the program's objects.
 *
 * A thread that waits for the lock asks for it after sys.getswitchinterval(), and the interpreter gives it
 * between two instructions. C code of the program's that stood still meanwhile relies on what it left:
 * numpy's resize(), tuple() of a generator and PyBytes_Resize fail where an object has more references than
 * their own, and what goes when our reference is the last goes in our thread, whoever it belongs to.
 *
 * So the interval is long from before the first reference until after the last. Those that wait already have
 * begun with the old one: they are woken, and begin again. To them the number of switches is another, so
 * that none asks that is just about to. Whoever lets go of the lock by itself, such as for a file, is not
 * kept from it; then the wait for it is as long as the interval, if another thread computes.
 *
 * Source: CPython's Python/ceval_gil.h (3.10, 3.11), ceval_gil.c (since 3.12): take_gil, drop_gil.
 */
#define Py_BUILD_CORE
#include "walk.h"

#include <internal/pycore_ceval.h>
#include <internal/pycore_gil.h>
#include <internal/pycore_interp.h>
#include <internal/pycore_runtime.h>

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define KEPT_MICROSECONDS 250000ul
#define AGAIN_AFTER (KEPT_MICROSECONDS / 4) /* those that wait begin again so often */

static struct _gil_runtime_state *lock_of_interpreter; /* NULL where its layout is another */
static unsigned long usual_interval;
static unsigned long switches; /* of the lock, as far as they were our own doing */
static unsigned long latest;   /* when those that wait were made to begin again, in microseconds */
static int is_kept;

static unsigned long microseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (unsigned long)now.tv_sec * 1000000ul + (unsigned long)now.tv_nsec / 1000ul;
}

static void take_back_request(void) {
#if PY_VERSION_HEX >= 0x030D0000
    _Py_unset_eval_breaker_bit(PyThreadState_Get(), _PY_GIL_DROP_REQUEST_BIT);
#else
    /* Its sum with other requests is made when the lock is taken the next time. */
    _Py_atomic_store_relaxed(&PyInterpreterState_Get()->ceval.gil_drop_request, 0);
#endif
}

static void have_them_wait(void) {
    struct _gil_runtime_state *gil = lock_of_interpreter;
    latest = microseconds();
    pthread_mutex_lock(&gil->mutex);
    gil->interval = KEPT_MICROSECONDS;
    gil->switch_number++;
    switches++;
    take_back_request();
    pthread_cond_broadcast(&gil->cond);
    pthread_mutex_unlock(&gil->mutex);
}

/* Find the lock. A release whose structures are others than those of the headers is recognised by what it holds. */
int prepare_lock(void) {
#if PY_VERSION_HEX >= 0x030C0000
    struct _gil_runtime_state *gil = PyInterpreterState_Get()->ceval.gil;
#else
    struct _gil_runtime_state *gil = &_PyRuntime.ceval.gil;
#endif
    PyObject *function = PySys_GetObject("getswitchinterval");
    PyObject *interval = function ? PyObject_CallNoArgs(function) : NULL;
    double set = interval ? PyFloat_AsDouble(interval) * 1e6 : -1.0;
    Py_XDECREF(interval);
    if (PyErr_Occurred())
        return -1;
    double difference = gil ? (double)gil->interval - set : 1e9;
    if (difference > -1.5 && difference < 1.5 && *(const int *)&gil->locked == 1 &&
        *(PyThreadState *const *)&gil->last_holder == PyThreadState_Get())
        lock_of_interpreter = gil;
    return 0;
}

PyObject *can_keep_lock(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
    return PyBool_FromLong(lock_of_interpreter != NULL);
}

PyObject *keep_lock(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
    if (lock_of_interpreter != NULL && !is_kept) {
        is_kept = 1;
        usual_interval = lock_of_interpreter->interval;
        switches = lock_of_interpreter->switch_number;
        have_them_wait();
    }
    Py_RETURN_NONE;
}

/* While it is kept: those that have waited for long begin again. */
void go_on_keeping_lock(void) {
    if (is_kept && lock_of_interpreter->interval == KEPT_MICROSECONDS && microseconds() - latest > AGAIN_AFTER)
        have_them_wait();
}

PyObject *go_on(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
    go_on_keeping_lock();
    Py_RETURN_NONE;
}

/* Return whether no other thread had the lock meanwhile. */
PyObject *keep_lock_no_more(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
    if (!is_kept)
        Py_RETURN_TRUE;
    struct _gil_runtime_state *gil = lock_of_interpreter;
    is_kept = 0;
    int was_let_go = gil->switch_number != switches;
    pthread_mutex_lock(&gil->mutex);
    if (gil->interval == KEPT_MICROSECONDS) /* else somebody has set another meanwhile */
        gil->interval = usual_interval;
    pthread_cond_broadcast(&gil->cond);
    pthread_mutex_unlock(&gil->mutex);
    return PyBool_FromLong(!was_let_go);
}

/* Return a path without symbolic links; None where there is no such file. os.path.realpath() lets go of the
 * lock for each of its folders. */
PyObject *real_path(PyObject *Py_UNUSED(module), PyObject *path) {
    PyObject *bytes;
    char real[PATH_MAX];
    if (!PyUnicode_FSConverter(path, &bytes))
        return NULL;
    int is_found = realpath(PyBytes_AS_STRING(bytes), real) != NULL;
    Py_DECREF(bytes);
    if (is_found)
        return PyUnicode_DecodeFSDefault(real);
    Py_RETURN_NONE;
}

static PyObject *read_all(int file, off_t size) {
    PyObject *content = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    Py_ssize_t count = 0, n = 1;
    while (content && n > 0 && count < (Py_ssize_t)size) {
        n = read(file, PyBytes_AS_STRING(content) + count, (size_t)(size - count));
        count += n > 0 ? n : 0;
    }
    if (content && count < (Py_ssize_t)size)
        _PyBytes_Resize(&content, count);
    return content;
}

/* Return what a file has; None where there is none, or what there is may keep who reads it waiting. */
PyObject *read_file(PyObject *Py_UNUSED(module), PyObject *path) {
    PyObject *bytes, *content = NULL;
    struct stat facts;
    if (!PyUnicode_FSConverter(path, &bytes))
        return NULL;
    int file = open(PyBytes_AS_STRING(bytes), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    Py_DECREF(bytes);
    if (file >= 0 && fstat(file, &facts) == 0 && S_ISREG(facts.st_mode))
        content = read_all(file, facts.st_size);
    if (file >= 0)
        close(file);
    if (content == NULL && !PyErr_Occurred())
        Py_RETURN_NONE;
    return content;
}

/* Return what lies in this process's memory; less or nothing where that isn't mapped. */
PyObject *read_memory(PyObject *Py_UNUSED(module), PyObject *args) {
    unsigned long long address;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "Kn", &address, &size))
        return NULL;
    PyObject *content = PyBytes_FromStringAndSize(NULL, size > 0 ? size : 0);
    if (content == NULL)
        return NULL;
    int file = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    ssize_t count = file < 0 ? 0 : pread(file, PyBytes_AS_STRING(content), (size_t)PyBytes_GET_SIZE(content), (off_t)address);
    if (file >= 0)
        close(file);
    if (count < PyBytes_GET_SIZE(content))
        _PyBytes_Resize(&content, count > 0 ? count : 0);
    return content;
}
