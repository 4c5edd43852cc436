package scenarios

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// edited is a topic that somebody edits with etcdctl.
type edited struct {
	*stored
	id  cluster.TopicID
	ops []clientv3.Op
}

// record edits the topic's record.
func (e *edited) record(change func(*pb.TopicRecord)) {
	var r *pb.TopicRecord
	e.tape.look(func(im *cluster.Image) { r = proto.Clone(im.TopicByID(e.id).Record).(*pb.TopicRecord) })
	change(r)
	e.ops = append(e.ops, clientv3.OpPut(e.keys.Topic("orders"), string(encode(e.t, r))))
}

// first edits the record of partition 0.
func (e *edited) first(change func(*pb.PartitionRecord)) {
	e.t.Helper()
	key, value := e.block(cluster.PartitionID{Topic: e.id})
	b := &pb.PartitionBlock{}
	if err := proto.Unmarshal(value, b); err != nil {
		e.t.Fatal(err)
	}
	change(b.GetPartitions()[0])
	e.ops = append(e.ops, clientv3.OpPut(key, string(encode(e.t, b))))
}

// write makes the edits, all at once.
func (e *edited) write() {
	e.t.Helper()
	resp, err := e.client.Txn(e.call()).Then(e.ops...).Commit()
	if err != nil {
		e.t.Fatal(err)
	}
	e.tape.byHand(resp.Header.Revision)
	e.ops = nil
}

// partitions describes the topic, a partition in a word: who has replicas, and
// who leads.
func (e *edited) partitions() string {
	var out []string
	e.tape.look(func(im *cluster.Image) {
		t := im.TopicByID(e.id)
		if t == nil {
			out = append(out, "gone")
			return
		}
		im.Partitions(t, func(_ cluster.PartitionID, p *cluster.Partition) {
			if p == nil {
				out = append(out, "unknown")
				return
			}
			out = append(out, strings.ReplaceAll(fmt.Sprintf("%v:%d", p.Replicas, p.Leader), " ", ","))
		})
	})
	return strings.Join(out, " ")
}

// fresh kills the only daemon and starts another one at its address, which
// knows only what etcd holds.
func (e *edited) fresh(d *daemon) *daemon {
	e.t.Helper()
	d.kill()
	n := e.epoch()
	d = e.daemon(d.ID, brief, listen(d.Endpoint))
	e.active(n+1, limit)
	return d
}

