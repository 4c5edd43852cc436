package scenarios

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// sessionTTL of brokers, the shortest that daemons accept.
const sessionTTL = 4 * time.Second

// node is a broker on the SDK that remembers what its gate decided.
type node struct {
	*broker.Broker
	id      cluster.BrokerID
	streams atomic.Int64    // of commands, open
	bend    *bend           // nil: nothing is bent
	ctx     context.Context // that it stops with; nil: it is killed at the end

	mu    sync.Mutex
	seen  []broker.Observation
	apply func(context.Context, broker.PartitionState) error // nil: succeed at once
	ended bool
}

// brokerOption changes the configuration of a broker.
type brokerOption func(*node, *broker.Config)

func withNode(uuid string) brokerOption {
	return func(_ *node, cfg *broker.Config) { cfg.NodeUUID = uuid }
}

func withSession(ttl time.Duration) brokerOption {
	return func(_ *node, cfg *broker.Config) { cfg.SessionTTL = ttl }
}

func withDial(opts ...grpc.DialOption) brokerOption {
	return func(_ *node, cfg *broker.Config) { cfg.DialOptions = append(cfg.DialOptions, opts...) }
}

// broker starts a broker that knows all daemons that run. It need not be
// registered on return.
func (w *world) broker(id cluster.BrokerID, opts ...brokerOption) *node {
	w.t.Helper()
	n := &node{id: id}
	cfg := broker.Config{
		ID: id, NodeUUID: fmt.Sprint("node-", id), SessionTTL: sessionTTL, Handler: n, Observer: n.observe, Logger: w.logger(),
		ServerOptions: []grpc.ServerOption{grpc.ChainStreamInterceptor(n.countStream)},
	}
	w.mu.Lock()
	for _, d := range w.daemons {
		cfg.Daemons = append(cfg.Daemons, d.Endpoint)
	}
	for _, p := range w.processes {
		cfg.Daemons = append(cfg.Daemons, p.endpoint)
	}
	w.mu.Unlock()
	for _, o := range opts {
		o(n, &cfg)
	}
	ctx := context.Background()
	if n.ctx != nil {
		ctx = n.ctx
	}
	b, err := broker.Start(ctx, cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	n.Broker = b
	w.mu.Lock()
	w.brokers = append(w.brokers, n)
	w.mu.Unlock()
	return n
}

// startBrokers starts brokers 0 to n-1 and waits until they are registered.
func (w *world) startBrokers(n int, opts ...brokerOption) []*node {
	w.t.Helper()
	var out []*node
	for id := range n {
		out = append(out, w.broker(cluster.BrokerID(id), opts...))
	}
	for _, b := range out {
		w.registered(b)
	}
	return out
}

func (w *world) registered(b *node) {
	w.t.Helper()
	select {
	case <-b.Registered():
	case <-time.After(limit):
		w.t.Fatalf("broker %d is not registered", b.id)
	}
}

func (n *node) countStream(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	n.streams.Add(1)
	defer n.streams.Add(-1)
	if n.bend != nil {
		s = bentStream{s, n.bend}
	}
	return handler(srv, s)
}

// bend changes what a broker receives and sends on its streams of commands,
// or only looks at it. An error breaks the stream; its functions may wait.
type bend struct {
	received func(context.Context, *pb.CommandsRequest) error
	sending  func(*pb.CommandsResponse) error
}

// bent puts a bend into the streams of a broker.
func bent(b *bend) brokerOption { return func(n *node, _ *broker.Config) { n.bend = b } }

type bentStream struct {
	grpc.ServerStream
	bend *bend
}

func (s bentStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if req, ok := m.(*pb.CommandsRequest); ok && s.bend.received != nil {
		return s.bend.received(s.Context(), req)
	}
	return nil
}

func (s bentStream) SendMsg(m any) error {
	if resp, ok := m.(*pb.CommandsResponse); ok && s.bend.sending != nil {
		if err := s.bend.sending(resp); err != nil {
			return err
		}
	}
	return s.ServerStream.SendMsg(m)
}

func (n *node) observe(o broker.Observation) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seen = append(n.seen, o)
}

// observed are the decisions of the gate so far.
func (n *node) observed() []broker.Observation {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.seen)
}

