/* A walk that goes on from a seal: it walks the user's part, finds what is new among what the collector
 * tracks, and looks at sealed objects only to see whether they changed and refer to what is new.
 *
 * Of what is sealed, those objects get nodes that refer to something new, that retain much, and all
 * that name these. Whatever else is sealed counts for the nearest of them that dominates it.
 *
 * An object is only touched where it is known to be alive: the collector tracked it at this walk, an edge
 * led to it, or it is never freed.
 */
#define _GNU_SOURCE
#include "seal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* A reference from a sealed object to one that isn't. */
typedef struct {
    PyObject *object;
    uint32_t entry, depth;
} Link;

typedef struct {
    uint32_t source, target;
} Pair;

struct Resumed {
    size_t n_words;
    uint64_t *seen;     /* the collector tracks it */
    uint64_t *borrowed; /* the user's names reach it now: it is a node of theirs */
    uint64_t *verified; /* not tracked, but an edge led to it */
    uint64_t *kept;     /* it has a node */
    uint64_t *looked;   /* what it refers to was looked at */
    uint64_t *changed;  /* and is not what it was */
    uint64_t *ours;     /* it is one of our own objects, given with the request */
    uint64_t *met;      /* what names it was looked at, and still refers to it */
    uint32_t *nodes;    /* by entry: its node + 1; when all is done, that of the nearest dominator */
    uint64_t *retained; /* by entry */
    Numbers kept_nodes, kept_entries, waiting;
    Numbers heavy; /* entries that retain what a row needs */
    Link *links, *claims; /* claims: of sealed objects that the collector doesn't track */
    size_t n_links, cap_links, n_claims, cap_claims;
    Pair *pairs;
    size_t n_pairs, cap_pairs;
    uint64_t *named; /* by kept node's place: bytes that are named through it */
    uint32_t *places; /* by node: its place among the kept, plus one */
    size_t n_places;
    int looks_at_all;
    SealedSums sums;
    uint32_t types[MOST_SEALED_TYPES]; /* by sealed type: its number in this walk, plus one */
};

#define AHEAD 16

static void *room_for(Walk *w, void *items, size_t count, size_t *capacity, size_t size) {
    if (count < *capacity)
        return items;
    size_t more = *capacity ? *capacity * 2 : 256;
    void *resized_items = resized(w, items, more * size);
    if (resized_items != NULL)
        *capacity = more;
    return resized_items;
}

int begin_resumed(Walk *w) {
    const Seal *seal = w->seal;
    if (seal->count == 0 || !w->request.full)
        return 0;
    Resumed *r = w->resumed = fresh(w, 1, sizeof *r);
    if (r == NULL)
        return -1;
    r->n_words = seal->n_tracked_words;
    r->seen = fresh(w, r->n_words, 8);
    r->borrowed = fresh(w, r->n_words, 8);
    r->verified = fresh(w, r->n_words, 8);
    r->kept = fresh(w, r->n_words, 8);
    r->looked = fresh(w, r->n_words, 8);
    r->met = fresh(w, r->n_words, 8);
    r->changed = fresh(w, r->n_words, 8);
    r->ours = fresh(w, r->n_words, 8);
    r->nodes = fresh(w, seal->count, 4);
    return w->failed ? -1 : 0;
}

void drop_resumed(Walk *w) {
    Resumed *r = w->resumed;
    if (r == NULL)
        return;
    void *blocks[] = {r->seen, r->borrowed, r->verified, r->kept, r->looked, r->met, r->changed, r->ours, r->nodes,
                      r->retained, r->links, r->claims, r->pairs, r->named, r->places, r->kept_nodes.items, r->kept_entries.items,
                      r->waiting.items, r->heavy.items, r};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        drop(w, blocks[i]);
    w->resumed = NULL;
}

int is_sealed(const Walk *w, PyObject *object) { return sealed_at(w->seal, (uintptr_t)object) != NONE; }

/* Say whether an object to which something of that phase refers lies where one of ours was: nothing names
 * those, so nothing else tells that they were freed. */
static int is_no_longer_ours(const Walk *w, uint32_t entry, int phase) {
    const Sealed *sealed = &w->seal->entries[entry];
    return (phase == PHASE_LIBRARY || phase == PHASE_OTHER) && SEALED_PHASE(sealed) == PHASE_HIDDEN &&
           (sealed->word & SEALED_ROOT_FLAG) && !has_bit(w->resumed->ours, entry);
}

/* Say whether a walk may make a node of an object: it isn't sealed, or the user's names have reached it.
 * The way to sealed types, modules, and objects of our own is cut for those. */
int takes_sealed(Walk *w, PyObject *object) {
    Seal *seal = w->seal;
    uint32_t entry = sealed_at(seal, (uintptr_t)object);
    if (entry == NONE)
        return 1;
    const Sealed *sealed = &seal->entries[entry];
    if (seal->types[SEALED_TYPE(sealed)] != Py_TYPE(object)) {
        forget(seal, entry);
        return 1;
    }
    if (is_no_longer_ours(w, entry, w->phase)) {
        forget(seal, entry);
        return 1;
    }
    if (w->phase != PHASE_USER || PyType_Check(object) || PyModule_Check(object) ||
        has_bit(w->resumed->ours, entry))
        return 0;
    set_bit(w->resumed->borrowed, entry);
    return 1;
}

static int mix(PyObject *object, void *argument) {
    uint64_t *sum = argument;
    *sum = (*sum ^ (uintptr_t)object >> 4) * 0x9E3779B97F4A7C15ull;
    return 0;
}

static uint32_t dict_state(const PyDictObject *dict) {
    uint64_t sum = ((uint64_t)dict->ma_used ^ (uintptr_t)dict->ma_keys) * 0x9E3779B97F4A7C15ull;
    return (uint32_t)(sum >> 32);
}

