// A NORM stream as a peer in measurements, driven by lines as lcm_peer.c is (C++, since the library's header is).
//
//   norm_peer send ADDRESS     per line "SIZE RATE MILLIS": writes messages for that long, as fast as the stream takes
//                              them (RATE must be 0); answers "SENT NANOS USER_NS SYSTEM_NS"
//   norm_peer receive ADDRESS  per line "take": "MESSAGES BYTES USER_NS SYSTEM_NS" since the last one, and on stderr how
//                              often the stream had a gap, if it had one
//
// ADDRESS is the local one. Segments of 1,400 bytes, blocks of 64 with 16 of parity of which 4 are sent unasked, NORM-CC:
// of the settings that were tried, those with the best rate under loss and no gaps.
#include <normApi.h>

#include <arpa/inet.h>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <vector>

static const char *GROUP = "239.255.80.80";
static const UINT16 PORT = 8080;
static const UINT16 SEGMENT = 1400, BLOCK = 64, PARITY = 16, AUTO_PARITY = 4;
static const UINT32 BUFFER = 8 << 20;

static uint64_t now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static std::string cpu_since(rusage &before) {
    rusage now;
    getrusage(RUSAGE_SELF, &now);
    auto nanos = [](timeval to, timeval from) {
        return (int64_t)(to.tv_sec - from.tv_sec) * 1000000000 + (int64_t)(to.tv_usec - from.tv_usec) * 1000;
    };
    std::string text = std::to_string(nanos(now.ru_utime, before.ru_utime)) + " " + std::to_string(nanos(now.ru_stime, before.ru_stime));
    before = now;
    return text;
}

static void send(NormInstanceHandle instance, NormSessionHandle session) {
    NormSetGrttEstimate(session, 0.001);
    NormSetTxSocketBuffer(session, 4 << 20);
    NormSetTxCacheBounds(session, 2 * BUFFER, 1, 16);
    NormSetTxRate(session, 1e9);
    NormSetCongestionControl(session, true);
    if (!NormStartSender(session, 1, BUFFER, SEGMENT, BLOCK, PARITY)) exit(1);
    NormSetAutoParity(session, AUTO_PARITY);
    NormObjectHandle stream = NormStreamOpen(session, BUFFER);
    // The library says when there is room; somebody must take what it says.
    std::thread([instance] {
        NormEvent event;
        while (NormGetNextEvent(instance, &event)) {}
    }).detach();
    // Congestion control learns of receivers from what it sends.
    std::string line(100, 0);
    for (int i = 0; i < 200; i++) {
        NormStreamWrite(stream, line.data(), (unsigned)line.size());
        NormStreamMarkEom(stream);
        usleep(10000);
    }
    std::cout << "ready" << std::endl;
    while (std::getline(std::cin, line)) {
        unsigned long size, rate, millis;
        if (sscanf(line.c_str(), "%lu %lu %lu", &size, &rate, &millis) != 3) exit(2);
        std::vector<char> body(size);
        uint64_t start = now_ns(), sent = 0;
        rusage before;
        getrusage(RUSAGE_SELF, &before);
        while (now_ns() - start < millis * 1000000) {
            for (unsigned at = 0; at < size && now_ns() - start < millis * 1000000;) {
                unsigned wrote = NormStreamWrite(stream, body.data() + at, (unsigned)(size - at));
                at += wrote;
                if (wrote == 0) usleep(100);
                if (at == size) sent++;
            }
            NormStreamMarkEom(stream);
        }
        uint64_t took = now_ns() - start;
        std::cout << sent << " " << took << " " << cpu_since(before) << std::endl;
    }
}

static std::atomic<uint64_t> bytes{0}, gaps{0};

static void receive(NormInstanceHandle instance, NormSessionHandle session) {
    NormSetRxSocketBuffer(session, 4 << 20);
    if (!NormStartReceiver(session, 2 * BUFFER)) exit(1);
    std::thread([] {
        std::string line;
        rusage before;
        getrusage(RUSAGE_SELF, &before);
        uint64_t had = 0;
        while (std::getline(std::cin, line)) {
            uint64_t now = bytes.load();
            // A stream has no messages: whole ones of 1,000 bytes are counted, as the sender writes them.
            std::cout << (now - had) / 1000 << " " << now - had << " " << cpu_since(before) << std::endl;
            had = now;
            if (uint64_t lost = gaps.exchange(0)) std::cerr << "NORM: " << lost << " gaps" << std::endl;
        }
        _exit(0);
    }).detach();
    std::cout << "ready" << std::endl;
    NormEvent event;
    std::vector<char> buffer(65536);
    while (NormGetNextEvent(instance, &event)) {
        if (event.type != NORM_RX_OBJECT_UPDATED) continue;
        for (;;) {
            unsigned length = (unsigned)buffer.size();
            if (!NormStreamRead(event.object, buffer.data(), &length)) {
                gaps++;
                NormStreamSeekMsgStart(event.object);
                continue;
            }
            if (length == 0) break;
            bytes += length;
        }
    }
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    NormInstanceHandle instance = NormCreateInstance();
    // The last byte of the address tells members apart.
    NormSessionHandle session = NormCreateSession(instance, GROUP, PORT, ntohl(inet_addr(argv[2])));
    char device[64];
    snprintf(device, sizeof device, "%s", argv[2]);
    NormSetMulticastInterface(session, device);
    NormSetTTL(session, 1);
    NormSetRxPortReuse(session, true);
    if (!strcmp(argv[1], "send")) send(instance, session);
    else receive(instance, session);
    return 0;
}
