/* Following edges breadth first, in the order that keeps explanations human.
 *
 * An edge is followed some edges after it was seen: by then the object and its place in the index
 * have come from memory. Edges are followed in the order in which they were seen, so the answer is
 * that of a walk that follows each at once.
 */
#include "walk.h"

#if PY_VERSION_HEX < 0x030B0000
#include <frameobject.h>
#endif

#define NEAR (LAG / 2)  /* edges after which an object has come, and its slot is sent for */
#define AHEAD 6         /* objects that are on their way from memory before they are entered */

int root_of_phase(int phase) {
    return phase == PHASE_NATIVE ? ROOT_NATIVE : phase == PHASE_GARBAGE ? ROOT_GARBAGE : ROOT_OTHER;
}

/* Say whether an object was there when measuring began and is left alone: of ours, what may keep
 * something new is entered. */
static int stays_known(const Walk *w, PyObject *object) {
    if (!is_known(w->baseline, object))
        return 0;
    PyTypeObject *type = Py_TYPE(object);
    return w->phase != PHASE_HIDDEN || PyModule_Check(object) || PyType_Check(object) ||
           type == &PyFunction_Type || type == &PyCode_Type || type == &PyTuple_Type;
}

/* Keep an object alive until the walk is over; steals the reference. */
static void keep_owned(Walk *w, PyObject *object) {
    if (w->n_owned == w->cap_owned) {
        size_t capacity = w->cap_owned ? w->cap_owned * 2 : 256;
        PyObject **owned = resized(w, w->owned, capacity * 8);
        if (owned == NULL)
            return; /* leaks one reference rather than freeing what a node points at */
        w->owned = owned;
        w->cap_owned = capacity;
    }
    w->owned[w->n_owned++] = object;
}

/* Keep the Python object of one of autograd's nodes alive. torch alone may hold it, and drops that of a view whose
 * memory was written to since, to make another, as soon as the view is asked for it, or whether it is a leaf. */
void hold(Walk *w, PyObject *object) { keep_owned(w, Py_NewRef(object)); }

/* Return the new node of an object that was not met before; NONE where the way to it is cut. */
static uint32_t meet(Walk *w, uint32_t source, PyObject *object) {
    int cuts = w->phase == PHASE_USER || w->phase == PHASE_HIDDEN;
    int enters = w->phase == PHASE_USER && (PyType_Check(object) || PyModule_Check(object)) &&
                 is_made_at_run_time(w, object);
    if (cuts && !enters && !w->request.full && PyType_Check(object))
        return NONE;
    if (w->resumed && !takes_sealed(w, object)) {
        if (is_doubtful(w, object))
            w->nodes[source].flags |= NODE_CROSSES;
        return NONE;
    }
    if (w->baseline && w->phase != PHASE_USER && stays_known(w, object))
        return NONE;
    uint32_t type = type_number(w, Py_TYPE(object));
    if (type == NONE)
        return NONE;
    int rank = enters ? RANK_LATE : w->types[type].rank; /* after what has a name of its own */
    if (rank == RANK_CUT && cuts) {
        if (w->phase == PHASE_USER && w->request.full)
            add_node(w, (uintptr_t)object, type, NONE, ROOT_OTHER, PHASE_BARRIER);
        return NONE;
    }
    uint32_t target = add_node(w, (uintptr_t)object, type, source, w->nodes[source].root, w->phase);
    if (target != NONE && rank == RANK_GRAPH)
        hold(w, object);
    return target == NONE || enqueue(w, target, rank) < 0 ? NONE : target;
}

/* Return a node if it is, or may now become, part of this phase; else NONE. */
static uint32_t rejoin(Walk *w, uint32_t source, uint64_t entry) {
    uint32_t target = node_of(entry);
    if (!(entry & UNSETTLED)) {
        if (target >= w->phase_first)
            return target;
        if (w->nodes[target].phase == PHASE_USER)
            w->nodes[source].flags |= NODE_CROSSES;
        return NONE;
    }
    Node *node = &w->nodes[target];
    if (node->phase == (uint32_t)w->phase)
        return target;
    int waits = (node->phase == PHASE_BARRIER && w->phase >= PHASE_LIBRARY) ||
                (node->phase == PHASE_UNREACHED && w->phase >= PHASE_LIBRARY);
    if (!waits)
        return NONE;
    node->phase = (uint32_t)w->phase;
    node->parent = source;
    node->root = w->nodes[source].root;
    return enqueue(w, target, w->types[node->type].rank) < 0 ? NONE : target;
}

