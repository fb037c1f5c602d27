/* A service that says how long its requests take, and a heartbeat of a millisecond: what a process feels of being looked at.
 *
 * notice MEGABYTES RATE: fills a heap of small strings, then answers so many requests a second of itself, each of which allocates,
 * frees and reads all over the heap. A line of standard input ends a turn and prints one of it:
 * requests p50_us p99_us max_us beats beat_p99_us beat_max_us. Times count from when a request was due, so that none is hidden
 * by the one before it.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 96, TOUCHES = 200, SAMPLES = 1 << 20 };

static char **heap;
static size_t chunks;
static uint32_t latency[SAMPLES], beat[SAMPLES];
static atomic_size_t latencies, beats;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void sleep_until(int64_t ns) {
    struct timespec t = {ns / 1000000000, ns % 1000000000};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

static void keep(uint32_t *where, atomic_size_t *count, int64_t ns) {
    size_t at = atomic_load(count);
    if (at < SAMPLES) {
        where[at] = ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns;
        atomic_store(count, at + 1);
    }
}

static char *fresh(uint64_t number) {
    char *text = malloc(CHUNK);
    snprintf(text, CHUNK, "session-%016llx user=somebody path=/api/v1/items state=active", (unsigned long long)number);
    return text;
}

static void *serve(void *rate) {
    int64_t step = 1000000000LL / *(long *)rate, due = now_ns();
    uint64_t dice = 88172645463325252ULL;
    volatile unsigned sum = 0;
    for (;;) {
        due += step;
        sleep_until(due);
        for (int i = 0; i < TOUCHES; i++) {
            dice ^= dice << 13, dice ^= dice >> 7, dice ^= dice << 17;
            sum += (unsigned char)heap[dice % chunks][9];
        }
        size_t at = dice % chunks;
        free(heap[at]);
        heap[at] = fresh(dice);
        keep(latency, &latencies, now_ns() - due);
    }
    return NULL;
}

static void *live(void *unused) {
    (void)unused;
    for (int64_t due = now_ns();;) {
        due += 1000000;
        sleep_until(due);
        keep(beat, &beats, now_ns() - due);
    }
    return NULL;
}

static int by_size(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static double at(const uint32_t *sorted, size_t count, double share) {
    return count ? sorted[(size_t)(share * (double)(count - 1))] / 1e3 : 0;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: notice MEGABYTES RATE\n");
        return 2;
    }
    chunks = (size_t)atol(argv[1]) * 1000000 / CHUNK;
    long rate = atol(argv[2]);
    heap = malloc(chunks * sizeof *heap);
    for (size_t i = 0; i < chunks; i++)
        heap[i] = fresh(i);
    pthread_t a, b;
    pthread_create(&a, NULL, serve, &rate);
    pthread_create(&b, NULL, live, NULL);
    printf("ready\n");
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        size_t n = atomic_exchange(&latencies, 0), m = atomic_exchange(&beats, 0);
        uint32_t *l = malloc((n + 1) * sizeof *l), *h = malloc((m + 1) * sizeof *h);
        memcpy(l, latency, n * sizeof *l), memcpy(h, beat, m * sizeof *h);
        qsort(l, n, sizeof *l, by_size), qsort(h, m, sizeof *h, by_size);
        printf("%zu %.1f %.1f %.1f %zu %.1f %.1f\n", n, at(l, n, .5), at(l, n, .99), at(l, n, 1), m, at(h, m, .99), at(h, m, 1));
        fflush(stdout);
        free(l), free(h);
    }
    return 0;
}
