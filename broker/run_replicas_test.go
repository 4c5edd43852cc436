package broker

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/fencing"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// report waits for what the broker says on its own.
func (c *controller) report() *pb.ReplicaReport {
	c.t.Helper()
	return next(c, func(m *pb.CommandsResponse) (*pb.ReplicaReport, bool) { return m.GetReport(), m.GetReport() != nil })
}

func (c *controller) fullSync(topics ...cluster.TopicID) {
	c.t.Helper()
	fs := &pb.FullSync{SinceRevision: 100}
	for _, id := range topics {
		fs.TopicIds = append(fs.TopicIds, id[:])
	}
	c.ack(c.command(&pb.Command{
		Body: &pb.Command_FullSync{FullSync: fs}, Progress: &pb.Progress{Begins: true, ControllerEpoch: int64(c.term.Epoch)},
	}), admitted)
}

func indices(t *testing.T, replicas []*pb.TopicReplicas) string {
	t.Helper()
	return indicesOf(fencing.HeldReplicas(replicas))
}

func indicesOf(replicas []HeldReplica) string {
	out := ""
	for _, r := range replicas {
		out += fmt.Sprintf("%s/%d@%d ", r.Topic, r.Partition.Index, r.LeaderEpoch)
	}
	return out
}

// found is what is on the disks of topic a at the start.
func found(le cluster.LeaderEpoch, partitions ...int32) func(*Config) {
	return func(c *Config) {
		c.Found = []HeldReplica{}
		for _, i := range partitions {
			c.Found = append(c.Found, HeldReplica{Topic: "a", Partition: pid(i), LeaderEpoch: le})
		}
	}
}

// scripted is a handler that does as the script says, which can be changed, and
// notes its calls.
type scripted struct {
	*handler
	mu     sync.Mutex
	script func(PartitionState) error
	ran    []string
}

func newScripted() *scripted {
	h := &scripted{handler: newHandler()}
	h.auto = func(s PartitionState) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		what := "apply"
		if s.Stop {
			what = map[bool]string{false: "stop", true: "delete"}[s.Delete]
		}
		if s.MayCreate {
			what += "+"
		}
		h.ran = append(h.ran, fmt.Sprintf("%s %d", what, s.Partition.Index))
		if h.script == nil {
			return nil
		}
		return h.script(s)
	}
	return h
}

func (h *scripted) set(script func(PartitionState) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.script, h.ran = script, nil
}

func (h *scripted) expect(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Equal(h.ran, want) {
		t.Errorf("the handler did %q, want %q", h.ran, want)
	}
	h.ran = nil
}

// What a full sync does not name is stopped and kept, reported on every stream
// and in each hello, and none any more when it is assigned.
func TestStrays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newScripted()
		n, b, c := commanded(t, h, found(3, 1, 2))
		other := n.controller("c1", 5)
		c.leaderAndIsr(partition(1, 4, 7))
		c.expect(4, 7, applied)
		h.expect(t, "apply+ 1")
		c.fullSync(topicA)
		for _, s := range []*controller{c, other} {
			if got := indices(t, s.report().GetStrays()); got != "a/2@3 " {
				t.Errorf("reported %q", got)
			}
		}
		h.expect(t, "stop 2")
		if got := indices(t, n.controller("c2", 5).hello.GetStrays()); got != "a/2@3 " || got != indicesOf(b.Strays()) {
			t.Errorf("hello names %q, the broker %v", got, b.Strays())
		}
		c.fullSync(topicA)
		h.expect(t)

		c.leaderAndIsr(partition(2, 3, 7))
		c.expect(3, 7, applied)
		h.expect(t, "apply+ 2")
		if got := indices(t, c.report().GetFormerStrays()); got != "a/2@3 " || len(b.Strays()) != 0 {
			t.Errorf("no stray any more: %q, left %v", got, b.Strays())
		}
	})
}

// A stray that cannot be stopped harms no stream, and is stopped again at the
// end of the next full sync.
func TestStrayThatDoesNotStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newScripted()
		_, _, c := commanded(t, h, nil)
		c.leaderAndIsr(partition(1, 4, 7))
		c.expect(4, 7, applied)
		h.set(func(PartitionState) error { return errors.New("busy") })
		c.term, c.to.Epoch = fencing.Term{ClusterUUID: testUUID, ControllerID: "c1", Epoch: 5}, 10
		c.fullSyncAt(101, topicA)
		h.expect(t, "stop 1")
		c.ping(1)
		h.set(nil)
		c.fullSyncAt(102, topicA)
		h.expect(t, "stop 1")
		c.fullSyncAt(103, topicA)
		h.expect(t)
	})
}

// fullSyncAt is a full sync that began at that revision.
func (c *controller) fullSyncAt(rev int64, topics ...cluster.TopicID) {
	c.t.Helper()
	fs := &pb.FullSync{SinceRevision: rev}
	for _, id := range topics {
		fs.TopicIds = append(fs.TopicIds, id[:])
	}
	c.seq++
	cmd := &pb.Command{
		Sequence: c.seq, Body: &pb.Command_FullSync{FullSync: fs}, Progress: &pb.Progress{Begins: true, ControllerEpoch: int64(c.term.Epoch)},
	}
	cmd.Stamp = c.term.Stamp(c.to, 100)
	cmd.Stamp.Revision = rev
	c.send(&pb.CommandsRequest{Request: &pb.CommandsRequest_Command{Command: cmd}})
	c.ack(c.seq, admitted)
}

