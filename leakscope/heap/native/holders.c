/* Who else holds a container, and who else holds what it names and does not keep alive alone:
 * emptying it frees nothing then. A few samples from its middle tell; at its ends stand what came last
 * and what was kept for another reason. The same rules as reference_oracle/relations.py.
 */
#include "walk.h"

#include <string.h>

#define FEWEST_ITEMS 8
#define MOST_STEPS 4     /* from an item of the container down to what is shared */
#define SHARED_PART 4    /* less than this part of what is reached need not be explained */

static int keeps_alive(const Tree *t, uint32_t above, uint32_t below) {
    uint32_t v = t->dominator[t->number[below]];
    while (v > t->number[above])
        v = t->dominator[v];
    return v == t->number[above];
}

static uint64_t shared_bytes(const Walk *w, const Tree *t, uint32_t number) {
    uint64_t reached = worth_of(w, t, number), retained = total_of(w, t, t->number[number]);
    return reached > retained ? reached - retained : 0;
}

/* Return what a container shares by one of its items: the heaviest at each step down; or NONE. */
static uint32_t shared_below(const Walk *w, const Tree *t, uint32_t container, uint32_t item) {
    uint32_t above = container;
    for (int step = 0; step < MOST_STEPS && w->nodes[item].parent == above; step++) {
        if (!keeps_alive(t, container, item))
            return item;
        const Node *node = &w->nodes[item];
        uint32_t best = NONE;
        for (uint32_t e = 0; e < node->n_edges; e++) {
            uint32_t target = t->node[w->edges[node->first_edge + e]];
            if (w->nodes[target].parent == item && target != item &&
                (best == NONE || worth_of(w, t, target) > worth_of(w, t, best)))
                best = target;
        }
        if (best == NONE)
            return NONE;
        above = item;
        item = best;
    }
    return NONE;
}

static int is_batch(const Walk *w, uint32_t number) { return w->nodes[number].type == MEMORY_BATCH; }

#define MOST_LOOKS 256

/* Of what folded items refer to, return something that is shared, from that part of it on; or NONE. */
static uint32_t shared_in_batch(const Walk *w, const Tree *t, uint32_t container, uint32_t batch, uint32_t part) {
    const Node *node = &w->nodes[batch];
    uint32_t first = (uint32_t)((uint64_t)node->n_edges * part / (SHARED_SAMPLES + 1)), next = NONE;
    for (uint32_t e = first; e < node->n_edges && e < first + MOST_LOOKS; e++) {
        uint32_t target = t->node[w->edges[node->first_edge + e]];
        if (is_batch(w, target))
            next = target;
        else if (w->nodes[target].parent == batch && !keeps_alive(t, container, target))
            return target;
    }
    return next == NONE ? NONE : shared_in_batch(w, t, container, next, part);
}

/* Instances are referred to by much that belongs to them; by such as these things are gathered. */
int gathers(const PyTypeObject *type) {
    for (const PyTypeObject *base = type; base; base = base->tp_base)
        if (base == &PyList_Type || base == &PyDict_Type || base == &PySet_Type ||
            strcmp(base->tp_name, "collections.deque") == 0)
            return 1;
    return 0;
}

static int is_candidate(const Walk *w, const Tree *t, uint32_t number) {
    uint64_t shared = shared_bytes(w, t, number);
    return shared >= w->request.cutoff && shared >= worth_of(w, t, number) / SHARED_PART;
}

static int is_sampled(const Choice *c, uint32_t number) {
    for (size_t i = c->n_shared; i-- > 0 && i + SHARED_SAMPLES >= c->n_shared;)
        if (c->shared[i].object == number)
            return 1;
    return 0;
}

/* Sample items at a quarter, half and three quarters of a container. */
static void sample_items(const Walk *w, const Tree *t, Choice *c, uint32_t number) {
    const Node *node = &w->nodes[number];
    for (uint32_t s = 1; s <= SHARED_SAMPLES; s++) {
        uint32_t edge = (uint32_t)((uint64_t)node->n_edges * s / (SHARED_SAMPLES + 1));
        uint32_t item = t->node[w->edges[node->first_edge + edge]];
        uint32_t shared = is_batch(w, item) ? shared_in_batch(w, t, number, item, s)
                                            : shared_below(w, t, number, item);
        if (shared != NONE && !is_sampled(c, shared))
            c->shared[c->n_shared++] = (Shared){.container = number, .object = shared};
    }
}

