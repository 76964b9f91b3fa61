// Members of a group with franz-go: two of them share a topic, one leaves, the other has everything again.
//
// Usage: interop group ADDRESS TOPIC GROUP COUNT PROTOCOL
package main

import (
	"context"
	"encoding/json"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type member struct {
	kafka *kgo.Client
	mutex sync.Mutex
	owned map[int32]bool
}

func (m *member) count() int {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return len(m.owned)
}

func newMember(seed, topic, group, protocol string) *member {
	m := &member{owned: map[int32]bool{}}
	note := func(isOwned bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
			m.mutex.Lock()
			defer m.mutex.Unlock()
			for _, index := range changed[topic] {
				if isOwned {
					m.owned[index] = true
				} else {
					delete(m.owned, index)
				}
			}
		}
	}
	balancer := kgo.CooperativeStickyBalancer()
	if protocol == "range" {
		balancer = kgo.RangeBalancer()
	}
	var err error
	m.kafka, err = kgo.NewClient(
		kgo.SeedBrokers(seed), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.Balancers(balancer),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
		kgo.HeartbeatInterval(300*time.Millisecond),
		kgo.OnPartitionsAssigned(note(true)), kgo.OnPartitionsRevoked(note(false)), kgo.OnPartitionsLost(note(false)),
	)
	must(err)
	return m
}

func runGroup(arguments []string) {
	seed, topic, group, protocol := arguments[0], arguments[1], arguments[2], arguments[4]
	count, err := strconv.Atoi(arguments[3])
	must(err)
	ctx, cancel := context.WithTimeout(context.Background(), 2*sessionLimit)
	defer cancel()
	read := 0
	poll := func(members ...*member) {
		must(ctx.Err())
		for _, each := range members {
			soon, done := context.WithTimeout(ctx, 50*time.Millisecond)
			fetches := each.kafka.PollFetches(soon)
			done()
			read += fetches.NumRecords()
		}
	}
	first := newMember(seed, topic, group, protocol)
	for read < count || first.count() < 4 {
		poll(first)
	}
	must(first.kafka.CommitUncommittedOffsets(ctx))
	second := newMember(seed, topic, group, protocol)
	for first.count() != 2 || second.count() != 2 {
		poll(first, second)
	}
	second.kafka.Close()
	for first.count() != 4 {
		poll(first)
	}
	admin := kadm.NewClient(first.kafka)
	described, err := admin.DescribeGroups(ctx, group)
	must(err)
	offsets, err := admin.FetchOffsets(ctx, group)
	must(err)
	at := map[int32]int64{}
	offsets.Each(func(each kadm.OffsetResponse) { at[each.Partition] = each.At })
	first.kafka.Close()
	must(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"read": read, "state": described[group].State, "members": len(described[group].Members), "offsets": at,
	}))
}
