/* Blocks that are not traced: tracemalloc would take down a traceback for each that a census makes,
 * which costs ten times what the census does.
 *
 * tracemalloc puts itself in front of Python's allocators (PyMem_SetAllocator). Those that stood
 * there before are put in front of it for a while. Blocks are still freed and resized through it,
 * so that it forgets those it knows.
 *
 * Blocks beyond 512 bytes are traced on: pymalloc takes them from the raw allocator, which threads
 * use without the GIL, so that it can't be exchanged while they run.
 */
#include "walk.h"

typedef struct {
    PyMemAllocatorDomain domain;
    PyMemAllocatorEx before; /* what stood there before tracing began */
    PyMemAllocatorEx tracing;
} Layer;

static Layer layers[] = {{.domain = PYMEM_DOMAIN_MEM}, {.domain = PYMEM_DOMAIN_OBJ}};
#define LAYERS (sizeof layers / sizeof *layers)

static void *untraced_malloc(void *layer, size_t size) {
    PyMemAllocatorEx *before = &((Layer *)layer)->before;
    return before->malloc(before->ctx, size);
}

static void *untraced_calloc(void *layer, size_t count, size_t size) {
    PyMemAllocatorEx *before = &((Layer *)layer)->before;
    return before->calloc(before->ctx, count, size);
}

static void *traced_realloc(void *layer, void *block, size_t size) {
    if (block == NULL)
        return untraced_malloc(layer, size);
    PyMemAllocatorEx *tracing = &((Layer *)layer)->tracing;
    return tracing->realloc(tracing->ctx, block, size);
}

static void traced_free(void *layer, void *block) {
    PyMemAllocatorEx *tracing = &((Layer *)layer)->tracing;
    tracing->free(tracing->ctx, block);
}

static int is_in_front(Layer *layer, PyMemAllocatorEx *current) {
    PyMem_GetAllocator(layer->domain, current);
    return current->ctx == layer;
}

/* To be called right before tracing begins. */
PyObject *remember_allocators(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
    for (size_t i = 0; i < LAYERS; i++) {
        PyMemAllocatorEx current;
        if (!is_in_front(&layers[i], &current))
            layers[i].before = current;
    }
    Py_RETURN_NONE;
}

/* Trace no new block until trace_again(); nothing happens unless allocators were remembered. */
PyObject *trace_no_more(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
    for (size_t i = 0; i < LAYERS; i++) {
        Layer *layer = &layers[i];
        PyMemAllocatorEx current;
        if (layer->before.malloc == NULL || is_in_front(layer, &current))
            continue;
        layer->tracing = current;
        PyMemAllocatorEx in_front = {layer, untraced_malloc, untraced_calloc, traced_realloc,
                                     traced_free};
        PyMem_SetAllocator(layer->domain, &in_front);
    }
    Py_RETURN_NONE;
}

/* Tracing may have been stopped meanwhile, which put back what stood there before it. */
PyObject *trace_again(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
    for (size_t i = 0; i < LAYERS; i++) {
        PyMemAllocatorEx current;
        if (is_in_front(&layers[i], &current))
            PyMem_SetAllocator(layers[i].domain, &layers[i].tracing);
    }
    Py_RETURN_NONE;
}