static uint32_t settle(Walk *w, uint32_t source, PyObject *object, uint64_t key, PyObject *name) {
    if (w->n_pinned)
        note_referrer(w, source, object);
    uint64_t entry = find_entry(&w->index, key);
    return entry                             ? rejoin(w, source, entry)
           : fold(w, source, object, name) ? NONE
                                             : meet(w, source, object);
}

static void follow(Walk *w, Pending *edge) {
    if (edge->may_be_parcel) {
        if (fold_parcel(w, edge->source, edge->object, edge->name))
            return;
        edge->key = key_of(w, edge->object);
    }
    uint32_t target = settle(w, edge->source, edge->object, edge->key, edge->name);
    if (target != NONE)
        add_edge(w, edge->source, target);
}

/* Return where an edge leads in this phase, without adding it; NONE where it leads nowhere. */
uint32_t follow_edge(Walk *w, uint32_t source, PyObject *object) {
    return settle(w, source, object, key_of(w, object), NULL);
}

/* The object of an edge has come from memory: fold it, or send for its place in the index. What can
 * be folded has one reference, the edge's; it can only have a node already if that is the root list's,
 * which only the hidden phase walks, or if it was sealed. */
static inline void arrive(Walk *w, Pending *edge) {
    int may_have_node = w->phase == PHASE_HIDDEN || w->resumed || w->n_pinned;
    if (!may_have_node && fold(w, edge->source, edge->object, edge->name)) {
        edge->object = NULL;
        return;
    }
    if (may_be_parcel(w, edge->source, edge->object)) {
        edge->may_be_parcel = 1;
        return;
    }
    edge->key = key_of(w, edge->object);
    prefetch_slot(&w->index, edge->key);
}

static inline void follow_first(Walk *w) {
    Pending *edge = &w->pending[w->first_pending];
    if (w->n_arrived)
        w->n_arrived--;
    else
        arrive(w, edge);
    w->first_pending = (w->first_pending + 1) % LAG;
    w->n_pending--;
    if (edge->object)
        follow(w, edge);
}

static void follow_all(Walk *w) {
    while (w->n_pending && !w->failed)
        follow_first(w);
}

static inline void see_entry(Walk *w, PyObject *object, PyObject *name) {
    if (is_nothing(object))
        return;
    if (w->n_pending == LAG)
        follow_first(w);
    __builtin_prefetch(object);
    w->pending[(w->first_pending + w->n_pending++) % LAG] =
        (Pending){object, name, 0, w->order.items[w->order.head - 1], 0};
    if (w->n_pending - w->n_arrived > NEAR)
        arrive(w, &w->pending[(w->first_pending + w->n_arrived++) % LAG]);
}

static inline void see(Walk *w, PyObject *object) { see_entry(w, object, NULL); }

static int visit(PyObject *object, void *argument) {
    Walk *w = argument;
    if (object != w->cut_globals && object != w->cut_builtins)
        see(w, object);
    return w->failed ? -1 : 0;
}

/* What tp_traverse of these types does, in its order, without a call for each item. */
static void traverse_backwards(Walk *w, PyObject *const *items, Py_ssize_t count) {
    while (count-- > 0 && !w->failed)
        if (items[count] != NULL)
            see(w, items[count]);
}

static void traverse_texts(Walk *w, PyObject *const *entries, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count && !w->failed; i++) {
        if (entries[2 * i + 1] == NULL)
            continue;
        __builtin_prefetch(entries[2 * i]);
        see_entry(w, entries[2 * i + 1], entries[2 * i]);
    }
    for (Py_ssize_t i = 0; i < count && !w->failed; i++) /* as visit_text_keys() does */
        if (entries[2 * i + 1] != NULL && Py_REFCNT(entries[2 * i]) == 1)
            see(w, entries[2 * i]);
}

/* Return a namespace that functions and frames of the user's don't lead to; NULL for one that no module has. */
static const void *cut_off(const Walk *w, PyObject *names) {
    return names && w->phase == PHASE_USER && is_made_at_run_time(w, names) ? NULL : names;
}

