/* Loops that the threads of a parallel region share, each with a part of its own, from which others take what is
   left when theirs is done.

   A loop ends when its iterations are done, not when every thread has come to it: a thread that other programs
   keep from running holds up the rest only while it has begun some iterations, and once at the end of the region.
   A thread that comes later than the others finds nothing to do, and follows. A thread has the same part each
   time, so its weights stay in its cache. */

#ifndef ELMORE_WORK_STEALING_H
#define ELMORE_WORK_STEALING_H

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#include <sched.h>
#else
#define omp_get_thread_num() 0
#define omp_get_num_threads() 1
#define sched_yield() 0
#endif

#include "simd.h"

typedef struct {
    ALIGNED _Atomic int64_t value; /* alone in a cache line */
} counter;

/* A thread in a parallel region, and how far it has come. */
typedef struct {
    counter *done; /* iterations of all loops so far */
    counter *begun; /* for each thread, the number of a loop, and how many iterations of its part have begun */
    int64_t threads, thread;
    int64_t loop; /* the number of the loop that it is in, from 1 on */
    int64_t before; /* iterations of all loops before that one */
} worker;

/* Iterations first, first + step, ..., without `end`. */
typedef struct {
    int64_t first, end, step;
} piece;

/* Every thread runs the same loops with the same `count`; `backwards`, each goes through its part from the end.
   What a loop reads and writes, it reads and writes in iterations. */
#define SHARE(self, n, count, backwards)                                       \
    for (piece some = {0, 0, 1}; next_piece(self, &some, count, backwards);)   \
        for (int64_t n = some.first; n != some.end; n += some.step)

/* How many floats have the size of the counters of so many threads. */
FORCE_INLINE int64_t counters_size(int64_t threads) {
    return (threads + 1) * (int64_t)(sizeof(counter) / sizeof(float));
}

/* Make memory from a cache line on into counters for a parallel region of at most so many threads. */
static counter *clear_counters(void *memory, int64_t threads) {
    return memset(memory, 0, sizeof(float) * (size_t)counters_size(threads));
}

static worker join_team(counter *counters) {
    return (worker){counters, counters + 1, omp_get_num_threads(), omp_get_thread_num(), 1, 0};
}

/* Begin half of what is left of the part of a thread, or all of it if there is one thread. Return how many
   iterations, after how many others. */
static int64_t begin_some(const worker *self, int64_t owner, int64_t size, int64_t *after) {
    enum { LOOP = 32 /* bits for the number of iterations, below that of the loop */ };
    _Atomic int64_t *begun = &self->begun[owner].value;
    int64_t old = atomic_load_explicit(begun, memory_order_relaxed), count;
    do {
        const int64_t loop = old >> LOOP;
        *after = loop == self->loop ? old & UINT32_MAX : 0;
        if (loop > self->loop || *after == size) return 0;
        count = self->threads > 1 ? (size - *after + 1) / 2 : size;
    } while (!atomic_compare_exchange_weak_explicit(begun, &old, self->loop << LOOP | (*after + count),
                                                    memory_order_relaxed, memory_order_relaxed));
    return count;
}

FORCE_INLINE void spin(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

/* Return whether there is another piece; where there is none, wait until those of other threads are done. */
static int next_piece(worker *self, piece *some, int64_t count, int backwards) {
    enum { SPINS = 1000 /* some 50 microseconds on a Xeon: most pieces take less */ };
    _Atomic int64_t *done = &self->done->value;
    if (some->first != some->end)
        atomic_fetch_add_explicit(done, (some->end - some->first) * some->step, memory_order_release);
    for (int64_t i = 0; i < self->threads; i++) {
        const int64_t owner = (self->thread + i) % self->threads;
        const int64_t begin = owner * count / self->threads, end = (owner + 1) * count / self->threads;
        int64_t after;
        const int64_t here = begin < end ? begin_some(self, owner, end - begin, &after) : 0;
        if (!here) continue;
        *some = backwards ? (piece){end - 1 - after, end - 1 - after - here, -1}
                          : (piece){begin + after, begin + after + here, 1};
        return 1;
    }
    self->loop++;
    self->before += count;
    for (int64_t spins = 0; atomic_load_explicit(done, memory_order_acquire) < self->before; spins++)
        if (spins < SPINS)
            spin();
        else
            sched_yield();
    return 0;
}

#endif
