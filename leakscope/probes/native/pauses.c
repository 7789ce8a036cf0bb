/* How long the collector stops the program, and what the program's own calls of gc.collect() bring.
 *
 * The collector calls what stands in gc.callbacks before and after each collection. A function of Python's
 * there would run bytecode, in which a signal may strike: what its handler raises, the KeyboardInterrupt of
 * Ctrl-C say, would be printed and lost. A function in C runs none. It adds up numbers and keeps no object.
 *
 * A collection is the program's own where the interpreter had no reason of its own to run it: what it goes by
 * is read before it is changed (Modules/gcmodule.c, gc_collect_generations). The innermost line of the user's
 * is then looked up, and memory is read before and after, as long as that stays a small part of the time
 * that these calls take.
 *
 * Only one collection runs at a time in an interpreter, and all of this happens under the GIL.
 */
#define PY_SSIZE_T_CLEAN
#define Py_BUILD_CORE
#include <Python.h>

#include <frameobject.h> /* PyFrame_GetBack, before 3.11 */

#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#if PY_VERSION_HEX < 0x030E0000
#include <internal/pycore_gc.h>
#include <internal/pycore_interp.h>
#endif

#define GENERATIONS 3
#define MOST_CALLERS 32
#define MOST_FRAMES 256
#define WEIGHING_PART 20 /* reading memory takes no more than one part in so many */

typedef struct {
    long long count, ns, longest;
} Times;

typedef struct {
    char *file; /* NULL: in no file of the user's */
    int line;
    Times times;
    long long objects, weighed, freed, most_freed;
} Caller;

static Times by_itself[GENERATIONS], explicit_calls;
static Caller callers[MOST_CALLERS + 1]; /* the last is of all for which there was no room */
static int known_callers;
static char **not_users; /* what the names of files begin with that are no user's, then NULL */
static char **installed; /* parts of such names */
static PyObject *callback;
static int muted;
static struct {
    int is_timed;
    int generation;
    Caller *caller; /* NULL: the interpreter's own */
    int is_weighed;
    long long resident, in_use, began;
} running;
static long long weighing_ns;

static long long now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return 1000000000LL * time.tv_sec + time.tv_nsec;
}

static long long resident_bytes(void) {
    char text[128];
    int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return -1;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    if (length <= 0)
        return -1;
    text[length] = 0;
    char *second = strchr(text, ' ');
    return second == NULL ? -1 : atoll(second + 1) * sysconf(_SC_PAGESIZE);
}

struct heap_counts { /* mallinfo2 of glibc 2.33 */
    size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};

static long long heap_in_use(void) {
    static struct heap_counts (*count)(void);
    static int is_known;
    if (!is_known) {
        *(void **)&count = dlsym(RTLD_DEFAULT, "mallinfo2");
        is_known = 1;
    }
    if (count == NULL)
        return -1;
    struct heap_counts counts = count();
    return (long long)(counts.uordblks + counts.hblkhd);
}

#if PY_VERSION_HEX < 0x030E0000
static int is_explicit(int generation) {
    const struct _gc_runtime_state *state = &PyInterpreterState_Get()->gc;
    const struct gc_generation *its = &state->generations[generation];
    if (!state->enabled || its->count <= its->threshold)
        return 1;
    /* The oldest may have been due for long, and waits until enough has grown old. */
    return generation == GENERATIONS - 1 && state->long_lived_pending < state->long_lived_total / 4;
}
#else
static int is_explicit(int generation) {
    (void)generation;
    int found = 0;
    PyFrameObject *frame = PyThreadState_GetFrame(PyThreadState_Get());
    if (frame == NULL)
        return 0;
    PyCodeObject *code = PyFrame_GetCode(frame);
    PyObject *names = PyObject_GetAttrString((PyObject *)code, "co_names");
    for (Py_ssize_t i = 0; names != NULL && PyTuple_Check(names) && i < PyTuple_GET_SIZE(names); i++)
        found |= PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, i), "collect") == 0;
    PyErr_Clear();
    Py_XDECREF(names);
    Py_DECREF(code);
    Py_DECREF(frame);
    return found;
}
#endif

static int is_users(const char *file) {
    for (char **start = not_users; start != NULL && *start != NULL; start++)
        if (strncmp(file, *start, strlen(*start)) == 0)
            return 0;
    for (char **part = installed; part != NULL && *part != NULL; part++)
        if (strstr(file, *part) != NULL)
            return 0;
    return 1;
}

