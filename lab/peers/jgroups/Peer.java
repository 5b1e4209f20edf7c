// A JGroups channel as a peer in measurements, driven by lines as lcm_peer.c is.
//
//   java -cp … Peer send ADDRESS MEMBERS BUNDLE CIPHER     per line "SIZE RATE MILLIS": sends for that long, as fast as the
//                                                          channel takes it (RATE must be 0); answers "SENT NANOS USER_NS 0"
//   java -cp … Peer receive ADDRESS MEMBERS BUNDLE CIPHER  per line "take": "MESSAGES BYTES USER_NS 0" since the last one
//   java -cp … Peer changes ADDRESS MEMBERS BUNDLE CIPHER  that many channels in this process; per line "join": one more
//                                                          joins and sends a message, "NANOS" until an older member has it;
//                                                          "lead": the coordinator leaves, "NANOS" until all others have the
//                                                          next view; a new channel then takes its place
//
// ADDRESS is the local one to bind to, BUNDLE the most bytes of a bundle, CIPHER `plain` or `sym`: SYM_ENCRYPT with
// AES-256 in CBC mode, as its authors configure it (its GCM mode fails on every send). `send` and `receive` print "joined" once
// they are in a group, and each role "ready" once its group has all members.

import java.io.*;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.security.KeyStore;
import java.util.*;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.BooleanSupplier;
import java.util.logging.LogManager;
import javax.crypto.spec.SecretKeySpec;
import org.jgroups.*;
import org.jgroups.util.MessageBatch;

public final class Peer {
    static final PrintStream OUT = System.out;

    public static void main(String[] args) throws Exception {
        // What the library prints is not part of the lines, and it says much.
        System.setOut(System.err);
        LogManager.getLogManager().reset();
        String config = config(args[1], Integer.parseInt(args[3]), args[4].equals("sym"));
        int members = Integer.parseInt(args[2]);
        switch (args[0]) {
            case "send" -> send(config, members);
            case "receive" -> receive(config, members);
            case "changes" -> changes(config, members);
            default -> throw new IllegalArgumentException(args[0]);
        }
        // Threads of the library that still run do not keep the process.
        Runtime.getRuntime().halt(0);
    }

    static void send(String config, int members) throws Exception {
        JChannel channel = new JChannel(stream(config));
        channel.setDiscardOwnMessages(true).connect("lab");
        say("joined");
        await(() -> channel.getView().size() == members);
        say("ready");
        for (String[] words : lines()) {
            byte[] body = new byte[Integer.parseInt(words[0])];
            long lasts = Long.parseLong(words[2]) * 1_000_000, before = cpu(), start = System.nanoTime(), sent = 0;
            for (; System.nanoTime() - start < lasts; sent++) channel.send(null, body);
            say(sent + " " + (System.nanoTime() - start) + " " + (cpu() - before) + " 0");
        }
    }

    static void receive(String config, int members) throws Exception {
        AtomicLong messages = new AtomicLong(), bytes = new AtomicLong();
        JChannel channel = new JChannel(stream(config));
        channel.setReceiver(new Receiver() {
            @Override
            public void receive(Message message) {
                messages.incrementAndGet();
                bytes.addAndGet(message.getLength());
            }

            @Override
            public void receive(MessageBatch batch) {
                messages.addAndGet(batch.size());
                bytes.addAndGet(batch.length());
            }
        });
        channel.connect("lab");
        say("joined");
        await(() -> channel.getView().size() == members);
        say("ready");
        long before = cpu();
        for (String[] ignored : lines()) {
            long now = cpu();
            say(messages.getAndSet(0) + " " + bytes.getAndSet(0) + " " + (now - before) + " 0");
            before = now;
        }
    }

