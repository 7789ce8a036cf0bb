/* The module: reading what is asked, walking, letting go. */
#include "walk.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

PyObject *name_sizeof, *name_dispatch, *name_data, *name_unpack;


static int take_number(PyObject *request, const char *name, Py_ssize_t *value) {
    PyObject *found = PyObject_GetAttrString(request, name);
    if (found == NULL)
        return -1;
    *value = PyLong_AsSsize_t(found);
    Py_DECREF(found);
    return *value == -1 && PyErr_Occurred() ? -1 : 0;
}

static PyObject *take_object(PyObject *request, const char *name, PyTypeObject *type) {
    PyObject *found = PyObject_GetAttrString(request, name);
    if (found == NULL)
        return NULL;
    if (!PyObject_TypeCheck(found, type)) {
        PyErr_Format(PyExc_TypeError, "%s must be a %s", name, type->tp_name);
        Py_CLEAR(found);
    }
    return found;
}

static int read_request(Request *r, PyObject *request) {
    Py_ssize_t cutoff, circle_bytes, full, keeps_graph, counts_types, needs_autograd, folds;
    if (!(r->roots = take_object(request, "roots", &PyList_Type)) ||
        !(r->barriers = take_object(request, "barriers", &PyList_Type)) ||
        !(r->hidden = take_object(request, "hidden", &PyList_Type)) ||
        !(r->marked = take_object(request, "marked_types", &PyTuple_Type)) ||
        !(r->late = take_object(request, "late_types", &PyTuple_Type)) ||
        !(r->stages = take_object(request, "stages", &PyList_Type)) ||
        !(r->pinned = take_object(request, "pinned", &PyList_Type)))
        return -1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(r->late); i++)
        if (!PyType_Check(PyTuple_GET_ITEM(r->late, i))) {
            PyErr_SetString(PyExc_TypeError, "late_types must be classes");
            return -1;
        }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(r->marked); i++)
        if (!PyType_Check(PyTuple_GET_ITEM(r->marked, i))) {
            PyErr_SetString(PyExc_TypeError, "marked_types must be classes");
            return -1;
        }
    if (take_number(request, "cutoff_bytes", &cutoff) < 0 ||
        take_number(request, "circle_bytes", &circle_bytes) < 0 ||
        take_number(request, "full", &full) < 0 ||
        take_number(request, "keep_graph", &keeps_graph) < 0 ||
        take_number(request, "count_types", &counts_types) < 0 ||
        take_number(request, "needs_autograd", &needs_autograd) < 0 ||
        take_number(request, "folds", &folds) < 0 ||
        take_number(request, "own_passes", &r->own_passes) < 0 ||
        take_number(request, "lasting_from", &r->lasting_from) < 0 ||
        take_number(request, "root_base", &r->root_base) < 0 ||
        take_number(request, "max_selected", &r->max_selected) < 0 ||
        take_number(request, "max_depth", &r->max_depth) < 0 ||
        take_number(request, "graph_budget", &r->graph_budget) < 0 ||
        take_number(request, "max_groups", &r->max_groups) < 0 ||
        take_number(request, "max_samples", &r->max_samples) < 0 ||
        take_number(request, "new_samples", &r->new_samples) < 0)
        return -1;
    r->cutoff = cutoff > 0 ? (uint64_t)cutoff : 0;
    r->circle_bytes = circle_bytes > 0 ? (uint64_t)circle_bytes : 0;
    r->full = full != 0;
    r->keeps_graph = keeps_graph != 0;
    r->counts_types = counts_types != 0;
    r->needs_autograd = needs_autograd != 0;
    r->folds = folds != 0;
    r->library_from = PyList_GET_SIZE(r->roots);
    if (r->max_samples > MAX_SAMPLES)
        r->max_samples = MAX_SAMPLES;
    PyObject *from = PyObject_GetAttrString(request, "library_from");
    if (from == NULL)
        return -1;
    if (from != Py_None) {
        Py_ssize_t index = PyLong_AsSsize_t(from);
        if (index >= 0 && index < r->library_from)
            r->library_from = index;
    }
    Py_DECREF(from);
    return PyErr_Occurred() ? -1 : 0;
}

