/* A library that allocates by every function there is, and knows exactly what it has live. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>

enum { MOST = 1 << 20, WAYS = 9 };
static struct {
    void *block;
    size_t size;
    int way;
} kept[MOST];
static long number;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *by(int way, size_t size) {
    void *block = NULL;
    switch (way) {
    case 0:
        return malloc(size);
    case 1:
        return calloc(4, size / 4);
    case 2:
        return realloc(NULL, size);
    case 3:
        return reallocarray(NULL, 2, size / 2);
    case 4:
        return aligned_alloc(64, size);
    case 5:
        return memalign(128, size);
    case 6:
        return posix_memalign(&block, 256, size) == 0 ? block : NULL;
    case 7:
        return valloc(size);
    default:
        block = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return block == MAP_FAILED ? NULL : block;
    }
}

static void let_go(long which) {
    if (kept[which].way == 8)
        munmap(kept[which].block, kept[which].size);
    else
        free(kept[which].block);
    kept[which] = kept[--number];
}

long leak(int way, long blocks, size_t size) {
    for (long i = 0; i < blocks && number < MOST; i++, number++) {
        kept[number].block = by(way, size);
        kept[number].size = size;
        kept[number].way = way;
    }
    return number;
}

long live_bytes(void) {
    long sum = 0;
    for (long i = 0; i < number; i++)
        sum += (long)kept[i].size;
    return sum;
}

void release(long but) {
    while (number > but)
        let_go(number - 1);
}

/* Resize all blocks that can be. */
void resize_all(size_t size) {
    for (long i = 0; i < number; i++)
        if (kept[i].way != 8) {
            kept[i].block = realloc(kept[i].block, size);
            kept[i].size = size;
        }
}

int resize_fails(void) {
    void *same = realloc(kept[0].block, SIZE_MAX / 4);
    return same == NULL;
}

static uint64_t chance;

static uint64_t next(void) {
    chance ^= chance << 13;
    chance ^= chance >> 7;
    return chance ^= chance << 17;
}

/* Small blocks for the most part, some of a hundred times the size; they come and go. */
static void *at_random(void *steps) {
    for (long i = 0; i < (long)steps; i++) {
        if (number > 0 && next() % 5 < 2) {
            let_go((long)(next() % (uint64_t)number));
        } else if (number > 0 && next() % 8 == 0 && kept[0].way != 8) {
            size_t size = 16 + next() % 4000;
            kept[0].block = realloc(kept[0].block, size);
            kept[0].size = size;
        } else {
            size_t size = (16 + next() % 2000) * (next() % 50 == 0 ? 100 : 1) / 8 * 8;
            leak((int)(next() % 7), 1, size);
        }
    }
    return NULL;
}

/* In a thread of its own, where nothing else allocates. */
void churn(uint64_t seed, long steps) {
    pthread_t thread;
    chance = seed | 1;
    pthread_create(&thread, NULL, at_random, (void *)steps);
    pthread_join(thread, NULL);
}

/* Blocks that go from thread to thread: whoever has the lock frees what others allocated. */
static void *exchange(void *steps) {
    static void *shared[512];
    unsigned x = (unsigned)(uintptr_t)&steps;
    for (long i = 0; i < (long)steps; i++) {
        void *mine = malloc(8 + (x = x * 1664525u + 1013904223u) % 300);
        memset(mine, 1, 8);
        pthread_mutex_lock(&lock);
        void *theirs = shared[x >> 16 & 511];
        shared[x >> 16 & 511] = mine;
        pthread_mutex_unlock(&lock);
        free(theirs);
    }
    pthread_mutex_lock(&lock);
    for (int i = 0; i < 512; i++) {
        free(shared[i]);
        shared[i] = NULL;
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

void threads(int how_many, long steps) {
    pthread_t made[64];
    for (int i = 0; i < how_many; i++)
        pthread_create(&made[i], NULL, exchange, (void *)steps);
    for (int i = 0; i < how_many; i++)
        pthread_join(made[i], NULL);
}

/* So many bytes through few blocks. */
void turn_over(long bytes, size_t size) {
    static void *ring[64];
    for (long done = 0, i = 0; done < bytes; done += (long)size, i++) {
        free(ring[i & 63]);
        ring[i & 63] = malloc(size);
    }
    for (int i = 0; i < 64; i++) {
        free(ring[i]);
        ring[i] = NULL;
    }
}

/* A handler that maps and unmaps strikes wherever the program is, in malloc and in the sampler. */
static volatile sig_atomic_t struck;

static void strike(int signal) {
    (void)signal;
    struck++;
    void *made = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(made, 1 << 16);
}

int interrupted(long bytes, size_t size) {
    struct sigaction action = {.sa_handler = strike, .sa_flags = SA_RESTART}, before;
    struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    sigaction(SIGALRM, &action, &before);
    setitimer(ITIMER_REAL, &often, NULL);
    turn_over(bytes, size);
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &before, NULL);
    return struck;
}

/* Mappings in parts. */
static char *mapped;

long map_parts(size_t page) {
    mapped = mmap(NULL, 64 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(mapped, 4 * page);              /* its begin */
    munmap(mapped + 60 * page, 4 * page);  /* its end */
    munmap(mapped + 20 * page, 10 * page); /* its middle */
    return (long)(46 * page);
}

long map_over(size_t page) { /* a hole is made in what is left behind by mapping over it */
    mmap(mapped + 40 * page, 10 * page, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    return (long)(36 * page);
}

void unmap_parts(size_t page) {
    munmap(mapped, 64 * page);
}

long map_again(size_t page) {
    mapped = mmap(NULL, 16 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mapped = mremap(mapped, 16 * page, 48 * page, MREMAP_MAYMOVE);
    return (long)(48 * page);
}

void unmap_again(size_t page) {
    munmap(mapped, 48 * page);
}

/* What isn't this process's memory. */
void *reserve(size_t size) {
    return mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

void *share(size_t size) {
    return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

void unmap(void *begin, size_t size) {
    munmap(begin, size);
}

void *(*kept_malloc)(size_t) = malloc; /* filled in by a relocation, as calls are */

void *pointer_to_malloc(void) {
    return (void *)malloc;
}

/* A library that is found by the run path of this one alone. */
int opens_its_neighbour(void) {
    void *library = dlopen("libneighbour.so", RTLD_NOW);
    return library != NULL && dlsym(library, "neighbour") != NULL;
}
