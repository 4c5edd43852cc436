package scenarios

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// disk is the storage of one broker: it outlives processes. It is the apply
// function of a node.
type disk struct {
	mu      sync.Mutex
	has     map[cluster.PartitionID]broker.HeldReplica
	failed  map[cluster.PartitionID]bool
	stopped map[cluster.PartitionID]int // StopReplica without deletion
	deleted []cluster.PartitionID
}

func newDisk() *disk {
	return &disk{has: map[cluster.PartitionID]broker.HeldReplica{}, failed: map[cluster.PartitionID]bool{}, stopped: map[cluster.PartitionID]int{}}
}

func (d *disk) apply(_ context.Context, s broker.PartitionState) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.failed[s.Partition]:
		return fmt.Errorf("%w: on purpose", broker.ErrStorage)
	case s.Delete:
		delete(d.has, s.Partition)
		d.deleted = append(d.deleted, s.Partition)
	case s.Stop:
		d.stopped[s.Partition]++
	default:
		d.has[s.Partition] = broker.HeldReplica{Topic: s.Topic, Partition: s.Partition, LeaderEpoch: s.LeaderEpoch}
	}
	return nil
}

func (d *disk) fail(id cluster.PartitionID, fails bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed[id] = fails
}

func (d *disk) holds(id cluster.PartitionID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.has[id]
	return ok
}

func (d *disk) stops(id cluster.PartitionID) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stopped[id]
}

// on makes a broker store what it has on the disk.
func (d *disk) on() brokerOption {
	return func(n *node, cfg *broker.Config) {
		d.mu.Lock()
		defer d.mu.Unlock()
		cfg.Found = []broker.HeldReplica{}
		for _, r := range d.has {
			cfg.Found = append(cfg.Found, r)
		}
		n.apply = d.apply
	}
}

// put lets the disk hold a replica that no process has brought.
func (d *disk) put(topic string, id cluster.PartitionID, le cluster.LeaderEpoch) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.has[id] = broker.HeldReplica{Topic: topic, Partition: id, LeaderEpoch: le}
}

// record is a partition as etcd has it.
func (w *world) record(id cluster.PartitionID) (p cluster.Partition) {
	w.tape.look(func(im *cluster.Image) {
		if found := im.Partition(id); found != nil {
			p = found.Clone()
		}
	})
	return p
}

func (w *world) awaitRecord(what string, id cluster.PartitionID, cond func(cluster.Partition) bool) {
	w.t.Helper()
	w.await(what, limit, func() bool { return cond(w.record(id)) })
}

// summary is what some daemon says of a broker.
func (w *world) summary(n int, id cluster.BrokerID) *pb.BrokerSummary {
	resp, err := w.someAdmin(n).ListBrokers(w.call(), &pb.ListBrokersRequest{})
	if err != nil {
		return nil
	}
	i := slices.IndexFunc(resp.GetBrokers(), func(b *pb.BrokerSummary) bool { return b.GetId() == int32(id) })
	if i < 0 {
		return nil
	}
	return resp.GetBrokers()[i]
}

// strayTopics are the topics of a broker's strays, as all daemons show them.
func (w *world) awaitStrays(id cluster.BrokerID, want ...string) {
	w.t.Helper()
	for n := range 2 {
		w.await(fmt.Sprintf("daemon %d shows strays %v of broker %d", n, want, id), limit, func() bool {
			s := w.summary(n, id)
			var got []string
			for _, t := range s.GetStrays() {
				for _, r := range t.GetReplicas() {
					got = append(got, fmt.Sprintf("%s/%d", t.GetTopic(), r.GetPartition()))
				}
			}
			return s != nil && s.StrayReplicas != nil && int(s.GetStrayReplicas()) == len(want) && slices.Equal(got, want)
		})
	}
}

// The storage of a leader's replica fails: another one leads and the replica
// leaves the ISR. It stays so over a change of controllers, and is let in again
// when its storage is back.
func TestStorageOfALeaderFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.daemon("a")
	w.daemon("b")
	disks := []*disk{newDisk(), newDisk(), newDisk()}
	var brokers []*node
	for i, d := range disks {
		brokers = append(brokers, w.broker(cluster.BrokerID(i), d.on()))
	}
	for _, b := range brokers {
		w.registered(b)
	}
	id := cluster.PartitionID{Topic: w.create("orders", 3, 3)}
	w.converged(soon)
	lost := w.record(id).Leader

	disks[lost].fail(id, true)
	brokers[lost].SetOffline(id)
	w.awaitRecord("another one leads", id, func(p cluster.Partition) bool { return p.Leader != lost && len(p.ISR) == 2 })
	after := w.record(id)
	if after.Cause != pb.ChangeCause_CHANGE_CAUSE_REPLICA_OFFLINE {
		t.Errorf("cause %v", after.Cause)
	}
	w.converged(soon)

	admit := func() broker.IsrResult {
		p := w.record(id)
		change := broker.IsrChange{Partition: id, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch}
		for _, r := range p.Replicas {
			change.NewISR = append(change.NewISR, broker.IsrMember{Broker: r})
		}
		out, err := brokers[p.Leader].AlterPartition(w.call(), []broker.IsrChange{change})
		if err != nil {
			t.Fatal(err)
		}
		return out[0]
	}
	if r := admit(); r.Reason != cluster.IneligibleReplica {
		t.Errorf("an offline replica is let in: %+v", r)
	}
	w.resign()
	w.active(2, soon)
	w.await("the next controller knows", soon, func() bool { s := w.summary(0, lost); return s.GetOfflineReplicas() == 1 })
	if r := admit(); r.Reason != cluster.IneligibleReplica {
		t.Errorf("after a change of controllers it is let in: %+v", r)
	}
	if p := w.record(id); p.LeaderEpoch != after.LeaderEpoch || p.Leader != after.Leader {
		t.Errorf("the change of controllers made %+v of %+v", p, after)
	}

	disks[lost].fail(id, false)
	brokers[lost].SetOnline(id)
	w.await("it is online", soon, func() bool {
		s := w.summary(1, lost)
		return s != nil && s.OfflineReplicas != nil && s.GetOfflineReplicas() == 0
	})
	if r := admit(); r.Reason != "" {
		t.Errorf("it is not let in: %+v", r)
	}
	w.converged(soon)
}