// Somebody edits a topic with etcdctl. Partitions that are wanted are made;
// what no rule could have written is refused and named; what could have been is
// taken as it is, and a replica that nobody has any more is kept and shown. A
// controller that has seen the edit and one that has only read its outcome
// come to the same.
func TestTP5EditedByHand(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]struct {
		blocks  int32 // block size
		do      func(*edited)
		want    string // the partitions
		problem string // that is named; empty: none
		stray   cluster.BrokerID
		mended  string // the partitions after what was there before was put back; empty: there is nothing to mend
	}{
		"replicas": {
			do: func(e *edited) {
				e.first(func(p *pb.PartitionRecord) { p.Replicas = []int32{0, 1, 3} })
			},
			want: "unknown unknown unknown", problem: "ISR [0 1 2] is not within the replicas [0 1 3]", mended: "[0,1,2]:0 [1,2,0]:1 [2,0,1]:2",
		},
		"replicas and ISR": {
			do: func(e *edited) {
				e.first(func(p *pb.PartitionRecord) {
					p.Replicas, p.Isr, p.LeaderEpoch, p.PartitionEpoch = []int32{0, 1, 3}, []int32{0, 1}, p.LeaderEpoch+1, p.PartitionEpoch+1
				})
			},
			want: "[0,1,3]:0 [1,2,0]:1 [2,0,1]:2", stray: 2,
		},
		"replicas and ISR, and more partitions": {
			do: func(e *edited) {
				e.first(func(p *pb.PartitionRecord) {
					p.Replicas, p.Isr, p.LeaderEpoch, p.PartitionEpoch = []int32{0, 1, 3}, []int32{0, 1}, p.LeaderEpoch+1, p.PartitionEpoch+1
				})
				e.record(func(r *pb.TopicRecord) { r.PartitionsWanted = 5 })
			},
			want: "[0,1,3]:0 [1,2,0]:1 [2,0,1]:2 + +", stray: 2,
		},
		"more partitions": {
			do:   func(e *edited) { e.record(func(r *pb.TopicRecord) { r.PartitionsWanted = 5 }) },
			want: "[0,1,2]:0 [1,2,0]:1 [2,0,1]:2 + +",
		},
		"no replicas": {
			do:   func(e *edited) { e.first(func(p *pb.PartitionRecord) { p.Replicas = nil }) },
			want: "unknown unknown unknown", problem: "no replicas", mended: "[0,1,2]:0 [1,2,0]:1 [2,0,1]:2",
		},
		"a replica twice": {
			do:   func(e *edited) { e.first(func(p *pb.PartitionRecord) { p.Replicas = []int32{0, 1, 1} }) },
			want: "unknown unknown unknown", problem: "name a broker twice", mended: "[0,1,2]:0 [1,2,0]:1 [2,0,1]:2",
		},
		"a replica twice, and more partitions": {
			do: func(e *edited) {
				e.first(func(p *pb.PartitionRecord) { p.Replicas = []int32{0, 1, 1} })
				e.record(func(r *pb.TopicRecord) { r.PartitionsWanted = 5 })
			},
			want: "unknown unknown unknown", problem: "topic orders has 3 of 5 partitions", mended: "[0,1,2]:0 [1,2,0]:1 [2,0,1]:2 + +",
		},
		"a replica twice, and more partitions in other blocks": {
			blocks: 1,
			do: func(e *edited) {
				e.first(func(p *pb.PartitionRecord) { p.Replicas = []int32{0, 1, 1} })
				e.record(func(r *pb.TopicRecord) { r.PartitionsWanted = 5 })
			},
			want: "unknown [1,2,0]:1 [2,0,1]:2 + +", problem: "name a broker twice", mended: "[0,1,2]:0 [1,2,0]:1 [2,0,1]:2 + +",
		},
		"an unknown broker": {
			do: func(e *edited) {
				e.first(func(p *pb.PartitionRecord) {
					p.Replicas, p.LeaderEpoch, p.PartitionEpoch = []int32{0, 1, 2, 99}, p.LeaderEpoch+1, p.PartitionEpoch+1
				})
			},
			want: "[0,1,2,99]:0 [1,2,0]:1 [2,0,1]:2",
		},
		"nobody but an unknown broker": {
			do: func(e *edited) {
				e.first(func(p *pb.PartitionRecord) {
					p.Replicas, p.Isr, p.Leader, p.LeaderEpoch, p.PartitionEpoch = []int32{99}, []int32{99}, 99, p.LeaderEpoch+1, p.PartitionEpoch+1
				})
			},
			want: "[99]:-1 [1,2,0]:1 [2,0,1]:2", stray: 2,
		},
		"fewer partitions made": {
			do:   func(e *edited) { e.record(func(r *pb.TopicRecord) { r.PartitionsMade = 1 }) },
			want: "[0,1,2]:0 [1,2,0]:1 [2,0,1]:2",
		},
		"fewer partitions": {
			do:   func(e *edited) { e.record(func(r *pb.TopicRecord) { r.PartitionsMade, r.PartitionsWanted = 1, 1 }) },
			want: "[0,1,2]:0 [1,2,0]:1 [2,0,1]:2",
		},
		"fewer partitions, in blocks of one": {
			blocks: 1,
			do:     func(e *edited) { e.record(func(r *pb.TopicRecord) { r.PartitionsMade, r.PartitionsWanted = 1, 1 }) },
			want:   "[0,1,2]:0 [1,2,0]:1 [2,0,1]:2",
		},
		"fewer partitions, after an expansion": {
			blocks: 1,
			do: func(e *edited) {
				e.record(func(r *pb.TopicRecord) { r.PartitionsWanted = 5 })
				e.write()
				e.await("there are more", soon, func() bool { return like(e.partitions(), "[0,1,2]:0 [1,2,0]:1 [2,0,1]:2 + +") })
				e.record(func(r *pb.TopicRecord) { r.PartitionsMade, r.PartitionsWanted = 2, 2 })
			},
			want: "[0,1,2]:0 [1,2,0]:1 [2,0,1]:2 + +",
		},
		"more partitions of a topic that is being deleted": {
			do: func(e *edited) {
				e.record(func(r *pb.TopicRecord) { r.Deleting, r.PartitionsWanted = true, 5 })
				e.mayGo("orders")
			},
			want: "gone",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			d := w.daemon("a", brief)
			w.active(1, soon)
			e := &edited{stored: newStored(w, 4)}
			e.id = w.inBlocks("orders", edit.blocks, []int32{0, 1, 2}, []int32{1, 2, 0}, []int32{2, 0, 1})
			w.converged(soon)
			key, value := w.block(cluster.PartitionID{Topic: e.id})
			for i, b := range e.disks[:3] {
				w.await(fmt.Sprintf("broker %d has made its replicas", i), soon, func() bool { return b.held(e.id) == 3 })
			}

			edit.do(e)
			e.write()
			for n := range 3 { // by who has seen it, by who has read it, and once more
				what := []string{"the one that sees it", "one that reads it", "the one after that"}[n]
				w.await(what+" makes of it what it should", limit, func() bool { return like(e.partitions(), edit.want) })
				if edit.problem != "" {
					w.await(what+" names it", soon, func() bool { return d.names(edit.problem) })
				}
				if edit.stray != 0 {
					w.await(what+" shows the replica that nobody has", limit, func() bool {
						s := w.summary(0, edit.stray)
						return s != nil && s.GetStrayReplicas() == 1
					})
				}
				if edit.problem == "" {
					w.converged(limit)
					if p := d.problems(); len(p) > 0 {
						t.Errorf("%s: problems %v", what, p)
					}
				}
				// Nothing is deleted, but for what was to be, and the rest goes on.
				for i, b := range e.disks[:3] {
					if edit.want == "gone" {
						w.await(fmt.Sprintf("broker %d has deleted its replicas", i), limit, func() bool { return b.deletions() > 0 })
					} else if n := b.deletions(); n > 0 {
						t.Errorf("%s: broker %d has deleted %d replicas", what, i, n)
					}
				}
				w.create(fmt.Sprint("other-", n), 2, 3)
				if !like(e.partitions(), edit.want) {
					t.Errorf("%s: then there is %s", what, e.partitions())
				}
				d = e.fresh(d)
			}
			if edit.mended == "" {
				return
			}
			w.put(key, value)
			w.await("it is whole again", limit, func() bool { return like(e.partitions(), edit.mended) })
			w.await("nothing is named any more", limit, func() bool { return len(d.problems()) == 0 })
			w.converged(limit)
		})
	}
}

// like reports whether partitions are as wanted, where + is one that is new:
// any that has three replicas, and a leader.
func like(have, want string) bool {
	h, w := strings.Fields(have), strings.Fields(want)
	return slices.EqualFunc(h, w, func(h, w string) bool {
		return h == w || w == "+" && strings.Count(h, ",") == 2 && !strings.HasSuffix(h, ":-1")
	})
}

// mayGo says that a topic whose creation was answered is to go.
func (w *world) mayGo(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.made, name)
}
