/* The live samples: records without holes, and a table in which a free finds its own by address.
 *
 * Nothing here waits for anybody. A record belongs to who has taken it from the list of free ones,
 * then to who has taken its key out of the table; of two that try, one succeeds.
 */
#include "sampling.h"

#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A key is an address (47 bits, a multiple of 8) and the number of its record (20 bits). It lies in
   one of two buckets that its address chooses, each a cache line: so a look-up is bounded, and a
   place that becomes free is simply empty. */
enum { SLOTS = 8, BUCKET_BITS = 13, NUMBER_BITS = 20 };
#define HIGHEST ((uintptr_t)1 << 47)

typedef _Atomic uint64_t Key;

Counts counts;
Sample *samples;
unsigned char neighbourhoods[NEIGHBOURHOODS] __attribute__((aligned(4096)));
static Key *keys;
static atomic_uint fresh = 1; /* the first record that never was in use */
static _Atomic uint64_t unused; /* the free list: a number and, above it, how often it changed */
static atomic_int live;

typedef struct {
    uintptr_t begin, end;
    uint32_t number;
} Mapped;

static Mapped *mappings;
static atomic_int mappings_held;
static unsigned mappings_used;

#define KEYS_BYTES (sizeof(Key) * SLOTS << BUCKET_BITS)
#define SAMPLES_BYTES (sizeof(Sample) * (MOST_SAMPLES + 1))
#define MAPPINGS_BYTES (sizeof(Mapped) * MOST_MAPPINGS)

/* Own memory */

enum { MOST_OWN = 16 };
static struct {
    void *begin;
    size_t size;
} own[MOST_OWN];
static int owned;

void *own_mapping(size_t size) {
    if (owned == MOST_OWN)
        return NULL;
    void *made = mmap(NULL, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED)
        return NULL;
    own[owned].begin = made;
    own[owned++].size = size;
    return made;
}

static size_t resident(void *begin, size_t size) {
    static unsigned char pages[1 << 13];
    size_t page = (size_t)sysconf(_SC_PAGESIZE), total = 0;
    for (size_t at = 0; at < size; at += sizeof pages * page) {
        size_t length = size - at < sizeof pages * page ? size - at : sizeof pages * page;
        if (mincore((char *)begin + at, length, pages) != 0)
            return total;
        for (size_t i = 0; i < (length + page - 1) / page; i++)
            total += pages[i] & 1 ? page : 0;
    }
    return total;
}

/* Called with the GIL held, one caller at a time. */
size_t own_resident(void) {
    size_t total = resident(neighbourhoods, sizeof neighbourhoods) +
                   resident(near_blocks, NEIGHBOURHOODS);
    for (int i = 0; i < owned; i++)
        total += resident(own[i].begin, own[i].size);
    return total;
}

int samples_ready(void) {
    if (!keys)
        keys = own_mapping(KEYS_BYTES);
    if (!samples)
        samples = own_mapping(SAMPLES_BYTES);
    if (!mappings)
        mappings = own_mapping(MAPPINGS_BYTES);
    return keys && samples && mappings;
}

/* Records */

uint32_t samples_used(void) {
    unsigned used = atomic_load(&fresh) - 1;
    return used < MOST_SAMPLES ? used : MOST_SAMPLES;
}

uint32_t samples_live(void) {
    int now = atomic_load(&live);
    return now > 0 ? (uint32_t)now : 0;
}

uint32_t sample_claim(void) {
    uint64_t head = atomic_load(&unused);
    while ((uint32_t)head != 0) {
        /* Somebody else may have taken it meanwhile and written its `next`: then the head, which
           counts its changes, is another one. */
        uint32_t next = __atomic_load_n(&samples[(uint32_t)head].next, __ATOMIC_RELAXED);
        uint64_t changed = ((head >> 32) + 1) << 32 | next;
        if (atomic_compare_exchange_weak(&unused, &head, changed))
            return (uint32_t)head;
    }
    if (atomic_load(&fresh) > MOST_SAMPLES)
        return 0;
    unsigned number = atomic_fetch_add(&fresh, 1);
    return number <= MOST_SAMPLES ? number : 0;
}

void sample_release(uint32_t number) {
    Sample *sample = &samples[number];
    atomic_fetch_add(&sample->version, 1);
    sample->live = 0;
    atomic_fetch_add(&sample->version, 1);
    uint64_t head = atomic_load(&unused), changed;
    do {
        __atomic_store_n(&sample->next, (uint32_t)head, __ATOMIC_RELAXED);
        changed = ((head >> 32) + 1) << 32 | number;
    } while (!atomic_compare_exchange_weak(&unused, &head, changed));
}

int sample_copy(uint32_t number, Sample *into) {
    Sample *sample = &samples[number];
    unsigned before = atomic_load(&sample->version);
    if (before & 1 || !sample->live)
        return 0;
    memcpy(into, sample, sizeof *into);
    atomic_thread_fence(memory_order_acquire);
    return atomic_load(&sample->version) == before && into->live;
}