// Where nobody else is in sync the partition has no leader until the storage is
// back, here found out by the command of an election.
func TestStorageOfTheLastReplicaFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.daemon("a")
	d := newDisk()
	b := w.broker(0, d.on())
	w.registered(b)
	id := cluster.PartitionID{Topic: w.create("orders", 1, 1)}
	w.converged(soon)
	d.fail(id, true)
	b.SetOffline(id)
	w.awaitRecord("nobody leads", id, func(p cluster.Partition) bool {
		return p.Leader == cluster.NoLeader && slices.Equal(p.ISR, []cluster.BrokerID{0})
	})
	le := w.record(id).LeaderEpoch
	d.fail(id, false)
	b.SetOnline(id)
	w.awaitRecord("it leads again", id, func(p cluster.Partition) bool {
		return p.Leader == 0 && p.LeaderEpoch > le && p.Cause == pb.ChangeCause_CHANGE_CAUSE_REPLICA_ONLINE
	})
	w.converged(soon)
}

// A replica that nobody has assigned to its broker is stopped, kept and shown,
// over a restart of the broker and a change of controllers, until it is
// assigned.
func TestStraysAreKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.daemon("a")
	w.daemon("b")
	w.startBrokers(1)
	d := newDisk()
	id := cluster.PartitionID{Topic: w.create("orders", 1, 1)}
	other := cluster.PartitionID{Topic: cluster.TopicID{9}}
	d.put("orders", id, 0)
	d.put("unheard of", other, 3) // no sync covers it
	b := w.broker(1, d.on())
	w.registered(b)
	w.awaitStrays(1, "orders/0")
	if d.stops(id) != 1 || d.stops(other) != 0 || !slices.Equal(strayNames(b), []string{"orders/0"}) {
		t.Errorf("stopped %v, strays %v", d.stopped, b.Strays())
	}
	w.resign()
	w.active(2, soon)
	w.awaitStrays(1, "orders/0")

	b.kill()
	b = w.broker(1, d.on())
	w.registered(b)
	w.awaitStrays(1, "orders/0")
	if !d.holds(id) || !d.holds(other) || len(d.deleted) > 0 {
		t.Errorf("the disk holds %v, deleted was %v", d.has, d.deleted)
	}

	w.assign(id, 0, 1)
	w.awaitStrays(1)
	w.await("it is hosted", soon, func() bool { _, ok := b.Partition(id); return ok })
	w.converged(soon)
}

func strayNames(b *node) []string {
	var out []string
	for _, r := range b.Strays() {
		out = append(out, fmt.Sprintf("%s/%d", r.Topic, r.Partition.Index))
	}
	return out
}

// assign gives a partition its replicas by hand.
func (w *world) assign(id cluster.PartitionID, replicas ...cluster.BrokerID) {
	w.t.Helper()
	key, value := w.block(id)
	var size int32
	w.tape.look(func(im *cluster.Image) { size = im.TopicByID(id.Topic).BlockSize() })
	p := w.record(id)
	p.Replicas, p.PartitionEpoch, p.LeaderEpoch = replicas, p.PartitionEpoch+1, p.LeaderEpoch+1
	_ = value
	w.tape.look(func(im *cluster.Image) {
		value = im.Block(cluster.BlockOf(id, size)).With(map[int32]*cluster.Partition{id.Index: &p}, nil).Encode()
	})
	w.put(key, value)
}

// block is the key of a partition's block, and its value.
func (w *world) block(id cluster.PartitionID) (key string, value []byte) {
	w.tape.look(func(im *cluster.Image) {
		block := cluster.BlockOf(id, im.TopicByID(id.Topic).BlockSize())
		key, value = w.keys.Block(block), im.Block(block).Encode()
	})
	return key, value
}

// What cannot be read is not covered: its replicas are no strays, and go on,
// while a stray of another topic is found.
func TestUnreadableBlockMakesNoStrays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.daemon("a")
	w.startBrokers(1)
	d := newDisk()
	whole := cluster.PartitionID{Topic: w.create("whole", 1, 1)}
	b := w.broker(1, d.on())
	w.registered(b)
	broken := cluster.PartitionID{Topic: w.create("broken", 4, 2)}
	w.converged(soon)
	key, value := w.block(broken)
	w.put(key, []byte("garbage"))
	b.kill()
	d.put("whole", whole, 0)
	b = w.broker(1, d.on())
	w.registered(b)
	w.awaitStrays(1, "whole/0")
	for i := range int32(4) {
		if id := (cluster.PartitionID{Topic: broken.Topic, Index: i}); d.stops(id) > 0 || !d.holds(id) {
			t.Errorf("partition %d was stopped %d times, is held: %v", i, d.stops(id), d.holds(id))
		}
	}
	w.put(key, value)
	w.await("they are hosted again", limit, func() bool { return len(b.Partitions()) == 4 })
	w.converged(limit)
	w.awaitStrays(1, "whole/0")
}
