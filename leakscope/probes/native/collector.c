/* How far the collector is on its way to the next collection of all generations.
 *
 * That one comes only when what survived collections of the younger generations since the last is more
 * than a fourth of what survived the last: garbage in circles that has grown old waits for it. Nothing of
 * Python's tells either number (``Modules/gcmodule.c``, gc_collect_generations).
 */
#define PY_SSIZE_T_CLEAN
#define Py_BUILD_CORE
#include <Python.h>

#if PY_VERSION_HEX < 0x030E0000
#include <internal/pycore_gc.h>
#include <internal/pycore_interp.h>

PyObject *long_lived(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
    const struct _gc_runtime_state *state = &PyInterpreterState_Get()->gc;
    return Py_BuildValue("nn", state->long_lived_pending, state->long_lived_total);
}
#else
PyObject *long_lived(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
    Py_RETURN_NONE; /* its generations are collected in parts, as work goes on */
}
#endif
