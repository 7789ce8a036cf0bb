/* A million small blocks a second: each beside some work, a few thousand alive at a time. */
#include <stdlib.h>

static void *kept[4096];

double mallocs(long blocks, long work) {
    double sum = 0;
    unsigned x = 1;
    for (long i = 0; i < blocks; i++) {
        x = x * 1664525u + 1013904223u;
        unsigned place = x >> 16 & 4095;
        free(kept[place]);
        kept[place] = malloc(16 + (x & 255));
        for (long k = 0; k < work; k++)
            sum += (double)(x ^ (unsigned)k) * 1e-9;
    }
    return sum;
}