static Caller *caller_at(const char *file, int line) {
    for (int i = 0; i < known_callers; i++)
        if (callers[i].line == line && (file == NULL) == (callers[i].file == NULL) &&
            (file == NULL || strcmp(callers[i].file, file) == 0))
            return &callers[i];
    if (known_callers == MOST_CALLERS)
        return &callers[MOST_CALLERS];
    char *copy = file == NULL ? NULL : strdup(file);
    if (file != NULL && copy == NULL)
        return &callers[MOST_CALLERS];
    callers[known_callers] = (Caller){.file = copy, .line = line};
    return &callers[known_callers++];
}

static Caller *find_caller(void) {
    Caller *found = NULL;
    PyFrameObject *frame = PyThreadState_GetFrame(PyThreadState_Get());
    for (int i = 0; frame != NULL && i < MOST_FRAMES && found == NULL; i++) {
        PyCodeObject *code = PyFrame_GetCode(frame);
        const char *file = PyUnicode_AsUTF8(code->co_filename);
        if (file == NULL)
            PyErr_Clear(); /* a name that is no text */
        else if (is_users(file))
            found = caller_at(file, PyFrame_GetLineNumber(frame));
        Py_DECREF(code);
        PyFrameObject *outer = found == NULL ? PyFrame_GetBack(frame) : NULL;
        Py_DECREF(frame);
        frame = outer;
    }
    Py_XDECREF(frame);
    return found == NULL ? caller_at(NULL, 0) : found;
}

static void weigh(long long *resident, long long *in_use) {
    long long began = now_ns();
    *in_use = heap_in_use();
    *resident = resident_bytes();
    weighing_ns += now_ns() - began;
}

static void add(Times *times, long long ns) {
    times->count++;
    times->ns += ns;
    if (ns > times->longest)
        times->longest = ns;
}

static long long number_in(PyObject *info, const char *name) {
    PyObject *value = PyDict_GetItemString(info, name); /* borrowed */
    long long number = value != NULL && PyLong_Check(value) ? PyLong_AsLongLong(value) : 0;
    if (PyErr_Occurred())
        PyErr_Clear();
    return number;
}

static void begins(PyObject *info) {
    long long generation = number_in(info, "generation");
    running.is_timed = !muted && generation >= 0 && generation < GENERATIONS;
    if (!running.is_timed)
        return;
    running.generation = (int)generation;
    running.caller = is_explicit(running.generation) ? find_caller() : NULL;
    running.is_weighed = running.caller != NULL && weighing_ns * WEIGHING_PART <= explicit_calls.ns;
    if (running.is_weighed)
        weigh(&running.resident, &running.in_use);
    running.began = now_ns();
}

static void ends(PyObject *info) {
    long long ns = now_ns() - running.began;
    if (!running.is_timed)
        return;
    running.is_timed = 0;
    if (muted)
        return;
    Caller *caller = running.caller;
    if (caller == NULL) {
        add(&by_itself[running.generation], ns);
        return;
    }
    add(&explicit_calls, ns);
    add(&caller->times, ns);
    caller->objects += number_in(info, "collected");
    if (!running.is_weighed)
        return;
    long long resident, in_use;
    weigh(&resident, &in_use);
    long long returned = resident < 0 || running.resident < 0 ? 0 : running.resident - resident;
    long long freed = in_use < 0 || running.in_use < 0 ? 0 : running.in_use - in_use;
    freed = freed > returned ? freed : returned;
    freed = freed > 0 ? freed : 0;
    caller->weighed++;
    caller->freed += freed;
    if (freed > caller->most_freed)
        caller->most_freed = freed;
}

static PyObject *on_collection(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count) {
    if (count == 2 && PyUnicode_Check(given[0]) && PyDict_CheckExact(given[1])) {
        if (PyUnicode_CompareWithASCIIString(given[0], "start") == 0)
            begins(given[1]);
        else
            ends(given[1]);
    }
    Py_RETURN_NONE;
}

static PyMethodDef callback_method = {"on_collection", (PyCFunction)(void (*)(void))on_collection,
                                      METH_FASTCALL, "Add up how long collections take."};

