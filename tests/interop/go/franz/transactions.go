package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"odradek/interop/lines"
)

const batch = 20

// Transact returns what carries the requests of a transactional producer out.
func (franz) Transact(bootstrap, id string, timeout time.Duration) (lines.Admin, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(lines.Addresses(bootstrap)...),
		kgo.TransactionalID(id),
		kgo.TransactionTimeout(timeout),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		return nil, err
	}
	// The client asks for its id when it is first needed: here, so that who is fenced is known.
	if _, _, err := client.ProducerID(context.Background()); err != nil {
		return nil, err
	}
	return func(ctx context.Context, request lines.Request) (any, error) {
		switch request.Verb() {
		case "begin":
			return nil, client.BeginTransaction()
		case "send":
			record := &kgo.Record{
				Topic:     request.Text(1),
				Partition: int32(request.Number(2)),
				Key:       []byte(request.Text(3)),
				Value:     []byte(request.Text(4)),
			}
			return nil, client.ProduceSync(ctx, record).FirstErr()
		case "commit":
			return nil, client.EndTransaction(ctx, kgo.TryCommit)
		case "abort":
			return nil, client.EndTransaction(ctx, kgo.TryAbort)
		}
		return nil, lines.ErrUnsupported
	}, nil
}

// Copy copies a topic, records and offsets in one transaction, until ctx ends.
func (franz) Copy(
	ctx context.Context, bootstrap, group, from, to, id string, copied func(int) error,
) error {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(lines.Addresses(bootstrap)...),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(from),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(500*time.Millisecond),
		kgo.TransactionalID(id),
		kgo.TransactionTimeout(10*time.Second),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		return err
	}
	defer session.Close()
	for {
		fetches := session.PollRecords(ctx, batch)
		if ctx.Err() != nil {
			return nil
		}
		for _, met := range fetches.Errors() {
			fmt.Fprintln(os.Stderr, met.Topic, met.Partition, met.Err)
		}
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			session.Produce(ctx, &kgo.Record{
				Topic:     to,
				Partition: record.Partition,
				Key:       record.Key,
				Value:     record.Value,
			}, nil)
		})
		committed, err := session.End(context.Background(), kgo.TryCommit)
		if err != nil {
			return err
		}
		if committed {
			if err := copied(fetches.NumRecords()); err != nil {
				return err
			}
		}
	}
}
