/* The objects that the collector tracks, read from its lists: gc.get_objects() would make a list
 * and write to the reference count of every one of them.
 *
 * Source of the layout: CPython's Include/internal/pycore_gc.h, struct _gc_runtime_state.
 */
#define Py_BUILD_CORE
#include "walk.h"

#include <internal/pycore_gc.h>
#include <internal/pycore_interp.h>

#define LINK_BITS ((uintptr_t)3) /* low bits of a link are the collector's own marks */

static int visit_list(PyGC_Head *list, visitproc visitor, void *argument) {
    PyGC_Head *head = (PyGC_Head *)(list->_gc_next & ~LINK_BITS);
    while (head != list) {
        PyGC_Head *next = (PyGC_Head *)(head->_gc_next & ~LINK_BITS);
        __builtin_prefetch(next);
        if (visitor((PyObject *)(head + 1), argument) < 0)
            return -1;
        head = next;
    }
    return 0;
}

/* Visit all tracked objects, the youngest generation first, as gc.get_objects() lists them. */
void visit_tracked(visitproc visitor, void *argument) {
    struct _gc_runtime_state *gc = &PyInterpreterState_Get()->gc;
#if PY_VERSION_HEX >= 0x030E0000
    PyGC_Head *lists[] = {&gc->young.head, &gc->old[0].head, &gc->old[1].head};
#else
    PyGC_Head *lists[] = {&gc->generations[0].head, &gc->generations[1].head,
                          &gc->generations[2].head};
#endif
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (visit_list(lists[i], visitor, argument) < 0)
            return;
}
