// Load on one Kafka node: producers that run ahead of one consumer by a window, as `sealcast bench brokers` does.
//
//   java -cp 'out/peers/kafka/*' Load SERVER SIZE WINDOW PRODUCERS SECONDS [paced]
//
// Makes a topic of one partition with flush.messages=1, so that nothing is acknowledged or delivered before it is on the
// disk. A record counts when it was acknowledged and came to the consumer, each producer's in its order. Warms up for
// three seconds (the virtual machine compiles), measures for SECONDS, and prints one JSON object. `paced`: one record at a
// time, 20 a second.

import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.atomic.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;

public final class Load {
    static final String TOPIC = "load";
    static final long WARM_UP = 3_000_000_000L;

    static final AtomicLong sent = new AtomicLong(), acknowledged = new AtomicLong(), delivered = new AtomicLong();
    static final AtomicReference<Exception> failed = new AtomicReference<>();
    static volatile long[] from;
    static volatile boolean ended;

    public static void main(String[] args) throws Exception {
        String server = args[0];
        int size = Math.max(24, Integer.parseInt(args[1])), window = Integer.parseInt(args[2]);
        int producers = Integer.parseInt(args[3]);
        double seconds = Double.parseDouble(args[4]);
        boolean paced = args.length > 5;

        Map<String, Object> common = Map.of("bootstrap.servers", server);
        try (Admin admin = Admin.create(common)) {
            NewTopic topic = new NewTopic(TOPIC, 1, (short) 1).configs(Map.of("flush.messages", "1"));
            admin.createTopics(List.of(topic)).all().get();
        }
        LongList took = new LongList();
        Thread consumer = new Thread(() -> consume(common, producers, took));
        consumer.start();

        Map<String, Object> settings = new HashMap<>(common);
        settings.put("acks", "all");
        settings.put("batch.size", 65536);
        settings.put("linger.ms", paced ? 0 : 5);
        settings.put("buffer.memory", 64L << 20);
        List<KafkaProducer<byte[], byte[]>> all = new ArrayList<>();
        for (int i = 0; i < producers; i++)
            all.add(new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer()));
        long[] next = new long[producers];
        int most = paced ? 1 : window;
        long start = System.nanoTime(), measuring = 0, before = 0;
        for (int i = 0; ; i = (i + 1) % producers) {
            long now = System.nanoTime();
            if (measuring == 0 && now - start >= WARM_UP && delivered.get() > 0) {
                measuring = now;
                before = done();
                from = new long[] {now};
            }
            if (measuring != 0 && now - measuring >= seconds * 1e9) break;
            while (sent.get() - done() >= most) {
                if (failed.get() != null) throw failed.get();
                Thread.sleep(0, 200_000);
            }
            if (paced) Thread.sleep(50);
            ByteBuffer body = ByteBuffer.allocate(size);
            body.putLong(next[i]++).putLong(System.nanoTime()).putLong(i);
            sent.incrementAndGet();
            all.get(i).send(new ProducerRecord<>(TOPIC, 0, null, body.array()), (place, why) -> {
                if (why != null) failed.compareAndSet(null, why);
                acknowledged.incrementAndGet();
            });
        }
        double rate = (done() - before) / ((System.nanoTime() - measuring) / 1e9);
        while (done() < sent.get() && failed.get() == null) Thread.sleep(1);
        ended = true;
        consumer.join();
        if (failed.get() != null) throw failed.get();
        for (var producer : all) producer.close(Duration.ofSeconds(5));
        System.out.printf(Locale.ROOT, "{\"publications_per_second\":%.1f,\"p50_us\":%.1f,\"p99_us\":%.1f}%n", rate,
            took.share(0.5) / 1e3, took.share(0.99) / 1e3);
    }

    /** Records that were acknowledged and delivered. */
    static long done() {
        return Math.min(acknowledged.get(), delivered.get());
    }

    static void consume(Map<String, Object> common, int producers, LongList took) {
        long[] next = new long[producers];
        Map<String, Object> settings = new HashMap<>(common);
        settings.put("enable.auto.commit", false);
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            TopicPartition partition = new TopicPartition(TOPIC, 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            while (!ended) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(50))) {
                    ByteBuffer body = ByteBuffer.wrap(record.value());
                    long number = body.getLong(), at = body.getLong();
                    int producer = (int) body.getLong();
                    if (number != next[producer]++) throw new IllegalStateException("a record is missing, or twice");
                    long[] measured = from;
                    if (measured != null && at >= measured[0]) took.add(System.nanoTime() - at);
                    delivered.incrementAndGet();
                }
            }
        } catch (Exception why) {
            failed.compareAndSet(null, why);
        }
    }

    static final class LongList {
        private long[] values = new long[1024];
        private int length;

        void add(long value) {
            if (length == values.length) values = Arrays.copyOf(values, 2 * length);
            values[length++] = value;
        }

        double share(double share) {
            if (length == 0) return 0;
            Arrays.sort(values, 0, length);
            return values[(int) ((length - 1) * share)];
        }
    }
}