static void release(char ***texts) {
    for (char **text = *texts; text != NULL && *text != NULL; text++)
        free(*text);
    free(*texts);
    *texts = NULL;
}

static int copy_texts(PyObject *tuple, char ***into) {
    Py_ssize_t count = PyTuple_GET_SIZE(tuple);
    char **texts = calloc((size_t)count + 1, sizeof *texts);
    for (Py_ssize_t i = 0; texts != NULL && i < count; i++) {
        const char *text = PyUnicode_AsUTF8(PyTuple_GET_ITEM(tuple, i));
        if (text == NULL || (texts[i] = strdup(text)) == NULL) {
            release(&texts);
            break;
        }
    }
    if (texts == NULL)
        return PyErr_Occurred() != NULL ? -1 : (PyErr_NoMemory(), -1);
    release(into);
    *into = texts;
    return 0;
}

static PyObject *callbacks_of_gc(void) {
    PyObject *gc = PyImport_ImportModule("gc");
    PyObject *callbacks = gc == NULL ? NULL : PyObject_GetAttrString(gc, "callbacks");
    Py_XDECREF(gc);
    if (callbacks != NULL && !PyList_CheckExact(callbacks))
        Py_CLEAR(callbacks);
    return callbacks;
}

/* By identity: comparing would run code of what else stands there. */
static Py_ssize_t place_in(PyObject *callbacks) {
    for (Py_ssize_t i = 0; callback != NULL && i < PyList_GET_SIZE(callbacks); i++)
        if (PyList_GET_ITEM(callbacks, i) == callback)
            return i;
    return -1;
}

PyObject *unwatch_collections(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
    PyObject *callbacks = callbacks_of_gc();
    Py_ssize_t place = callbacks == NULL ? -1 : place_in(callbacks);
    if (place >= 0 && PyList_SetSlice(callbacks, place, place + 1, NULL) < 0)
        PyErr_Clear();
    PyErr_Clear();
    Py_XDECREF(callbacks);
    Py_RETURN_NONE;
}

PyObject *watch_collections(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *starts, *parts;
    if (!PyArg_ParseTuple(args, "O!O!", &PyTuple_Type, &starts, &PyTuple_Type, &parts))
        return NULL;
    if (copy_texts(starts, &not_users) < 0 || copy_texts(parts, &installed) < 0)
        return NULL;
    for (int i = 0; i < known_callers; i++)
        free(callers[i].file);
    memset(callers, 0, sizeof callers);
    memset(by_itself, 0, sizeof by_itself);
    memset(&explicit_calls, 0, sizeof explicit_calls);
    known_callers = muted = running.is_timed = 0;
    weighing_ns = 0;
    if (callback == NULL && (callback = PyCFunction_New(&callback_method, NULL)) == NULL)
        return NULL;
    PyObject *callbacks = callbacks_of_gc();
    if (callbacks == NULL) {
        PyErr_Clear();
        Py_RETURN_FALSE;
    }
    int failed = place_in(callbacks) < 0 && PyList_Append(callbacks, callback) < 0;
    Py_DECREF(callbacks);
    return failed ? NULL : Py_NewRef(Py_True);
}

PyObject *mute_collections(PyObject *Py_UNUSED(module), PyObject *flag) {
    int before = muted, after = PyObject_IsTrue(flag);
    if (after < 0)
        return NULL;
    muted = after;
    return PyBool_FromLong(before);
}

static PyObject *times_of(Times *times) {
    PyObject *values = Py_BuildValue("LLL", times->count, times->ns, times->longest);
    times->longest = 0;
    return values;
}

PyObject *collections(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
    return Py_BuildValue("NNNN", times_of(&by_itself[0]), times_of(&by_itself[1]), times_of(&by_itself[2]),
                         times_of(&explicit_calls));
}

PyObject *collect_calls(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
    PyObject *calls = PyList_New(0);
    for (int i = 0; calls != NULL && i <= MOST_CALLERS; i++) {
        Caller *its = &callers[i];
        if (its->times.count == 0)
            continue;
        PyObject *call = Py_BuildValue("ziLLLLLLL", its->file, its->line, its->times.count, its->times.ns,
                                       its->times.longest, its->objects, its->weighed, its->freed,
                                       its->most_freed);
        if (call == NULL || PyList_Append(calls, call) < 0)
            Py_CLEAR(calls);
        Py_XDECREF(call);
    }
    return calls;
}