/* Return a number that changes with what an object refers to. A dict that isn't tracked has only keys and
 * values without references of their own: of that its state tells enough. */
uint32_t checksum_of(PyObject *object) {
    uint64_t sum = 0;
    const PyTypeObject *type = Py_TYPE(object);
    if (type == &PyDict_Type && !PyObject_GC_IsTracked(object))
        return dict_state((const PyDictObject *)object);
    if (type->tp_traverse != NULL && PyObject_IS_GC(object))
        type->tp_traverse(object, mix, &sum);
    return (uint32_t)(sum >> 32) ^ (uint32_t)sum;
}

/* Note that an object is our own; say whether it is sealed as such, so that it needs no node. What was sealed
 * in its place as something else is gone: to keep that as well would leave two entries of one address. */
int is_sealed_ours(Walk *w, PyObject *object) {
    uint32_t entry = sealed_at(w->seal, (uintptr_t)object);
    if (entry == NONE)
        return 0;
    const Sealed *sealed = &w->seal->entries[entry];
    if (SEALED_PHASE(sealed) != PHASE_HIDDEN || !(sealed->word & SEALED_ROOT_FLAG) ||
        w->seal->types[SEALED_TYPE(sealed)] != Py_TYPE(object)) {
        forget(w->seal, entry);
        return 0;
    }
    set_bit(w->resumed->ours, entry);
    return 1;
}

/* Say whether the seal is wrong about an object to which something refers: it has it as held by native code
 * alone, or as named by what is gone. The next walk will find it new. */
int is_doubtful(const Walk *w, PyObject *object) {
    uint32_t entry = sealed_at(w->seal, (uintptr_t)object);
    if ((w->phase != PHASE_LIBRARY && w->phase != PHASE_OTHER) || entry == NONE)
        return 0;
    const Sealed *sealed = &w->seal->entries[entry];
    int is_root = (sealed->word & SEALED_ROOT_FLAG) != 0;
    return SEALED_PHASE(sealed) == PHASE_NATIVE || (!is_root && w->seal->entries[sealed->parent].word == 0);
}

/* Take an object as new, whatever the seal knows of its place. */
void unseal(Walk *w, PyObject *object) {
    uint32_t entry = sealed_at(w->seal, (uintptr_t)object);
    if (entry != NONE)
        forget(w->seal, entry);
}

/* What the collector tracks: what is sealed and alive, and what is new. */

static void prefetch_contents(PyObject *object) {
    if (Py_IS_TYPE(object, &PyDict_Type)) {
        __builtin_prefetch(((const PyDictObject *)object)->ma_keys);
        __builtin_prefetch((const char *)((const PyDictObject *)object)->ma_keys + 64);
    } else if (Py_IS_TYPE(object, &PyList_Type)) {
        __builtin_prefetch(((const PyListObject *)object)->ob_item);
    }
}

#define STRAYS 16       /* objects in a row that aren't where they were expected */
#define NEAR 4          /* so far from its place an object is still where it was expected */
#define MOST_SEARCHES 64

/* The collector lists objects in nearly the same order each time: the next is known before its turn, so
 * that it can be on its way from memory. What isn't expected is looked up. */
typedef struct {
    Walk *walk;
    struct {
        PyObject *object;
        size_t place;
        int is_young;
    } coming[2 * AHEAD];
    size_t count, next; /* the place in the sequence that is expected next */
    size_t near;        /* how far from there it may be: those that wait to be looked up come before */
    uint32_t *sequence; /* as it is this time; NONE for what isn't sealed */
    size_t n_sequence, cap_sequence;
    unsigned strays, searches;
    uint32_t checked[AHEAD]; /* alive and mutable, their contents on the way from memory; plus one */
    size_t n_checked;
} Sweep;

static void check(Walk *w, uint32_t entry) {
    const Sealed *sealed = &w->seal->entries[entry];
    if (checksum_of(SEALED_OBJECT(sealed)) != sealed->checksum)
        push(w, &w->resumed->waiting, entry);
}

static void note_seen(Sweep *s, uint32_t entry) {
    Walk *w = s->walk;
    const Sealed *sealed = &w->seal->entries[entry];
    set_bit(w->resumed->seen, entry);
    if (has_bit(w->resumed->borrowed, entry))
        return;
    if (sealed->word & SEALED_BOUNDARY) {
        push(w, &w->resumed->waiting, entry);
    } else if ((sealed->word & SEALED_MUTABLE) || entry % ROUNDS == w->seal->round) {
        prefetch_contents(SEALED_OBJECT(sealed));
        uint32_t *place = &s->checked[s->n_checked++ % AHEAD];
        if (*place)
            check(w, *place - 1);
        *place = entry + 1;
    }
}

static int is_at(const Seal *seal, uint32_t entry, const PyObject *object) {
    const Sealed *sealed = &seal->entries[entry];
    return sealed->word >> 19 == (uintptr_t)object >> 3 &&
           seal->types[SEALED_TYPE(sealed)] == Py_TYPE(object);
}

/* Return the entry of an object that is where it was expected, or a little further; else NONE. */
static uint32_t expected(Sweep *s, const PyObject *object) {
    const Seal *seal = s->walk->seal;
    for (size_t at = s->next; at < s->next + s->near && at < seal->n_sequence; at++)
        if (is_at(seal, seal->sequence[at], object)) {
            s->next = at + 1;
            s->near = NEAR;
            s->strays = 0;
            return seal->sequence[at];
        }
    return NONE;
}