// What a full sync did not name, of which everything was read, is told as
// removed, and is no metadata any more.
func TestFullSyncRemovesMetadata(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := applies()
		_, b, c := commanded(t, h, nil)
		c.ack(c.updateMetadata(nil, partition(0, 1, 1)), admitted)
		if u := <-h.metadata; len(u.Partitions) != 1 {
			t.Fatalf("first update %+v", u)
		}
		c.ack(c.command(&pb.Command{
			Body:     &pb.Command_FullSync{FullSync: &pb.FullSync{SinceRevision: 101, Everything: true}},
			Progress: &pb.Progress{Begins: true, ControllerEpoch: int64(c.term.Epoch)},
		}), admitted)
		u := <-h.metadata
		if len(u.Removed) != 1 || u.Removed[0].ID != topicA || u.Removed[0].Partitions != 1 || len(u.Partitions) != 0 {
			t.Errorf("second update %+v", u)
		}
		if _, has := b.Metadata(pid(0)); has {
			t.Error("metadata is still there")
		}
	})
}

// A storage error takes a replica offline on all streams, none of which ends;
// a handler that succeeds brings it back.
func TestStorageError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newScripted()
		n, b, c := commanded(t, h, nil)
		other := n.controller("c1", 5)
		h.set(func(PartitionState) error { return fmt.Errorf("%w: disk is gone", ErrStorage) })
		c.leaderAndIsr(partition(0, 3, 7))
		c.expect(3, 7, storageError)
		if got := indices(t, other.report().GetOffline()); got != "a/0@3 " || got != indicesOf(b.OfflineReplicas()) {
			t.Errorf("the other stream hears %q, the broker has %v", got, b.OfflineReplicas())
		}
		other.ping(1)
		if got := indices(t, n.controller("c2", 5).hello.GetOffline()); got != "a/0@3 " {
			t.Errorf("hello names %q", got)
		}
		h.set(nil)
		c.leaderAndIsr(partition(0, 3, 7))
		c.expect(3, 7, applied)
		if len(b.OfflineReplicas()) != 0 {
			t.Errorf("offline %v", b.OfflineReplicas())
		}
	})
}

// The broker says that storage failed before any command finds out, and that it
// is back.
func TestSetOffline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler()
		_, b, c := commanded(t, h, nil)
		c.leaderAndIsr(partition(0, 3, 7))
		running := <-h.calls
		b.SetOffline(pid(0), pid(9))
		if got := indices(t, c.report().GetOffline()); got != "a/0@3 " {
			t.Errorf("reported %q", got)
		}
		running.end <- nil // what it did is worth nothing
		c.expect(3, 7, storageError)
		b.SetOffline(pid(0))
		b.SetOnline(pid(0), pid(9))
		if got := indices(t, c.report().GetRestored()); got != "a/0@3 " {
			t.Errorf("reported %q", got)
		}
		if len(b.OfflineReplicas()) != 1 {
			t.Error("it is online before a handler has succeeded")
		}
		c.leaderAndIsr(partition(0, 3, 7))
		(<-h.calls).end <- nil
		c.expect(3, 7, applied)
		if len(b.OfflineReplicas()) != 0 {
			t.Errorf("offline %v", b.OfflineReplicas())
		}
	})
}

// While storage has failed no replica is created that is not new.
func TestCreationWhileStorageFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newScripted()
		_, b, c := commanded(t, h, found(3, 1))
		b.SetStorageFailed(true)
		c.leaderAndIsr(partition(0, 3, 7))
		c.expect(3, 7, storageError) // it may be there
		h.expect(t)
		c.leaderAndIsr(partition(1, 3, 7))
		c.expect(3, 7, applied)
		h.expect(t, "apply 1")
		fresh := partition(2, 0, 0)
		fresh.Partitions[0].IsNew = true
		c.leaderAndIsr(fresh)
		c.expect(0, 0, applied)
		h.expect(t, "apply+ 2")
		c.leaderAndIsr(partition(2, 1, 1))
		c.expect(1, 1, applied)
		h.expect(t, "apply 2")
		h.set(func(PartitionState) error { return ErrStorage })
		fresh = partition(4, 0, 0)
		fresh.Partitions[0].IsNew = true
		c.leaderAndIsr(fresh)
		c.expect(0, 0, storageError)
		h.set(nil)
		c.leaderAndIsr(partition(4, 1, 1)) // nobody has made it since
		c.expect(1, 1, applied)
		h.expect(t, "apply+ 4")
		b.SetStorageFailed(false)
		c.leaderAndIsr(partition(3, 3, 7))
		c.expect(3, 7, storageError) // partition 0 is still offline
		h.expect(t)
	})
}
