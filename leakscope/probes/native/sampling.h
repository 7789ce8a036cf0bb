/* A sampled profile of native allocations: which blocks of malloc and mmap are live, who asked.
 *
 *   relocations.c   points the loaded libraries' references to malloc and the like at the wrappers
 *   wrappers.c      the wrappers, and the decision which allocation is sampled
 *   samples.c       the live samples and how a free finds its own
 *   blocks.c        the blocks of Python's own allocators, and which lines made them
 *   stacks.c        native and Python frames of a sample
 *   symbols.c       names for addresses, from the files of the libraries
 *   sampling.c      the Python module
 *
 * Rules of everything that a wrapper may reach: no allocation, no lock that anybody else holds, no
 * reference to a Python object, errno as it was. All memory lies in mappings of its own.
 */
#ifndef LEAKSCOPE_SAMPLING_H
#define LEAKSCOPE_SAMPLING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h> /* which asks for all that glibc declares */
#include <features.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#if !defined(__linux__) || !defined(__GLIBC__) || !(defined(__x86_64__) || defined(__aarch64__))
#error "relocations are only known for glibc on x86-64 and AArch64; elsewhere nothing is sampled"
#endif

#define HIDDEN __attribute__((visibility("hidden")))
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)

enum { NATIVE_FRAMES = 32, PYTHON_FRAMES = 4 };
enum { MOST_SAMPLES = 3 << 14 }; /* live ones; beyond two thirds of it they are thinned out */
enum { MOST_MAPPINGS = 4096 };   /* live samples of mmap among them */

typedef enum { BLOCK, MAPPING } Kind;

typedef struct {
    atomic_uint version; /* odd while it is written; a reader compares it before and after */
    uint32_t next;       /* in the list of free records */
    uintptr_t address;
    size_t size;
    size_t drawn; /* its size when it was chosen; a mapping may have been cut or moved since */
    double interval; /* mean of the draw that chose it; 0 where everything is chosen */
    uint32_t kind;
    uint32_t live;
    uint32_t pythons, natives; /* frames of each */
    uint32_t python[PYTHON_FRAMES]; /* numbers of sites, innermost first */
    uintptr_t native[NATIVE_FRAMES]; /* return addresses, innermost first */
} Sample;

typedef struct {
    atomic_ullong taken, dropped, unseen_frees, thinned;
} Counts;

/* samples.c */
extern HIDDEN Counts counts;
extern HIDDEN Sample *samples;
extern HIDDEN unsigned char neighbourhoods[];
HIDDEN int samples_ready(void);
HIDDEN uint32_t samples_used(void);   /* records that ever were in use: 1 to this number */
HIDDEN uint32_t samples_live(void);
HIDDEN uint32_t sample_claim(void);   /* an unused record, or 0 */
HIDDEN void sample_release(uint32_t number);
HIDDEN int sample_publish(uint32_t number); /* 0 where there is no room, and it was released */
HIDDEN uint32_t sample_withdraw(uintptr_t address);   /* its number, no longer found; or 0 */
HIDDEN int sample_find(uintptr_t address, Sample *into); /* 0 where there is none */
HIDDEN int sample_copy(uint32_t number, Sample *into); /* 0 where it isn't live or is being changed */
HIDDEN void mapping_removed(uintptr_t begin, uintptr_t end);
HIDDEN int mapping_moved(uintptr_t from, uintptr_t to, size_t size);
HIDDEN void samples_after_fork(void);
HIDDEN void samples_clear(void);
HIDDEN void samples_thin(double (*random)(void), double interval);
HIDDEN size_t own_resident(void);
HIDDEN void *own_mapping(size_t size);

/* Blocks that lie near each other share a byte that counts the samples among them, and bytes of a
   whole neighbourhood share a cache line: a free looks at one line, mostly one that it looked at
   just before. */
enum { NEIGHBOURHOOD_BITS = 12, PLACE_BITS = 6, PLACE_SHIFT = 10 };
enum { NEIGHBOURHOODS = 1 << (NEIGHBOURHOOD_BITS + PLACE_BITS) };

static inline size_t neighbourhood(uintptr_t address) {
    uint64_t line = (address >> (PLACE_SHIFT + PLACE_BITS)) * UINT64_C(0x9E3779B97F4A7C15) >>
                    (64 - NEIGHBOURHOOD_BITS);
    return line << PLACE_BITS | (address >> PLACE_SHIFT & ((1 << PLACE_BITS) - 1));
}

static inline int may_be_sampled(const void *block) {
    return __atomic_load_n(&neighbourhoods[neighbourhood((uintptr_t)block)], __ATOMIC_RELAXED) != 0;
}

/* wrappers.c */
typedef struct {
    const char *name;
    void *wrapper;
    void **real;
    void *stub; /* what the program's own address of it is, where that is a stub of its own */
} Hook;
extern HIDDEN Hook hooks[];
extern HIDDEN atomic_int sampling; /* whether allocations are chosen; frees are always followed */
HIDDEN void wrappers_start(double interval, uint64_t seed);
HIDDEN int wrappers_are_reached(void);
HIDDEN void wrappers_stop(void);
HIDDEN double interval_in_force(void);
HIDDEN int faulted(void); /* whether a fault of its own has switched it off */
HIDDEN void fault_next(void);
HIDDEN double uniform(void); /* above 0, up to 1 */
HIDDEN void guarded(void (*work)(void *), void *argument); /* once a thread; a fault ends sampling */
HIDDEN int keep_quiet(int quiet); /* this thread's allocations aren't sampled; returns what it was */

/* blocks.c */
extern HIDDEN unsigned char near_blocks[];
HIDDEN int blocks_ready(void);
HIDDEN void blocks_start(double interval);
HIDDEN void blocks_update(void);
HIDDEN void blocks_stop(void);
HIDDEN void blocks_after_fork(void);
HIDDEN PyObject *blocks_of(PyObject *module, PyObject *arguments);
HIDDEN PyObject *blocks_live(PyObject *module, PyObject *nothing);
HIDDEN PyObject *blocks_state(void);

/* relocations.c */
typedef struct {
    unsigned libraries, slots; /* looked through; entries that were exchanged */
    unsigned refused, foreign; /* entries that couldn't be, and that hold what we don't know */
    unsigned lost;             /* how often somebody had exchanged them since */
} Patched;
extern HIDDEN Patched patched;
HIDDEN const char *relocations_resolve(void); /* NULL, or why nothing can be sampled here */
HIDDEN const char *allocator_file(void);
HIDDEN void relocations_update(int all);
HIDDEN void relocations_restore(void);
HIDDEN int unwinder_is_safe(void);
HIDDEN void relocations_after_fork(void);

/* stacks.c */
HIDDEN int stacks_ready(void);
HIDDEN void stacks_fill(Sample *sample, void *caller, void *frame);
HIDDEN void stacks_after_fork(void);
typedef enum { LIBRARY, STANDARD, WRAPPER, OWN, USER, IMPORT } Origin;
HIDDEN Origin stacks_users(Sample *sample);
HIDDEN int origin_add(const char *prefix, Origin origin);
HIDDEN void origins_clear(void);
typedef struct {
    const char *file, *function;
    int line;
    Origin origin;
} Place;
HIDDEN int site_place(uint32_t site, Place *place);
HIDDEN uint32_t sites_known(void);

/* sampling.c */
HIDDEN PyObject *sites_tuple(const uint32_t *sites, uint32_t number);

/* symbols.c */
HIDDEN PyObject *symbols_of(PyObject *module, PyObject *arguments);

#endif
