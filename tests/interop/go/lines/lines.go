// Package lines runs a client as a program that is told what to do by its arguments and lines
// of JSON. tests/interop/programs.py says what the lines mean.
package lines

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// ErrUnsupported is what a client answers that has no call for what it is asked.
var ErrUnsupported = errors.New("unsupported")

// Header is a header's name and value.
type Header [2]string

// Record is a record as it is sent (without its place) or was received.
type Record struct {
	Partition   int32    `json:"partition"`
	Offset      int64    `json:"offset"`
	Key         *string  `json:"key"`
	Value       *string  `json:"value"`
	Headers     []Header `json:"headers"`
	TimestampMs int64    `json:"timestamp_ms"`
}

// Admin carries out one request of an administrator.
type Admin func(ctx context.Context, request Request) (any, error)

// Client is one library behind the verbs that every library knows.
type Client interface {
	// Produce sends records in order and returns once all are acknowledged.
	Produce(ctx context.Context, bootstrap, topic, codec string, records []Record) error
	// Consume hands each record to out once its offset is committed, until count or ctx ends.
	Consume(ctx context.Context, bootstrap, topic, group string, count int, out *Output) error
	// Admin connects, and returns what carries requests out.
	Admin(bootstrap string) (Admin, error)
}

// Transactor is a library that writes in transactions.
type Transactor interface {
	// Transact connects a transactional producer, and returns what carries requests out.
	Transact(bootstrap, id string, timeout time.Duration) (Admin, error)
	// Copy copies a topic in transactions, and tells of each, until ctx ends.
	Copy(ctx context.Context, bootstrap, group, from, to, id string, copied func(int) error) error
}

// Request is a verb and its arguments.
type Request []json.RawMessage

// Verb returns what is asked for.
func (r Request) Verb() string { return r.Text(0) }

// Text returns an argument that is a string.
func (r Request) Text(at int) string { return argument[string](r, at) }

// Number returns an argument that is a whole number.
func (r Request) Number(at int) int64 { return argument[int64](r, at) }

// Settings returns an argument that maps names to values, nil where one is to be unset.
func (r Request) Settings(at int) map[string]*string {
	return argument[map[string]*string](r, at)
}

func argument[T any](r Request, at int) T {
	var value T
	if at >= len(r) {
		panic(fmt.Sprintf("argument %d of %s is missing", at, r.Verb()))
	}
	if err := json.Unmarshal(r[at], &value); err != nil {
		panic(err)
	}
	return value
}

// Output writes what a consumer meets, a line each.
type Output struct{ encoder *json.Encoder }

// Assigned tells which partitions the member has now.
func (o *Output) Assigned(partitions []int32) error {
	if partitions == nil {
		partitions = []int32{}
	}
	return o.encoder.Encode(map[string][]int32{"assigned": partitions})
}

// Record tells a record whose offset is committed.
func (o *Output) Record(record Record) error { return o.encoder.Encode(record) }

// Addresses returns the addresses of a list with commas.
func Addresses(bootstrap string) []string {
	return strings.Split(bootstrap, ",")
}

// Main runs the program.
func Main(client Client) {
	if err := run(client, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(client Client, arguments []string) error {
	if len(arguments) < 2 {
		return errors.New("usage: produce|consume|admin BOOTSTRAP …")
	}
	verb, bootstrap, rest := arguments[0], arguments[1], arguments[2:]
	switch {
	case verb == "produce" && len(rest) == 2:
		records, err := read()
		if err != nil {
			return err
		}
		return client.Produce(context.Background(), bootstrap, rest[0], rest[1], records)
	case verb == "consume" && len(rest) == 3:
		count, err := strconv.Atoi(rest[2])
		if err != nil {
			return err
		}
		output := &Output{json.NewEncoder(os.Stdout)}
		return client.Consume(untilInputEnds(), bootstrap, rest[0], rest[1], count, output)
	case verb == "admin" && len(rest) == 0:
		admin, err := client.Admin(bootstrap)
		if err != nil {
			return err
		}
		return serve(admin)
	}
	if transactor, ok := client.(Transactor); ok {
		return transact(transactor, arguments)
	}
	return fmt.Errorf("not understood: %v", arguments)
}

func transact(transactor Transactor, arguments []string) error {
	verb, bootstrap, rest := arguments[0], arguments[1], arguments[2:]
	switch {
	case verb == "transact" && len(rest) == 2:
		timeoutMs, err := strconv.Atoi(rest[1])
		if err != nil {
			return err
		}
		timeout := time.Duration(timeoutMs) * time.Millisecond
		act, err := transactor.Transact(bootstrap, rest[0], timeout)
		if err != nil {
			return err
		}
		return serve(act)
	case verb == "copy" && len(rest) == 4:
		encoder := json.NewEncoder(os.Stdout)
		copied := func(count int) error { return encoder.Encode(map[string]int{"copied": count}) }
		ctx := untilInputEnds()
		return transactor.Copy(ctx, bootstrap, rest[0], rest[1], rest[2], rest[3], copied)
	}
	return fmt.Errorf("not understood: %v", arguments)
}

func read() ([]Record, error) {
	var records []Record
	decoder := json.NewDecoder(bufio.NewReader(os.Stdin))
	for {
		var record Record
		if err := decoder.Decode(&record); errors.Is(err, io.EOF) {
			return records, nil
		} else if err != nil {
			return nil, err
		}
		records = append(records, record)
	}
}

func untilInputEnds() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	return ctx
}

func serve(admin Admin) error {
	decoder, encoder := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var request Request
		if err := decoder.Decode(&request); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := encoder.Encode(reply(admin, request)); err != nil {
			return err
		}
	}
}

func reply(admin Admin, request Request) map[string]any {
	answer, err := admin(context.Background(), request)
	switch {
	case errors.Is(err, ErrUnsupported):
		return map[string]any{"unsupported": true}
	case err != nil:
		return map[string]any{"error": err.Error()}
	}
	return map[string]any{"answer": answer}
}