// onApply sets what happens when a partition is to be applied.
func (n *node) onApply(fn func(context.Context, broker.PartitionState) error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.apply = fn
}

func (n *node) ApplyPartition(ctx context.Context, s broker.PartitionState) error {
	n.mu.Lock()
	apply := n.apply
	n.mu.Unlock()
	if apply == nil {
		return nil
	}
	return apply(ctx, s)
}

func (n *node) StopReplica(ctx context.Context, topic string, id cluster.PartitionID, deleteData bool) error {
	return n.ApplyPartition(ctx, broker.PartitionState{Topic: topic, Partition: id, Stop: true, Delete: deleteData})
}

func (n *node) AdoptISR(broker.PartitionState) {}

func (n *node) UpdateMetadata(broker.MetadataUpdate) {}

// kill ends the broker as a crash would.
func (n *node) kill() {
	n.mu.Lock()
	ended := n.ended
	n.ended = true
	n.mu.Unlock()
	if !ended {
		n.Kill()
		_ = n.Wait()
	}
}

// accepted reports whether the gate let the command, or the part of it, pass.
func accepted(o broker.Observation) bool {
	return o.Result == "ADMITTED" || o.Result == "ISR_ADOPTED" || o.Result == "ALREADY"
}

// create makes a topic, at whichever daemon answers, and waits until it is
// committed.
func (w *world) create(name string, partitions, rf int32) cluster.TopicID {
	w.t.Helper()
	id, err := w.tryCreate(w.call(), name, partitions, rf)
	if err != nil {
		w.t.Fatalf("create topic %s: %v", name, err)
	}
	w.await("our own watch shows topic "+name, soon, func() (ok bool) {
		w.tape.look(func(im *cluster.Image) { ok = im.Topics[name] != nil })
		return ok
	})
	return id
}

func (w *world) tryCreate(ctx context.Context, name string, partitions, rf int32) (cluster.TopicID, error) {
	req := &pb.CreateTopicsRequest{
		RequestId: "request-" + name,
		Topics:    []*pb.NewTopic{{Name: name, Partitions: partitions, ReplicationFactor: rf}},
	}
	var last error
	for n := 0; ctx.Err() == nil; n++ {
		limited, cancel := context.WithTimeout(ctx, 3*time.Second) // it may be the one that hangs
		resp, err := w.someAdmin(n).CreateTopics(limited, req)
		cancel()
		switch {
		case err == nil && resp.GetResults()[0].GetError() == "":
			w.mu.Lock()
			w.made[name] = true
			w.mu.Unlock()
			return cluster.TopicIDFrom(resp.GetResults()[0].GetTopicId())
		case err == nil:
			last = fmt.Errorf("%s: %s", resp.GetResults()[0].GetError(), resp.GetResults()[0].GetMessage())
		default:
			last = err
		}
		poll(10*time.Millisecond, func() bool { return ctx.Err() != nil })
	}
	return cluster.TopicID{}, last
}

// someAdmin is a daemon that has not ended, the n-th in turn.
func (w *world) someAdmin(n int) pb.AdminServiceClient {
	w.mu.Lock()
	defer w.mu.Unlock()
	var live []pb.AdminServiceClient
	for _, d := range w.daemons {
		if d.alive() {
			live = append(live, d.admin)
		}
	}
	for _, p := range w.processes {
		if p.alive() {
			live = append(live, p.admin)
		}
	}
	return live[n%len(live)]
}

// keepCreating creates small topics, one after the other, until the function
// that it returns is called, which says how many were made.
func (w *world) keepCreating(prefix string, partitions, rf int32) (stop func() int) {
	ctx, cancel := context.WithCancel(context.Background())
	made := make(chan int)
	go func() {
		n := 0
		for ctx.Err() == nil {
			if _, err := w.tryCreate(ctx, fmt.Sprint(prefix, "-", n), partitions, rf); err == nil {
				n++
			}
		}
		made <- n
	}()
	var total int
	var once sync.Once
	stop = func() int {
		once.Do(func() {
			cancel()
			total = <-made
		})
		return total
	}
	w.t.Cleanup(func() { stop() })
	return stop
}

