/* Small programs that stress one part of a core each, for ever or for OSUB_STEPS steps.
 *
 * kernels NAME KIB SHARE EVERY SLEEP_US
 *   KIB       memory that it works on, where it has any
 *   SHARE     percent of CPU time in the kernel NAME; the rest is an integer loop (calibrated stressors)
 *   EVERY, SLEEP_US   after so many steps sleep this long on average (0: never), as an interactive job does
 *
 * Steps are written to the file OSUB_METER; its layout is told in workloads/task/step_meter.py.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { METER_BYTES = 4096, LINE = 64, PAGE = 4096, SLOTS = 1024, SORTED = 4096, HOPS = 4096, EDGE = 64 };
static const uint64_t MAGIC = 0x6F7375626D657431u;

struct meter {
    uint64_t magic, sequence, steps, last_ns, busy_ns;
};

static size_t bytes;
static char *memory;
static uint64_t state = 0x9E3779B97F4A7C15u, place;
static volatile uint64_t sink;

static void stop(const char *what) {
    fprintf(stderr, "kernels: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t draw(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static uint64_t now_ns(clockid_t clock) {
    struct timespec at;
    clock_gettime(clock, &at);
    return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

static void take_memory(void) {
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) stop("cannot take memory");
    memset(memory, 1, bytes);
}

/* integer: arithmetic in registers */
static void integer(void) {
    uint64_t a = sink | 1;
    for (int i = 0; i < 40000; i++) a = a * 6364136223846793005u + 1442695040888963407u;
    sink = a;
}

/* stream: a = b + s c, in turns over three arrays of KIB/3 each (McCalpin's triad) */
static void stream(void) {
    size_t n = bytes / 3 / sizeof(double), piece = n < 32768 ? n : 32768;
    double *a = (double *)memory, *b = a + n, *c = b + n;
    size_t first = place + piece <= n ? place : 0;
    for (size_t i = first; i < first + piece; i++) a[i] = b[i] + 0.5 * c[i];
    place = first + piece;
}

/* chase: each load's address comes from the load before; a random cycle through all lines (Sattolo) */
static void chase_start(void) {
    size_t lines = bytes / LINE;
    uint32_t *order = malloc(lines * sizeof *order);
    take_memory();
    if (!order) stop("cannot take memory");
    for (size_t i = 0; i < lines; i++) order[i] = (uint32_t)i;
    for (size_t i = lines - 1; i > 0; i--) {
        size_t j = draw() % i;
        uint32_t held = order[i];
        order[i] = order[j], order[j] = held;
    }
    for (size_t i = 0; i < lines; i++) *(uint64_t *)(memory + i * LINE) = (uint64_t)order[i] * LINE;
    free(order);
}

static void chase(void) {
    uint64_t at = place;
    for (int i = 0; i < HOPS; i++) at = *(volatile uint64_t *)(memory + at);
    place = at;
}

/* scatter: independent reads and writes at random (RandomAccess) */
static void scatter(void) {
    size_t words = bytes / sizeof(uint64_t);
    uint64_t *table = (uint64_t *)memory;
    for (int i = 0; i < 4096; i++) {
        uint64_t one = draw();
        table[one % words] ^= one;
    }
}

/* matmul: rows of a product of square matrices, the three together KIB */
static void matmul(void) {
    size_t n = 8;
    while (3 * (n + 8) * (n + 8) * sizeof(double) <= bytes) n += 8;
    double *a = (double *)memory, *b = a + n * n, *c = b + n * n;
    for (size_t work = 0; work < 262144; work += n * n) {
        size_t i = place++ % n;
        for (size_t j = 0; j < n; j++) c[i * n + j] = 0;
        for (size_t k = 0; k < n; k++) {
            double left = a[i * n + k];
            for (size_t j = 0; j < n; j++) c[i * n + j] += left * b[k * n + j];
        }
    }
}

static void matmul_start(void) {
    take_memory();
    for (size_t i = 0; i < bytes / sizeof(double); i++) ((double *)memory)[i] = 1.0 + (double)(i % 7) / 8;
}

/* branches: as often taken as not, without a pattern; what is empty forbids the compiler to do without them */
static void branches(void) {
    uint64_t a = 0;
    for (int i = 0; i < 1000; i++) {
        uint64_t bits = draw();
        for (int bit = 0; bit < 16; bit++) {
            if (bits >> bit & 1) {
                a += 3;
                __asm__ volatile("" ::: "memory");
            } else {
                a ^= 5;
                __asm__ volatile("" ::: "memory");
            }
        }
    }
    sink = a;
}

/* sort: comparisons and moves within a cache */
static int compare(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void sort(void) {
    static uint32_t what[SORTED];
    for (int i = 0; i < SORTED; i++) what[i] = (uint32_t)draw();
    qsort(what, SORTED, sizeof *what, compare);
}

/* calls: the shortest call of the kernel */
static void calls(void) {
    for (int i = 0; i < 1000; i++) sink = (uint64_t)syscall(SYS_getppid);
}

/* faults: map KIB, touch each page, give it back */
static void faults(void) {
    char *fresh = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED) stop("cannot take memory");
    madvise(fresh, bytes, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < bytes; i += PAGE) fresh[i] = 1;
    munmap(fresh, bytes);
}

/* allocation: blocks of 16 bytes to 32 KiB, given back in another order */
static void allocation(void) {
    static char *slot[SLOTS];
    for (int i = 0; i < 500; i++) {
        size_t which = draw() % SLOTS, size = (size_t)16 << draw() % 12;
        free(slot[which]);
        slot[which] = malloc(size);
        if (!slot[which]) stop("cannot take memory");
        slot[which][0] = slot[which][size - 1] = 1;
    }
}

