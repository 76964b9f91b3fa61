// Producers of franz-go that do as they are told: see tests/support/remote_client.py for the commands.
//
// Usage: interop transactions ADDRESS
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	longestLine = 1 << 24
	batchBytes  = 2_048
)

type command struct {
	Do              string          `json:"do"`
	As              int             `json:"as"`
	TransactionalID string          `json:"transactional_id"`
	TimeoutMs       int             `json:"timeout_ms"`
	Codec           string          `json:"codec"`
	Topic           string          `json:"topic"`
	Partition       int32           `json:"partition"`
	Values          []string        `json:"values"`
	Group           string          `json:"group"`
	Offsets         map[int32]int64 `json:"offsets"`
	Last            string          `json:"last"`
	Isolation       string          `json:"isolation"`
	Target          string          `json:"target"`
	Count           int             `json:"count"`
}

type troupe struct {
	ctx       context.Context
	seed      string
	producers map[int]*kgo.Client
}

func runTransactions(arguments []string) {
	t := &troupe{context.Background(), arguments[0], map[int]*kgo.Client{}}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, longestLine)
	outcomes := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var c command
		must(json.Unmarshal(lines.Bytes(), &c))
		done, err := t.do(c)
		if err != nil {
			must(outcomes.Encode(map[string]string{"refused": refusal(err)}))
		} else {
			must(outcomes.Encode(map[string]any{"done": done}))
		}
	}
	must(lines.Err())
}

func refusal(err error) string {
	var coded *kerr.Error
	if errors.As(err, &coded) {
		return coded.Message
	}
	return err.Error()
}

func (t *troupe) do(c command) (any, error) {
	producer := t.producers[c.As]
	switch c.Do {
	case "open":
		return nil, t.open(c)
	case "begin":
		return nil, producer.BeginTransaction()
	case "send":
		var records []*kgo.Record
		for _, value := range c.Values {
			records = append(records, &kgo.Record{Topic: c.Topic, Partition: c.Partition, Value: []byte(value)})
		}
		return nil, producer.ProduceSync(t.ctx, records...).FirstErr()
	case "send_offsets":
		return nil, t.sendOffsets(producer, c)
	case "commit":
		return nil, producer.EndTransaction(t.ctx, kgo.TryCommit)
	case "abort":
		return nil, producer.EndTransaction(t.ctx, kgo.TryAbort)
	case "close":
		producer.Close()
		return nil, nil
	case "read":
		return t.read(c)
	case "process":
		return t.process(c)
	}
	return nil, errors.New("no such command: " + c.Do)
}

// open asks for the identity at once, as others do; left alone, the first record would.
func (t *troupe) open(c command) error {
	producer, err := kgo.NewClient(
		kgo.SeedBrokers(t.seed),
		kgo.TransactionalID(c.TransactionalID),
		kgo.TransactionTimeout(time.Duration(c.TimeoutMs)*time.Millisecond),
		kgo.ProducerBatchCompression(codecs[c.Codec]),
		kgo.ProducerBatchMaxBytes(batchBytes),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	must(err)
	t.producers[c.As] = producer
	_, _, err = producer.ProducerID(t.ctx)
	return err
}

// sendOffsets is a bare request: a client that is no member of the group has no other way.
func (t *troupe) sendOffsets(producer *kgo.Client, c command) error {
	id, epoch, err := producer.ProducerID(t.ctx)
	if err != nil {
		return err
	}
	request := kmsg.NewPtrTxnOffsetCommitRequest()
	request.TransactionalID, _ = producer.OptValue(kgo.TransactionalID).(string)
	request.ProducerID, request.ProducerEpoch, request.Group = id, epoch, c.Group
	topic := kmsg.NewTxnOffsetCommitRequestTopic()
	topic.Topic = c.Topic
	for index, offset := range c.Offsets {
		partition := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		partition.Partition, partition.Offset = index, offset
		topic.Partitions = append(topic.Partitions, partition)
	}
	request.Topics = append(request.Topics, topic)
	response, err := request.RequestWith(t.ctx, producer)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(response.Topics[0].Partitions[0].ErrorCode)
}

func isolation(name string) kgo.Opt {
	if name == "read_committed" {
		return kgo.FetchIsolationLevel(kgo.ReadCommitted())
	}
	return kgo.FetchIsolationLevel(kgo.ReadUncommitted())
}

func (t *troupe) read(c command) ([]string, error) {
	places := map[string]map[int32]kgo.Offset{c.Topic: {c.Partition: kgo.NewOffset().AtStart()}}
	consumer, err := kgo.NewClient(kgo.SeedBrokers(t.seed), kgo.ConsumePartitions(places), isolation(c.Isolation))
	must(err)
	defer consumer.Close()
	ctx, cancel := context.WithTimeout(t.ctx, sessionLimit)
	defer cancel()
	var values []string
	for len(values) == 0 || values[len(values)-1] != c.Last {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(r *kgo.Record) { values = append(values, string(r.Value)) })
	}
	return values, nil
}
