package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/election"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
	"github.com/controllerd/controllerd/store/etcdstore"
)

const (
	clusterName = "bench"
	leaseTTL    = 5 * time.Second // of daemons, the default
	patience    = time.Minute     // for anything that should come about
	settling    = 500 * time.Millisecond
)

// world is a cluster of processes, and an observer of etcd.
type world struct {
	b       *bench
	keys    cluster.Keys
	etcd    *process
	addr    string
	client  *clientv3.Client
	store   store.Store
	flags   []string // of daemons, beside those that they all have
	daemons map[string]*process
	conns   map[string]*grpc.ClientConn
	nodes   map[cluster.BrokerID]*node
	*observer

	endWatch context.CancelFunc
	watching sync.WaitGroup
}

// newWorld starts etcd and daemons, and returns when one of them is active and
// all can be reached.
func newWorld(ctx context.Context, b *bench, daemons int, flags ...string) (w *world, err error) {
	w = &world{
		b: b, flags: flags, keys: cluster.KeysOf(clusterName), daemons: map[string]*process{}, conns: map[string]*grpc.ClientConn{},
		nodes: map[cluster.BrokerID]*node{}, endWatch: func() {},
	}
	w.observer = newObserver(w.keys)
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if w.addr, err = freeAddr(); err != nil {
		return nil, err
	}
	if w.etcd, err = b.start("etcd", "dev", "--controllers", "0", "--brokers", "0", "--etcd-listen", w.addr); err != nil {
		return nil, err
	}
	if w.client, err = etcdstore.Dial(etcdstore.Config{Endpoints: []string{w.addr}}); err != nil {
		return nil, err
	}
	w.store = etcdstore.New(w.client)
	w.watch()
	for i := range daemons {
		if err = w.startDaemon(ctx, string(rune('a'+i))); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// startDaemon returns when the daemon stands as a candidate, which it does once
// it has read everything, and connects to it.
func (w *world) startDaemon(ctx context.Context, id string) (err error) {
	args := []string{"serve", "--id", id, "--cluster", clusterName, "--etcd-endpoints", w.addr, "--listen", "127.0.0.1:0"}
	w.daemons[id], err = w.b.start(id, append(args, w.flags...)...)
	if err != nil {
		return err
	}
	return w.dial(ctx, id)
}

// endDaemon kills a daemon, and returns when etcd has forgotten it.
func (w *world) endDaemon(ctx context.Context, id string) error {
	_ = w.conns[id].Close()
	w.daemons[id].kill()
	delete(w.conns, id)
	delete(w.daemons, id)
	return w.await(ctx, "the end of daemon "+id, func(im *cluster.Image) bool { return endpointOf(im, id) == "" })
}

// watch feeds the observer.
func (w *world) watch() {
	ctx, end := context.WithCancel(context.Background())
	w.endWatch = end
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	w.watching.Go(func() { _ = election.Follow(ctx, w.store, w.keys.Prefix(), leaseTTL, log, w.apply) })
}

// dial waits until the daemon is known in etcd, and connects to it.
func (w *world) dial(ctx context.Context, id string) error {
	var endpoint string
	err := w.await(ctx, "daemon "+id, func(im *cluster.Image) bool {
		endpoint = endpointOf(im, id)
		return endpoint != "" && im.Controller != nil
	})
	if err != nil {
		return err
	}
	w.conns[id], err = grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	return err
}

// endpointOf is where a daemon is reached, as etcd says, empty if it does not.
func endpointOf(im *cluster.Image, id string) string {
	if c := im.Controller; c != nil && c.Record.GetId() == id {
		return c.Record.GetEndpoint()
	}
	for _, c := range im.Candidates {
		if c.Record.GetId() == id {
			return c.Record.GetEndpoint()
		}
	}
	return ""
}

func (w *world) close() {
	for _, n := range w.nodes {
		n.Kill()
	}
	for _, c := range w.conns {
		_ = c.Close()
	}
	for _, p := range w.daemons {
		if p != nil {
			p.kill()
		}
	}
	w.endWatch()
	w.watching.Wait()
	if w.client != nil {
		_ = w.client.Close()
	}
	if w.etcd != nil {
		w.etcd.kill()
	}
}

// endpoints are those of all daemons.
func (w *world) endpoints() []string {
	var out []string
	for _, c := range w.conns {
		out = append(out, c.Target())
	}
	slices.Sort(out)
	return out
}

// active is the daemon that holds the seat.
func (w *world) active(ctx context.Context) (id string, epoch cluster.Epoch, err error) {
	err = w.await(ctx, "an active daemon", func(im *cluster.Image) bool {
		if im.Controller == nil || im.Controller.ModRev != im.EpochRev {
			return false
		}
		id, epoch = im.Controller.Record.GetId(), im.Epoch
		return true
	})
	return id, epoch, err
}

// topicsOf are new topics of the same size with three replicas. A block size of
// 0 is the default.
func topicsOf(topics, partitions, blockSize int) []*pb.NewTopic {
	out := make([]*pb.NewTopic, topics)
	for n := range out {
		out[n] = &pb.NewTopic{
			Name: fmt.Sprintf("topic-%d", n+1), Partitions: int32(partitions), ReplicationFactor: 3, BlockSize: int32(blockSize),
		}
	}
	return out
}

// createTopics makes topics one after the other, and returns when etcd has
// them.
func (w *world) createTopics(ctx context.Context, topics []*pb.NewTopic) error {
	admin, err := w.admin(ctx)
	if err != nil {
		return err
	}
	for _, t := range topics {
		if err := create(ctx, admin, t); err != nil {
			return err
		}
	}
	return w.await(ctx, "the topics", func(im *cluster.Image) bool { return len(im.Topics) == len(topics) })
}

// admin is the active daemon, once it has seen all brokers.
func (w *world) admin(ctx context.Context) (pb.AdminServiceClient, error) {
	id, _, err := w.active(ctx)
	if err != nil {
		return nil, err
	}
	admin := pb.NewAdminServiceClient(w.conns[id])
	for {
		resp, err := admin.ListBrokers(ctx, &pb.ListBrokersRequest{})
		if err == nil && len(resp.GetBrokers()) == len(w.nodes) {
			return admin, nil
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return nil, fmt.Errorf("wait for the active daemon to see all brokers: %w", err)
		}
	}
}

// create makes topics in one request.
func create(ctx context.Context, admin pb.AdminServiceClient, topics ...*pb.NewTopic) error {
	resp, err := admin.CreateTopics(ctx, &pb.CreateTopicsRequest{Topics: topics})
	if err != nil {
		return fmt.Errorf("create topics: %w", err)
	}
	for _, r := range resp.GetResults() {
		if r.GetError() != "" {
			return fmt.Errorf("create topic %s: %s: %s", r.GetName(), r.GetError(), r.GetMessage())
		}
	}
	return nil
}

// observer keeps an image of what etcd holds, as seen from outside.
type observer struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced with each change
	image   *cluster.Image
	idle    bool // batches are kept for later
	later   []store.Batch
}

func newObserver(keys cluster.Keys) *observer {
	return &observer{changed: make(chan struct{}), image: cluster.NewImage(keys)}
}

func (o *observer) apply(b store.Batch) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.idle {
		o.later = append(o.later, b)
		return
	}
	o.image.Apply(b)
	o.wake()
}

func (o *observer) wake() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// rest leaves the machine to others until the observer is resumed: its image
// stays what it is.
func (o *observer) rest() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.idle = true
}

// resume takes in what came meanwhile.
func (o *observer) resume() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.idle = false
	for _, b := range o.later {
		o.image.Apply(b)
	}
	o.later = nil
	o.wake()
}

// look reads the image.
func (o *observer) look(fn func(*cluster.Image)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	fn(o.image)
}

// await waits until cond holds for the image.
func (o *observer) await(ctx context.Context, what string, cond func(*cluster.Image) bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		o.mu.Lock()
		ok, changed := cond(o.image), o.changed
		o.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waited for %s in vain: %w", what, ctx.Err())
		}
	}
}

// pause lets everything come to rest.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
