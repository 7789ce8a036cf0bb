/* What libraries call in place of malloc and the like, and which of their allocations is sampled.
 *
 * A thread samples whatever it allocates after a random number of bytes, exponentially distributed
 * with a mean of the interval: a block of some size is chosen with a probability of
 * 1 - exp(-size / interval), however the bytes before it were divided. For all other blocks that is
 * one subtraction.
 */
#include "sampling.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct {
    void *(*malloc)(size_t);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    void *(*reallocarray)(void *, size_t, size_t); /* not called */
    void (*free)(void *);
    void *(*aligned_alloc)(size_t, size_t);
    void *(*memalign)(size_t, size_t);
    int (*posix_memalign)(void **, size_t, size_t);
    void *(*valloc)(size_t);
    void *(*pvalloc)(size_t);
    void *(*mmap)(void *, size_t, int, int, int, off_t);
    void *(*mmap64)(void *, size_t, int, int, int, off64_t);
    int (*munmap)(void *, size_t);
    void *(*mremap)(void *, size_t, size_t, int, ...);
} real;

atomic_int sampling;

/* The draw of a thread. What it was made for is kept with it: an interval that changes meanwhile
   applies from the next one on. Libraries that are loaded later share some hundred bytes for such
   variables with us: there is none that isn't needed. */
static __thread struct {
    uint64_t left; /* bytes that are not chosen yet */
    uint64_t random;
    double interval;
    unsigned epoch; /* in which it was drawn; 0 before the first */
    int busy;       /* our own code runs, perhaps below a signal handler */
    sigjmp_buf *way_out; /* where a fault in it leads */
} local __attribute__((tls_model("initial-exec")));

static double interval;
static atomic_uint epoch; /* every start is another one */
static atomic_ullong seed;
static atomic_int faults, fault_wanted, thinning;

/* Chance */

