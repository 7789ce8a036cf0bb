/* A decoder that keeps a buffer per stream, as libraries in C do: whoever opens must close. */
#include <stdlib.h>
#include <string.h>

typedef struct {
    size_t size;
    char *pixels;
} Decoder;

Decoder *decoder_open(size_t size) {
    Decoder *decoder = malloc(sizeof *decoder);
    decoder->size = size;
    decoder->pixels = malloc(size);
    memset(decoder->pixels, 1, size);
    return decoder;
}

long decoder_read(Decoder *decoder) {
    return decoder->pixels[decoder->size / 2];
}

void decoder_close(Decoder *decoder) {
    free(decoder->pixels);
    free(decoder);
}

void *scratch(size_t size) {
    return memset(malloc(size), 1, size);
}

void release(void *block) {
    free(block);
}