/* files: 4 KiB at a time into a file of KIB that has no name, nothing forced to the disk */
static int file = -1;

static void files_start(void) {
    const char *folder = getenv("TMPDIR");
    char path[4000];
    snprintf(path, sizeof path, "%s/osub-kernels-XXXXXX", folder ? folder : "/tmp");
    file = mkstemp(path);
    if (file < 0) stop("cannot make a file");
    unlink(path);
}

static void files(void) {
    static const char block[PAGE] = {1};
    for (int i = 0; i < 32; i++) {
        if (pwrite(file, block, PAGE, (off_t)place) != PAGE) stop("cannot write");
        place = (place + PAGE) % bytes;
    }
}

/* pipes: a word goes to another process and comes back; both stay on this CPU where it is pinned */
static int to[2], back[2];

static void pipes_start(void) {
    char one;
    if (pipe(to) || pipe(back)) stop("cannot make pipes");
    pid_t parent = getpid(), child = fork();
    if (child < 0) stop("cannot fork");
    if (child) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(0);
    while (read(to[0], &one, 1) == 1 && write(back[1], &one, 1) == 1) {}
    _exit(0);
}

static void pipes(void) {
    char one = 1;
    for (int i = 0; i < 25; i++)
        if (write(to[1], &one, 1) != 1 || read(back[0], &one, 1) != 1) stop("the pipe's other end is gone");
}

/* kernel: calls and faults together */
static void kernel(void) {
    calls();
    faults();
}

static void nothing(void) {}

static const struct {
    const char *name;
    void (*start)(void), (*step)(void);
} KERNELS[] = {
    {"integer", nothing, integer},       {"stream", take_memory, stream}, {"chase", chase_start, chase},
    {"scatter", take_memory, scatter},   {"matmul", matmul_start, matmul}, {"branches", nothing, branches},
    {"sort", nothing, sort},             {"calls", nothing, calls},       {"faults", nothing, faults},
    {"allocation", nothing, allocation}, {"files", files_start, files},   {"pipes", pipes_start, pipes},
    {"kernel", nothing, kernel},
};

static struct meter *map_meter(void) {
    const char *path = getenv("OSUB_METER");
    int fd = -1, how = MAP_PRIVATE | MAP_ANONYMOUS;
    if (path && *path) {
        fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0) stop(path);
        how = MAP_SHARED;
    }
    struct meter *meter = mmap(NULL, METER_BYTES, PROT_READ | PROT_WRITE, how, fd, 0);
    if (meter == MAP_FAILED) stop("cannot map the meter");
    return meter;
}

static void note(struct meter *meter, uint64_t began_ns) {
    uint64_t at = now_ns(CLOCK_MONOTONIC);
    __atomic_store_n(&meter->sequence, meter->sequence + 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(&meter->steps, meter->steps + 1, __ATOMIC_RELEASE);
    __atomic_store_n(&meter->busy_ns, meter->busy_ns + at - began_ns, __ATOMIC_RELEASE);
    __atomic_store_n(&meter->last_ns, at, __ATOMIC_RELEASE);
    __atomic_store_n(&meter->sequence, meter->sequence + 1, __ATOMIC_SEQ_CST);
}

static void rest(uint64_t mean_us) {
    uint64_t us = mean_us / 2 + draw() % (mean_us + 1); /* from half to one and a half of the mean */
    struct timespec left = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};
    while (nanosleep(&left, &left) && errno == EINTR) {}
}

int main(int count, char **words) {
    size_t which = 0, kinds = sizeof KERNELS / sizeof *KERNELS;
    if (count != 6) return fprintf(stderr, "kernels: NAME KIB SHARE EVERY SLEEP_US\n"), 2;
    while (which < kinds && strcmp(KERNELS[which].name, words[1])) which++;
    if (which == kinds) return fprintf(stderr, "kernels: no kernel of that name\n"), 2;
    bytes = strtoull(words[2], NULL, 10) << 10;
    uint64_t share = strtoull(words[3], NULL, 10), every = strtoull(words[4], NULL, 10);
    uint64_t sleep_us = strtoull(words[5], NULL, 10), in_kernel_ns = 0, in_all_ns = 0;
    const char *limit = getenv("OSUB_STEPS");
    uint64_t steps = limit ? strtoull(limit, NULL, 10) : UINT64_MAX;
    struct meter *meter = map_meter();
    KERNELS[which].start();
    meter->last_ns = now_ns(CLOCK_MONOTONIC);
    __atomic_store_n(&meter->magic, MAGIC, __ATOMIC_RELEASE);
    uint64_t began_ns = meter->last_ns;
    for (uint64_t made = 1; made <= steps; made++) {
        if (share >= 100) {
            KERNELS[which].step();
        } else {
            uint64_t from = now_ns(CLOCK_THREAD_CPUTIME_ID);
            int is_kernel = in_kernel_ns * 100 < share * in_all_ns;
            (is_kernel ? KERNELS[which].step : integer)();
            uint64_t used = now_ns(CLOCK_THREAD_CPUTIME_ID) - from;
            in_all_ns += used;
            if (is_kernel) in_kernel_ns += used;
        }
        note(meter, began_ns);
        if (every && made % every == 0) {
            rest(sleep_us);
            began_ns = now_ns(CLOCK_MONOTONIC);
        } else {
            began_ns = meter->last_ns;
        }
    }
    return 0;
}