static uint64_t scrambled(uint64_t x) {
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

double uniform(void) {
    if (local.random == 0)
        local.random = scrambled(atomic_fetch_add(&seed, 0x632BE59BD9B4E019)) | 1;
    local.random ^= local.random << 13;
    local.random ^= local.random >> 7;
    local.random ^= local.random << 17;
    return (double)((local.random * UINT64_C(0x2545F4914F6CDD1D) >> 11) + 1) * 0x1p-53;
}

static void draw(void) {
    unsigned now = atomic_load_explicit(&epoch, memory_order_relaxed);
    if (local.epoch != now)
        local.random = 0; /* so that a seed decides about a run */
    local.epoch = now;
    local.interval = interval;
    double bytes = -log(uniform()) * interval;
    local.left = bytes < 0x1p62 ? (uint64_t)bytes : UINT64_C(1) << 62;
}

double interval_in_force(void) {
    return interval;
}

int keep_quiet(int quiet) {
    int was = local.busy;
    local.busy = quiet;
    return was;
}

/* Faults. A sample reads the stack and what libraries say about it. Should that fault, the handler
   ends it, and sampling with it; any other fault goes on to what the process does about it. There
   is a handler only where the process has none: else faults take their course. */

enum { SIGNALS = 2 };
static const int signals[SIGNALS] = {SIGSEGV, SIGBUS};
static int handled[SIGNALS];

static void on_fault(int number, siginfo_t *info, void *context) {
    (void)context;
    if (local.way_out != NULL) {
        sigjmp_buf *way_out = local.way_out;
        local.way_out = NULL;
        siglongjmp(*way_out, 1);
    }
    struct sigaction fallback = {.sa_handler = SIG_DFL};
    sigaction(number, &fallback, NULL);
    if (info->si_code <= 0) /* somebody sent it: nothing faults again by itself */
        raise(number);
}

static void faults_guard(void) {
    for (int i = 0; i < SIGNALS; i++) {
        struct sigaction now, ours = {.sa_sigaction = on_fault};
        ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
        sigemptyset(&ours.sa_mask);
        if (sigaction(signals[i], NULL, &now) == 0 && !(now.sa_flags & SA_SIGINFO) &&
            now.sa_handler == SIG_DFL)
            handled[i] = sigaction(signals[i], &ours, NULL) == 0;
    }
}

static void faults_unguard(void) {
    for (int i = 0; i < SIGNALS; i++) {
        struct sigaction now, before = {.sa_handler = SIG_DFL};
        if (handled[i] && sigaction(signals[i], NULL, &now) == 0 && now.sa_flags & SA_SIGINFO &&
            now.sa_sigaction == on_fault)
            sigaction(signals[i], &before, NULL);
        handled[i] = 0;
    }
}

int faulted(void) {
    return atomic_load(&faults) != 0;
}

void fault_next(void) {
    atomic_store(&fault_wanted, 1);
}

void guarded(void (*work)(void *), void *argument) {
    sigjmp_buf way_out;
    if (local.busy)
        return;
    local.busy = 1;
    if (sigsetjmp(way_out, 0) == 0) {
        local.way_out = &way_out;
        work(argument);
    } else {
        atomic_store(&sampling, 0);
        atomic_fetch_add(&faults, 1);
    }
    local.way_out = NULL;
    local.busy = 0;
}

/* Samples */

/* So many live samples that room becomes short: from now on fewer are taken, and of those that are
   there as many stay as would have been taken. */
static void thin_out(void) {
    if (atomic_exchange(&thinning, 1))
        return;
    interval = interval > 0 ? 2 * interval : 2;
    samples_thin(uniform, interval);
    atomic_store(&thinning, 0);
}

typedef struct {
    void *block;
    size_t size;
    double drawn_for;
    Kind kind;
    void *caller, *frame;
} Allocation;

static void keep(void *argument) {
    Allocation *made = argument;
    if (UNLIKELY(samples_live() > MOST_SAMPLES / 3 * 2))
        thin_out();
    uint32_t number = sample_claim();
    if (number == 0) {
        atomic_fetch_add(&counts.dropped, 1);
        return;
    }
    Sample *sample = &samples[number];
    atomic_fetch_add(&sample->version, 1);
    sample->address = (uintptr_t)made->block;
    sample->size = sample->drawn = made->size;
    sample->interval = made->drawn_for;
    sample->kind = made->kind;
    sample->live = 1;
    if (UNLIKELY(atomic_load_explicit(&fault_wanted, memory_order_relaxed)) &&
        atomic_exchange(&fault_wanted, 0))
        raise(SIGSEGV); /* as a fault does */
    stacks_fill(sample, made->caller, made->frame);
    atomic_fetch_add(&sample->version, 1);
    atomic_fetch_add(sample_publish(number) ? &counts.taken : &counts.dropped, 1);
}

/* Reached where the draw of a thread is used up, which `local.left` no longer tells. */
static __attribute__((noinline, cold)) void chosen(void *block, size_t size, uint64_t left,
                                                   Kind kind, void *caller) {
    int number = errno;
    if (local.epoch != atomic_load_explicit(&epoch, memory_order_relaxed)) {
        draw(); /* what was left is of no draw, or of one that is out of force */
        left = local.left;
        if (size <= left) {
            local.left = left - size;
            errno = number;
            return;
        }
    }
    double drawn_for = local.interval;
    draw();
    if (block != NULL && block != MAP_FAILED && size != 0 &&
        atomic_load_explicit(&sampling, memory_order_relaxed)) {
        Allocation made = {block, size, drawn_for, kind, caller, __builtin_frame_address(0)};
        guarded(keep, &made);
    }
    errno = number;
}

#define CALLER __builtin_return_address(0)
#define ALLOCATED(block, size, kind)                                                               \
    do {                                                                                           \
        uint64_t left_ = local.left;                                                               \
        if (UNLIKELY((size) > left_))                                                              \
            chosen(block, size, left_, kind, CALLER);                                              \
        else                                                                                       \
            local.left = left_ - (size);                                                           \
    } while (0)

static uint32_t withdrawn(void *block) {
    return block != NULL && UNLIKELY(may_be_sampled(block)) ? sample_withdraw((uintptr_t)block) : 0;
}

static void put_back(uint32_t number) {
    if (number != 0 && !sample_publish(number))
        atomic_fetch_add(&counts.dropped, 1);
}

/* Wrappers */

static void *sampled_malloc(size_t size) {
    void *block = real.malloc(size);
    ALLOCATED(block, size, BLOCK);
    return block;
}

static void *sampled_calloc(size_t number, size_t each) {
    void *block = real.calloc(number, each);
    size_t size = block ? number * each : 0; /* can't overflow where it succeeded */
    ALLOCATED(block, size, BLOCK);
    return block;
}

static __attribute__((noinline, cold)) void forget(void *block) {
    uint32_t number = sample_withdraw((uintptr_t)block);
    if (number != 0)
        sample_release(number);
}

static void followed_free(void *block) {
    if (UNLIKELY(may_be_sampled(block)))
        forget(block); /* before somebody else may get the address */
    real.free(block);
}

/* A block that is resized is another one: whether it is sampled is drawn again, for all its bytes,
   so that the probability of its size holds for it too. */
static void *resized(void *block, void *old, size_t size, uint32_t number) {
    if (number != 0) {
        if (block == NULL && old != NULL && size != 0)
            put_back(number);
        else
            sample_release(number);
    }
    return block;
}

static void *sampled_realloc(void *old, size_t size) {
    uint32_t number = withdrawn(old);
    void *block = resized(real.realloc(old, size), old, size, number);
    ALLOCATED(block, size, BLOCK);
    return block;
}

/* By realloc at once: glibc's own calls realloc through an entry that may be exchanged too, and what
   is allocated would have two chances. */
static void *sampled_reallocarray(void *old, size_t count, size_t each) {
    size_t size;
    if (__builtin_mul_overflow(count, each, &size)) {
        errno = ENOMEM;
        return NULL;
    }
    uint32_t number = withdrawn(old);
    void *block = resized(real.realloc(old, size), old, size, number);
    ALLOCATED(block, size, BLOCK);
    return block;
}

static void *sampled_aligned_alloc(size_t alignment, size_t size) {
    void *block = real.aligned_alloc(alignment, size);
    ALLOCATED(block, size, BLOCK);
    return block;
}

static void *sampled_memalign(size_t alignment, size_t size) {
    void *block = real.memalign(alignment, size);
    ALLOCATED(block, size, BLOCK);
    return block;
}

static int sampled_posix_memalign(void **block, size_t alignment, size_t size) {
    int result = real.posix_memalign(block, alignment, size);
    if (result == 0)
        ALLOCATED(*block, size, BLOCK);
    return result;
}

static void *sampled_valloc(size_t size) {
    void *block = real.valloc(size);
    ALLOCATED(block, size, BLOCK);
    return block;
}

static void *sampled_pvalloc(size_t size) {
    void *block = real.pvalloc(size);
    ALLOCATED(block, size, BLOCK);
    return block;
}

/* Of mappings those count that are this process's memory and may be written: neither files, nor
   shared memory, nor address space that is only reserved. */
static int is_own_memory(int protection, int flags) {
    return flags & MAP_ANONYMOUS && (flags & MAP_TYPE) == MAP_PRIVATE && protection & PROT_WRITE;
}

static int pages_unmapped(void *begin, size_t size) {
    static size_t page;
    if (page == 0)
        page = (size_t)sysconf(_SC_PAGESIZE);
    if ((uintptr_t)begin % page || size == 0 || local.busy)
        return 0;
    size = (size + page - 1) / page * page;
    int number = errno;
    local.busy = 1;
    mapping_removed((uintptr_t)begin, (uintptr_t)begin + size);
    local.busy = 0;
    errno = number;
    return 1;
}

#define MAPPED(call)                                                                               \
    do {                                                                                           \
        if (UNLIKELY(flags & MAP_FIXED))                                                           \
            pages_unmapped(wanted, size);                                                          \
        void *made = call;                                                                         \
        if (made != MAP_FAILED && is_own_memory(protection, flags))                                \
            ALLOCATED(made, size, MAPPING);                                                        \
        return made;                                                                               \
    } while (0)

static void *sampled_mmap(void *wanted, size_t size, int protection, int flags, int file, off_t at) {
    MAPPED(real.mmap(wanted, size, protection, flags, file, at));
}

static void *sampled_mmap64(void *wanted, size_t size, int protection, int flags, int file,
                            off64_t at) {
    MAPPED(real.mmap64(wanted, size, protection, flags, file, at));
}

static int followed_munmap(void *begin, size_t size) {
    pages_unmapped(begin, size);
    return real.munmap(begin, size);
}

/* What has grown keeps the probability that it was drawn with, and counts with all its bytes. */
static void *followed_mremap(void *old, size_t old_size, size_t size, int flags, ...) {
    void *wanted = NULL;
    if (flags & MREMAP_FIXED) {
        va_list rest;
        va_start(rest, flags);
        wanted = va_arg(rest, void *);
        va_end(rest);
        pages_unmapped(wanted, size);
    }
    void *made = real.mremap(old, old_size, size, flags, wanted);
    if (made != MAP_FAILED && !local.busy) {
        int number = errno;
        local.busy = 1;
        mapping_moved((uintptr_t)old, (uintptr_t)made, size);
        local.busy = 0;
        errno = number;
    }
    return made;
}

/* dlsym looks its caller up, so it must be left by a jump: what it returns to is still that caller.
   Nothing of a library that was just loaded runs before one of its symbols was looked for, except
   its constructors. dlopen itself stays as it is: the caller decides where it searches. Who asks a
   library by its handle for malloc, as ctypes does, gets the wrapper; there the caller is nothing. */

HIDDEN void *real_dlsym;
HIDDEN void *before_dlsym(void *library, const char *name);
HIDDEN void followed_dlsym(void);

__attribute__((used)) void *before_dlsym(void *library, const char *name) {
    void *instead = NULL;
    if (local.busy || !atomic_load_explicit(&sampling, memory_order_relaxed))
        return NULL;
    int number = errno;
    local.busy = 1;
    relocations_update(0);
    if (library != RTLD_DEFAULT && library != RTLD_NEXT && name != NULL)
        for (Hook *hook = hooks; hook->name != NULL && instead == NULL; hook++)
            if (*hook->real != NULL && strcmp(hook->name, name) == 0 &&
                ((void *(*)(void *, const char *))real_dlsym)(library, name) == *hook->real)
                instead = hook->wrapper;
    local.busy = 0;
    errno = number;
    return instead;
}

#if defined(__x86_64__)
__asm__(".text\n.p2align 4\n.hidden followed_dlsym\n.globl followed_dlsym\n"
        ".type followed_dlsym,@function\nfollowed_dlsym:\n.cfi_startproc\nendbr64\n"
        "push %rdi\n.cfi_adjust_cfa_offset 8\npush %rsi\n.cfi_adjust_cfa_offset 8\n"
        "sub $8,%rsp\n.cfi_adjust_cfa_offset 8\ncall before_dlsym\nadd $8,%rsp\n"
        ".cfi_adjust_cfa_offset -8\npop %rsi\n.cfi_adjust_cfa_offset -8\n"
        "pop %rdi\n.cfi_adjust_cfa_offset -8\ntest %rax,%rax\njne 1f\n"
        "jmp *real_dlsym(%rip)\n1: ret\n.cfi_endproc\n"
        ".size followed_dlsym,.-followed_dlsym\n");
#else
__asm__(".text\n.p2align 4\n.hidden followed_dlsym\n.globl followed_dlsym\n"
        ".type followed_dlsym,%function\nfollowed_dlsym:\n.cfi_startproc\nhint #34\n"
        "stp x0,x1,[sp,#-32]!\n.cfi_adjust_cfa_offset 32\nstr x30,[sp,#16]\n"
        ".cfi_rel_offset x30,16\nbl before_dlsym\nmov x16,x0\nldr x30,[sp,#16]\n"
        "ldp x0,x1,[sp],#32\n.cfi_restore x30\n.cfi_adjust_cfa_offset -32\ncbz x16,1f\n"
        "mov x0,x16\nret\n1: adrp x16,real_dlsym\nldr x16,[x16,:lo12:real_dlsym]\nbr x16\n"
        ".cfi_endproc\n.size followed_dlsym,.-followed_dlsym\n");
#endif

#define HOOK(name, wrapper) {#name, (void *)(wrapper), (void **)&real.name, NULL}
Hook hooks[] = {
    HOOK(malloc, sampled_malloc),
    HOOK(free, followed_free),
    HOOK(calloc, sampled_calloc),
    HOOK(realloc, sampled_realloc),
    HOOK(reallocarray, sampled_reallocarray),
    HOOK(aligned_alloc, sampled_aligned_alloc),
    HOOK(memalign, sampled_memalign),
    HOOK(posix_memalign, sampled_posix_memalign),
    HOOK(valloc, sampled_valloc),
    HOOK(pvalloc, sampled_pvalloc),
    HOOK(mmap, sampled_mmap),
    HOOK(mmap64, sampled_mmap64),
    HOOK(munmap, followed_munmap),
    HOOK(mremap, followed_mremap),
    {"dlsym", (void *)followed_dlsym, &real_dlsym, NULL},
    {NULL, NULL, NULL, NULL},
};

/* Start and stop */

static void in_child(void) {
    /* A copy of a process that is profiled: its own profile, should it want one, begins anew. */
    atomic_store(&sampling, 0);
    atomic_store(&thinning, 0);
    samples_after_fork();
    relocations_after_fork();
    stacks_after_fork();
    blocks_after_fork();
}

void wrappers_start(double mean, uint64_t first_seed) {
    static int follows_forks;
    if (!follows_forks)
        follows_forks = pthread_atfork(NULL, NULL, in_child) == 0;
    interval = mean;
    atomic_store(&seed, first_seed);
    if (atomic_fetch_add(&epoch, 1) + 1 == 0)
        atomic_fetch_add(&epoch, 1);
    atomic_store(&faults, 0);
    local.left = 0; /* of this thread; others go on with what they drew */
    local.epoch = 0;
    faults_guard();
    atomic_store(&sampling, 1);
}

/* Whether what Python allocates comes through here: not where somebody else's wrapper was first. */
int wrappers_are_reached(void) {
    local.left = 0; /* else a small block is counted off and draws nothing */
    local.epoch = 0;
    PyMem_RawFree(PyMem_RawMalloc(64));
    return local.epoch != 0;
}

void wrappers_stop(void) {
    atomic_store(&sampling, 0);
    faults_unguard();
}
