package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// A million partitions, in topics as large as a daemon lets them be created.
const (
	millionTopics = 10
	perTopic      = 100_000
)

var coldLoadRow = row{
	name: "coldload",
	what: `
A daemon is started beside an active one and three brokers, with 1,000,000 partitions of 3 replicas in etcd: from starting
the process until it stands as a candidate, which it does when its image is complete, as a watch of the bench sees it.
Bare: from starting a process until it has listed all blocks, in pages of 10,000, and decoded them.

What holds it back, from a profile: the image is made when the whole list is there. 230 ms go to decoding blocks, 190 ms to
what else the image does with them, 170 ms to the agenda, 90 ms to the list of changes, all on one core. The next step is to
take in each page while the next one is fetched.`,
	run: coldLoad,
}

func coldLoad(ctx context.Context, b *bench) ([]figure, error) {
	w, err := newWorld(ctx, b, 1)
	if err != nil {
		return nil, err
	}
	defer w.close()
	each := b.scaled(perTopic, 1)
	if err := w.populate(ctx, 3, millionTopics, each); err != nil {
		return nil, err
	}
	ours, err := measureOne(ctx, "cold load", func(ctx context.Context) (time.Duration, error) {
		began := time.Now()
		if err := w.startDaemon(ctx, "cold"); err != nil {
			return 0, err
		}
		took := time.Since(began)
		return took, w.endDaemon(ctx, "cold")
	})
	if err != nil {
		return nil, err
	}
	bare, err := measureOne(ctx, "bare cold load", func(ctx context.Context) (time.Duration, error) {
		if err := pause(ctx, settling); err != nil {
			return 0, err
		}
		return bareLoad(ctx, w.addr, millionTopics*each)
	})
	return []figure{{what: "until the image is complete", ours: ours, bare: bare, times: 1.5}}, err
}

// bareLoad is how long a process takes that lists and decodes so many records.
func bareLoad(ctx context.Context, addr string, want int) (time.Duration, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, self, "-list", addr)
	cmd.Stderr = os.Stderr
	began := time.Now()
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("list etcd: %w", err)
	}
	var nanos int64
	var records, blocks int
	if _, err := fmt.Sscan(string(out), &nanos, &records, &blocks); err != nil {
		return 0, fmt.Errorf("list etcd: %w", err)
	}
	if records != want {
		return 0, fmt.Errorf("etcd has %d partitions, want %d", records, want)
	}
	return time.Unix(0, nanos).Sub(began), nil
}
