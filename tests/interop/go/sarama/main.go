// Command sarama is sarama behind the interop lines.
package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"odradek/interop/lines"
)

// retry bounds how often a broker that is down is asked.
const retry = 100 * time.Millisecond

func main() { lines.Main(client{}) }

type client struct{}

func config() *sarama.Config {
	config := sarama.NewConfig()
	// sarama speaks as an old client unless it is told what the broker is.
	config.Version = sarama.V4_3_1_0
	return config
}

// Produce is idempotent, for which sarama wants one request at a time.
func (client) Produce(
	_ context.Context, bootstrap, topic, codec string, records []lines.Record,
) error {
	config := config()
	if err := config.Producer.Compression.UnmarshalText([]byte(codec)); err != nil {
		return err
	}
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer(lines.Addresses(bootstrap), config)
	if err != nil {
		return err
	}
	sent := make([]*sarama.ProducerMessage, len(records))
	for i, record := range records {
		sent[i] = &sarama.ProducerMessage{
			Topic:     topic,
			Key:       encoder(record.Key),
			Value:     encoder(record.Value),
			Timestamp: time.UnixMilli(record.TimestampMs),
		}
		for _, header := range record.Headers {
			pair := sarama.RecordHeader{Key: []byte(header[0]), Value: []byte(header[1])}
			sent[i].Headers = append(sent[i].Headers, pair)
		}
	}
	return errors.Join(producer.SendMessages(sent), producer.Close())
}

// encoder returns a nil interface for null, which a nil StringEncoder cannot be.
func encoder(text *string) sarama.Encoder {
	if text == nil {
		return nil
	}
	return sarama.StringEncoder(*text)
}

// Consume takes the range strategy, sarama's default.
func (client) Consume(
	ctx context.Context, bootstrap, topic, group string, count int, out *lines.Output,
) error {
	config := config()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	consumer, err := sarama.NewConsumerGroup(lines.Addresses(bootstrap), group, config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	member := &member{out: out, left: count, done: cancel}
	for ctx.Err() == nil {
		// A session ends with each rebalance, or with an error while the broker is down.
		if err := consumer.Consume(ctx, []string{topic}, member); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, err)
			time.Sleep(retry)
		}
	}
	return errors.Join(member.failed, consumer.Close())
}

// member handles the records of all claimed partitions, each in its own goroutine.
type member struct {
	mutex  sync.Mutex
	out    *lines.Output
	left   int
	done   func()
	failed error
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	var partitions []int32
	for _, claimed := range session.Claims() {
		partitions = append(partitions, claimed...)
	}
	slices.Sort(partitions)
	return m.out.Assigned(partitions)
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(
	session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim,
) error {
	for {
		select {
		case <-session.Context().Done():
			return nil
		case message, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			if err := m.take(session, claim, message); err != nil {
				m.failed = err
				m.done()
				return err
			}
		}
	}
}

// take commits and tells a message and those that wait behind it.
func (m *member) take(
	session sarama.ConsumerGroupSession,
	claim sarama.ConsumerGroupClaim,
	first *sarama.ConsumerMessage,
) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	var taken []*sarama.ConsumerMessage
	for message := first; message != nil && m.left > 0; {
		taken = append(taken, message)
		session.MarkMessage(message, "")
		m.left--
		message = waiting(claim)
	}
	session.Commit()
	for _, message := range taken {
		if err := m.out.Record(received(message)); err != nil {
			return err
		}
	}
	if m.left == 0 {
		m.done()
	}
	return nil
}

// waiting returns the next message if it is there already.
func waiting(claim sarama.ConsumerGroupClaim) *sarama.ConsumerMessage {
	select {
	case message := <-claim.Messages():
		return message
	default:
		return nil
	}
}

func received(message *sarama.ConsumerMessage) lines.Record {
	told := lines.Record{
		Partition:   message.Partition,
		Offset:      message.Offset,
		Key:         text(message.Key),
		Value:       text(message.Value),
		Headers:     []lines.Header{},
		TimestampMs: message.Timestamp.UnixMilli(),
	}
	for _, header := range message.Headers {
		told.Headers = append(told.Headers, lines.Header{string(header.Key), string(header.Value)})
	}
	return told
}

func text(bytes []byte) *string {
	if bytes == nil {
		return nil
	}
	text := string(bytes)
	return &text
}

