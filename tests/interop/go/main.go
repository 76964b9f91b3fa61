// One session of franz-go: administer a topic, produce to it, read it back from every kind of place.
// Prints what it saw as JSON; the test judges.
//
// Usage: interop ADDRESS TOPIC CODEC COUNT FIRST_TIMESTAMP_MS
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	partitions    = 2
	sessionLimit  = 30 * time.Second
	retentionName = "retention.ms"
)

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

// perPartition is keyed by the partition's number.
type perPartition map[int32]any

// record is partition, offset, milliseconds, leader epoch, key, value, first header.
type record [7]any

type session struct {
	ctx   context.Context
	seed  string
	topic string
	count int
	start int64 // milliseconds of the first record; one more for each that follows
	kafka *kgo.Client
	admin *kadm.Client
	seen  map[string]any
}

func main() {
	if os.Args[1] == "group" {
		runGroup(os.Args[2:])
		return
	}
	if os.Args[1] == "transactions" {
		runTransactions(os.Args[2:])
		return
	}
	seed, topic, codec := os.Args[1], os.Args[2], os.Args[3]
	count, err := strconv.Atoi(os.Args[4])
	must(err)
	start, err := strconv.ParseInt(os.Args[5], 10, 64)
	must(err)
	ctx, cancel := context.WithTimeout(context.Background(), sessionLimit)
	defer cancel()
	kafka, err := kgo.NewClient(
		kgo.SeedBrokers(seed),
		kgo.ProducerBatchCompression(codecs[codec]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	must(err)
	defer kafka.Close()
	s := &session{ctx, seed, topic, count, start, kafka, kadm.NewClient(kafka), map[string]any{}}
	s.create()
	s.produce()
	s.read()
	s.listOffsets()
	s.configure()
	s.lookAround()
	s.remove()
	must(json.NewEncoder(os.Stdout).Encode(s.seen))
}

func (s *session) create() {
	retention := "123456789012"
	configs := map[string]*string{retentionName: &retention}
	created, err := s.admin.CreateTopic(s.ctx, partitions, 1, configs, s.topic)
	must(err)
	_, again := s.admin.CreateTopic(s.ctx, partitions, 1, nil, s.topic)
	s.seen["created"] = []any{created.NumPartitions, created.ReplicationFactor, name(again)}
}

// produce is idempotent, as by default.
func (s *session) produce() {
	var records []*kgo.Record
	for n := range s.count {
		records = append(records, &kgo.Record{
			Topic:     s.topic,
			Partition: int32(n % partitions),
			Key:       fmt.Appendf(nil, "k%d", n),
			Value:     fmt.Appendf(nil, "value %d", n),
			Headers:   []kgo.RecordHeader{{Key: "n", Value: fmt.Append(nil, n)}},
			Timestamp: time.UnixMilli(s.start + int64(n)),
		})
	}
	must(s.kafka.ProduceSync(s.ctx, records...).FirstErr())
	last := perPartition{}
	for _, each := range records {
		last[each.Partition] = each.Offset
	}
	s.seen["produced"] = last
}

func (s *session) read() {
	ends := s.count / partitions
	s.seen["read"] = map[string]any{
		"start":     s.readFrom(kgo.NewOffset().AtStart(), s.count),
		"end":       s.readFrom(kgo.NewOffset().AtEnd().Relative(-3), 3*partitions),
		"time":      s.readFrom(kgo.NewOffset().AfterMilli(s.start+10), s.count-10),
		"offset":    s.readFrom(kgo.NewOffset().At(int64(ends-4)).WithEpoch(0), 4*partitions),
		"beyond":    s.readFrom(kgo.NewOffset().At(int64(ends+1_000)), s.count),
		"committed": s.readFrom(kgo.NewOffset().AtStart(), s.count, kgo.FetchIsolationLevel(kgo.ReadCommitted())),
		"trickle":   s.readFrom(kgo.NewOffset().AtStart(), s.count, kgo.FetchMaxPartitionBytes(100)),
		"alone":     s.readFrom(kgo.NewOffset().AtStart(), s.count, kgo.DisableFetchSessions()),
	}
}

// readFrom assigns all partitions by hand and ends after that many records.
func (s *session) readFrom(place kgo.Offset, count int, options ...kgo.Opt) []record {
	assigned := map[int32]kgo.Offset{}
	for index := range int32(partitions) {
		assigned[index] = place
	}
	options = append(options, kgo.SeedBrokers(s.seed),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{s.topic: assigned}))
	consumer, err := kgo.NewClient(options...)
	must(err)
	defer consumer.Close()
	var records []record
	for len(records) < count {
		fetches := consumer.PollFetches(s.ctx)
		must(fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			records = append(records, record{r.Partition, r.Offset, r.Timestamp.UnixMilli(), r.LeaderEpoch,
				string(r.Key), string(r.Value), string(r.Headers[0].Value)})
		})
	}
	return records
}

