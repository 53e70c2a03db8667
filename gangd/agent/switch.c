/* The switch: at an instant, a list of writes to files that are open, then accounts that are read.
 *
 * Everything that is no matter of course is left to the caller, in Python: a lease that is over, a file that a
 * stranger has written, a write that fails. Then gs_run returns, and gs_partial tells how much was done.
 *
 * Before a write that holds, its mark in the ledger is set; after a write that releases, it is taken back; a
 * write that only begins a release leaves it as it is. The lease is looked at before the first write and after
 * the last one. All state is behind one lock, which the caller takes for whatever it does to the same files, and
 * which lends its holder the waiting thread's priority.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { ABI = 3, MOST_ACTS = 64, MOST_READS = 16, MOST_BATCHES = 32, KEPT = 64, EVENTS = 8192 };
enum { KNOWN = 1, HELD = 2 };
enum { BEGINS_RELEASE, RELEASES, HOLDS };
enum { COMMAND = 1, YOURS = 2 };

struct act {
    int32_t fd, what;
    uint32_t length, unused;
    uint8_t *mark;
    char data[16];
};

/* A file that has CPU time: a number of ns, or lines of which that with this word has a number of us. */
struct account {
    int32_t fd, in_lines;
};

struct batch {
    int64_t instant_ns, following_ns;
    int32_t acts, accounts, held_after, unused;
    struct act act[MOST_ACTS];
    struct account account[MOST_READS];
};

struct done {
    int64_t begin_ns, frozen_ns, end_ns;
    int64_t used_ns[MOST_READS]; /* -1: could not be read */
};

struct gs {
    int64_t made, armed_ns;
    volatile int64_t *lease_ns, *paused_ns;
    int timer, command, watch;
    int32_t first, count, partial;
    uint32_t events;
    pthread_mutex_t lock;
    struct done done[KEPT];
    struct batch batch[MOST_BATCHES];
    char event[EVENTS];
};

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

int gs_abi(void) { return ABI; }

struct gs *gs_new(int timer, int command, int watch, int64_t *lease_ns, int64_t *paused_ns) {
    struct gs *gs = calloc(1, sizeof *gs);
    pthread_mutexattr_t attributes;
    if (!gs)
        return 0;
    gs->timer = timer;
    gs->command = command;
    gs->watch = watch;
    gs->lease_ns = lease_ns;
    gs->paused_ns = paused_ns;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&gs->lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
    return gs;
}

void gs_free(struct gs *gs) {
    pthread_mutex_destroy(&gs->lock);
    free(gs);
}

int64_t *gs_made(struct gs *gs) { return &gs->made; }
int64_t *gs_armed(struct gs *gs) { return &gs->armed_ns; }
int32_t *gs_partial(struct gs *gs) { return &gs->partial; }
uint32_t *gs_events(struct gs *gs) { return &gs->events; }
char *gs_event(struct gs *gs) { return gs->event; }
void gs_lock(struct gs *gs) { pthread_mutex_lock(&gs->lock); }
void gs_unlock(struct gs *gs) { pthread_mutex_unlock(&gs->lock); }

static void arm(struct gs *gs, int64_t due_ns) {
    struct itimerspec at = {{0, 0}, {due_ns / 1000000000LL, due_ns % 1000000000LL}};
    gs->armed_ns = due_ns;
    timerfd_settime(gs->timer, TFD_TIMER_ABSTIME, &at, 0); /* 0: does not ring */
}

/* Without the lock, and without waiting for it: whoever has it arms afterwards. */
int gs_arm(struct gs *gs, int64_t due_ns) {
    if (pthread_mutex_trylock(&gs->lock) != 0)
        return 0;
    arm(gs, due_ns);
    pthread_mutex_unlock(&gs->lock);
    return 1;
}

/* What follows is called with the lock held, gs_run excepted. */

void gs_clear(struct gs *gs) { gs->count = gs->partial = 0; }

int gs_push(struct gs *gs, int64_t instant_ns, int64_t following_ns, int held_after, int acts, const void *act,
            int accounts, const void *account) {
    struct batch *batch = &gs->batch[(gs->first + gs->count) % MOST_BATCHES];
    if (gs->count == MOST_BATCHES || acts > MOST_ACTS || accounts > MOST_READS)
        return -1;
    batch->instant_ns = instant_ns;
    batch->following_ns = following_ns;
    batch->held_after = held_after;
    batch->acts = acts;
    memcpy(batch->act, act, acts * sizeof(struct act));
    batch->accounts = accounts;
    memcpy(batch->account, account, accounts * sizeof(struct account));
    gs->count++;
    return 0;
}

