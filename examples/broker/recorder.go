package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/controllerd/controllerd/broker"
)

// line is one decision of the gate as it is written.
type line struct {
	Time      time.Time `json:"time"`
	Command   string    `json:"command"`
	Sender    string    `json:"sender"`
	CE        int64     `json:"ce"`
	BE        int64     `json:"be"`
	LE        int32     `json:"le"`
	PE        int32     `json:"pe"`
	Topic     string    `json:"topic"`
	TopicID   string    `json:"topic_id,omitempty"`
	Partition int32     `json:"partition"`
	Result    string    `json:"result"`
	// Live are the ids of all live brokers, if the command names them.
	Live []int32 `json:"live,omitempty"`
}

// recorder writes decisions in the order of admission. It keeps what the
// writer has not taken yet: the gate must not wait for a slow reader.
type recorder struct {
	w    io.Writer
	wake chan struct{}
	done chan struct{}

	mu      sync.Mutex
	pending bytes.Buffer
	closed  bool
	err     error
}

func newRecorder(w io.Writer) *recorder {
	r := &recorder{w: w, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go r.write()
	return r
}

func (r *recorder) observe(o broker.Observation) {
	l := line{
		Time:    o.Time.UTC(),
		Command: o.Command,
		Sender:  o.Sender,
		CE:      int64(o.ControllerEpoch), BE: int64(o.BrokerEpoch),
		LE: int32(o.LeaderEpoch), PE: int32(o.PartitionEpoch),
		Topic: o.Topic, Partition: o.Partition,
		Result: o.Result,
	}
	if o.Topic != "" {
		l.TopicID = o.TopicID.String()
	}
	for _, b := range o.Live {
		l.Live = append(l.Live, int32(b.ID))
	}
	r.mu.Lock()
	err := json.NewEncoder(&r.pending).Encode(l)
	r.mu.Unlock()
	if err != nil {
		panic(fmt.Sprintf("encode %+v: %v", l, err)) // only a year beyond 9999
	}
	r.signal()
}

func (r *recorder) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// write ends when the recorder is closed and everything is written.
func (r *recorder) write() {
	defer close(r.done)
	for range r.wake {
		r.mu.Lock()
		out := bytes.Clone(r.pending.Bytes())
		r.pending.Reset()
		closed := r.closed
		r.mu.Unlock()
		if len(out) > 0 {
			if _, err := r.w.Write(out); err != nil && r.err == nil {
				r.err = fmt.Errorf("write log of commands: %w", err)
			}
		}
		if closed {
			return
		}
	}
}

// close writes what is left and returns the first error of all writes.
func (r *recorder) close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.signal()
	<-r.done
	return r.err
}
