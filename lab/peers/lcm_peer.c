/* The original LCM as a peer in measurements: liblcm called from C, as its own programs call it.
 *
 *   lcm_peer echo URL     sends back on "c2" whatever comes on "c1", until stdin ends
 *   lcm_peer ping URL     per line "SIZE COUNT WARMUP" on stdin: that many round trips over an
 *                         echo, one outstanding; answers "COUNT LOST P50_NS P99_NS"
 *   lcm_peer send URL     per line "SIZE RATE MILLIS": sends at that rate (messages/s; 0 = as fast
 *                         as publish returns) for that long; answers
 *                         "SENT NANOS USER_NS SYSTEM_NS"
 *   lcm_peer receive URL  per line "take": answers "MESSAGES BYTES USER_NS SYSTEM_NS" since the
 *                         last one
 *   lcm_peer talk URL     "subscribe REGEX" answers "ready", and then "got CHANNEL LENGTH CHECKSUM" for
 *                         every message; "publish CHANNEL LENGTH" sends the pattern of that length
 *
 * Each role first prints "ready". The program sealcast-lab speaks the same lines with its own roles,
 * so that both are driven, paced and judged by the same code. Queues are unlimited: losses are the
 * network's, not the queue policy's.
 */
#define _GNU_SOURCE
#include <lcm/lcm.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* Messages are sent in bursts, one per tick, by sender and peer alike. */
static const uint64_t TICK_NS = 500 * 1000;
/* A round trip that takes longer is counted as lost. */
static const int LOST_MS = 500;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void sleep_until(uint64_t when) {
    struct timespec t = {.tv_sec = (time_t)(when / 1000000000u), .tv_nsec = (long)(when % 1000000000u)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

struct cpu {
    uint64_t user_ns, system_ns;
};

static struct cpu cpu_now(void) {
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    struct cpu c = {(uint64_t)r.ru_utime.tv_sec * 1000000000u + (uint64_t)r.ru_utime.tv_usec * 1000u,
                    (uint64_t)r.ru_stime.tv_sec * 1000000000u + (uint64_t)r.ru_stime.tv_usec * 1000u};
    return c;
}

static lcm_t *must_create(const char *url) {
    lcm_t *lcm = lcm_create(url);
    if (!lcm) {
        fprintf(stderr, "lcm_peer: liblcm refuses %s\n", url);
        exit(3);
    }
    return lcm;
}

static void must_subscribe(lcm_t *lcm, const char *channel, lcm_msg_handler_t handler, void *user) {
    lcm_subscription_t *s = lcm_subscribe(lcm, channel, handler, user);
    if (!s) {
        fprintf(stderr, "lcm_peer: liblcm does not subscribe\n");
        exit(3);
    }
    lcm_subscription_set_queue_capacity(s, 0);
}

static void ready(void) {
    puts("ready");
    fflush(stdout);
}

/* echo */

static void on_c1(const lcm_recv_buf_t *b, const char *channel, void *user) {
    (void)channel;
    lcm_publish(user, "c2", b->data, b->data_size);
}

static void *exit_with_stdin(void *unused) {
    (void)unused;
    char c;
    while (read(0, &c, 1) > 0) {
    }
    _exit(0);
}

static int echo(const char *url) {
    lcm_t *lcm = must_create(url);
    must_subscribe(lcm, "c1", on_c1, lcm);
    pthread_t t;
    pthread_create(&t, NULL, exit_with_stdin, NULL);
    ready();
    while (lcm_handle(lcm) == 0) {
    }
    return 1;
}

/* ping */

static volatile uint64_t echoed, pinged, resent;
static uint8_t *volatile message;
static volatile size_t message_size;

/* lcm_handle has no time-out that is free of an extra system call, so a lost round trip is woken up
 * from the side: sent once more, and counted as lost. */
static void *wake_the_lost(void *lcm) {
    for (uint64_t last = 0;;) {
        usleep(LOST_MS * 1000);
        if (pinged == last && echoed != pinged && message_size) {
            resent = pinged;
            lcm_publish(lcm, "c1", message, (unsigned)message_size);
        }
        last = pinged;
    }
    return NULL;
}

static void on_c2(const lcm_recv_buf_t *b, const char *channel, void *user) {
    (void)channel, (void)user;
    uint64_t number;
    if (b->data_size < sizeof number)
        return;
    memcpy(&number, b->data, sizeof number);
    echoed = number;
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static int ping(const char *url) {
    lcm_t *lcm = must_create(url);
    must_subscribe(lcm, "c2", on_c2, NULL);
    pthread_t t;
    pthread_create(&t, NULL, wake_the_lost, lcm);
    ready();
    uint64_t number = 0;
    size_t size, count, warmup;
    while (scanf("%zu %zu %zu", &size, &count, &warmup) == 3) {
        if (size < sizeof number)
            size = sizeof number;
        message = calloc(1, size);
        message_size = size;
        uint64_t *took = calloc(count + 1, sizeof *took);
        size_t kept = 0, lost = 0;
        for (size_t i = 0; i < warmup + count; i++) {
            number++;
            memcpy(message, &number, sizeof number);
            pinged = number;
            uint64_t start = now_ns();
            lcm_publish(lcm, "c1", message, (unsigned)size);
            while (echoed != number)
                lcm_handle(lcm);
            uint64_t end = now_ns();
            if (i < warmup)
                continue;
            if (resent != number)
                took[kept++] = end - start;
            else
                lost++;
        }
        message_size = 0;
        qsort(took, kept, sizeof *took, by_value);
        uint64_t p50 = kept ? took[kept / 2] : 0, p99 = kept ? took[kept * 99 / 100] : 0;
        printf("%zu %zu %lu %lu\n", kept, lost, (unsigned long)p50, (unsigned long)p99);
        fflush(stdout);
        free(message);
        free(took);
    }
    return 0;
}

/* send */

static int send_paced(const char *url) {
    lcm_t *lcm = must_create(url);
    ready();
    size_t size;
    double rate, millis;
    while (scanf("%zu %lf %lf", &size, &rate, &millis) == 3) {
        uint8_t *message = calloc(1, size + 8);
        struct cpu before = cpu_now();
        uint64_t start = now_ns(), end = start + (uint64_t)(millis * 1e6), tick = start, sent = 0, now;
        while ((now = now_ns()) < end) {
            uint64_t due = rate > 0 ? (uint64_t)((double)(now - start) * rate / 1e9) + 1 : sent + 64;
            while (sent < due) {
                memcpy(message, &sent, size < 8 ? size : 8);
                lcm_publish(lcm, "t", message, (unsigned)size);
                sent++;
                if ((sent & 63) == 0 && now_ns() >= end)
                    break;
            }
            if (rate > 0) {
                tick += TICK_NS;
                if (tick > now_ns())
                    sleep_until(tick);
                else
                    tick = now_ns();
            }
        }
        uint64_t took = now_ns() - start;
        struct cpu after = cpu_now();
        printf("%lu %lu %lu %lu\n", (unsigned long)sent, (unsigned long)took,
               (unsigned long)(after.user_ns - before.user_ns), (unsigned long)(after.system_ns - before.system_ns));
        fflush(stdout);
        free(message);
    }
    return 0;
}

/* receive */

static volatile uint64_t messages, bytes;

static void on_t(const lcm_recv_buf_t *b, const char *channel, void *user) {
    (void)channel, (void)user;
    messages++;
    bytes += b->data_size;
}

static void *answer(void *unused) {
    (void)unused;
    char line[64];
    uint64_t seen = 0, seen_bytes = 0;
    struct cpu before = cpu_now();
    while (fgets(line, sizeof line, stdin)) {
        uint64_t m = messages, b = bytes;
        struct cpu after = cpu_now();
        printf("%lu %lu %lu %lu\n", (unsigned long)(m - seen), (unsigned long)(b - seen_bytes),
               (unsigned long)(after.user_ns - before.user_ns), (unsigned long)(after.system_ns - before.system_ns));
        fflush(stdout);
        seen = m, seen_bytes = b, before = after;
    }
    _exit(0);
}

static int receive(const char *url) {
    lcm_t *lcm = must_create(url);
    must_subscribe(lcm, "t", on_t, NULL);
    pthread_t t;
    pthread_create(&t, NULL, answer, NULL);
    ready();
    while (lcm_handle(lcm) == 0) {
    }
    return 1;
}

/* talk */

static uint8_t pattern_at(size_t i, size_t length) {
    i %= 65536;
    return (uint8_t)(i * 31 + (i >> 8) + length);
}

/* FNV-1a, 64 bits, of every byte of a short message; of a long one every 61st, and the last. */
static uint64_t checksum(const uint8_t *data, size_t length) {
    uint64_t h = 0xCBF29CE484222325u;
    size_t step = length <= 65536 ? 1 : 61;
    for (size_t i = 0; i < length; i += step)
        h = (h ^ data[i]) * 0x100000001B3u;
    return step == 1 ? h : (h ^ data[length - 1]) * 0x100000001B3u;
}

static void on_any(const lcm_recv_buf_t *b, const char *channel, void *user) {
    (void)user;
    printf("got %s %u %016lx\n", channel, b->data_size, (unsigned long)checksum(b->data, b->data_size));
    fflush(stdout);
}

static int talk(const char *url) {
    lcm_t *lcm = must_create(url);
    ready();
    struct pollfd fds[2] = {{.fd = 0, .events = POLLIN}, {.fd = lcm_get_fileno(lcm), .events = POLLIN}};
    char line[512], channel[256];
    size_t length;
    setvbuf(stdin, NULL, _IONBF, 0);
    while (poll(fds, 2, -1) > 0) {
        if (fds[1].revents)
            lcm_handle(lcm);
        if (!fds[0].revents)
            continue;
        if (!fgets(line, sizeof line, stdin))
            return 0;
        if (sscanf(line, "subscribe %255s", channel) == 1) {
            must_subscribe(lcm, channel, on_any, NULL);
            ready();
        } else if (sscanf(line, "publish %255s %zu", channel, &length) == 2) {
            uint8_t *message = malloc(length + 1);
            for (size_t i = 0; i < length; i++)
                message[i] = pattern_at(i, length);
            lcm_publish(lcm, channel, message, (unsigned)length);
            free(message);
        }
    }
    return 1;
}

int main(int argc, char **argv) {
    prctl(PR_SET_PDEATHSIG, 15);
    prctl(PR_SET_TIMERSLACK, 1);
    if (argc == 3 && !strcmp(argv[1], "echo"))
        return echo(argv[2]);
    if (argc == 3 && !strcmp(argv[1], "ping"))
        return ping(argv[2]);
    if (argc == 3 && !strcmp(argv[1], "send"))
        return send_paced(argv[2]);
    if (argc == 3 && !strcmp(argv[1], "receive"))
        return receive(argv[2]);
    if (argc == 3 && !strcmp(argv[1], "talk"))
        return talk(argv[2]);
    fprintf(stderr, "usage: lcm_peer echo|ping|send|receive|talk URL\n");
    return 2;
}