/* From what is the user's or ours, cut the way to namespaces; say whether to traverse at all. */
static int cut_namespaces(Walk *w, PyObject *object, const TypeFacts *facts) {
    w->cut_globals = w->cut_builtins = NULL;
    if (w->phase != PHASE_USER && w->phase != PHASE_HIDDEN)
        return 1;
    if (facts->flags & TYPE_FUNCTION) {
        w->cut_globals = cut_off(w, ((PyFunctionObject *)object)->func_globals);
        w->cut_builtins = ((PyFunctionObject *)object)->func_builtins;
    } else if (facts->flags & TYPE_FRAME) {
#if PY_VERSION_HEX >= 0x030B0000
        PyObject *globals = PyFrame_GetGlobals((PyFrameObject *)object);
        PyObject *builtins = PyFrame_GetBuiltins((PyFrameObject *)object);
        w->cut_globals = globals;
        w->cut_builtins = builtins;
        Py_XDECREF(globals);
        Py_XDECREF(builtins);
#else
        PyFrameObject *frame = (PyFrameObject *)object;
        w->cut_globals = frame->f_globals;
        w->cut_builtins = frame->f_builtins;
        return frame->f_state != FRAME_EXECUTING; /* the locals of running frames are roots */
#endif
    }
    return 1;
}

/* Visit all that an object refers to and its traversal tells. */
static void traverse(Walk *w, PyObject *object, const TypeFacts *facts) {
    Py_ssize_t count;
    PyObject *const *entries;
    if (facts->type == &PyTuple_Type) {
        traverse_backwards(w, ((PyTupleObject *)object)->ob_item, Py_SIZE(object));
    } else if (facts->type == &PyList_Type) {
        traverse_backwards(w, ((PyListObject *)object)->ob_item, Py_SIZE(object));
    } else if (facts->type == &PyDict_Type && (entries = text_entries(object, &count))) {
        traverse_texts(w, entries, count);
    } else {
        if (facts->type->tp_traverse != NULL && cut_namespaces(w, object, facts) &&
            is_collected(object, facts))
            facts->type->tp_traverse(object, visit, w);
        if (facts->flags & TYPE_DICT)
            visit_text_keys(object, visit, w);
        if (facts->flags & TYPE_TEXT_BUFFER)
            visit_text_pieces(object, visit, w);
        w->cut_globals = w->cut_builtins = NULL;
    }
}

/* Find where an edge leads that an accessor returned; steals the reference, keeping it where it's
 * news. */
static uint32_t settle_owned(Walk *w, uint32_t source, PyObject *object) {
    if (object == NULL)
        return NONE;
    if (is_nothing(object)) {
        Py_DECREF(object);
        return NONE;
    }
    if (w->n_pinned)
        note_referrer(w, source, object);
    uint64_t entry = find_entry(&w->index, key_of(w, object));
    uint32_t target = entry ? rejoin(w, source, entry) : meet(w, source, object);
    if (entry || target == NONE) {
        Py_DECREF(object);
        return target;
    }
    keep_owned(w, object);
    return target;
}

uint32_t follow_owned(Walk *w, uint32_t source, PyObject *object) {
    uint32_t target = settle_owned(w, source, object);
    if (target != NONE)
        add_edge(w, source, target);
    return target;
}

/* Keep a last edge free for later: until then it leads back, which means nothing. */
void reserve_edge(Walk *w, uint32_t source) {
    if (w->source == source)
        w->last_edge = NONE;
    add_edge(w, source, source);
}

void follow_reserved(Walk *w, uint32_t source, PyObject *object) {
    uint32_t target = settle_owned(w, source, object);
    const Node *node = &w->nodes[source];
    if (target != NONE)
        w->edges[node->first_edge + node->n_edges - 1] = target;
}

void inherit(Walk *w, Node *node) {
    const Node *parent = &w->nodes[node->parent];
    node->depth = parent->depth < MOST_DEPTH ? parent->depth + 1 : MOST_DEPTH;
    node->mark = parent->mark;
    if ((parent->flags & NODE_BY_GRAPH) || w->types[parent->type].rank == RANK_GRAPH)
        node->flags |= NODE_BY_GRAPH;
}

/* Return the bytes of data that an object owns, after adding up what it weighs. */
static uint64_t weigh(Walk *w, Node *node, PyObject *object, const TypeFacts *facts) {
    uint64_t shallow = shallow_bytes(object, facts), data = payload_bytes(w, object, facts);
    node->bytes += shallow + data;
    if (is_counted(w, w->phase)) {
        w->heap_bytes += shallow;
        w->array_bytes += data;
        if (node->flags & NODE_BY_GRAPH)
            w->array_by_graph += data;
        if (w->request.counts_types)
            count_object(w, node->type, shallow + data);
    } else if (w->baseline && w->phase == PHASE_NATIVE) {
        count_object(w, node->type, shallow + data);
    }
    return data;
}

