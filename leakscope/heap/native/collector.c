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

static int visit_list(PyGC_Head *list, int is_young, trackedproc visitor, void *argument) {
    PyGC_Head *head = (PyGC_Head *)(list->_gc_next & ~LINK_BITS);
    while (head != list) {
        PyGC_Head *next = (PyGC_Head *)(head->_gc_next & ~LINK_BITS);
        __builtin_prefetch(next);
        if (visitor((PyObject *)(head + 1), is_young, argument) < 0)
            return -1;
        head = next;
    }
    return 0;
}

static int visit_list_from_both_ends(PyGC_Head *list, int is_young, trackedproc visitor, void *argument) {
    PyGC_Head *front = (PyGC_Head *)(list->_gc_next & ~LINK_BITS);
    PyGC_Head *back = (PyGC_Head *)(list->_gc_prev & ~LINK_BITS);
    while (front != list) {
        PyGC_Head *next = (PyGC_Head *)(front->_gc_next & ~LINK_BITS);
        PyGC_Head *previous = (PyGC_Head *)(back->_gc_prev & ~LINK_BITS);
        if (visitor((PyObject *)(front + 1), is_young, argument) < 0)
            return -1;
        if (front == back)
            return 0;
        if (visitor((PyObject *)(back + 1), is_young, argument) < 0)
            return -1;
        if (next == back)
            return 0;
        front = next;
        back = previous;
    }
    return 0;
}

static struct gc_generation *first_generation(struct _gc_runtime_state *gc) {
#if PY_VERSION_HEX >= 0x030E0000
    /* Releases of 3.14 name them differently; in all they stand right before the permanent one. */
    return (struct gc_generation *)((char *)gc + offsetof(struct _gc_runtime_state, permanent_generation)) -
           NUM_GENERATIONS;
#else
    return gc->generations;
#endif
}

/* Visit all tracked objects, the youngest generation first, as gc.get_objects() lists them; after
 * them what gc.freeze() has set apart, which it doesn't list. */
void visit_tracked(trackedproc visitor, void *argument) {
    struct _gc_runtime_state *gc = &PyInterpreterState_Get()->gc;
    struct gc_generation *generations = first_generation(gc);
    for (size_t i = 0; i < NUM_GENERATIONS; i++)
        if (visit_list(&generations[i].head, i == 0, visitor, argument) < 0)
            return;
    visit_list(&gc->permanent_generation.head, 0, visitor, argument);
}

/* Visit the same in another order: each list is gone through from both ends, for each object has to come
 * from memory before it tells where the next one lies, and so two are on their way at once. */
void visit_tracked_from_both_ends(trackedproc visitor, void *argument) {
    struct _gc_runtime_state *gc = &PyInterpreterState_Get()->gc;
    struct gc_generation *generations = first_generation(gc);
    for (size_t i = 0; i < NUM_GENERATIONS; i++)
        if (visit_list_from_both_ends(&generations[i].head, i == 0, visitor, argument) < 0)
            return;
    visit_list_from_both_ends(&gc->permanent_generation.head, 0, visitor, argument);
}

/* Visit the younger generations, then the oldest with a visitor of its own: from its end on, where the
 * newest stand, until that has enough, or from its beginning. Where the collector has no such generations
 * all are visited by the first. */
void visit_generations(trackedproc of_young, trackedproc of_oldest, int backwards, void *argument) {
#if PY_VERSION_HEX >= 0x030E0000
    (void)of_oldest, (void)backwards;
    visit_tracked(of_young, argument);
#else
    struct gc_generation *generations = PyInterpreterState_Get()->gc.generations;
    for (size_t i = 0; i + 1 < NUM_GENERATIONS; i++)
        if (visit_list(&generations[i].head, i == 0, of_young, argument) < 0)
            return;
    PyGC_Head *list = &generations[NUM_GENERATIONS - 1].head;
    if (!backwards) {
        visit_list(list, 0, of_oldest, argument);
        return;
    }
    PyGC_Head *head = (PyGC_Head *)(list->_gc_prev & ~LINK_BITS);
    while (head != list && of_oldest((PyObject *)(head + 1), 0, argument) == 0)
        head = (PyGC_Head *)(head->_gc_prev & ~LINK_BITS);
#endif
}

/* Visit what gc.freeze() has set apart. */
void visit_frozen(trackedproc visitor, void *argument) {
    visit_list(&PyInterpreterState_Get()->gc.permanent_generation.head, 0, visitor, argument);
}

/* Return whether a collection is under way: some of what it looks at is in none of those lists. */
PyObject *is_collecting(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
    return PyBool_FromLong(PyInterpreterState_Get()->gc.collecting);
}
