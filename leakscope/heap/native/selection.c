/* Which objects are worth a row, and what each of them holds. */
#include "walk.h"

#include <stdlib.h>
#include <string.h>

static int heavier(const void *left, const void *right) {
    const Candidate *a = left, *b = right;
    if (a->foreign != b->foreign)
        return a->foreign - b->foreign;
    if (a->total != b->total)
        return a->total < b->total ? 1 : -1;
    if (a->depth != b->depth)
        return a->depth - b->depth;
    return a->node < b->node ? -1 : a->node > b->node;
}

static int may_name(const Walk *w, const Node *node) {
    const TypeFacts *facts = &w->types[node->type];
    return facts->type != NULL && facts->rank != RANK_GRAPH && !(node->flags & NODE_BY_GRAPH) &&
           node->phase != PHASE_HIDDEN && node->depth <= w->request.max_depth;
}

static const Walk *sorting; /* qsort has no argument for these; the GIL is held */
static const uint32_t *entered;

/* Depths are counted up to a limit; from there on the order of the walk tells parents first. */
static int shallower(const void *left, const void *right) {
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    int difference = sorting->nodes[a].depth - sorting->nodes[b].depth;
    if (difference)
        return difference;
    if (entered && sorting->nodes[a].depth == MOST_DEPTH)
        return entered[a] < entered[b] ? -1 : entered[a] > entered[b];
    return a < b ? -1 : a > b;
}

/* Return the place of each node in the order of the walk; NULL where no depth is at its limit. */
static uint32_t *order_of_deep(Walk *w, const Choice *c) {
    size_t i = 0;
    while (i < c->n_named && w->nodes[c->named[i]].depth < MOST_DEPTH)
        i++;
    uint32_t *places = i < c->n_named ? fresh(w, w->n_nodes, 4) : NULL;
    for (size_t k = 0; places && k < w->order.count; k++)
        places[w->order.items[k]] = (uint32_t)k;
    return places;
}

/* Of objects below one parent so many come before lighter objects elsewhere: the thousand images of
 * a dataset are no reason to leave out a list that grows. */
#define FIRST_SIBLINGS 64
/* What the user doesn't hold gets this part of the places at least. */
#define FOREIGN_PART 4

/* Move to the front of ``some`` those that are chosen, at most so many; return their number. */
static size_t choose_most(Walk *w, Candidate *some, size_t count, size_t most) {
    if (count <= most)
        return count;
    uint8_t *siblings = fresh(w, w->n_nodes, 1);
    Candidate *rest = resized(w, NULL, count * sizeof *rest);
    size_t n_chosen = 0, n_rest = 0;
    for (size_t i = 0; siblings && rest && i < count; i++) {
        uint32_t node = some[i].node, parent = w->nodes[node].parent;
        if (n_chosen < most && (parent == NONE || siblings[parent] < FIRST_SIBLINGS)) {
            some[n_chosen++] = some[i];
            if (parent != NONE)
                siblings[parent]++;
        } else {
            rest[n_rest++] = some[i];
            siblings[node] = FIRST_SIBLINGS; /* nor does what lies below it */
        }
    }
    for (size_t i = 0; i < n_rest && n_chosen < most; i++)
        some[n_chosen++] = rest[i];
    drop(w, siblings);
    drop(w, rest);
    return n_chosen;
}

/* Find the heaviest objects that a person could name. */
static void find_heaviest(Walk *w, const Tree *t, Choice *c) {
    size_t capacity = 0, count = 0, users = 0;
    for (size_t i = 0; i < w->order.count; i++) {
        uint32_t number = w->order.items[i];
        const Node *node = &w->nodes[number];
        uint64_t total = worth_of(w, t, number);
        if (total < w->request.cutoff || !may_name(w, node))
            continue;
        if (count == capacity) {
            capacity = capacity ? capacity * 2 : 1024;
            Candidate *more = resized(w, c->chosen, capacity * sizeof *more);
            if (more == NULL)
                break;
            c->chosen = more;
        }
        int foreign = node->phase != PHASE_USER;
        c->chosen[count++] = (Candidate){total, number, (uint16_t)node->depth, foreign};
        users += !foreign;
    }
    if (count == 0)
        return;
    qsort(c->chosen, count, sizeof *c->chosen, heavier);
    size_t most = (size_t)w->request.max_selected;
    size_t chosen = choose_most(w, c->chosen, users, most), left = most - chosen;
    size_t foreign = choose_most(w, c->chosen + users, count - users,
                                 left > most / FOREIGN_PART ? left : most / FOREIGN_PART);
    memmove(c->chosen + chosen, c->chosen + users, foreign * sizeof *c->chosen);
    c->n_chosen = chosen + foreign;
}

void add_with_ancestors(Walk *w, Choice *c, Numbers *named, uint32_t number) {
    for (uint32_t n = number; n != NONE && !c->place[n]; n = w->nodes[n].parent) {
        c->place[n] = 1;
        push(w, named, n);
    }
}

