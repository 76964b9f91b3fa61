// Consume-transform-produce with franz-go: two members of a group, and what one of them did when the other came is undone.
package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// worker copies records from one topic to the other, a transaction for what each poll brought.
type worker struct {
	ctx       context.Context
	session   *kgo.GroupTransactSession
	target    string
	revoked   chan struct{} // closed when partitions are first taken from it
	committed *atomic.Int64 // records, of all workers
}

func (t *troupe) newWorker(ctx context.Context, c command, name string, committed *atomic.Int64) *worker {
	w := &worker{ctx: ctx, target: c.Target, revoked: make(chan struct{}), committed: committed}
	var once sync.Once
	var err error
	w.session, err = kgo.NewGroupTransactSession(
		kgo.SeedBrokers(t.seed), kgo.TransactionalID(fmt.Sprintf("%s-%s", c.TransactionalID, name)),
		kgo.ConsumerGroup(c.Group), kgo.ConsumeTopics(c.Topic), kgo.Balancers(kgo.RangeBalancer()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(300*time.Millisecond),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
		kgo.OnPartitionsRevoked(func(context.Context, *kgo.Client, map[string][]int32) {
			once.Do(func() { close(w.revoked) })
		}),
	)
	must(err)
	return w
}

// copy begins a transaction with what a poll brings; it returns how many records that were.
func (w *worker) copy() int {
	soon, done := context.WithTimeout(w.ctx, 100*time.Millisecond)
	defer done()
	fetches := w.session.PollFetches(soon)
	must(w.ctx.Err())
	if fetches.NumRecords() == 0 {
		return 0
	}
	must(w.session.Begin())
	fetches.EachRecord(func(r *kgo.Record) {
		w.session.Produce(w.ctx, &kgo.Record{Topic: w.target, Value: r.Value}, nil)
	})
	return fetches.NumRecords()
}

func (w *worker) end(count int) bool {
	committed, err := w.session.End(w.ctx, kgo.TryCommit)
	must(err)
	if committed {
		w.committed.Add(int64(count))
	}
	return committed
}

func (w *worker) run(total int) {
	for int(w.committed.Load()) < total {
		if count := w.copy(); count > 0 {
			w.end(count)
		}
	}
}

// process copies the whole topic; the outcome says whether the transaction over which the second member came was committed.
func (t *troupe) process(c command) (any, error) {
	ctx, cancel := context.WithTimeout(t.ctx, 2*sessionLimit)
	defer cancel()
	var committed atomic.Int64
	first := t.newWorker(ctx, c, "first", &committed)
	defer first.session.Close()
	count := 0
	for count == 0 {
		count = first.copy()
	}
	second := t.newWorker(ctx, c, "second", &committed)
	defer second.session.Close()
	var both sync.WaitGroup
	both.Go(func() { second.run(c.Count) })
	select {
	case <-first.revoked:
	case <-ctx.Done():
		must(ctx.Err())
	}
	overtaken := first.end(count)
	first.run(c.Count)
	both.Wait()
	return map[string]any{"committed": committed.Load(), "overtaken": overtaken}, nil
}