static void take_samples(Walk *w, const Tree *t, Choice *c) {
    c->shared = fresh(w, c->n_chosen * (SHARED_SAMPLES + 1), sizeof *c->shared);
    for (size_t i = 0; c->shared && i < c->n_chosen; i++) {
        uint32_t number = c->chosen[i].node;
        const Node *node = &w->nodes[number];
        if (node->phase != PHASE_USER)
            continue;
        if (gathers(w->types[node->type].type))
            c->shared[c->n_shared++] = (Shared){.container = number, .object = number};
        int has_folded = node->n_edges && is_batch(w, t->node[w->edges[node->first_edge + node->n_edges - 1]]);
        if ((node->n_edges >= FEWEST_ITEMS || has_folded) && is_candidate(w, t, number))
            sample_items(w, t, c, number);
    }
}

/* Return the container whose folded items a node stands for; of any other, itself. */
static uint32_t container_of(const Walk *w, uint32_t number) {
    while (is_batch(w, number))
        number = w->nodes[number].parent;
    return number;
}

static int may_hold(const Walk *w, const Tree *t, uint32_t number) {
    const Node *node = &w->nodes[number];
    return t->number[number] && (node->phase == PHASE_USER || node->phase == PHASE_LIBRARY) &&
           node->type >= MEMORY_TYPES && !(node->flags & NODE_BY_GRAPH) &&
           w->types[node->type].rank != RANK_GRAPH;
}

static void add_holder(const Walk *w, Shared *shared, uint32_t holder) {
    uint32_t n = shared->n_holders;
    uint32_t named_by = w->nodes[shared->object].parent;
    int is_known = (named_by != NONE && container_of(w, named_by) == holder) || shared->object == holder ||
               (n && shared->holders[n - 1] == holder); /* edges of a node come in a row */
    if (!is_known && n < MAX_HOLDERS)
        shared->holders[shared->n_holders++] = holder;
}

static void note_holders(const Walk *w, const Tree *t, const uint32_t *sampled, Choice *c) {
    for (uint32_t k = 0; k < w->n_nodes; k++) {
        const Node *node = &w->nodes[k];
        for (uint32_t e = 0; e < node->n_edges; e++) {
            uint32_t sample = sampled[w->edges[node->first_edge + e]];
            uint32_t holder = sample ? container_of(w, k) : NONE;
            if (sample && may_hold(w, t, holder))
                for (; sample; sample = c->shared[sample - 1].next)
                    add_holder(w, &c->shared[sample - 1], holder);
        }
    }
}

/* Find who else holds what chosen containers share, and name them. */
void find_holders(Walk *w, const Tree *t, Choice *c, Numbers *named) {
    take_samples(w, t, c);
    uint32_t *sampled = c->n_shared ? fresh(w, t->count, sizeof *sampled) : NULL;
    if (sampled == NULL)
        return;
    for (size_t i = 0; i < c->n_shared; i++) {
        uint32_t *first = &sampled[t->number[c->shared[i].object]];
        c->shared[i].next = *first;
        *first = (uint32_t)i + 1;
    }
    note_holders(w, t, sampled, c);
    drop(w, sampled);
    for (size_t i = 0; i < c->n_shared; i++)
        for (uint32_t h = 0; h < c->shared[i].n_holders; h++)
            add_with_ancestors(w, c, named, c->shared[i].holders[h]);
}

static PyObject *places_of(const Choice *c, const Shared *shared) {
    PyObject *places = PyList_New(shared->n_holders);
    for (uint32_t h = 0; places && h < shared->n_holders; h++)
        PyList_SET_ITEM(places, h, PyLong_FromUnsignedLong(PLACE(c->place[shared->holders[h]])));
    return places;
}

/* Note where the samples of each named container begin; they stand in a row. */
void index_samples(Walk *w, Choice *c) {
    c->samples = c->n_shared ? fresh(w, c->n_named, 4) : NULL;
    for (size_t i = c->n_shared; c->samples && i-- > 0;)
        c->samples[PLACE(c->place[c->shared[i].container])] = (uint32_t)i + 1;
}

static const Shared *first_sample(const Choice *c, size_t row) {
    return c->samples && c->samples[row] ? &c->shared[c->samples[row] - 1] : NULL;
}

/* Return the places of those that hold a container beside the one that names it. */
PyObject *others_as_list(const Choice *c, size_t row) {
    const Shared *own = first_sample(c, row);
    return own && own->object == own->container ? places_of(c, own) : PyList_New(0);
}

/* Return, for each sample of a container, the places of those that hold it too. */
PyObject *holders_as_list(const Choice *c, size_t row) {
    PyObject *list = PyList_New(0);
    const Shared *first = first_sample(c, row), *end = c->shared + c->n_shared;
    for (const Shared *s = first; list && s && s < end && s->container == first->container; s++) {
        if (s->object == s->container)
            continue;
        PyObject *places = places_of(c, s);
        if (places == NULL || PyList_Append(list, places) < 0)
            Py_CLEAR(list);
        Py_XDECREF(places);
    }
    return list;
}