/* Go on expecting objects from behind an entry that was looked up. */
static void search_sequence(Sweep *s, uint32_t entry) {
    const Seal *seal = s->walk->seal;
    s->strays = 0;
    if (s->searches++ >= MOST_SEARCHES)
        return;
    for (size_t i = 0; i < seal->n_sequence; i++) {
        size_t at = s->next + i < seal->n_sequence ? s->next + i : s->next + i - seal->n_sequence;
        if (seal->sequence[at] == entry) {
            s->next = at + 1;
            s->near = 2 * AHEAD + NEAR;
            return;
        }
    }
}

static void look_up(Sweep *s, size_t at) {
    Walk *w = s->walk;
    Seal *seal = w->seal;
    PyObject *object = s->coming[at].object;
    uint32_t entry = sealed_at(seal, (uintptr_t)object);
    if (entry != NONE && is_at(seal, entry, object)) {
        s->sequence[s->coming[at].place] = entry;
        note_seen(s, entry);
        if (++s->strays >= STRAYS)
            search_sequence(s, entry);
        return;
    }
    if (entry != NONE)
        forget(seal, entry);
    mark_tracked(w, object, s->coming[at].is_young);
}

static void prefetch_entry(const Seal *seal, const PyObject *object) {
    uint32_t entry = seal->slots[sealed_slot(seal, (uintptr_t)object)];
    if (entry)
        __builtin_prefetch(&seal->entries[entry - 1]);
}

static void look_up_later(Sweep *s, PyObject *object, size_t place, int is_young) {
    const Seal *seal = s->walk->seal;
    __builtin_prefetch(&seal->slots[sealed_slot(seal, (uintptr_t)object)]);
    size_t at = s->count++;
    if (at >= AHEAD)
        prefetch_entry(seal, s->coming[(at - AHEAD) % (2 * AHEAD)].object);
    if (at >= 2 * AHEAD)
        look_up(s, at % (2 * AHEAD));
    s->coming[at % (2 * AHEAD)].object = object;
    s->coming[at % (2 * AHEAD)].place = place;
    s->coming[at % (2 * AHEAD)].is_young = is_young;
}

/* Fetch the entries that are expected, then their objects. Such an object may have been freed: it is not
 * read before its turn. */
static void fetch_expected(const Sweep *s) {
    const Seal *seal = s->walk->seal;
    size_t at = s->next;
    if (at + 3 * AHEAD < seal->n_sequence)
        __builtin_prefetch(&seal->entries[seal->sequence[at + 3 * AHEAD]]);
    if (at + 2 * AHEAD < seal->n_sequence) {
        uintptr_t object = (uintptr_t)SEALED_OBJECT(&seal->entries[seal->sequence[at + 2 * AHEAD]]);
        __builtin_prefetch((const void *)(object - 16)); /* of an entry that is gone: of no address */
        __builtin_prefetch((const void *)(object + 47));
    }
}

static int sweep_object(PyObject *object, int is_young, void *argument) {
    Sweep *s = argument;
    Walk *w = s->walk;
    if (is_among(&w->in_parcels, object))
        return 0; /* and not sealed */
    if (s->n_sequence == s->cap_sequence) {
        size_t capacity = s->cap_sequence ? s->cap_sequence * 2 : w->seal->n_sequence + 4096;
        uint32_t *sequence = resized(w, s->sequence, capacity * 4);
        if (sequence == NULL)
            return -1;
        s->sequence = sequence;
        s->cap_sequence = capacity;
    }
    size_t place = s->n_sequence++;
    uint32_t entry = expected(s, object);
    s->sequence[place] = entry;
    if (entry == NONE) {
        look_up_later(s, object, place, is_young);
    } else {
        fetch_expected(s);
        note_seen(s, entry);
    }
    return w->failed ? -1 : 0;
}

static void keep_sequence(Sweep *s) {
    Seal *seal = s->walk->seal;
    size_t count = 0;
    for (size_t i = 0; i < s->n_sequence; i++)
        if (s->sequence[i] != NONE)
            s->sequence[count++] = s->sequence[i];
    drop(s->walk, seal->sequence);
    seal->sequence = resized(s->walk, s->sequence, (count + 1) * 4);
    seal->n_sequence = seal->sequence ? count : 0;
}

static void sweep(Walk *w) {
    Sweep s = {.walk = w, .near = NEAR};
    w->seal->round = (w->seal->round + 1) % ROUNDS;
    visit_tracked(sweep_object, &s);
    for (size_t i = s.count > 2 * AHEAD ? s.count - 2 * AHEAD : 0; i < s.count && !w->failed; i++)
        look_up(&s, i % (2 * AHEAD));
    for (size_t i = 0; i < AHEAD; i++)
        if (s.checked[i])
            check(w, s.checked[i] - 1);
    keep_sequence(&s);
}

/* Forget what the collector tracked at the walk before and doesn't any more. Of tuples and dicts it stops
 * tracking those that refer to nothing which it tracks: they may be alive. */
static void forget_freed(Walk *w) {
    Seal *seal = w->seal;
    Numbers dicts = {0};
    for (size_t word = 0; word < w->resumed->n_words; word++) {
        uint64_t freed = seal->tracked[word] & ~w->resumed->seen[word];
        for (; freed; freed &= freed - 1) {
            uint32_t entry = (uint32_t)(word * 64 + (size_t)__builtin_ctzll(freed));
            const Sealed *sealed = &seal->entries[entry];
            const PyTypeObject *type = seal->types[SEALED_TYPE(sealed)];
            if (sealed->word && type == &PyDict_Type)
                push(w, &dicts, entry);
            else if (sealed->word && (type != &PyTuple_Type || (sealed->word & SEALED_ROOT_FLAG)))
                forget(seal, entry);
        }
    }
    memcpy(seal->tracked, w->resumed->seen, w->resumed->n_words * 8);
    list_dicts(w, seal, &dicts);
}

/* What changed. */

#define LOOK_AHEAD 8

