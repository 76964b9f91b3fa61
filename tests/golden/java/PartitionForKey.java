import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.HexFormat;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.utils.Utils;

/** For each line "key-in-hex partition-count": Kafka's hash of the key, and the partition that its producer chooses. */
public class PartitionForKey {
    public static void main(String[] arguments) throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder answer = new StringBuilder();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            int space = line.indexOf(' ');
            byte[] key = HexFormat.of().parseHex(line.substring(0, space));
            int count = Integer.parseInt(line.substring(space + 1));
            answer.append(Utils.murmur2(key)).append(' ');
            answer.append(BuiltInPartitioner.partitionForKey(key, count)).append('\n');
        }
        System.out.print(answer);
    }
}
