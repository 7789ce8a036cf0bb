/* The seal: what earlier walks found of libraries, and need not walk again.
 *
 * Most of a process are its imports, which never change. Once walked they are sealed: of each object
 * the seal knows where it lies, its type, what it weighs, who names it and who alone keeps it alive.
 * A later walk looks at what is new and at what changed, and adds that to what is sealed.
 *
 * The user's own part is never sealed: it is what changes.
 */
#ifndef LEAKSCOPE_SEAL_H
#define LEAKSCOPE_SEAL_H

#include "walk.h"

#define MOST_SEALED_TYPES 4096
#define SEALED_ROOT (1 << 24) /* numbers of sealed roots begin here */

enum {
    SEALED_MUTABLE = 1,  /* it may come to refer to something else: looked at each time */
    SEALED_BOUNDARY = 2, /* it referred to something that isn't sealed when it was last looked at */
    SEALED_ROOT_FLAG = 4, /* `parent` is the number of its root */
    SEALED_IMMORTAL = 8, /* a static type: the collector doesn't track it, and it is never freed */
};

/* An entry. Parents and dominators come before what they name and keep alive. */
typedef struct {
    uint64_t word; /* address in words (45 bits) | type (12) | phase (3) | flags (4); 0: it is gone */
    uint32_t parent, dominator; /* entries; NONE: the virtual root dominates it */
    uint32_t bytes;             /* its own, with what is folded into it */
    uint32_t checksum;          /* of what it refers to */
} Sealed;

struct Seal {
    Sealed *entries;
    size_t count, capacity;
    uint32_t *slots; /* entry + 1 */
    size_t n_slots;
    uint64_t *tracked; /* bits: whether the collector tracked it at the latest walk */
    size_t n_tracked_words;
    uint32_t *sequence; /* tracked entries in the order in which the collector listed them then */
    size_t n_sequence;
    uint32_t *dicts; /* entries of dicts that weren't tracked when they were sealed, by address */
    size_t n_dicts;
    size_t n_gone;
    uint32_t round; /* which part of the immutable ones has its turn to be looked at */
    uint64_t native_bytes; /* sealed as held by native code alone since all edges were looked at */
    uint64_t asked_bytes; /* what native code alone held when they were, as far as it still does */
    int has_looked_at_all; /* at the walk before */
    uint64_t folded; /* objects that are part of an entry */
    PyTypeObject *types[MOST_SEALED_TYPES];
    uint8_t is_static[MOST_SEALED_TYPES]; /* that type is never freed */
    uint16_t type_slots[2 * MOST_SEALED_TYPES];
    uint32_t n_types;
};

#define ROUNDS 16 /* walks in which every immutable object is looked at once */

#define SEALED_TYPE(e) ((uint32_t)((e)->word >> 7) & (MOST_SEALED_TYPES - 1))
#define SEALED_PHASE(e) ((int)((e)->word >> 4) & 7)
#define SEALED_OBJECT(e) ((PyObject *)(uintptr_t)((e)->word >> 19 << 3))

/* Neighbours in memory are neighbours here. */
static inline size_t sealed_slot(const Seal *seal, uintptr_t address) {
    uint64_t h = (address >> 8) * 0x9E3779B97F4A7C15ull;
    return (((size_t)(h >> 24) & ~(size_t)15) | (size_t)(address >> 4 & 15)) & (seal->n_slots - 1);
}

/* Return the entry of an address; NONE where it has none. */
static inline uint32_t sealed_at(const Seal *seal, uintptr_t address) {
    for (size_t at = sealed_slot(seal, address);; at = (at + 1) & (seal->n_slots - 1)) {
        uint32_t entry = seal->slots[at];
        if (entry == 0)
            return NONE;
        if (seal->entries[entry - 1].word >> 19 == address >> 3)
            return entry - 1;
    }
}

static inline int has_bit(const uint64_t *bits, uint32_t i) { return bits[i >> 6] >> (i & 63) & 1; }
static inline void set_bit(uint64_t *bits, uint32_t i) { bits[i >> 6] |= (uint64_t)1 << (i & 63); }

/* seal.c */
void forget(Seal *seal, uint32_t entry);
int list_dicts(Walk *w, Seal *seal, Numbers *dicts);

/* resume.c */
uint32_t checksum_of(PyObject *object);
void note_kept(const Walk *w, uint32_t *entries);

#endif