typedef struct {
    Walk *walk;
    uint64_t folded;
    uint32_t entry;
    int is_boundary;
    PyObject *coming[2 * LOOK_AHEAD]; /* what is known of them is on its way from memory */
    size_t count;
} Look;

static void add_link(Walk *w, uint32_t entry, PyObject *object) {
    Resumed *r = w->resumed;
    Link *links = room_for(w, r->links, r->n_links, &r->cap_links, sizeof *links);
    if (links == NULL)
        return;
    r->links = links;
    r->links[r->n_links++] = (Link){object, entry, 0};
}

static void add_claim(Walk *w, uint32_t entry, PyObject *object) {
    Resumed *r = w->resumed;
    Link *claims = room_for(w, r->claims, r->n_claims, &r->cap_claims, sizeof *claims);
    if (claims == NULL)
        return;
    r->claims = claims;
    r->claims[r->n_claims++] = (Link){object, entry, 0};
}

/* Return the entry of an object that has its type still; NONE where it has none. */
static uint32_t entry_at(Walk *w, PyObject *object) {
    Seal *seal = w->seal;
    uint32_t entry = sealed_at(seal, (uintptr_t)object);
    if (entry == NONE || seal->types[SEALED_TYPE(&seal->entries[entry])] == Py_TYPE(object))
        return entry;
    forget(seal, entry);
    return NONE;
}

/* Return the entry that a look may take for what it refers to. What only native code held, or was ours,
 * isn't that any more where something else refers to it: it is new. */
static uint32_t entry_for(const Look *look, PyObject *object) {
    Walk *w = look->walk;
    uint32_t entry = entry_at(w, object);
    int phase = SEALED_PHASE(&w->seal->entries[look->entry]);
    if (entry == NONE || (phase != PHASE_LIBRARY && phase != PHASE_OTHER))
        return entry;
    if (SEALED_PHASE(&w->seal->entries[entry]) != PHASE_NATIVE && !is_no_longer_ours(w, entry, phase))
        return entry;
    forget(w->seal, entry);
    if (has_bit(w->resumed->seen, entry))
        mark_tracked(w, object, 0);
    return NONE;
}

/* Note that a sealed object still refers to another. */
static void meet_sealed(Look *look, uint32_t entry, PyObject *object) {
    const Sealed *sealed = &look->walk->seal->entries[entry];
    if (!(sealed->word & SEALED_ROOT_FLAG) && sealed->parent == look->entry)
        set_bit(look->walk->resumed->met, entry);
    else
        add_claim(look->walk, look->entry, object);
}

static int visit_sealed(PyObject *object, void *argument) {
    Look *look = argument;
    Walk *w = look->walk;
    if (is_nothing(object))
        return 0;
    uint64_t found = find_entry(&w->index, key_of(w, object));
    int phase = found ? (int)w->nodes[node_of(found)].phase : PHASE_HIDDEN;
    int is_new = phase == PHASE_UNREACHED || phase == PHASE_BARRIER;
    uint32_t entry = found ? NONE : entry_for(look, object);
    uint64_t folded = found || entry != NONE ? 0 : folded_bytes(w, object);
    look->folded += folded;
    if (entry != NONE)
        meet_sealed(look, entry, object);
    else if (is_new || (!found && !folded))
        add_link(w, look->entry, object);
    if (is_new || (entry == NONE && !found && !folded) ||
        (phase == PHASE_USER && SEALED_PHASE(&w->seal->entries[look->entry]) != PHASE_HIDDEN))
        look->is_boundary = 1;
    return w->failed ? -1 : 0;
}

/* The same, a little later. */
static int visit_sealed_later(PyObject *object, void *argument) {
    Look *look = argument;
    Walk *w = look->walk;
    if (is_nothing(object))
        return 0;
    prefetch_slot(&w->index, key_of(w, object));
    __builtin_prefetch(&w->seal->slots[sealed_slot(w->seal, (uintptr_t)object)]);
    size_t at = look->count++;
    if (at >= LOOK_AHEAD)
        prefetch_entry(w->seal, look->coming[(at - LOOK_AHEAD) % (2 * LOOK_AHEAD)]);
    PyObject **place = &look->coming[at % (2 * LOOK_AHEAD)];
    int result = at >= 2 * LOOK_AHEAD ? visit_sealed(*place, look) : 0;
    *place = object;
    return result;
}

static void visit_those_coming(Look *look) {
    for (size_t i = look->count > 2 * LOOK_AHEAD ? look->count - 2 * LOOK_AHEAD : 0; i < look->count; i++)
        if (visit_sealed(look->coming[i % (2 * LOOK_AHEAD)], look) < 0)
            return;
}

static uint32_t number_of_type(Walk *w, const Sealed *sealed) {
    uint32_t *number = &w->resumed->types[SEALED_TYPE(sealed)];
    if (*number == 0)
        *number = type_number(w, w->seal->types[SEALED_TYPE(sealed)]) + 1;
    return *number - 1;
}

/* Look at what a sealed object refers to now. */
static void look_at(Walk *w, uint32_t entry) {
    Sealed *sealed = &w->seal->entries[entry];
    PyObject *object = SEALED_OBJECT(sealed);
    Look look = {.walk = w, .entry = entry};
    PyTypeObject *type = Py_TYPE(object);
    if (type->tp_traverse != NULL && PyObject_IS_GC(object))
        type->tp_traverse(object, visit_sealed_later, &look);
    if (type->tp_flags & Py_TPFLAGS_DICT_SUBCLASS)
        visit_text_keys(object, visit_sealed_later, &look);
    visit_those_coming(&look);
    sealed->word &= ~(uint64_t)SEALED_BOUNDARY;
    sealed->word |= look.is_boundary ? SEALED_BOUNDARY : 0;
    set_bit(w->resumed->looked, entry);
    uint32_t sum = checksum_of(object);
    uint32_t number = sum != sealed->checksum ? number_of_type(w, sealed) : NONE;
    if (number == NONE)
        return;
    set_bit(w->resumed->changed, entry);
    uint64_t bytes = shallow_bytes(object, &w->types[number]) + look.folded;
    sealed->bytes = bytes < UINT32_MAX ? (uint32_t)bytes : UINT32_MAX;
    sealed->checksum = sum;
}