    static void changes(String config, int members) throws Exception {
        List<JChannel> all = new ArrayList<>();
        for (int i = 0; i < members; i++) all.add(new JChannel(stream(config)).connect("lab"));
        await(() -> agreed(all, members));
        say("ready");
        for (String[] words : lines()) {
            if (words[0].equals("join")) {
                CountDownLatch came = new CountDownLatch(1);
                all.get(0).setReceiver(new Receiver() {
                    @Override
                    public void receive(Message message) {
                        came.countDown();
                    }
                });
                JChannel joiner = new JChannel(stream(config));
                long start = System.nanoTime();
                joiner.connect("lab");
                joiner.send(null, new byte[100]);
                if (!came.await(20, TimeUnit.SECONDS)) throw new IllegalStateException("the first message did not come");
                say(String.valueOf(System.nanoTime() - start));
                joiner.close();
            } else {
                JChannel leader = all.remove(0);
                long start = System.nanoTime();
                leader.close();
                await(() -> agreed(all, members - 1));
                say(String.valueOf(System.nanoTime() - start));
                all.add(new JChannel(stream(config)).connect("lab"));
            }
            await(() -> agreed(all, members));
        }
    }

    /** Whether all have one view, of so many. */
    static boolean agreed(List<JChannel> all, int members) {
        View view = all.get(0).getView();
        return view.size() == members && all.stream().allMatch(it -> view.equals(it.getView()));
    }

    static void await(BooleanSupplier what) throws Exception {
        long until = System.nanoTime() + 40_000_000_000L;
        while (!what.getAsBoolean()) {
            if (System.nanoTime() > until) throw new IllegalStateException("the group does not form");
            Thread.sleep(0, 50_000);
        }
    }

    /** JGroups' udp.xml, with a repair every 100 ms, and what differs between the compared. */
    static String config(String address, int bundle, boolean sealed) throws Exception {
        String encrypt = !sealed ? "" : """
            <SYM_ENCRYPT sym_algorithm="AES/CBC/PKCS5Padding" sym_iv_length="16" keystore_name="%s" keystore_type="PKCS12"
                store_password="changeit" alias="lab"/>""".formatted(keys());
        return """
            <config xmlns="urn:org:jgroups">
            <UDP bind_addr="%s" mcast_addr="239.255.78.78" mcast_port="7978" ip_ttl="1" bundler.max_size="%d" diag.enabled="false"
                mcast_send_buf_size="4M" mcast_recv_buf_size="4M" ucast_send_buf_size="1M" ucast_recv_buf_size="4M"/>
            <PING/><MERGE3 max_interval="30s" min_interval="10s"/><FD_SOCK2/><FD_ALL3/><VERIFY_SUSPECT2 timeout="1.5s"/>
            %s<pbcast.NAKACK2 xmit_interval="0.1s"/><UNICAST3 xmit_interval="0.1s"/>
            <pbcast.STABLE desired_avg_gossip="50s" max_bytes="4M"/>
            <pbcast.GMS print_local_addr="false" join_timeout="1s"/>
            <MFC max_credits="4M" min_threshold="0.4"/><UFC max_credits="4M" min_threshold="0.4"/><FRAG2 frag_size="%d"/>
            </config>""".formatted(address, bundle, encrypt, Math.min(bundle * 9 / 10, 60_000));
    }

    /** A key store that holds the key of the measurement: the same at all members, and no secret. */
    static Path keys() throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        var password = new KeyStore.PasswordProtection("changeit".toCharArray());
        store.setEntry("lab", new KeyStore.SecretKeyEntry(new SecretKeySpec(new byte[32], "AES")), password);
        Path path = Files.createTempFile("sealcast-lab-", ".p12");
        path.toFile().deleteOnExit();
        try (OutputStream to = Files.newOutputStream(path)) {
            store.store(to, password.getPassword());
        }
        return path;
    }

    static InputStream stream(String config) {
        return new ByteArrayInputStream(config.getBytes(StandardCharsets.UTF_8));
    }

    static Iterable<String[]> lines() {
        return () -> new BufferedReader(new InputStreamReader(System.in)).lines().map(it -> it.trim().split("\\s+")).iterator();
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