static int read_access(Walk *w, PyObject *access) {
    if (access == Py_None)
        return 0;
    size_t count = sizeof(Access) / sizeof(PyObject *);
    if (!PyTuple_Check(access) || PyTuple_GET_SIZE(access) < (Py_ssize_t)count) {
        PyErr_SetString(PyExc_TypeError, "access must be a TensorAccess");
        return -1;
    }
    memcpy(&w->access, ((PyTupleObject *)access)->ob_item, sizeof(Access));
    PyObject *getters[] = {w->access.grad, w->access.grad_fn, w->access.base, w->access.is_leaf,
                           w->access.storage_key, w->access.storage_device,
                           w->access.retains_grad, w->access.nbytes, w->access.shape};
    for (size_t i = 0; i < sizeof getters / sizeof *getters; i++)
        if (!Py_IS_TYPE(getters[i], &PyGetSetDescr_Type))
            return 0; /* a torch made otherwise: its tensors stay opaque */
    w->has_torch = PyType_Check(w->access.tensor) && PyType_Check(w->access.parameter);
    return 0;
}

static int read_known(Walk *w, PyObject *known) {
    if (PyTuple_GET_SIZE(known) < (Py_ssize_t)(sizeof(Known) / sizeof(PyObject *))) {
        PyErr_SetString(PyExc_TypeError, "known must be KnownTypes");
        return -1;
    }
    memcpy(&w->known, ((PyTupleObject *)known)->ob_item, sizeof(Known));
    if (PyType_Check(w->known.array))
        w->array_nbytes = getset_of((PyTypeObject *)w->known.array, "nbytes");
    return 0;
}

static void release(Walk *w, Tree *t, Choice *c) {
    for (size_t i = 0; c->kinds && i < c->n_named; i++)
        free(c->kinds[i].items);
    drop(w, c->kinds);
    drop(w, c->chosen);
    drop(w, c->named);
    drop(w, c->place);
    drop(w, c->shared);
    drop(w, c->circles);
    drop(w, c->samples);
    drop(w, t->number);
    drop(w, t->node);
    drop(w, t->dominator);
    drop(w, t->host);
    drop(w, t->recent);
    drop(w, t->graph_nodes);
    for (uint32_t d = 1; d < MAX_DEVICES; d++)
        drop(w, t->device[d]);
    for (uint32_t d = 0; d < MAX_DEVICES; d++) {
        drop(w, t->reached[d]);
        drop(w, t->unread[d]);
    }
    for (uint32_t i = 0; i < w->n_types; i++)
        drop(w, w->types[i].saved);
    drop(w, w->types);
    drop(w, w->type_slots);
    drop(w, w->nodes);
    drop(w, w->index.slots);
    drop(w, w->edges);
    drop(w, w->order.items);
    drop(w, w->code.items);
    drop(w, w->late.items);
    drop(w, w->graph.items);
    drop(w, w->made.items);
    drop(w, w->seeds.items);
    drop(w, w->tensors.items);
    drop(w, w->views.items);
    drop(w, w->opaque.items);
    drop(w, w->unread);
    drop(w, w->pinned);
    drop(w, w->totals);
    drop(w, w->heads);
    drop(w, w->extents);
    drop(w, w->storages);
    drop(w, w->mappings);
    drop(w, w->parcels);
    drop(w, w->batches);
    drop(w, w->shared);
    drop(w, w->in_parcels.pages);
    drop(w, w->awaited);
}