// Admin asks through the ClusterAdmin.
func (client) Admin(bootstrap string) (lines.Admin, error) {
	admin, err := sarama.NewClusterAdmin(lines.Addresses(bootstrap), config())
	if err != nil {
		return nil, err
	}
	return func(_ context.Context, request lines.Request) (any, error) {
		if request.Verb() == "describe-cluster" {
			return describeCluster(admin)
		}
		if answer, err := topics(admin, request); !errors.Is(err, lines.ErrUnsupported) {
			return answer, err
		}
		return groups(admin, request)
	}, nil
}

func describeCluster(admin sarama.ClusterAdmin) (any, error) {
	found, controller, err := admin.DescribeCluster()
	brokers := [][]any{}
	for _, broker := range found {
		host, port, err := net.SplitHostPort(broker.Addr())
		if err != nil {
			return nil, err
		}
		number, err := strconv.Atoi(port)
		if err != nil {
			return nil, err
		}
		brokers = append(brokers, []any{broker.ID(), host, number})
	}
	return map[string]any{"controller": controller, "brokers": brokers}, err
}

func topics(admin sarama.ClusterAdmin, request lines.Request) (any, error) {
	switch request.Verb() {
	case "create-topic":
		detail := sarama.TopicDetail{
			NumPartitions:     int32(request.Number(2)),
			ReplicationFactor: 1,
			ConfigEntries:     request.Settings(3),
		}
		return nil, admin.CreateTopic(request.Text(1), &detail, false)
	case "list-topics":
		listed, err := admin.ListTopics()
		return names(listed), err
	case "describe-topic":
		described, err := admin.DescribeTopics([]string{request.Text(1)})
		if err != nil {
			return nil, err
		}
		if described[0].Err != sarama.ErrNoError {
			return nil, described[0].Err
		}
		return len(described[0].Partitions), nil
	case "describe-configs":
		entries, err := admin.DescribeConfig(
			sarama.ConfigResource{Type: sarama.TopicResource, Name: request.Text(1)},
		)
		values := map[string]string{}
		for _, entry := range entries {
			values[entry.Name] = entry.Value
		}
		return values, err
	case "alter-configs":
		changes := map[string]sarama.IncrementalAlterConfigsEntry{}
		for name, value := range request.Settings(2) {
			operation := sarama.IncrementalAlterConfigsOperationSet
			if value == nil {
				operation = sarama.IncrementalAlterConfigsOperationDelete
			}
			changes[name] = sarama.IncrementalAlterConfigsEntry{Operation: operation, Value: value}
		}
		return nil, admin.IncrementalAlterConfig(
			sarama.TopicResource, request.Text(1), changes, false,
		)
	case "create-partitions":
		return nil, admin.CreatePartitions(request.Text(1), int32(request.Number(2)), nil, false)
	case "delete-records":
		before := map[int32]int64{int32(request.Number(2)): request.Number(3)}
		return nil, admin.DeleteRecords(request.Text(1), before)
	case "delete-topic":
		return nil, admin.DeleteTopic(request.Text(1))
	}
	return nil, lines.ErrUnsupported
}

// names returns the keys; an empty list where there are none, not null.
func names[Value any](listed map[string]Value) []string {
	return slices.AppendSeq([]string{}, maps.Keys(listed))
}

func groups(admin sarama.ClusterAdmin, request lines.Request) (any, error) {
	switch request.Verb() {
	case "list-groups":
		listed, err := admin.ListConsumerGroups()
		return names(listed), err
	case "describe-group":
		described, err := admin.DescribeConsumerGroups([]string{request.Text(1)})
		if err != nil {
			return nil, err
		}
		found := described[0]
		if found.Err != sarama.ErrNoError {
			return nil, found.Err
		}
		return map[string]any{"state": found.State, "members": len(found.Members)}, nil
	case "group-offsets":
		fetched, err := admin.ListConsumerGroupOffsets(request.Text(1), nil)
		if err != nil {
			return nil, err
		}
		if fetched.Err != sarama.ErrNoError {
			return nil, fetched.Err
		}
		offsets := [][]int64{}
		for _, blocks := range fetched.Blocks {
			for _, partition := range slices.Sorted(maps.Keys(blocks)) {
				offsets = append(offsets, []int64{int64(partition), blocks[partition].Offset})
			}
		}
		return offsets, nil
	case "delete-group":
		return nil, admin.DeleteConsumerGroup(request.Text(1))
	}
	return nil, lines.ErrUnsupported
}