/* Follow what tp_traverse can't see; before it, all that it saw. */
static void follow_payload(Walk *w, uint32_t number, PyObject *object, const TypeFacts *facts,
                           uint64_t data) {
    if (facts->flags & TYPE_ARRAY) {
        traverse_array(object, visit, w, data);
        follow_all(w);
        follow_array(w, number, object);
        if (array_base(object) != NULL)
            push(w, &w->views, number);
        return;
    }
    follow_all(w);
    if (facts->flags & TYPE_STORAGE_OBJECT)
        follow_storage(w, number, object, NULL);
    else if (facts->flags & TYPE_MAPPING)
        follow_mapping(w, number, object);
    else if (facts->flags & TYPE_ARROW)
        follow_arrow(w, number, object);
    else if (facts->flags & TYPE_RECORD)
        follow_owned(w, number, record_base(object));
    else if (facts->flags & TYPE_TENSOR)
        follow_tensor(w, number, object, facts);
    else if (facts->flags & TYPE_SAVED)
        Py_INCREF(object), follow_saved(w, number, object);
    else
        follow_graph(w, number, object, facts);
}

/* Parcels may be among the edges that wait: the batch is complete when these were followed. */
static void enter_batch(Walk *w, uint32_t number) {
    size_t at = 0;
    follow_all(w);
    for (PyObject *atom; !w->failed && (atom = shared_by_batch(w, number, &at));)
        see(w, atom);
    follow_all(w);
    follow_batch(w, number);
}

static void enter(Walk *w, uint32_t number) {
    Node *node = &w->nodes[number];
    const TypeFacts facts = w->types[node->type];
    if (node->parent != NONE)
        inherit(w, node);
    if (node->type == MEMORY_BATCH)
        enter_batch(w, number);
    if (facts.type == NULL)
        return;
    if (facts.mark >= 0)
        node->mark = facts.mark;
    PyObject *object = (PyObject *)node->key;
    uint64_t data = weigh(w, node, object, &facts);
    if (facts.rank == RANK_GRAPH) {
        if (!may_ask_graph(w)) {
            w->graph_truncated = 1;
            return;
        }
        w->graph_count++;
    }
    traverse(w, object, &facts);
    if ((facts.flags & TYPES_WITH_PAYLOAD) || facts.rank == RANK_GRAPH)
        follow_payload(w, number, object, &facts, data);
    if ((facts.flags & TYPE_TENSOR) && is_counted(w, w->phase))
        push(w, &w->tensors, number);
}

/* Fetch what entering the objects that are next in order will read. */
static inline void look_ahead(const Walk *w) {
    const Numbers *order = &w->order;
    if (order->head + 2 * AHEAD >= order->count)
        return;
    const Node *node = &w->nodes[order->items[order->head + 2 * AHEAD]];
    __builtin_prefetch((void *)node->key);
    if (w->types[node->type].flags & TYPE_INLINE_VALUES)
        __builtin_prefetch((char *)node->key - 32);
    node = &w->nodes[order->items[order->head + AHEAD]];
    if (w->types[node->type].flags & TYPE_INLINE_VALUES) {
        __builtin_prefetch(attribute_values((PyObject *)node->key));
    } else if (w->types[node->type].type == &PyDict_Type) {
        const PyDictObject *dict = (const PyDictObject *)node->key;
        __builtin_prefetch(dict->ma_keys);
        __builtin_prefetch((const char *)dict->ma_keys + 64);
    } else if (w->types[node->type].type == &PyList_Type) {
        __builtin_prefetch(((const PyListObject *)node->key)->ob_item);
    }
}

/* Enter what waits in order; when nothing does, take from the given queues, the first first. */
static void drain_queues(Walk *w, Numbers **queues, int n) {
    while (!w->failed) {
        if (w->order.head < w->order.count) {
            look_ahead(w);
            enter(w, w->order.items[w->order.head++]);
        } else if (w->n_pending) {
            follow_first(w);
        } else {
            int i = 0;
            while (i < n && queues[i]->head == queues[i]->count)
                i++;
            if (i == n)
                return;
            push(w, &w->order, queues[i]->items[queues[i]->head++]);
        }
    }
}

void begin_phase(Walk *w, int phase) {
    w->phase = phase;
    w->phase_first = (uint32_t)w->n_nodes;
}

/* What made a tensor is asked for when all else is known, and one tensor after the other: so a graph
 * is walked, and measured, before the next is touched. */
void drain(Walk *w) {
    Numbers *queues[] = {&w->code, &w->late, &w->graph};
    drain_queues(w, queues, 3);
    while (w->made.head < w->made.count && !w->failed) {
        follow_maker(w, w->made.items[w->made.head++]);
        drain_queues(w, queues, 3);
    }
}

/* Between two stages what is late and the graphs go on waiting. */
void drain_stage(Walk *w) {
    Numbers *queues[] = {&w->code};
    drain_queues(w, queues, 1);
}
