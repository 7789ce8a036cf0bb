/* Circles of references that keep garbage from being freed at once: for what is selected, the shortest
 * through it, or through the nearest that refers to it. The same rules as reference_oracle/relations.py.
 */
#include "walk.h"

#include <string.h>

#define MOST_TRIED 32
#define MOST_EDGES ((size_t)1 << 18) /* followed for all that are tried */

typedef struct {
    Walk *walk;
    const Tree *tree;
    uint32_t *first, *end, *before; /* of each node, those that refer to it */
    uint32_t *met, *seen;           /* in which search by ancestors, in which by circles */
    uint32_t *after;                /* the next on the way to where the search began */
    uint32_t searches;
    size_t edges;
} Search;

static int is_garbage(const Walk *w, uint32_t node) {
    return w->nodes[node].phase == PHASE_GARBAGE;
}

/* People write attributes and items; code and graphs are gone through where nothing else leads. */
static int is_plain(const Walk *w, uint32_t node) {
    uint8_t rank = w->types[w->nodes[node].type].rank;
    return rank == RANK_PLAIN || rank == RANK_LATE;
}

/* A tensor's edge to itself stands for one that leads nowhere. */
static int is_edge(const Walk *w, uint32_t source, uint32_t target) {
    return source != target || !(w->types[w->nodes[source].type].flags & TYPE_TENSOR);
}

static uint32_t target_of(const Search *s, const Node *node, uint32_t edge) {
    return s->tree->node[s->walk->edges[node->first_edge + edge]];
}

static void make_room(Search *s) {
    Walk *w = s->walk;
    for (size_t i = 0; i < w->order.count; i++) {
        const Node *node = &w->nodes[w->order.items[i]];
        for (uint32_t e = 0; node->phase == PHASE_GARBAGE && e < node->n_edges; e++)
            s->first[target_of(s, node, e) + 1]++;
    }
    for (size_t i = 1; i <= w->n_nodes; i++)
        s->first[i] += s->first[i - 1];
    memcpy(s->end, s->first, w->n_nodes * 4);
}

static void add_edges(Search *s, int plain) {
    Walk *w = s->walk;
    for (size_t i = 0; i < w->order.count; i++) {
        uint32_t source = w->order.items[i];
        const Node *node = &w->nodes[source];
        if (!is_garbage(w, source) || is_plain(w, source) != plain)
            continue;
        for (uint32_t e = 0; e < node->n_edges; e++) {
            uint32_t target = target_of(s, node, e), at = s->end[target];
            int is_known = at > s->first[target] && s->before[at - 1] == source;
            if (!is_known && is_edge(w, source, target))
                s->before[s->end[target]++] = source;
        }
    }
}

static int turn_edges(Search *s) {
    Walk *w = s->walk;
    s->first = fresh(w, w->n_nodes + 1, 4);
    s->end = fresh(w, w->n_nodes, 4);
    s->met = fresh(w, w->n_nodes, 4);
    s->seen = fresh(w, w->n_nodes, 4);
    s->after = fresh(w, w->n_nodes, 4);
    if (!s->first || !s->end || !s->met || !s->seen || !s->after)
        return -1;
    make_room(s);
    s->before = fresh(w, (size_t)s->first[w->n_nodes] + 1, 4);
    if (s->before == NULL)
        return -1;
    add_edges(s, 1);
    add_edges(s, 0);
    return 0;
}

/* Search backwards from a node for itself; return who refers to it on the shortest way, or NONE. */
static uint32_t last_of_circle(Search *s, uint32_t start) {
    Numbers queue = {0};
    uint32_t found = NONE, search = ++s->searches;
    push(s->walk, &queue, start);
    while (found == NONE && queue.head < queue.count) {
        uint32_t node = queue.items[queue.head++];
        for (uint32_t at = s->first[node]; found == NONE && at < s->end[node]; at++) {
            uint32_t source = s->before[at];
            if (s->edges++ >= MOST_EDGES)
                queue.head = queue.count;
            else if (source == start)
                found = node;
            else if (s->seen[source] != search && push(s->walk, &queue, source) == 0) {
                s->seen[source] = search;
                s->after[source] = node;
            }
        }
    }
    drop(s->walk, queue.items);
    return found;
}

/* Note the circle from `start` over `next` back, if it is short enough. */
static void note_circle(Search *s, Choice *c, uint32_t node, uint32_t start, uint32_t next) {
    Circle circle = {.of = node, .nodes = {start}, .count = 1};
    for (uint32_t at = next; at != start; at = s->after[at]) {
        if (circle.count == LONGEST_CIRCLE)
            return;
        circle.nodes[circle.count++] = at;
    }
    c->circles[c->n_circles++] = circle;
}

/* Find the circle of a node: its own, or that of the nearest that refers to it. */
static void find_circle(Search *s, Choice *c, uint32_t node) {
    Numbers queue = {0};
    uint32_t search = ++s->searches;
    s->met[node] = search;
    push(s->walk, &queue, node);
    while (queue.head < queue.count && s->edges < MOST_EDGES) {
        uint32_t start = queue.items[queue.head++], last = last_of_circle(s, start);
        if (last != NONE) {
            note_circle(s, c, node, start, last);
            break;
        }
        for (uint32_t at = s->first[start]; at < s->end[start]; at++)
            if (s->met[s->before[at]] != search && push(s->walk, &queue, s->before[at]) == 0)
                s->met[s->before[at]] = search;
    }
    drop(s->walk, queue.items);
}

static uint64_t garbage_chosen(const Walk *w, const Tree *t, const Choice *c) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < c->n_chosen; i++)
        if (is_garbage(w, c->chosen[i].node))
            bytes += total_of(w, t, t->number[c->chosen[i].node]);
    return bytes;
}

/* Find the circles of the heaviest garbage, and name what is part of them. */
void find_circles(Walk *w, const Tree *t, Choice *c, Numbers *named) {
    uint64_t bytes = garbage_chosen(w, t, c);
    if (bytes == 0 || bytes < w->request.circle_bytes)
        return;
    Search s = {.walk = w, .tree = t};
    c->circles = fresh(w, MOST_TRIED, sizeof *c->circles);
    if (c->circles != NULL && turn_edges(&s) == 0) {
        int tried = 0;
        for (size_t i = 0; i < c->n_chosen && tried < MOST_TRIED; i++)
            if (is_garbage(w, c->chosen[i].node) && ++tried)
                find_circle(&s, c, c->chosen[i].node);
    }
    for (size_t i = 0; i < c->n_circles; i++)
        for (uint32_t k = 0; k < c->circles[i].count; k++)
            add_with_ancestors(w, c, named, c->circles[i].nodes[k]);
    drop(w, s.first);
    drop(w, s.end);
    drop(w, s.before);
    drop(w, s.met);
    drop(w, s.seen);
    drop(w, s.after);
}

/* Return the places of those on the circle of a node. */
PyObject *circle_as_list(const Choice *c, uint32_t number) {
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < c->n_circles; i++) {
        const Circle *circle = &c->circles[i];
        for (uint32_t k = 0; list && circle->of == number && k < circle->count; k++) {
            PyObject *place = PyLong_FromUnsignedLong(PLACE(c->place[circle->nodes[k]]));
            if (place == NULL || PyList_Append(list, place) < 0)
                Py_CLEAR(list);
            Py_XDECREF(place);
        }
    }
    return list;
}