/* Dicts without references of their own aren't tracked, so nothing tells that they are alive: their
 * heads are read in a way that fails where there is no memory. */

#define STRETCHES 512
#define STRETCH 2048 /* bytes of neighbours that are read at once */

/* What the collector has before each object (PyGC_Head); the first is 0 where it doesn't track it. */
typedef struct {
    uintptr_t next, previous;
} Header;

#define HEADER sizeof(Header)
#define MOST_REFERENCES ((Py_ssize_t)UINT32_MAX) /* that of immortal objects: no address is so low */

/* Say whether memory is a dict that isn't tracked. What was freed may be anything by now: the items of a
 * list of types have the pointer that a dict has to its type. */
static int is_untracked_dict(const Header *header, const PyDictObject *dict) {
    Py_ssize_t references = Py_REFCNT(dict);
    return header->next == 0 && references > 0 && references <= MOST_REFERENCES &&
           Py_IS_TYPE((PyObject *)dict, &PyDict_Type) && dict->ma_used >= 0 && dict->ma_keys != NULL &&
           (uintptr_t)dict->ma_keys % sizeof(void *) == 0;
}

static void judge_dict(Walk *w, uint32_t entry, const char *memory) {
    Sealed *sealed = &w->seal->entries[entry];
    Header header;
    PyDictObject dict;
    memcpy(&header, memory, HEADER);
    memcpy(&dict, memory + HEADER, sizeof dict);
    if (!is_untracked_dict(&header, &dict)) {
        forget(w->seal, entry);
        return;
    }
    set_bit(w->resumed->verified, entry);
    if ((sealed->word & SEALED_BOUNDARY) || dict_state(&dict) != sealed->checksum)
        push(w, &w->resumed->waiting, entry);
}

typedef struct {
    Walk *walk;
    const uint32_t *dicts; /* by address */
    size_t count;
    size_t first[STRETCHES + 1]; /* of each stretch, its first dict */
    struct iovec local[STRETCHES], remote[STRETCHES];
    char *memory;
} Reading;

static uintptr_t address_of_entry(const Walk *w, uint32_t entry) {
    return (uintptr_t)SEALED_OBJECT(&w->seal->entries[entry]);
}

/* Divide dicts from a place on into stretches of neighbours; return how many there are. */
static size_t divide(Reading *r, size_t from) {
    size_t n = 0, at = from;
    while (at < r->count && n < STRETCHES) {
        uintptr_t begin = address_of_entry(r->walk, r->dicts[at]) - HEADER, end = begin;
        r->first[n] = at;
        while (at < r->count && address_of_entry(r->walk, r->dicts[at]) + sizeof(PyDictObject) <= begin + STRETCH)
            end = address_of_entry(r->walk, r->dicts[at++]) + sizeof(PyDictObject);
        r->local[n] = (struct iovec){r->memory + n * STRETCH, end - begin};
        r->remote[n++] = (struct iovec){(void *)begin, end - begin};
    }
    r->first[n] = at;
    return n;
}

/* Read stretches; return how many could be read, or -1 where reading isn't allowed. */
static ssize_t read_stretches(Reading *r, size_t from, size_t n) {
    ssize_t bytes = process_vm_readv(getpid(), r->local + from, n - from, r->remote + from, n - from, 0);
    if (bytes < 0 && errno != EFAULT)
        return -1;
    ssize_t complete = 0;
    for (size_t i = from; i < n && bytes >= (ssize_t)r->remote[i].iov_len; i++, complete++)
        bytes -= (ssize_t)r->remote[i].iov_len;
    return complete;
}

static void judge_stretches(Reading *r, size_t from, size_t n) {
    for (size_t i = from; i < n; i++)
        for (size_t k = r->first[i]; k < r->first[i + 1]; k++) {
            if (r->walk->seal->entries[r->dicts[k]].word == 0)
                continue;
            uintptr_t begin = address_of_entry(r->walk, r->dicts[k]) - HEADER;
            uintptr_t offset = begin - (uintptr_t)r->remote[i].iov_base;
            judge_dict(r->walk, r->dicts[k], r->memory + i * STRETCH + offset);
        }
}

static void forget_stretch(const Reading *r, size_t i) {
    for (size_t k = r->first[i]; k < r->first[i + 1]; k++)
        forget(r->walk->seal, r->dicts[k]);
}

static void judge_untracked_dicts(Walk *w) {
    const Seal *seal = w->seal;
    const Resumed *resumed = w->resumed;
    Numbers dicts = {0};
    Reading *r = fresh(w, 1, sizeof *r);
    for (size_t i = 0; i < seal->n_dicts; i++) {
        uint32_t entry = seal->dicts[i];
        if (seal->entries[entry].word && !has_bit(resumed->seen, entry) && !has_bit(resumed->borrowed, entry))
            push(w, &dicts, entry);
    }
    char *memory = fresh(w, STRETCHES, STRETCH);
    for (size_t at = 0; !w->failed && at < dicts.count; at = r->first[STRETCHES]) {
        *r = (Reading){.walk = w, .dicts = dicts.items, .count = dicts.count, .memory = memory};
        size_t n = divide(r, at);
        r->first[STRETCHES] = r->first[n];
        for (size_t done = 0; done < n;) {
            ssize_t complete = read_stretches(r, done, n);
            if (complete < 0)
                goto out; /* not allowed here: they are taken to be as they were */
            judge_stretches(r, done, done + (size_t)complete);
            done += (size_t)complete;
            if (done < n)
                forget_stretch(r, done++);
        }
    }
out:
    drop(w, memory);
    drop(w, r);
    drop(w, dicts.items);
}

