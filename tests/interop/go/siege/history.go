package main

import (
	"encoding/json"
	"log"
	"maps"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

type line map[string]any

// history is the file of this client; tests/histories/recording.py describes its lines.
type history struct {
	mutex sync.Mutex
	file  *os.File
	name  string
	count int
}

func at(where place, members line) line {
	members["topic"], members["partition"] = where.topic, where.partition
	return members
}

func (one *history) begin(kind string, members line) int {
	one.mutex.Lock()
	defer one.mutex.Unlock()
	one.count++
	one.write(line{"id": one.count, "begin": kind, "client": one.name}, members)
	return one.count
}

func (one *history) end(number int, members line) {
	one.mutex.Lock()
	defer one.mutex.Unlock()
	one.write(line{"id": number, "outcome": "done"}, members)
}

func (one *history) note(problem string) {
	one.begin("problem", line{"text": problem})
}

func (one *history) write(first, members line) {
	maps.Copy(first, members)
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		log.Fatal(err)
	}
	first["time_s"] = float64(now.Nano()) / 1e9
	text, err := json.Marshal(first)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := one.file.Write(append(text, '\n')); err != nil {
		log.Fatal(err)
	}
}
