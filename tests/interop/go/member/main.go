// Command member is franz-go as a member of a group that says what it does: tests/compat/storm.py
// says what the lines mean.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sys/unix"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string) error {
	if len(arguments) != 6 {
		return fmt.Errorf("usage: BOOTSTRAP GROUP TOPIC PROTOCOL SESSION_MS INSTANCE")
	}
	bootstrap, group, topic, protocol := arguments[0], arguments[1], arguments[2], arguments[3]
	sessionMs, err := strconv.Atoi(arguments[4])
	if err != nil {
		return err
	}
	own := &owner{assignedAt: map[int32]int64{}}
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumeTopics(topic),
		kgo.ConsumerGroup(group),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(own.assigned),
		kgo.OnPartitionsRevoked(own.lost),
		kgo.OnPartitionsLost(own.lost),
		kgo.AdjustFetchOffsetsFn(own.begin),
	}
	if protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	} else {
		options = append(options,
			kgo.SessionTimeout(time.Duration(sessionMs)*time.Millisecond),
			kgo.HeartbeatInterval(500*time.Millisecond))
	}
	if arguments[5] != "" {
		options = append(options, kgo.InstanceID(arguments[5]))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()
	for ctx.Err() == nil {
		fetches := client.PollRecords(ctx, 100)
		fetches.EachPartition(func(one kgo.FetchTopicPartition) { process(client, one) })
		client.AllowRebalance()
	}
	return nil
}

// process says what was read, commits it, and says so when the broker has acknowledged that.
func process(client *kgo.Client, read kgo.FetchTopicPartition) {
	if len(read.Records) == 0 {
		return
	}
	first, last := read.Records[0], read.Records[len(read.Records)-1]
	next := last.Offset + 1
	say("read", now(), int64(read.Partition), first.Offset, next)
	offsets := map[string]map[int32]kgo.EpochOffset{
		read.Topic: {read.Partition: {Epoch: last.LeaderEpoch, Offset: next}},
	}
	done := func(
		_ *kgo.Client, _ *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, err error,
	) {
		if err != nil {
			return
		}
		for _, topic := range answer.Topics {
			for _, one := range topic.Partitions {
				if one.ErrorCode == 0 {
					say("done", now(), int64(one.Partition), next)
				}
			}
		}
	}
	client.CommitOffsetsSync(context.Background(), offsets, done)
}

// owner says what partitions the member has.
type owner struct {
	mutex      sync.Mutex
	assignedAt map[int32]int64
}

func (o *owner) assigned(_ context.Context, _ *kgo.Client, added map[string][]int32) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	for _, partitions := range added {
		for _, partition := range partitions {
			o.assignedAt[partition] = now()
		}
	}
}

// begin hears of the offsets that were asked for after the assignment.
func (o *owner) begin(
	_ context.Context, offsets map[string]map[int32]kgo.Offset,
) (map[string]map[int32]kgo.Offset, error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	for _, partitions := range offsets {
		for partition, offset := range partitions {
			at := max(offset.EpochOffset().Offset, 0)
			say("own", o.assignedAt[partition], int64(partition), at)
		}
	}
	return offsets, nil
}

func (o *owner) lost(_ context.Context, _ *kgo.Client, removed map[string][]int32) {
	for _, partitions := range removed {
		for _, partition := range partitions {
			say("lost", now(), int64(partition))
		}
	}
}

// now returns the machine's monotonic clock, which other processes read as well.
func now() int64 {
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &at); err != nil {
		panic(err)
	}
	return at.Nano()
}

func say(what string, at int64, numbers ...int64) {
	line := fmt.Sprintf("%s %d", what, at)
	for _, number := range numbers {
		line += " " + strconv.FormatInt(number, 10)
	}
	fmt.Println(line)
}