static void let_go(Walk *w) {
    for (size_t i = 0; i < w->n_owned; i++)
        Py_DECREF(w->owned[i]);
    drop(w, w->owned);
    for (uint32_t d = 0; d < w->n_devices; d++)
        Py_XDECREF(w->device_objects[d]);
    Py_XDECREF(w->request.roots);
    Py_XDECREF(w->request.barriers);
    Py_XDECREF(w->request.hidden);
    Py_XDECREF(w->request.marked);
    Py_XDECREF(w->request.late);
    Py_XDECREF(w->request.stages);
    Py_XDECREF(w->request.pinned);
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int add_graph(Walk *w, Tree *t, PyObject *answer) {
    PyObject *graph = w->request.keeps_graph ? keep_graph(w, t) : Py_NewRef(Py_None);
    int result = graph ? PyDict_SetItemString(answer, "graph", graph) : -1;
    Py_XDECREF(graph);
    return result;
}

static int add_memory_types(Walk *w) {
    for (int i = 0; i < MEMORY_TYPES; i++)
        if (add_type(w, NULL) == NONE)
            return -1;
    return 0;
}

/* Walk with the collector off; returns the answer's dict or NULL. */
static PyObject *walk_heap(Walk *w, PyObject *request) {
    Tree tree = {0};
    Choice choice = {0};
    PyObject *answer = NULL;
    /* A walk that goes on from a seal has few nodes, and looks up many that have none. */
    int is_whole = w->request.full && !(w->seal && has_sealed(w->seal));
    if (grow_index(w, is_whole ? (size_t)1 << 20 : (size_t)1 << 14) < 0 ||
        add_memory_types(w) < 0 || watch_pinned(w) < 0)
        goto out;
    w->n_devices = 1;
    w->folds_parcels = w->request.folds && !w->request.counts_types && w->n_pinned == 0;
    if (w->seal && begin_resumed(w) < 0)
        goto out;
    walk_user(w, request);
    if (w->resumed && !w->failed)
        walk_resumed(w);
    else if (w->request.full && !w->failed)
        walk_rest(w);
    else if (w->baseline && !w->failed)
        walk_new(w);
    settle_extents(w);
    sum_new(w);
    find_unread(w);
    find_pinned(w);
    drop(w, w->index.slots);
    w->index.slots = NULL;
    if (w->failed || find_dominators(w, &tree) < 0 || sum_retained(w, &tree) < 0 ||
        sum_reached(w, &tree) < 0 || sum_recent(w, &tree) < 0 || choose(w, &tree, &choice) < 0 ||
        group_children(w, &tree, &choice) < 0)
        goto out;
    /* Gradients that were not read lie elsewhere in this walk: that must not be kept. */
    int is_kept = w->seal && !w->autograd_changes && add_to_seal(w, &tree) == 0;
    answer = build_answer(w, &tree, &choice);
    if (w->seal && !is_kept) /* not before: the answer names what is sealed */
        reset_seal(w, w->seal);
    if (answer != NULL && add_graph(w, &tree, answer) < 0)
        Py_CLEAR(answer);
out:
    drop_resumed(w);
    release(w, &tree, &choice);
    if (answer == NULL && !PyErr_Occurred())
        PyErr_NoMemory();
    return answer;
}

PyDoc_STRVAR(walk_doc, "walk(request, access, known, parts, seal=None, baseline=None)\n--\n\n"
                       "Walk the heap as asked and return the columns of a WalkResult.");

PyDoc_STRVAR(new_seal_doc, "new_seal()\n--\n\nReturn an empty seal.");

PyDoc_STRVAR(seal_facts_doc, "seal_facts(seal)\n--\n\n"
                             "Return how many objects are sealed, and how many of those are gone.");
PyDoc_STRVAR(seal_bytes_doc, "seal_bytes(seal)\n--\n\nReturn what it takes itself.");

PyDoc_STRVAR(new_baseline_doc, "new_baseline()\n--\n\n"
                               "Return an empty baseline, which the first walk that is given it fills.");

PyDoc_STRVAR(baseline_bytes_doc, "baseline_bytes(baseline)\n--\n\nReturn what it takes itself.");

static PyObject *native_walk(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *request, *access, *known, *parts, *seal = Py_None, *baseline = Py_None;
    if (!PyArg_ParseTuple(args, "OOO!O!|OO", &request, &access, &PyTuple_Type, &known, &PyDict_Type,
                          &parts, &seal, &baseline))
        return NULL;
    Walk walk = {.first_graph = NONE, .parts = parts};
    if (seal != Py_None && (walk.seal = seal_of(seal)) == NULL)
        return NULL;
    if (baseline != Py_None && (walk.baseline = baseline_of(baseline)) == NULL)
        return NULL;
    double began = seconds();
    go_on_keeping_lock();
    PyObject *answer = NULL;
    int collecting = PyGC_IsEnabled();
    if (read_request(&walk.request, request) < 0 || read_access(&walk, access) < 0 ||
        read_known(&walk, known) < 0)
        goto out;
    if (walk.request.full) {
        walk.since = walk.baseline;
        walk.baseline = NULL;
    }
    walk.autograd_changes = walk.graph_truncated =
        walk.has_torch && others_change_autograd(walk.request.own_passes);
    if (walk.autograd_changes && walk.request.needs_autograd) {
        answer = Py_NewRef(Py_None);
        goto out;
    }
    PyGC_Disable();
    answer = walk_heap(&walk, request);
    if (collecting)
        PyGC_Enable();
out:
    let_go(&walk);
    if (answer != NULL && answer != Py_None) {
        PyObject *pause = PyFloat_FromDouble(seconds() - began);
        if (pause == NULL || PyDict_SetItemString(answer, "pause_s", pause) < 0)
            Py_CLEAR(answer);
        Py_XDECREF(pause);
    }
    go_on_keeping_lock();
    return answer;
}

#if PY_VERSION_HEX < 0x030D0000
PyDoc_STRVAR(frame_locals_doc, "frame_locals(frame)\n--\n\n"
                               "Return names and values of a function's variables.");
#endif

#if PY_VERSION_HEX < 0x030E0000
PyDoc_STRVAR(stacked_doc, "stacked(frame, index)\n--\n\n"
                          "Return what lies there on the value stack; it must be in use.");
#endif

#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030D0000
PyDoc_STRVAR(inline_attributes_doc, "inline_attributes(object)\n--\n\n"
                                    "Return the attributes of an instance that has no dict yet.");
#endif

PyDoc_STRVAR(classes_in_doc, "classes_in(names)\n--\n\n"
                             "Return the classes among the values of a dict.");

PyDoc_STRVAR(others_change_autograd_doc,
             "others_change_autograd(own)\n--\n\n"
             "Return whether threads but this change gradients or graphs at this moment.");

static PyObject *ask_others_change_autograd(PyObject *Py_UNUSED(module), PyObject *own) {
    Py_ssize_t passes = PyLong_AsSsize_t(own);
    if (passes == -1 && PyErr_Occurred())
        return NULL;
    return PyBool_FromLong(others_change_autograd(passes));
}

PyDoc_STRVAR(is_collecting_doc, "is_collecting()\n--\n\n"
                                "Return whether a collection of garbage is under way.");

PyDoc_STRVAR(can_keep_lock_doc, "can_keep_lock()\n--\n\n"
                                "Return whether the interpreter's lock can be kept from other threads.");

PyDoc_STRVAR(keep_lock_doc, "keep_lock()\n--\n\n"
                            "Let no other thread have the interpreter's lock until keep_lock_no_more().");

PyDoc_STRVAR(go_on_doc, "go_on_keeping_lock()\n--\n\n"
                        "Have those that have waited for long wait as long once more.");

PyDoc_STRVAR(keep_lock_no_more_doc, "keep_lock_no_more()\n--\n\n"
                                    "Let them have it; return whether none had it meanwhile.");

PyDoc_STRVAR(real_path_doc, "real_path(path)\n--\n\n"
                            "Return a path without symbolic links, or None, keeping the interpreter's lock.");

PyDoc_STRVAR(read_file_doc, "read_file(path)\n--\n\n"
                            "Return what a regular file has, or None, keeping the interpreter's lock.");

PyDoc_STRVAR(read_memory_doc, "read_memory(address, size)\n--\n\n"
                              "Return what lies there, keeping the interpreter's lock; less where nothing is mapped.");

PyDoc_STRVAR(leak_shares_doc, "leak_shares(graph, groups)\n--\n\n"
                              "Split what groups of nodes reach between them.");

PyDoc_STRVAR(referent_addresses_doc,
             "referent_addresses(object, most)\n--\n\n"
             "Return where objects lie to which it refers, evenly chosen, touching none of them.");

PyDoc_STRVAR(remember_allocators_doc, "remember_allocators()\n--\n\n"
                                      "Take note of Python's allocators, before tracing begins.");

PyDoc_STRVAR(trace_no_more_doc, "trace_no_more()\n--\n\n"
                                "Have tracemalloc trace no new block until trace_again().");

PyDoc_STRVAR(trace_again_doc, "trace_again()\n--\n\n"
                              "Have tracemalloc trace new blocks again.");

static PyMethodDef methods[] = {
    {"walk", native_walk, METH_VARARGS, walk_doc},
    {"new_seal", new_seal, METH_NOARGS, new_seal_doc},
    {"seal_facts", seal_facts, METH_O, seal_facts_doc},
    {"seal_bytes", seal_bytes, METH_O, seal_bytes_doc},
    {"new_baseline", new_baseline, METH_NOARGS, new_baseline_doc},
    {"baseline_bytes", baseline_bytes, METH_O, baseline_bytes_doc},
    {"leak_shares", leak_shares, METH_VARARGS, leak_shares_doc},
    {"classes_in", classes_in, METH_O, classes_in_doc},
    {"others_change_autograd", ask_others_change_autograd, METH_O, others_change_autograd_doc},
    {"is_collecting", is_collecting, METH_NOARGS, is_collecting_doc},
    {"can_keep_lock", can_keep_lock, METH_NOARGS, can_keep_lock_doc},
    {"keep_lock", keep_lock, METH_NOARGS, keep_lock_doc},
    {"go_on_keeping_lock", go_on, METH_NOARGS, go_on_doc},
    {"keep_lock_no_more", keep_lock_no_more, METH_NOARGS, keep_lock_no_more_doc},
    {"read_memory", read_memory, METH_VARARGS, read_memory_doc},
    {"read_file", read_file, METH_O, read_file_doc},
    {"real_path", real_path, METH_O, real_path_doc},
    {"remember_allocators", remember_allocators, METH_NOARGS, remember_allocators_doc},
    {"trace_no_more", trace_no_more, METH_NOARGS, trace_no_more_doc},
    {"trace_again", trace_again, METH_NOARGS, trace_again_doc},
    {"referent_addresses", referent_addresses, METH_VARARGS, referent_addresses_doc},
#if PY_VERSION_HEX < 0x030D0000
    {"frame_locals", frame_locals, METH_O, frame_locals_doc},
#endif
#if PY_VERSION_HEX < 0x030E0000
    {"stacked", stacked, METH_VARARGS, stacked_doc},
#endif
#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030D0000
    {"inline_attributes", inline_attributes, METH_O, inline_attributes_doc},
#endif
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "leakscope.heap._native", "The native heap walker.", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void) {
    name_sizeof = PyUnicode_InternFromString("__sizeof__");
    name_dispatch = PyUnicode_InternFromString("__torch_dispatch__");
    name_data = PyUnicode_InternFromString("data");
    name_unpack = PyUnicode_InternFromString("unpack_hook");
    if (!name_sizeof || !name_dispatch || !name_data || !name_unpack)
        return NULL;
    if (prepare_threads() < 0 || prepare_folding() < 0 || prepare_lock() < 0)
        return NULL;
    return PyModule_Create(&definition);
}