void gs_take(struct gs *gs, int64_t number, int64_t *to) { memcpy(to, &gs->done[number % KEPT], sizeof(struct done)); }

static int lease_over(struct gs *gs, int64_t at_ns) { return at_ns >= *gs->lease_ns || at_ns < *gs->paused_ns; }

static int written(struct gs *gs) {
    struct pollfd watch = {gs->watch, POLLIN, 0};
    return gs->watch >= 0 && poll(&watch, 1, 0) != 0;
}

/* Our own writes are told to us, too. Watches that ended are kept for the caller, who counts them. */
static void forget_own(struct gs *gs) {
    char raw[4096] __attribute__((aligned(8)));
    ssize_t length;
    while (gs->watch >= 0 && (length = read(gs->watch, raw, sizeof raw)) > 0)
        for (char *at = raw; at < raw + length;) {
            struct inotify_event *event = (struct inotify_event *)at;
            size_t size = sizeof *event + event->len;
            if (event->mask & IN_IGNORED && gs->events + size <= EVENTS) {
                memcpy(gs->event + gs->events, event, size);
                gs->events += size;
            }
            at += size;
        }
}

static int64_t used_ns(const struct account *account) {
    char text[512], *at = text, *end;
    ssize_t length = pread(account->fd, text, sizeof text - 1, 0);
    int64_t used;
    if (length <= 0)
        return -1;
    text[length] = 0;
    if (account->in_lines && !(at = strstr(text, "usage_usec ")))
        return -1;
    at += account->in_lines ? strlen("usage_usec ") : 0;
    errno = 0;
    used = strtoll(at, &end, 10);
    if (end == at || errno || used < 0 || (*end && !isspace((unsigned char)*end)))
        return -1;
    return account->in_lines ? 1000 * used : used;
}

/* What was written of it so far was not written by a stranger. */
static int leave(struct gs *gs) {
    forget_own(gs);
    return -1;
}

static int fire(struct gs *gs, struct batch *batch) {
    struct done done = {.begin_ns = now_ns()};
    if (written(gs) || lease_over(gs, done.begin_ns))
        return -1;
    for (int i = 0; i < batch->acts; i++) {
        struct act *act = &batch->act[i];
        if (act->what == HOLDS)
            __atomic_store_n(act->mark, HELD, __ATOMIC_SEQ_CST);
        else if (!done.frozen_ns)
            done.frozen_ns = now_ns();
        if (pwrite(act->fd, act->data, act->length, 0) < 0) {
            if (act->what == HOLDS)
                __atomic_store_n(act->mark, KNOWN, __ATOMIC_SEQ_CST);
            return leave(gs);
        }
        if (act->what == RELEASES)
            __atomic_store_n(act->mark, KNOWN, __ATOMIC_SEQ_CST);
        gs->partial = i + 1;
    }
    done.end_ns = now_ns();
    if (!done.frozen_ns)
        done.frozen_ns = done.end_ns;
    if (batch->held_after && lease_over(gs, done.end_ns))
        return leave(gs);
    forget_own(gs);
    for (int i = 0; i < batch->accounts; i++)
        done.used_ns[i] = used_ns(&batch->account[i]);
    gs->partial = 0;
    gs->done[gs->made % KEPT] = done;
    __atomic_store_n(&gs->made, gs->made + 1, __ATOMIC_SEQ_CST);
    return 0;
}

int gs_run(struct gs *gs) {
    struct pollfd ready[2] = {{gs->timer, POLLIN, 0}, {gs->command, POLLIN, 0}};
    uint64_t rang;
    for (;;) {
        if (poll(ready, 2, -1) < 0 && errno != EINTR)
            return YOURS;
        if (ready[1].revents)
            return COMMAND;
        if (read(gs->timer, &rang, sizeof rang) != sizeof rang)
            continue; /* it was set anew meanwhile */
        pthread_mutex_lock(&gs->lock);
        struct batch *batch = &gs->batch[gs->first];
        int64_t due_ns;
        gs->armed_ns = 0;
        if (!gs->count || batch->instant_ns > now_ns() || fire(gs, batch) < 0) {
            pthread_mutex_unlock(&gs->lock);
            return YOURS;
        }
        due_ns = batch->following_ns;
        if (batch->held_after && (!due_ns || *gs->lease_ns < due_ns))
            due_ns = *gs->lease_ns;
        gs->first = (gs->first + 1) % MOST_BATCHES;
        gs->count--;
        arm(gs, due_ns);
        pthread_mutex_unlock(&gs->lock);
    }
}
