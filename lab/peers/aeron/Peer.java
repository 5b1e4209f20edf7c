// An Aeron publication or subscription over multicast as a peer in measurements, driven by lines as lcm_peer.c is.
//
//   java -cp … Peer send ADDRESS RECEIVERS     per line "SIZE RATE MILLIS": sends for that long, as fast as the slowest of so
//                                              many receivers takes it (RATE must be 0); answers "SENT NANOS CPU_NS 0"
//   java -cp … Peer receive ADDRESS RECEIVERS  per line "take": "MESSAGES BYTES CPU_NS 0" since the last one
//
// ADDRESS is the local one. Each has its media driver in its own process: the threads of one share one core with the other
// members, so the driver's are one thread, which backs off when idle. MTU 1,408, Aeron's own; the slowest receiver limits
// the sender (fc=min), so that nothing is lost. A sender is "ready" once all receivers are there.

import io.aeron.*;
import io.aeron.driver.*;
import java.io.*;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.atomic.AtomicLong;
import org.agrona.concurrent.*;

public final class Peer {
    static final PrintStream OUT = System.out;
    static final int STREAM = 7;

    public static void main(String[] args) throws Exception {
        System.setOut(System.err);
        String channel = "aeron:udp?endpoint=239.255.79.79:7979|interface=" + args[1] + "/16|ttl=1";
        Path folder = Files.createTempDirectory("sealcast-lab-aeron-");
        MediaDriver.Context context = new MediaDriver.Context()
            .aeronDirectoryName(folder.toString()).dirDeleteOnStart(true).dirDeleteOnShutdown(true)
            .threadingMode(ThreadingMode.SHARED).sharedIdleStrategy(idle())
            .socketRcvbufLength(2 << 20).socketSndbufLength(2 << 20).initialWindowLength(1 << 20);
        try (MediaDriver driver = MediaDriver.launch(context);
             Aeron aeron = Aeron.connect(new Aeron.Context().aeronDirectoryName(driver.aeronDirectoryName()))) {
            if (args[0].equals("send")) send(aeron, channel + "|fc=min,g:/" + args[2]);
            else receive(aeron, channel);
        }
    }

    static void send(Aeron aeron, String channel) throws Exception {
        try (Publication publication = aeron.addPublication(channel, STREAM)) {
            while (!publication.isConnected()) Thread.sleep(5);
            say("ready");
            IdleStrategy idle = idle();
            String line;
            BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
            while ((line = in.readLine()) != null) {
                String[] words = line.trim().split("\\s+");
                UnsafeBuffer body = new UnsafeBuffer(new byte[Integer.parseInt(words[0])]);
                long lasts = Long.parseLong(words[2]) * 1_000_000, before = cpu(), start = System.nanoTime(), sent = 0;
                while (System.nanoTime() - start < lasts) {
                    long at = publication.offer(body);
                    if (at > 0) {
                        sent++;
                        idle.reset();
                    } else if (at == Publication.CLOSED || at == Publication.MAX_POSITION_EXCEEDED) {
                        throw new IllegalStateException("the publication ended");
                    } else {
                        idle.idle();
                    }
                }
                say(sent + " " + (System.nanoTime() - start) + " " + (cpu() - before) + " 0");
            }
        }
    }

    static void receive(Aeron aeron, String channel) throws Exception {
        AtomicLong messages = new AtomicLong(), bytes = new AtomicLong();
        try (Subscription subscription = aeron.addSubscription(channel, STREAM)) {
            FragmentAssembler assembler = new FragmentAssembler((buffer, offset, length, header) -> {
                messages.lazySet(messages.get() + 1);
                bytes.lazySet(bytes.get() + length);
            });
            Thread polling = new Thread(() -> {
                IdleStrategy idle = idle();
                while (!Thread.currentThread().isInterrupted()) idle.idle(subscription.poll(assembler, 64));
            });
            polling.start();
            say("ready");
            BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
            long[] seen = {0, 0, cpu()};
            while (in.readLine() != null) {
                long[] now = {messages.get(), bytes.get(), cpu()};
                say((now[0] - seen[0]) + " " + (now[1] - seen[1]) + " " + (now[2] - seen[2]) + " 0");
                seen = now;
            }
            polling.interrupt();
            polling.join();
        }
    }

    static IdleStrategy idle() {
        return new BackoffIdleStrategy(100, 10, 1_000, 1_000_000);
    }

    static void say(String line) {
        OUT.println(line);
        OUT.flush();
    }

    /** Processor time of this process, nanoseconds. */
    static long cpu() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }
}
