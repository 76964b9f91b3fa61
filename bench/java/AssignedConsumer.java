import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/** The poll loop of Kafka's ConsumerPerformance with its settings, on assigned partitions: needs no group. */
public class AssignedConsumer {
    private static final long TIMEOUT_MS = 60_000;

    public static void main(String[] arguments) {
        String topic = arguments[1];
        long count = Long.parseLong(arguments[2]);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("receive.buffer.bytes", String.valueOf(2 * 1024 * 1024));
        settings.put("max.partition.fetch.bytes", String.valueOf(1024 * 1024));
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("check.crcs", "false");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            List<TopicPartition> partitions = consumer.partitionsFor(topic).stream()
                .map(partition -> new TopicPartition(topic, partition.partition()))
                .toList();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            report(count, read(consumer, count));
        }
    }

    /** Returns how many nanoseconds it took to read that many records. */
    private static long read(KafkaConsumer<byte[], byte[]> consumer, long count) {
        long received = 0;
        long bytes = 0;
        long begun = System.nanoTime();
        long lastReceived = System.currentTimeMillis();
        while (received < count) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
            for (ConsumerRecord<byte[], byte[]> record : records) {
                received++;
                bytes += record.value().length;
            }
            if (!records.isEmpty()) {
                lastReceived = System.currentTimeMillis();
            } else if (System.currentTimeMillis() - lastReceived > TIMEOUT_MS) {
                throw new IllegalStateException(received + " of " + count + " records received");
            }
        }
        long elapsed = System.nanoTime() - begun;
        if (bytes == 0) {
            throw new IllegalStateException("the records are empty");
        }
        return elapsed;
    }

    private static void report(long count, long elapsedNs) {
        System.out.printf("{\"records\": %d, \"records_per_second\": %.1f}%n", count, count * 1e9 / elapsedNs);
    }
}
