// Command franz is franz-go behind the interop lines.
package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"odradek/interop/lines"
)

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func main() { lines.Main(franz{}) }

type franz struct{}

// Produce is idempotent, franz-go's default.
func (franz) Produce(
	ctx context.Context, bootstrap, topic, codec string, records []lines.Record,
) error {
	compression, ok := codecs[codec]
	if !ok {
		return fmt.Errorf("no codec %s", codec)
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(lines.Addresses(bootstrap)...),
		kgo.DefaultProduceTopic(topic),
		kgo.ProducerBatchCompression(compression),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	sent := make([]*kgo.Record, len(records))
	for i, record := range records {
		sent[i] = &kgo.Record{
			Key:       bytes(record.Key),
			Value:     bytes(record.Value),
			Timestamp: time.UnixMilli(record.TimestampMs),
		}
		for _, header := range record.Headers {
			sent[i].Headers = append(
				sent[i].Headers, kgo.RecordHeader{Key: header[0], Value: []byte(header[1])},
			)
		}
	}
	return client.ProduceSync(ctx, sent...).FirstErr()
}

// Consume takes the cooperative balancer, franz-go's default.
func (franz) Consume(
	ctx context.Context, bootstrap, topic, group string, count int, out *lines.Output,
) error {
	own := &assignment{out: out, partitions: map[int32]bool{}}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(lines.Addresses(bootstrap)...),
		kgo.ConsumeTopics(topic),
		kgo.ConsumerGroup(group),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(own.add),
		kgo.OnPartitionsRevoked(own.remove),
		kgo.OnPartitionsLost(own.remove),
	)
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()
	for count > 0 {
		fetches := client.PollRecords(ctx, count)
		if ctx.Err() != nil {
			return nil
		}
		// Told, not fatal: franz-go hands out what it met and goes on, as while a broker restarts.
		for _, met := range fetches.Errors() {
			fmt.Fprintln(os.Stderr, met.Topic, met.Partition, met.Err)
		}
		records := fetches.Records()
		// Not ctx: what was polled is committed and told, even when the input ends now.
		if err := client.CommitRecords(context.Background(), records...); err != nil {
			return err
		}
		for _, record := range records {
			if err := out.Record(received(record)); err != nil {
				return err
			}
		}
		count -= len(records)
		client.AllowRebalance()
	}
	return nil
}

// assignment is what a member has; its callbacks run in the client's goroutines.
type assignment struct {
	mutex      sync.Mutex
	out        *lines.Output
	partitions map[int32]bool
}

func (a *assignment) add(_ context.Context, _ *kgo.Client, added map[string][]int32) {
	a.change(added, func(partition int32) { a.partitions[partition] = true })
}

func (a *assignment) remove(_ context.Context, _ *kgo.Client, removed map[string][]int32) {
	a.change(removed, func(partition int32) { delete(a.partitions, partition) })
}

func (a *assignment) change(topics map[string][]int32, apply func(int32)) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	for _, partitions := range topics {
		for _, partition := range partitions {
			apply(partition)
		}
	}
	if err := a.out.Assigned(slices.Sorted(maps.Keys(a.partitions))); err != nil {
		panic(err)
	}
}

func received(record *kgo.Record) lines.Record {
	told := lines.Record{
		Partition:   record.Partition,
		Offset:      record.Offset,
		Key:         text(record.Key),
		Value:       text(record.Value),
		Headers:     []lines.Header{},
		TimestampMs: record.Timestamp.UnixMilli(),
	}
	for _, header := range record.Headers {
		told.Headers = append(told.Headers, lines.Header{header.Key, string(header.Value)})
	}
	return told
}

func bytes(text *string) []byte {
	if text == nil {
		return nil
	}
	return []byte(*text)
}

func text(bytes []byte) *string {
	if bytes == nil {
		return nil
	}
	text := string(bytes)
	return &text
}