static void look_at_changed(Walk *w) {
    Numbers *waiting = &w->resumed->waiting;
    judge_untracked_dicts(w);
    for (size_t i = 0; i < waiting->count && !w->failed; i++) {
        if (i + AHEAD < waiting->count && w->seal->entries[waiting->items[i + AHEAD]].word)
            prefetch_contents(SEALED_OBJECT(&w->seal->entries[waiting->items[i + AHEAD]]));
        if (w->seal->entries[waiting->items[i]].word)
            look_at(w, waiting->items[i]);
    }
}

/* An object is where the seal knows it as long as that which names it refers to it. If not, it was freed, or
 * another lies in its place, or others keep it: then it is new, and named by these. */
static void forget_orphans(Walk *w) {
    const Seal *seal = w->seal;
    Resumed *r = w->resumed;
    for (uint32_t i = 0; i < seal->count && !w->failed; i++) {
        const Sealed *sealed = &seal->entries[i];
        if (sealed->word == 0 || (sealed->word & (SEALED_ROOT_FLAG | SEALED_IMMORTAL)) || has_bit(r->borrowed, i))
            continue;
        int is_parent_gone = seal->entries[sealed->parent].word == 0;
        if (!is_parent_gone && (!has_bit(r->looked, sealed->parent) || has_bit(r->met, i)))
            continue;
        PyObject *object = SEALED_OBJECT(sealed);
        forget(w->seal, i);
        if (has_bit(r->seen, i))
            mark_tracked(w, object, 0);
    }
    for (size_t i = 0; i < r->n_claims; i++)
        if (sealed_at(seal, (uintptr_t)r->claims[i].object) == NONE)
            add_link(w, r->claims[i].entry, r->claims[i].object);
}

/* Nodes for sealed objects. */

static int is_alive(const Walk *w, uint32_t entry) {
    const Resumed *r = w->resumed;
    uint64_t word = w->seal->entries[entry].word;
    return word && !has_bit(r->borrowed, entry) &&
           ((word & SEALED_IMMORTAL) || has_bit(r->seen, entry) || has_bit(r->verified, entry));
}

static uint32_t add_kept(Walk *w, uint32_t entry) {
    Resumed *r = w->resumed;
    const Sealed *sealed = &w->seal->entries[entry];
    int is_root = (sealed->word & SEALED_ROOT_FLAG) != 0, phase = SEALED_PHASE(sealed);
    uint32_t parent = is_root ? NONE : r->nodes[sealed->parent] - 1;
    int32_t root = !is_root                  ? w->nodes[parent].root
                   : phase == PHASE_LIBRARY ? (int32_t)sealed->parent + SEALED_ROOT
                                            : (int32_t)sealed->parent;
    uint32_t type = number_of_type(w, sealed);
    uint32_t node = type == NONE ? NONE
                                 : add_node(w, (uintptr_t)SEALED_OBJECT(sealed), type, parent, root, phase);
    if (node == NONE || push(w, &r->kept_nodes, node) < 0 || push(w, &r->kept_entries, entry) < 0)
        return NONE;
    if (parent != NONE)
        inherit(w, &w->nodes[node]);
    if (w->types[type].mark >= 0)
        w->nodes[node].mark = w->types[type].mark;
    w->nodes[node].flags |= NODE_SEALED;
    r->nodes[entry] = node + 1;
    set_bit(r->kept, entry);
    return node;
}

/* Return the node of an entry, made together with those that name it; NONE where one of these isn't
 * known to be alive. */
static uint32_t keep(Walk *w, uint32_t entry) {
    Resumed *r = w->resumed;
    const Seal *seal = w->seal;
    Numbers chain = {0};
    uint32_t at = entry, node = NONE;
    while (r->nodes[at] == 0) {
        if (!is_alive(w, at) || push(w, &chain, at) < 0)
            goto out;
        if (seal->entries[at].word & SEALED_ROOT_FLAG)
            break;
        at = seal->entries[at].parent;
    }
    node = r->nodes[at] ? r->nodes[at] - 1 : NONE;
    for (size_t i = chain.count; i-- > 0;)
        if ((node = add_kept(w, chain.items[i])) == NONE)
            break;
out:
    drop(w, chain.items);
    return node;
}

static void sum_sealed(Walk *w) {
    Resumed *r = w->resumed;
    const Seal *seal = w->seal;
    r->retained = fresh(w, seal->count, 8);
    r->sums = (SealedSums){.objects = seal->folded};
    for (size_t i = r->retained ? seal->count : 0; i-- > 0;) {
        const Sealed *sealed = &seal->entries[i];
        if (sealed->word && !has_bit(r->borrowed, (uint32_t)i)) {
            int phase = SEALED_PHASE(sealed), is_ours = phase == PHASE_HIDDEN;
            r->retained[i] += sealed->bytes;
            r->sums.by_phase[phase] += sealed->bytes;
            r->sums.heap += is_ours ? 0 : sealed->bytes;
            r->sums.objects += !is_ours;
        }
        if (sealed->dominator != NONE)
            r->retained[sealed->dominator] += r->retained[i];
    }
    for (uint32_t i = 0; r->retained && i < seal->count; i++)
        if (r->retained[i] >= w->request.cutoff)
            push(w, &r->heavy, i);
}

SealedSums sealed_sums(const Walk *w) { return w->resumed->sums; }

