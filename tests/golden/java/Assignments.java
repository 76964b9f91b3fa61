import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/** For each line, a group as JSON: what Kafka's own assignors make of it, and the bytes that its members write. */
public class Assignments {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode group = JSON.readTree(line);
            ObjectNode answer = JSON.createObjectNode();
            for (ConsumerPartitionAssignor assignor : List.of(new RangeAssignor(), new RoundRobinAssignor())) {
                answer.set(assignor.name(), assigned(assignor, group));
            }
            ObjectNode bytes = answer.putObject("bytes");
            group.get("members").fields().forEachRemaining(
                one -> bytes.set(one.getKey(), written(one.getKey(), one.getValue())));
            System.out.println(JSON.writeValueAsString(answer));
        }
    }

    private static ObjectNode assigned(ConsumerPartitionAssignor assignor, JsonNode group) {
        Map<String, Subscription> subscriptions = new HashMap<>();
        group.get("members").fields().forEachRemaining(
            one -> subscriptions.put(one.getKey(), subscription(one.getValue(), null)));
        Map<String, Assignment> assignments =
            assignor.assign(cluster(group.get("topics")), new GroupSubscription(subscriptions)).groupAssignment();
        ObjectNode answer = JSON.createObjectNode();
        new TreeMap<>(assignments).forEach((member, assignment) -> {
            ArrayNode partitions = answer.putArray(member);
            for (TopicPartition one : assignment.partitions()) {
                partitions.addArray().add(one.topic()).add(one.partition());
            }
        });
        return answer;
    }

    private static ObjectNode written(String memberId, JsonNode member) {
        ObjectNode answer = JSON.createObjectNode();
        Assignment owned = new Assignment(owned(member));
        ConsumerGroupMetadata identity =
            new ConsumerGroupMetadata("g", member.get("generation").asInt(), memberId, Optional.empty());
        Set<String> topics = new HashSet<>();
        member.get("topics").forEach(one -> topics.add(one.asText()));
        for (ConsumerPartitionAssignor one : List.of(new StickyAssignor(), new CooperativeStickyAssignor())) {
            answer.put(one.name() + "-new", hex(one.subscriptionUserData(topics)));
            one.onAssignment(owned, identity);
            answer.put(one.name(), hex(one.subscriptionUserData(topics)));
        }
        ByteBuffer userData = ByteBuffer.wrap(new byte[] {1, 2, 3});
        answer.put("subscription", hex(ConsumerProtocol.serializeSubscription(subscription(member, null))));
        answer.put("with-user-data", hex(ConsumerProtocol.serializeSubscription(subscription(member, userData))));
        answer.put("assignment", hex(ConsumerProtocol.serializeAssignment(owned)));
        return answer;
    }

    private static Subscription subscription(JsonNode member, ByteBuffer userData) {
        List<String> topics = new ArrayList<>();
        member.get("topics").forEach(one -> topics.add(one.asText()));
        Subscription subscription = new Subscription(
            topics, userData, owned(member), member.get("generation").asInt(), text(member.get("rack")));
        subscription.setGroupInstanceId(text(member.get("instance")));
        return subscription;
    }

    private static List<TopicPartition> owned(JsonNode member) {
        List<TopicPartition> owned = new ArrayList<>();
        member.get("owned").forEach(one -> owned.add(new TopicPartition(one.get(0).asText(), one.get(1).asInt())));
        return owned;
    }

    private static Cluster cluster(JsonNode topics) {
        Map<String, Node> nodes = new HashMap<>();
        List<PartitionInfo> partitions = new ArrayList<>();
        topics.fields().forEachRemaining(topic -> {
            int index = 0;
            for (JsonNode racks : topic.getValue()) {
                List<Node> replicas = new ArrayList<>();
                for (JsonNode rack : racks) {
                    String name = rack.asText();
                    replicas.add(nodes.computeIfAbsent(name, key -> new Node(nodes.size(), "h", 1, key)));
                }
                Node[] all = replicas.toArray(new Node[0]);
                Node leader = all.length == 0 ? Node.noNode() : all[0];
                partitions.add(new PartitionInfo(topic.getKey(), index++, leader, all, all));
            }
        });
        return new Cluster("c", nodes.values(), partitions, Set.of(), Set.of());
    }

    private static Optional<String> text(JsonNode value) {
        return value.isNull() ? Optional.empty() : Optional.of(value.asText());
    }

    private static String hex(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return HexFormat.of().formatHex(bytes);
    }
}