/* Neighbourhoods. A count that has reached the top stays there: that costs look-ups, no sample. */

static void neighbour_came(uintptr_t address) {
    unsigned char *count = &neighbourhoods[neighbourhood(address)];
    unsigned char now = __atomic_load_n(count, __ATOMIC_RELAXED);
    while (now != 255 && !__atomic_compare_exchange_n(count, &now, now + 1, 1, __ATOMIC_SEQ_CST,
                                                      __ATOMIC_RELAXED))
        ;
}

static void neighbour_went(uintptr_t address) {
    unsigned char *count = &neighbourhoods[neighbourhood(address)];
    unsigned char now = __atomic_load_n(count, __ATOMIC_RELAXED);
    while (now != 255 && now != 0 &&
           !__atomic_compare_exchange_n(count, &now, now - 1, 1, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED))
        ;
}

/* The table */

static void buckets_of(uintptr_t address, Key *found[2]) {
    uint64_t mixed = (address >> 3) * UINT64_C(0xD6E8FEB86659FD93);
    uint64_t again = (mixed ^ mixed >> 29) * UINT64_C(0xBF58476D1CE4E5B9);
    found[0] = &keys[(mixed >> (64 - BUCKET_BITS)) * SLOTS];
    found[1] = &keys[(again >> (64 - BUCKET_BITS)) * SLOTS];
}

static uint64_t key_of(uintptr_t address, uint32_t number) {
    return (uint64_t)(address >> 3) << NUMBER_BITS | number;
}

static uint32_t taken_out(uintptr_t address) {
    Key *buckets[2];
    buckets_of(address, buckets);
    for (int b = 0; b < 2; b++)
        for (int i = 0; i < SLOTS; i++) {
            uint64_t key = atomic_load_explicit(&buckets[b][i], memory_order_acquire);
            if (key == 0 || key >> NUMBER_BITS != address >> 3)
                continue;
            if (atomic_compare_exchange_strong(&buckets[b][i], &key, 0))
                return (uint32_t)(key & ((1u << NUMBER_BITS) - 1));
        }
    return 0;
}

static int taken_in(uintptr_t address, uint32_t number) {
    Key *buckets[2];
    buckets_of(address, buckets);
    for (int i = 0; i < SLOTS; i++)
        for (int b = 0; b < 2; b++) {
            uint64_t empty = 0;
            if (atomic_load_explicit(&buckets[b][i], memory_order_relaxed) == 0 &&
                atomic_compare_exchange_strong(&buckets[b][i], &empty, key_of(address, number)))
                return 1;
        }
    return 0;
}

uint32_t sample_withdraw(uintptr_t address) {
    if (address >= HIGHEST || address & 7)
        return 0;
    uint32_t number = taken_out(address);
    if (number != 0) {
        neighbour_went(address);
        atomic_fetch_sub(&live, 1);
    }
    return number;
}

int sample_find(uintptr_t address, Sample *into) {
    Key *buckets[2];
    buckets_of(address, buckets);
    for (int b = 0; address < HIGHEST && !(address & 7) && b < 2; b++)
        for (int i = 0; i < SLOTS; i++) {
            uint64_t key = atomic_load_explicit(&buckets[b][i], memory_order_acquire);
            if (key != 0 && key >> NUMBER_BITS == address >> 3)
                return sample_copy((uint32_t)(key & ((1u << NUMBER_BITS) - 1)), into) &&
                       into->address == address;
        }
    return 0;
}

static int mapping_published(uint32_t number);

int sample_publish(uint32_t number) {
    Sample *sample = &samples[number];
    int published = 0;
    if (sample->kind == MAPPING)
        published = mapping_published(number);
    else if (sample->address < HIGHEST && !(sample->address & 7)) {
        /* An address that is found already was freed by somebody whose calls aren't seen. */
        uint32_t stale = sample_withdraw(sample->address);
        if (stale != 0) {
            sample_release(stale);
            atomic_fetch_add(&counts.unseen_frees, 1);
        }
        neighbour_came(sample->address); /* before anybody can free it */
        published = taken_in(sample->address, number);
        if (!published)
            neighbour_went(sample->address);
    }
    if (published)
        atomic_fetch_add(&live, 1);
    else
        sample_release(number);
    return published;
}

/* Mappings. They come and go by system calls, so that a short list may be searched; parts of them
   may be unmapped. Who can't have the list soon gives up rather than wait. */

static int mappings_hold(void) {
    for (int tries = 0; atomic_exchange(&mappings_held, 1); tries++) {
        if (tries == 10000)
            return 0;
        if (tries % 100 == 99)
            sched_yield();
    }
    return 1;
}