static void keep_heavy(Walk *w, int phase) {
    const Resumed *r = w->resumed;
    for (size_t at = 0; at < r->heavy.count && !w->failed; at++) {
        uint32_t i = r->heavy.items[at];
        if (r->nodes[i] == 0 && is_alive(w, i) && SEALED_PHASE(&w->seal->entries[i]) == phase)
            keep(w, i);
    }
}

static int nearer(const void *left, const void *right) {
    const Link *a = left, *b = right;
    if (a->depth != b->depth)
        return a->depth < b->depth ? -1 : 1;
    return a->entry < b->entry ? -1 : a->entry > b->entry;
}

static void sort_links(Walk *w) {
    Resumed *r = w->resumed;
    for (size_t i = 0; i < r->n_links; i++) {
        uint32_t at = r->links[i].entry;
        while (!(w->seal->entries[at].word & SEALED_ROOT_FLAG) && w->seal->entries[at].word &&
               r->links[i].depth < MOST_DEPTH) {
            at = w->seal->entries[at].parent;
            r->links[i].depth++;
        }
    }
    if (r->n_links)
        qsort(r->links, r->n_links, sizeof *r->links, nearer);
}

/* Return the node of an entry, or that of the nearest that names it and can have one. */
static uint32_t keep_nearest(Walk *w, uint32_t entry) {
    for (;;) {
        uint32_t node = keep(w, entry);
        const Sealed *sealed = &w->seal->entries[entry];
        if (node != NONE || (sealed->word & SEALED_ROOT_FLAG) || sealed->word == 0)
            return node;
        entry = sealed->parent;
    }
}

static void follow_link(Walk *w, const Link *link) {
    Resumed *r = w->resumed;
    uint32_t source = keep_nearest(w, link->entry);
    uint32_t target = source == NONE ? NONE : follow_edge(w, source, link->object);
    Pair *pairs = target == NONE ? NULL
                                 : room_for(w, r->pairs, r->n_pairs, &r->cap_pairs, sizeof *pairs);
    if (pairs == NULL)
        return;
    r->pairs = pairs;
    r->pairs[r->n_pairs++] = (Pair){source, target};
}

/* Make nodes for what is sealed of a phase that has begun, and follow what refers to anything new. */
void resume_phase(Walk *w, int phase) {
    Resumed *r = w->resumed;
    if (r->retained == NULL)
        return;
    if (phase != PHASE_HIDDEN)
        keep_heavy(w, phase);
    for (size_t i = 0; i < r->n_links && !w->failed; i++)
        if (SEALED_PHASE(&w->seal->entries[r->links[i].entry]) == phase)
            follow_link(w, &r->links[i]);
}

/* Looking at all edges. Objects that are taken to be immutable may have come to refer to something all the
 * same. What nobody seems to refer to is taken to be held by native code; where that has become much, all
 * that is sealed is asked whether it refers to it, and looked at again at the next walk. What native code
 * held then is not asked for again: else a library that keeps some objects would make every second walk
 * look at everything. */

#define UNNAMED_CUTOFFS 4 /* so many times what a row needs may come to be held by native code before that */

static int find_native(PyObject *object, void *argument) {
    Look *look = argument;
    Walk *w = look->walk;
    uint64_t found = find_entry(&w->index, key_of(w, object));
    if (found)
        look->is_boundary |= w->nodes[node_of(found)].phase == PHASE_NATIVE;
    else
        look->is_boundary |= is_doubtful(w, object);
    return 0;
}

static uint64_t new_native_bytes(const Walk *w) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < w->order.count; i++) {
        const Node *node = &w->nodes[w->order.items[i]];
        if (node->phase == PHASE_NATIVE && !(node->flags & NODE_SEALED))
            bytes += node->bytes;
    }
    return bytes;
}

static void look_at_all(Walk *w) {
    Seal *seal = w->seal;
    const Resumed *r = w->resumed;
    begin_phase(w, PHASE_LIBRARY); /* as whose edges these count */
    for (uint32_t i = 0; i < seal->count; i++) {
        Sealed *sealed = &seal->entries[i];
        int phase = SEALED_PHASE(sealed);
        if (sealed->word == 0 || !has_bit(r->seen, i) || has_bit(r->borrowed, i) ||
            (phase != PHASE_LIBRARY && phase != PHASE_OTHER))
            continue;
        PyObject *object = SEALED_OBJECT(sealed);
        Look look = {.walk = w, .entry = i};
        if (Py_TYPE(object)->tp_traverse != NULL && PyObject_IS_GC(object))
            Py_TYPE(object)->tp_traverse(object, find_native, &look);
        sealed->word |= look.is_boundary ? SEALED_BOUNDARY : 0;
    }
}

/* Say whether what native code seems to hold may be sealed as such. */
int seals_native(const Walk *w) { return !w->resumed || !w->resumed->looks_at_all; }

static void question_native(Walk *w) {
    Seal *seal = w->seal;
    uint64_t bytes = seal->native_bytes + new_native_bytes(w);
    if (seal->asked_bytes > bytes)
        seal->asked_bytes = bytes;
    uint64_t more = bytes - seal->asked_bytes;
    int is_much = more >= UNNAMED_CUTOFFS * w->request.cutoff && !seal->has_looked_at_all;
    seal->has_looked_at_all = w->resumed->looks_at_all = is_much;
    if (is_much) {
        look_at_all(w);
        seal->native_bytes = 0;
        seal->asked_bytes = bytes;
    }
}

void walk_resumed(Walk *w) {
    size_t base = w->n_nodes;
    sweep(w);
    forget_freed(w);
    look_at_changed(w);
    forget_orphans(w);
    size_t count = w->n_nodes - base;
    if (w->failed)
        return;
    sum_sealed(w);
    sort_links(w);
    walk_library(w);
    walk_waiting(w, PHASE_BARRIER, PHASE_OTHER);
    walk_waiting(w, PHASE_HIDDEN, PHASE_HIDDEN);
    hide_parts(w);
    walk_unreached(w, base, count);
    question_native(w);
    finish_resumed(w);
}

