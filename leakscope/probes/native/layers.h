/* A layer in front of Python's allocators (PyMem_SetAllocator), in the domains that are used under
 * the GIL. It adds nothing to a block, so that it may come and go at any time. Where somebody else's
 * stands in front of it, it stays, and goes on being handed the calls.
 */
#ifndef LEAKSCOPE_LAYERS_H
#define LEAKSCOPE_LAYERS_H

#include <Python.h>

#ifdef Py_GIL_DISABLED
#error "allocators can't be exchanged while other threads use them"
#endif

typedef struct {
    PyMemAllocatorDomain domain;
    PyMemAllocatorEx inner; /* to which calls are handed on */
    int installed;
} Layer;

static Layer layers[] = {{.domain = PYMEM_DOMAIN_MEM}, {.domain = PYMEM_DOMAIN_OBJ}};
#define LAYERS (sizeof layers / sizeof *layers)

static int is_in_front(Layer *layer, PyMemAllocatorEx *current) {
    PyMem_GetAllocator(layer->domain, current);
    return current->ctx == layer;
}

/* Whether a layer that isn't in front is still reached, below somebody else's: then a call of it
   changes this figure. */
static int is_reached(Layer *layer, const volatile unsigned long long *figure) {
    unsigned long long before = *figure;
    void *block = layer->domain == PYMEM_DOMAIN_MEM ? PyMem_Malloc(16) : PyObject_Malloc(16);
    int reached = *figure != before;
    if (layer->domain == PYMEM_DOMAIN_MEM)
        PyMem_Free(block);
    else
        PyObject_Free(block);
    return reached;
}

/* Put layers with these functions in front where they aren't reached; return whether any wasn't. */
static int layers_install(const PyMemAllocatorEx *functions,
                          const volatile unsigned long long *figure) {
    int missed = 0;
    for (size_t i = 0; i < LAYERS; i++) {
        Layer *layer = &layers[i];
        PyMemAllocatorEx current, ours = *functions;
        if (is_in_front(layer, &current) || (layer->installed && is_reached(layer, figure)))
            continue;
        missed = 1;
        layer->inner = current;
        layer->installed = 1;
        ours.ctx = layer;
        PyMem_SetAllocator(layer->domain, &ours);
    }
    return missed;
}

static void layers_remove(void) {
    for (size_t i = 0; i < LAYERS; i++) {
        Layer *layer = &layers[i];
        PyMemAllocatorEx current;
        if (!is_in_front(layer, &current))
            continue;
        PyMem_SetAllocator(layer->domain, &layer->inner);
        layer->installed = 0;
    }
}

#endif