// Admin asks through kadm.
func (franz) Admin(bootstrap string) (lines.Admin, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(lines.Addresses(bootstrap)...))
	if err != nil {
		return nil, err
	}
	admin := kadm.NewClient(client)
	return func(ctx context.Context, request lines.Request) (any, error) {
		if request.Verb() == "describe-cluster" {
			return describeCluster(ctx, admin)
		}
		if answer, err := topics(ctx, admin, request); !errors.Is(err, lines.ErrUnsupported) {
			return answer, err
		}
		return groups(ctx, admin, request)
	}, nil
}

func describeCluster(ctx context.Context, admin *kadm.Client) (any, error) {
	metadata, err := admin.BrokerMetadata(ctx)
	brokers := [][]any{}
	for _, broker := range metadata.Brokers {
		brokers = append(brokers, []any{broker.NodeID, broker.Host, broker.Port})
	}
	return map[string]any{
		"cluster_id": metadata.Cluster, "controller": metadata.Controller, "brokers": brokers,
	}, err
}

func topics(ctx context.Context, admin *kadm.Client, request lines.Request) (any, error) {
	switch request.Verb() {
	case "create-topic":
		count := int32(request.Number(2))
		_, err := admin.CreateTopic(ctx, count, 1, request.Settings(3), request.Text(1))
		return nil, err
	case "list-topics":
		details, err := admin.ListTopics(ctx)
		return details.Names(), err
	case "describe-topic":
		details, err := admin.ListTopics(ctx, request.Text(1))
		return len(details[request.Text(1)].Partitions), errors.Join(err, details.Error())
	case "describe-configs":
		return describeConfigs(ctx, admin, request.Text(1))
	case "alter-configs":
		var changes []kadm.AlterConfig
		for name, value := range request.Settings(2) {
			change := kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: value}
			if value == nil {
				change.Op = kadm.DeleteConfig
			}
			changes = append(changes, change)
		}
		altered, err := admin.AlterTopicConfigs(ctx, changes, request.Text(1))
		if err != nil {
			return nil, err
		}
		return nil, altered[0].Err
	case "create-partitions":
		count := int(request.Number(2))
		created, err := admin.UpdatePartitions(ctx, count, request.Text(1))
		return nil, errors.Join(err, created.Error())
	case "delete-records":
		before := kadm.Offsets{}
		before.AddOffset(request.Text(1), int32(request.Number(2)), request.Number(3), -1)
		deleted, err := admin.DeleteRecords(ctx, before)
		return nil, errors.Join(err, deleted.Error())
	case "delete-topic":
		_, err := admin.DeleteTopic(ctx, request.Text(1))
		return nil, err
	}
	return nil, lines.ErrUnsupported
}

func describeConfigs(ctx context.Context, admin *kadm.Client, topic string) (any, error) {
	described, err := admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return nil, err
	}
	values := map[string]*string{}
	for _, config := range described[0].Configs {
		values[config.Key] = config.Value
	}
	return values, described[0].Err
}

func groups(ctx context.Context, admin *kadm.Client, request lines.Request) (any, error) {
	switch request.Verb() {
	case "list-groups":
		listed, err := admin.ListGroups(ctx)
		return listed.Groups(), err
	case "describe-group":
		described, err := admin.DescribeGroups(ctx, request.Text(1))
		found := described[request.Text(1)]
		answer := map[string]any{"state": found.State, "members": len(found.Members)}
		return answer, errors.Join(err, described.Error())
	case "group-offsets":
		fetched, err := admin.FetchOffsets(ctx, request.Text(1))
		offsets := [][]int64{}
		for _, offset := range fetched.Offsets().Sorted() {
			offsets = append(offsets, []int64{int64(offset.Partition), offset.At})
		}
		return offsets, errors.Join(err, fetched.Error())
	case "delete-group":
		_, err := admin.DeleteGroup(ctx, request.Text(1))
		return nil, err
	}
	return nil, lines.ErrUnsupported
}