static void mappings_let_go(void) {
    atomic_store(&mappings_held, 0);
}

static int mapping_published(uint32_t number) {
    int has_room = 0;
    if (!mappings_hold())
        return 0;
    if (mappings_used < MOST_MAPPINGS) {
        Sample *sample = &samples[number];
        mappings[mappings_used++] =
            (Mapped){sample->address, sample->address + sample->size, number};
        has_room = 1;
    }
    mappings_let_go();
    return has_room;
}

static void resize(uint32_t number, uintptr_t begin, uintptr_t end) {
    Sample *sample = &samples[number];
    atomic_fetch_add(&sample->version, 1);
    sample->address = begin;
    sample->size = end - begin;
    atomic_fetch_add(&sample->version, 1);
}

static uint32_t copied_record(uint32_t number) {
    uint32_t other = sample_claim();
    if (other != 0) {
        Sample *into = &samples[other];
        atomic_fetch_add(&into->version, 1);
        uint32_t from = offsetof(Sample, address);
        memcpy((char *)into + from, (char *)&samples[number] + from, sizeof *into - from);
        atomic_fetch_add(&into->version, 1);
    }
    return other;
}

/* The tail of a mapping in whose middle a hole was made. */
static void split_off(Mapped mapping, uintptr_t begin) {
    uint32_t number = mappings_used < MOST_MAPPINGS ? copied_record(mapping.number) : 0;
    if (number == 0) {
        atomic_fetch_add(&counts.dropped, 1);
        return;
    }
    mappings[mappings_used++] = (Mapped){begin, mapping.end, number};
    resize(number, begin, mapping.end);
    atomic_fetch_add(&live, 1);
}

void mapping_removed(uintptr_t begin, uintptr_t end) {
    if (__atomic_load_n(&mappings_used, __ATOMIC_RELAXED) == 0 || !mappings_hold())
        return;
    for (unsigned i = 0; i < mappings_used;) {
        Mapped *mapping = &mappings[i];
        if (end <= mapping->begin || begin >= mapping->end) {
            i++;
            continue;
        }
        if (begin <= mapping->begin && end >= mapping->end) {
            sample_release(mapping->number);
            atomic_fetch_sub(&live, 1);
            *mapping = mappings[--mappings_used];
            continue;
        }
        if (begin > mapping->begin && end < mapping->end)
            split_off(*mapping, end);
        if (begin > mapping->begin)
            mapping->end = begin;
        else
            mapping->begin = end;
        resize(mapping->number, mapping->begin, mapping->end);
        i++;
    }
    mappings_let_go();
}

int mapping_moved(uintptr_t from, uintptr_t to, size_t size) {
    int found = 0;
    if (__atomic_load_n(&mappings_used, __ATOMIC_RELAXED) == 0 || !mappings_hold())
        return 0;
    for (unsigned i = 0; i < mappings_used && !found; i++)
        if (mappings[i].begin == from) {
            mappings[i].begin = to;
            mappings[i].end = to + size;
            resize(mappings[i].number, to, to + size);
            found = 1;
        }
    mappings_let_go();
    return found;
}

void samples_after_fork(void) {
    mappings_let_go(); /* whoever had it doesn't exist here */
}

/* With no wrapper in place, or in none that chooses: what is withdrawn is not counted by anybody. */

static void withdraw_number(uint32_t number, const Sample *known) {
    if (known->kind == MAPPING) {
        if (!mappings_hold())
            return;
        for (unsigned i = 0; i < mappings_used; i++)
            if (mappings[i].number == number) {
                mappings[i] = mappings[--mappings_used];
                sample_release(number);
                atomic_fetch_sub(&live, 1);
                break;
            }
        mappings_let_go();
        return;
    }
    uint32_t withdrawn = sample_withdraw(known->address);
    if (withdrawn != 0) /* if it was freed meanwhile, another one that came to lie there */
        sample_release(withdrawn);
}

void samples_clear(void) {
    Sample known;
    for (uint32_t number = 1; number <= samples_used(); number++)
        if (sample_copy(number, &known))
            withdraw_number(number, &known);
}

/* What would have been chosen with the longer interval, had it been in force from the beginning. */
void samples_thin(double (*random)(void), double interval) {
    Sample known;
    for (uint32_t number = 1; number <= samples_used(); number++) {
        if (!sample_copy(number, &known) || known.interval >= interval)
            continue;
        double size = (double)known.drawn;
        double was = known.interval > 0 ? -__builtin_expm1(-size / known.interval) : 1.0;
        double is = -__builtin_expm1(-size / interval);
        if (random() * was < is) {
            Sample *sample = &samples[number];
            atomic_fetch_add(&sample->version, 1);
            sample->interval = interval;
            atomic_fetch_add(&sample->version, 1);
        } else {
            withdraw_number(number, &known);
            atomic_fetch_add(&counts.thinned, 1);
        }
    }
}