/* The end: what the nodes of sealed objects weigh, and to which they lead. */

static int weigh_kept(Walk *w) {
    Resumed *r = w->resumed;
    const Seal *seal = w->seal;
    r->n_places = w->n_nodes;
    r->places = fresh(w, w->n_nodes + 1, 4);
    r->named = fresh(w, r->kept_nodes.count + 1, 8);
    uint32_t *namers = fresh(w, seal->count, 4);
    if (!r->places || !r->named || !namers) {
        drop(w, namers);
        return -1;
    }
    for (size_t i = 0; i < r->kept_nodes.count; i++)
        r->places[r->kept_nodes.items[i]] = (uint32_t)i + 1;
    for (uint32_t i = 0; i < seal->count; i++) {
        const Sealed *sealed = &seal->entries[i];
        int is_root = (sealed->word & SEALED_ROOT_FLAG) || sealed->word == 0;
        namers[i] = r->nodes[i] ? r->nodes[i] : is_root ? 0 : namers[sealed->parent];
        if (r->nodes[i] == 0 && sealed->dominator != NONE)
            r->nodes[i] = r->nodes[sealed->dominator];
        if (sealed->word == 0 || has_bit(r->borrowed, i))
            continue;
        if (r->nodes[i])
            w->nodes[r->nodes[i] - 1].bytes += sealed->bytes;
        if (namers[i])
            r->named[r->places[namers[i] - 1] - 1] += sealed->bytes;
    }
    drop(w, namers);
    return 0;
}

uint64_t named_bytes(const Walk *w, uint32_t number) {
    return w->resumed->named[w->resumed->places[number] - 1];
}

uint32_t entry_of(const Walk *w, uint32_t number) {
    const Resumed *r = w->resumed;
    uint32_t place = r && r->places && number < r->n_places ? r->places[number] : 0;
    return place ? r->kept_entries.items[place - 1] : NONE;
}

/* Say whether the name of a sealed object may be another than it was: something that leads to it changed. */
int is_renamed(const Walk *w, uint32_t entry) {
    const Seal *seal = w->seal;
    while (seal->entries[entry].word && !(seal->entries[entry].word & SEALED_ROOT_FLAG)) {
        entry = seal->entries[entry].parent;
        if (has_bit(w->resumed->changed, entry))
            return 1;
    }
    return 0;
}

void note_kept(const Walk *w, uint32_t *entries) {
    const Resumed *r = w->resumed;
    for (size_t i = 0; i < r->kept_nodes.count; i++)
        entries[r->kept_nodes.items[i]] = r->kept_entries.items[i] + 1;
}

static void add_pair(Walk *w, uint32_t source, uint32_t target) {
    Resumed *r = w->resumed;
    Pair *pairs = room_for(w, r->pairs, r->n_pairs, &r->cap_pairs, sizeof *pairs);
    if (pairs == NULL)
        return;
    r->pairs = pairs;
    r->pairs[r->n_pairs++] = (Pair){source, target};
}

static int by_source(const void *left, const void *right) {
    const Pair *a = left, *b = right;
    if (a->source != b->source)
        return a->source < b->source ? -1 : 1;
    return a->target < b->target ? -1 : a->target > b->target;
}

/* What dominates a kept node is kept as well: it is one of those that name it. */
static void link_kept(Walk *w) {
    Resumed *r = w->resumed;
    for (size_t i = 0; i < r->kept_nodes.count; i++) {
        uint32_t dominator = w->seal->entries[r->kept_entries.items[i]].dominator;
        uint32_t above = dominator == NONE ? 0 : r->nodes[dominator];
        if (above)
            add_pair(w, above - 1, r->kept_nodes.items[i]);
        else
            push(w, &w->seeds, r->kept_nodes.items[i]);
    }
    if (r->n_pairs)
        qsort(r->pairs, r->n_pairs, sizeof *r->pairs, by_source);
    w->source = NONE;
    for (size_t i = 0; i < r->n_pairs && !w->failed; i++)
        add_edge(w, r->pairs[i].source, r->pairs[i].target);
}

/* Kept nodes come first in the order: nothing else names them. */
static void order_kept(Walk *w) {
    Resumed *r = w->resumed;
    Numbers order = {0};
    for (size_t i = 0; i < r->kept_nodes.count; i++)
        push(w, &order, r->kept_nodes.items[i]);
    for (size_t i = 0; i < w->order.count; i++)
        push(w, &order, w->order.items[i]);
    drop(w, w->order.items);
    w->order = order;
}

void finish_resumed(Walk *w) {
    if (w->failed || weigh_kept(w) < 0)
        return;
    link_kept(w);
    order_kept(w);
}

/* Add what a chosen sealed object keeps alive and that has no node of its own. */
void group_sealed(Walk *w, const Choice *c) {
    const Resumed *r = w->resumed;
    const Seal *seal = w->seal;
    for (uint32_t i = 0; i < seal->count; i++) {
        const Sealed *sealed = &seal->entries[i];
        if (sealed->word == 0 || sealed->dominator == NONE || has_bit(r->kept, i) ||
            !has_bit(r->kept, sealed->dominator) || has_bit(r->borrowed, i))
            continue;
        uint32_t place = c->place[r->nodes[sealed->dominator] - 1];
        if (!(place & CHOSEN))
            continue;
        if (!is_alive(w, i) && !seal->is_static[SEALED_TYPE(sealed)])
            continue; /* its type may be gone with it */
        PyObject *sample = is_alive(w, i) ? SEALED_OBJECT(sealed) : NULL;
        add_kind(w, &c->kinds[PLACE(place)], number_of_type(w, sealed), r->retained[i], sample);
    }
}