static void add_ancestors(Walk *w, const Tree *t, Choice *c) {
    Numbers named = {0};
    for (size_t i = 0; i < c->n_chosen; i++)
        add_with_ancestors(w, c, &named, c->chosen[i].node);
    name_pinned(w, t, c, &named);
    find_holders(w, t, c, &named);
    find_circles(w, t, c, &named);
    c->named = named.items;
    c->n_named = named.count;
    uint32_t *places = order_of_deep(w, c);
    sorting = w;
    entered = places;
    if (c->n_named)
        qsort(c->named, c->n_named, 4, shallower);
    sorting = NULL;
    entered = NULL;
    drop(w, places);
}

int choose(Walk *w, const Tree *t, Choice *c) {
    find_heaviest(w, t, c);
    c->place = fresh(w, w->n_nodes, 4);
    if (w->failed)
        return -1;
    add_ancestors(w, t, c);
    for (size_t i = 0; i < c->n_named; i++)
        c->place[c->named[i]] = (uint32_t)i + 1;
    for (size_t i = 0; i < c->n_chosen; i++)
        c->place[c->chosen[i].node] |= CHOSEN;
    index_samples(w, c);
    choose_pinned(w, t, c);
    return w->failed ? -1 : 0;
}

#define MAX_GROUPS 256

Kind *add_kind(Walk *w, Kinds *kinds, uint32_t type, uint64_t bytes, PyObject *sample) {
    uint32_t i = 0;
    while (i < kinds->count && kinds->items[i].type != type)
        i++;
    if (i == kinds->count) {
        if (i == MAX_GROUPS)
            return NULL;
        if (kinds->items == NULL || (i >= 4 && (i & (i - 1)) == 0)) {
            uint32_t capacity = i ? i * 2 : 4;
            Kind *items = realloc(kinds->items, capacity * sizeof *items);
            if (items == NULL)
                return NULL;
            kinds->items = items;
        }
        kinds->items[kinds->count++] = (Kind){.type = type};
    }
    Kind *kind = &kinds->items[i];
    kind->count++;
    kind->bytes += bytes;
    if (sample && kind->n_samples < (uint32_t)w->request.max_samples)
        kind->samples[kind->n_samples++] = sample;
    return kind;
}

/* What chosen objects refer to, on its way from memory. */
typedef struct {
    Walk *walk;
    Kinds *kinds; /* of the object that is being traversed */
    struct { PyObject *object; Kinds *kinds; } coming[LAG];
    size_t first, count;
} Holding;

static void add_folded(Holding *h) {
    PyObject *object = h->coming[h->first % LAG].object;
    Kinds *kinds = h->coming[h->first++ % LAG].kinds;
    uint64_t bytes = folded_bytes(h->walk, object);
    if (bytes)
        add_kind(h->walk, kinds, type_number(h->walk, Py_TYPE(object)), bytes, object);
}

static int add_later(PyObject *object, void *argument) {
    Holding *h = argument;
    if (is_nothing(object))
        return 0;
    if (h->count - h->first == LAG)
        add_folded(h);
    __builtin_prefetch(object);
    h->coming[h->count % LAG].object = object;
    h->coming[h->count++ % LAG].kinds = h->kinds;
    return 0;
}

static void traverse_chosen(Holding *h, PyObject *object, const TypeFacts *facts) {
    if (facts->type->tp_traverse != NULL && is_collected(object, facts))
        facts->type->tp_traverse(object, add_later, h);
    if (facts->flags & TYPE_DICT)
        visit_text_keys(object, add_later, h);
    if (facts->flags & TYPE_TEXT_BUFFER)
        visit_text_pieces(object, add_later, h);
    if (facts->flags & TYPE_ARRAY)
        traverse_array(object, add_later, h, array_bytes(h->walk, object));
}

/* Group what each chosen node alone keeps alive, one step down the dominator tree. Everything is
 * borrowed still, so that reference counts tell what was folded. */
int group_children(Walk *w, const Tree *t, Choice *c) {
    c->kinds = fresh(w, c->n_named, sizeof *c->kinds);
    if (c->kinds == NULL)
        return -1;
    for (size_t i = 0; i < w->order.count; i++) {
        uint32_t number = w->order.items[i];
        const Node *node = &w->nodes[number];
        uint32_t v = t->number[number], above = t->node[t->dominator[v]];
        while (above != NONE && w->nodes[above].type == MEMORY_BATCH)
            above = t->node[t->dominator[t->number[above]]];
        const TypeFacts *facts = &w->types[node->type];
        if (above == NONE || !(c->place[above] & CHOSEN) || facts->type == NULL ||
            facts->rank == RANK_GRAPH)
            continue;
        Kind *kind = add_kind(w, &c->kinds[PLACE(c->place[above])], node->type, total_of(w, t, v),
                              (PyObject *)node->key);
        if (kind != NULL)
            kind->unread += unread_of(w, t, v);
    }
    if (w->resumed)
        group_sealed(w, c);
    group_parcels(w, c);
    Holding h = {.walk = w};
    for (size_t i = 0; i < c->n_chosen; i++) {
        const Node *node = &w->nodes[c->chosen[i].node];
        const TypeFacts facts = w->types[node->type];
        h.kinds = &c->kinds[PLACE(c->place[c->chosen[i].node])];
        traverse_chosen(&h, (PyObject *)node->key, &facts);
    }
    while (h.first < h.count)
        add_folded(&h);
    return 0;
}