// converged waits until every live broker holds exactly what etcd says.
func (w *world) converged(within time.Duration) {
	w.t.Helper()
	var why string
	if !poll(within, func() bool { why = w.apart(); return why == "" }) {
		w.t.Fatalf("not converged within %v: %s", within, why)
	}
}

// apart says in what a live broker differs from etcd; empty: in nothing.
func (w *world) apart() (why string) {
	w.mu.Lock()
	brokers := slices.Clone(w.brokers)
	w.mu.Unlock()
	w.tape.look(func(im *cluster.Image) {
		for _, b := range brokers {
			if b.alive() {
				if why = compareBroker(im, b); why != "" {
					return
				}
			}
		}
	})
	return why
}

func (n *node) alive() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.ended
}

func compareBroker(im *cluster.Image, b *node) string {
	if have := im.Brokers[b.id]; have == nil || have.Epoch != b.Epoch() {
		return fmt.Sprintf("broker %d is not registered under its epoch %d", b.id, b.Epoch())
	}
	live := map[cluster.BrokerID]cluster.BrokerEpoch{}
	for _, l := range b.Live() {
		live[l.ID] = l.Epoch
	}
	if len(live) != len(im.Brokers) {
		return fmt.Sprintf("broker %d knows the live brokers %v, there are %d", b.id, live, len(im.Brokers))
	}
	for id, l := range im.Brokers {
		if live[id] != l.Epoch {
			return fmt.Sprintf("broker %d knows broker %d under epoch %d instead of %d", b.id, id, live[id], l.Epoch)
		}
	}
	for _, t := range im.Topics {
		why := ""
		im.Partitions(t, func(id cluster.PartitionID, p *cluster.Partition) {
			if p != nil && why == "" {
				why = comparePartition(b, t.Name, id, p)
			}
		})
		if why != "" {
			return why
		}
	}
	return ""
}

func comparePartition(b *node, topic string, id cluster.PartitionID, p *cluster.Partition) string {
	differs := func(what string, s broker.PartitionState, ok bool) string {
		if ok && s.LeaderEpoch == p.LeaderEpoch && s.PartitionEpoch == p.PartitionEpoch && s.Leader == p.Leader && slices.Equal(s.ISR, p.ISR) {
			return ""
		}
		return fmt.Sprintf("broker %d, %s of %s-%d: has %v leader %d epochs %d/%d isr %v, etcd has leader %d epochs %d/%d isr %v", b.id, what,
			topic, id.Index, ok, s.Leader, s.LeaderEpoch, s.PartitionEpoch, s.ISR, p.Leader, p.LeaderEpoch, p.PartitionEpoch, p.ISR)
	}
	if slices.Contains(p.Replicas, b.id) {
		s, ok := b.Partition(id)
		if why := differs("state", s, ok); why != "" {
			return why
		}
	}
	s, ok := b.Metadata(id)
	return differs("metadata", s, ok)
}

// shrink asks, as the leader of a partition, to be alone in its ISR.
func (w *world) shrink(ctx context.Context, brokers []*node, id cluster.PartitionID) ([]broker.IsrResult, error) {
	var p cluster.Partition
	w.tape.look(func(im *cluster.Image) { p = im.Partition(id).Clone() })
	if p.Leader < 0 || int(p.Leader) >= len(brokers) {
		return nil, fmt.Errorf("partition %s is led by %d", id, p.Leader)
	}
	return brokers[p.Leader].AlterPartition(ctx, []broker.IsrChange{{
		Partition: id, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, NewISR: []broker.IsrMember{{Broker: p.Leader}},
	}})
}

// sessionLease is the lease of a broker's session.
func (w *world) sessionLease(id cluster.BrokerID) (lease store.LeaseID) {
	w.tape.look(func(im *cluster.Image) {
		if b := im.Brokers[id]; b != nil {
			lease = b.Lease
		}
	})
	return lease
}

// offline are the partitions without a leader, and those that cannot be read.
func (w *world) offline() (n int) {
	w.tape.look(func(im *cluster.Image) {
		for _, t := range im.Topics {
			im.Partitions(t, func(_ cluster.PartitionID, p *cluster.Partition) {
				if p == nil || p.Leader == cluster.NoLeader {
					n++
				}
			})
		}
	})
	return n
}

var _ broker.Handler = (*node)(nil)