func (s *session) listOffsets() {
	list := func(listed kadm.ListedOffsets, err error) perPartition {
		must(err)
		must(listed.Error())
		offsets := perPartition{}
		listed.Each(func(o kadm.ListedOffset) { offsets[o.Partition] = []int64{o.Offset, o.Timestamp} })
		return offsets
	}
	s.seen["offsets"] = map[string]any{
		"start":  list(s.admin.ListStartOffsets(s.ctx, s.topic)),
		"end":    list(s.admin.ListEndOffsets(s.ctx, s.topic)),
		"stable": list(s.admin.ListCommittedOffsets(s.ctx, s.topic)),
		"after":  list(s.admin.ListOffsetsAfterMilli(s.ctx, s.start+10, s.topic)),
		"newest": list(s.admin.ListMaxTimestampOffsets(s.ctx, s.topic)),
		"local":  list(s.admin.ListLocalLogStartOffsets(s.ctx, s.topic)),
	}
}

func (s *session) configure() {
	size := "1048576"
	changes := []kadm.AlterConfig{
		{Op: kadm.SetConfig, Name: "segment.bytes", Value: &size},
		{Op: kadm.DeleteConfig, Name: retentionName},
	}
	_, err := s.admin.AlterTopicConfigs(s.ctx, changes, s.topic)
	must(err)
	described, err := s.admin.DescribeTopicConfigs(s.ctx, s.topic)
	must(err)
	own := map[string]string{}
	for _, config := range described[0].Configs {
		if config.Source == kmsg.ConfigSourceDynamicTopicConfig {
			own[config.Key] = config.MaybeValue()
		}
	}
	unknown, err := s.admin.AlterTopicConfigs(s.ctx, []kadm.AlterConfig{{Name: "no.such.key", Value: &size}}, s.topic)
	must(err)
	s.seen["configs"] = []any{own, name(unknown[0].Err)}
}

func (s *session) lookAround() {
	topics, err := s.admin.ListTopics(s.ctx, s.topic)
	must(err)
	id := topics[s.topic].ID
	s.seen["metadata by id"] = s.metadataByID(id)
	s.seen["metadata by unknown id"] = s.metadataByID(kadm.TopicID{15: 1})

	producers, err := s.admin.DescribeProducers(s.ctx, topics.TopicsSet())
	must(err)
	sequences := perPartition{}
	producers.EachProducer(func(p kadm.DescribedProducer) { sequences[p.Partition] = p.LastSequence })
	s.seen["producers"] = sequences

	directories, err := s.admin.DescribeAllLogDirs(s.ctx, topics.TopicsSet())
	must(err)
	sizes := perPartition{}
	directories.Each(func(d kadm.DescribedLogDir) {
		d.Topics.Each(func(p kadm.DescribedLogDirPartition) { sizes[p.Partition] = p.Size > 0 })
	})
	s.seen["log dirs"] = sizes

	more, err := s.admin.CreatePartitions(s.ctx, 1, s.topic)
	must(err)
	must(more.Error())
	topics, err = s.admin.ListTopics(s.ctx, s.topic)
	must(err)
	s.seen["partitions"] = len(topics[s.topic].Partitions)
}

// metadataByID gives the error and the number of partitions of a topic that is asked for by its id alone.
func (s *session) metadataByID(id kadm.TopicID) []any {
	request := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.TopicID = id
	request.Topics = append(request.Topics, topic)
	response, err := request.RequestWith(s.ctx, s.kafka)
	must(err)
	found := response.Topics[0]
	return []any{name(kerr.ErrorForCode(found.ErrorCode)), len(found.Partitions)}
}

func (s *session) remove() {
	before := kadm.Offsets{}
	before.AddOffset(s.topic, 0, 5, -1)
	before.AddOffset(s.topic, 1, int64(s.count), -1)
	deleted, err := s.admin.DeleteRecords(s.ctx, before)
	must(err)
	low := perPartition{}
	deleted.Each(func(d kadm.DeleteRecordsResponse) { low[d.Partition] = []any{d.LowWatermark, name(d.Err)} })
	s.seen["deleted records"] = low
}

// name is Kafka's name of an error, empty for none.
func name(err error) string {
	var coded *kerr.Error
	if err == nil || !errors.As(err, &coded) {
		must(err)
		return ""
	}
	return coded.Message
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
