package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/controllerd/controllerd/store/etcdstore"
)

// printWatch is the whole of a process that watches etcd from outside: a line
// for each answer, with its time, its revision, and the number of blocks of
// partitions and records of topics put. A process of its own is not held up by what the brokers in
// this one do.
func printWatch(ctx context.Context, addr string) error {
	client, err := etcdstore.Dial(etcdstore.Config{Endpoints: []string{addr}})
	if err != nil {
		return err
	}
	defer client.Close()
	for r := range client.Watch(ctx, "/", clientv3.WithPrefix(), clientv3.WithCreatedNotify()) {
		now := time.Now().UnixNano()
		if err := r.Err(); err != nil {
			return err
		}
		blocks, rev := 0, int64(0)
		for _, ev := range r.Events {
			rev = ev.Kv.ModRevision
			if key := string(ev.Kv.Key); ev.IsCreate() || ev.IsModify() {
				if strings.Contains(key, "/partitions/") || strings.Contains(key, "/topics/") || strings.HasPrefix(key, bareBlocks) {
					blocks++
				}
			}
		}
		fmt.Println(now, rev, blocks)
	}
	return ctx.Err()
}

// watcher is that process.
type watcher struct {
	cmd   *exec.Cmd
	ended chan struct{}

	mu      sync.Mutex
	changed chan struct{}
	seen    []sighting
	err     error
}

// sighting is one answer of the watch.
type sighting struct {
	at     time.Time
	rev    int64
	blocks int
}

// startWatcher returns when the process watches.
func startWatcher(ctx context.Context, addr string) (*watcher, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w := &watcher{cmd: exec.Command(self, "-watch", addr), ended: make(chan struct{}), changed: make(chan struct{})}
	w.cmd.Stderr = os.Stderr
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := w.cmd.Start(); err != nil {
		return nil, err
	}
	go w.read(out)
	_, err = w.await(ctx, "the watch", func() bool { return len(w.seen) > 0 })
	return w, err
}

func (w *watcher) read(out io.Reader) {
	defer close(w.ended)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var nanos int64
		var s sighting
		_, err := fmt.Sscan(lines.Text(), &nanos, &s.rev, &s.blocks)
		s.at = time.Unix(0, nanos)
		w.update(func() {
			if err != nil {
				w.err = err
			}
			w.seen = append(w.seen, s)
		})
	}
	w.update(func() { w.err = fmt.Errorf("the watch ended: %w", lines.Err()) })
	_ = w.cmd.Wait()
}

func (w *watcher) update(fn func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fn()
	close(w.changed)
	w.changed = make(chan struct{})
}

// await waits until cond holds and returns the newest sighting.
func (w *watcher) await(ctx context.Context, what string, cond func() bool) (sighting, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		w.mu.Lock()
		ok, changed, err := cond(), w.changed, w.err
		var last sighting
		if n := len(w.seen); n > 0 {
			last = w.seen[n-1]
		}
		w.mu.Unlock()
		if ok || err != nil {
			return last, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return sighting{}, fmt.Errorf("waited for %s in vain: %w", what, ctx.Err())
		}
	}
}

// mark forgets what was seen so far.
func (w *watcher) mark() { w.update(func() { w.seen = nil }) }

// blocks waits until so many blocks were put since the mark, and returns when
// the last of them came, at which revision.
func (w *watcher) blocks(ctx context.Context, n int) (sighting, error) {
	var last sighting
	_, err := w.await(ctx, fmt.Sprintf("%d blocks", n), func() bool {
		sum := 0
		for _, s := range w.seen {
			if sum += s.blocks; sum >= n {
				last = s
				return true
			}
		}
		return false
	})
	return last, err
}

func (w *watcher) close() {
	_ = w.cmd.Process.Kill()
	<-w.ended
}
