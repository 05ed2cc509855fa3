// Command siege is a client of a siege with franz-go; it ends after its standard input has.
//
//	siege KIND NAME BOOTSTRAP FILE SEED TOPIC:PARTITIONS[:BROKER,...] ...
//
// KIND is go-idempotent or go-member. FILE gets its part of the history;
// tests/histories/recording.py describes its lines.
package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"log"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	pause    = 10 * time.Millisecond
	patience = 10 * time.Minute
	poll     = 200 * time.Millisecond
	group    = "go-members"
	// What was waiting for a partition fits into one of its small segments.
	batchBytes = 5_000
)

type place struct {
	topic     string
	partition int32
}

type client struct {
	history *history
	options []kgo.Opt
	places  []place
	source  *rand.Rand
	over    context.Context
}

func main() {
	if len(os.Args) < 7 {
		log.Fatal("usage: siege KIND NAME BOOTSTRAP FILE SEED TOPIC:PARTITIONS ...")
	}
	kind, name := os.Args[1], os.Args[2]
	file, err := os.OpenFile(os.Args[4], os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		log.Fatal(err)
	}
	seed := fnv.New64()
	seed.Write([]byte(os.Args[5] + name))
	over, end := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		end()
	}()
	one := &client{
		history: &history{file: file, name: name},
		options: []kgo.Opt{
			kgo.SeedBrokers(strings.Split(os.Args[3], ",")...),
			kgo.ClientID(name),
			kgo.MetadataMaxAge(5 * time.Second),
			kgo.MetadataMinAge(500 * time.Millisecond),
			// A broker that ends may close a connection that it has just taken.
			kgo.AlwaysRetryEOF(),
		},
		places: places(os.Args[6:]),
		source: rand.New(rand.NewSource(int64(seed.Sum64()))),
		over:   over,
	}
	switch kind {
	case "go-idempotent":
		err = one.produce()
	case "go-member":
		err = one.consume()
	default:
		err = fmt.Errorf("no kind %s", kind)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func places(words []string) (found []place) {
	for _, word := range words {
		parts := strings.Split(word, ":")
		count, err := strconv.Atoi(parts[1])
		if err != nil {
			log.Fatal(err)
		}
		for number := range count {
			found = append(found, place{parts[0], int32(number)})
		}
	}
	return found
}

// produce sends each record until it is acknowledged.
func (one *client) produce() error {
	producer, err := kgo.NewClient(append(one.options,
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.UnknownTopicRetries(-1),
		kgo.ProducerBatchMaxBytes(batchBytes),
		kgo.ProducerOnDataLossDetected(func(topic string, partition int32) {
			one.history.note(fmt.Sprintf("refused: records before those for %s-%d", topic, partition))
		}),
	)...)
	if err != nil {
		return err
	}
	defer producer.Close()
	for number := 0; one.over.Err() == nil; number++ {
		to := one.places[one.source.Intn(len(one.places))]
		value := fmt.Sprintf("%s-%d", one.history.name, number)
		begun := one.history.begin("append", at(to, line{"values": []string{value}}))
		record := &kgo.Record{
			Topic:     to.topic,
			Partition: to.partition,
			Key:       fmt.Appendf(nil, "k%d", number%5), // history.key_of
			Value:     []byte(value),
		}
		producer.Produce(context.Background(), record, func(sent *kgo.Record, err error) {
			if err != nil {
				one.history.note(fmt.Sprintf("refused: a record for %s-%d: %v", to.topic, to.partition, err))
				return
			}
			one.history.end(begun, line{"offset": sent.Offset})
		})
		time.Sleep(pause)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return producer.Flush(ctx)
}

// consume reads as a member of a group, and commits what it has read.
func (one *client) consume() error {
	topics := map[string]bool{}
	for _, from := range one.places {
		topics[from.topic] = true
	}
	options := one.options
	for topic := range topics {
		options = append(options, kgo.ConsumeTopics(topic))
	}
	consumer, err := kgo.NewClient(append(options,
		kgo.ConsumerGroup(group),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.SessionTimeout(10*time.Second),
	)...)
	if err != nil {
		return err
	}
	defer consumer.CloseAllowingRebalance()
	for one.over.Err() == nil {
		ctx, cancel := context.WithTimeout(one.over, poll)
		fetches := consumer.PollFetches(ctx)
		cancel()
		positions := map[string]map[int32]kgo.EpochOffset{}
		fetches.EachPartition(func(found kgo.FetchTopicPartition) {
			if len(found.Records) == 0 {
				return
			}
			one.note(found)
			last := found.Records[len(found.Records)-1]
			if positions[found.Topic] == nil {
				positions[found.Topic] = map[int32]kgo.EpochOffset{}
			}
			positions[found.Topic][found.Partition] = kgo.EpochOffset{Epoch: last.LeaderEpoch, Offset: last.Offset + 1}
		})
		if len(positions) > 0 {
			one.commit(consumer, positions)
		}
		consumer.AllowRebalance()
	}
	return nil
}

func (one *client) note(found kgo.FetchTopicPartition) {
	records := [][]any{}
	for _, record := range found.Records {
		records = append(records, []any{record.Offset, record.LeaderEpoch, string(record.Value)})
	}
	from := place{found.Topic, found.Partition}
	begun := one.history.begin("read", at(from, line{"committed": true}))
	one.history.end(begun, line{"records": records, "high_watermark": found.HighWatermark})
}

func (one *client) commit(consumer *kgo.Client, positions map[string]map[int32]kgo.EpochOffset) {
	begun := map[place]int{}
	for topic, of := range positions {
		for partition, position := range of {
			to := place{topic, partition}
			begun[to] = one.history.begin("commit_offset", at(to, line{
				"group": group, "position": true, "offset": position.Offset,
			}))
		}
	}
	done := func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, err error) {
		if err != nil { // its partitions are others' now, or nobody answered
			return
		}
		for _, topic := range answer.Topics {
			for _, partition := range topic.Partitions {
				if number, ok := begun[place{topic.Topic, partition.Partition}]; ok && partition.ErrorCode == 0 {
					one.history.end(number, line{})
				}
			}
		}
	}
	consumer.CommitOffsetsSync(context.Background(), positions, done)
}
