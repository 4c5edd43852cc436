package epoch_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/epoch"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
	"github.com/controllerd/controllerd/store/memstore"
)

var keys = cluster.KeysOf("test")

// world is a store and the image that a daemon has of it.
type world struct {
	t  *testing.T
	m  *memstore.Model
	im *cluster.Image
}

func newWorld(t *testing.T) *world {
	return &world{t: t, m: memstore.NewModel(), im: cluster.NewImage(keys)}
}

// look lets the image see everything.
func (w *world) look() {
	w.t.Helper()
	b, err := w.m.ChangesSince(keys.Prefix(), w.im.Rev)
	if err != nil {
		w.t.Fatal(err)
	}
	w.im.Apply(b)
}

// write does what an operator could do by hand.
func (w *world) write(ops ...store.Op) {
	w.t.Helper()
	r, err := w.m.Txn(store.Txn{If: []store.Cond{store.Missing("never/written")}, Then: ops})
	if err != nil || !r.Succeeded {
		w.t.Fatalf("write by hand: %+v %v", r, err)
	}
	w.look()
}

func (w *world) commit(txn store.Txn) bool {
	w.t.Helper()
	r, err := w.m.Txn(txn)
	if err != nil {
		w.t.Fatal(err)
	}
	w.look()
	return r.Succeeded
}

func (w *world) self(id string) *pb.ControllerRecord {
	w.t.Helper()
	l, err := w.m.Grant(0, 5*time.Second)
	if err != nil {
		w.t.Fatal(err)
	}
	return &pb.ControllerRecord{Id: id, Nonce: "nonce-" + id, Endpoint: id + ":7070", Lease: int64(l.ID)}
}

// win lets a daemon win the next term.
func (w *world) win(id string) (*pb.ControllerRecord, epoch.Claim) {
	w.t.Helper()
	who := w.self(id)
	if !w.commit(epoch.Mint(w.im, who, 1)) {
		w.t.Fatalf("%s did not win", id)
	}
	c, ok := epoch.Won(w.im, who.GetNonce(), store.LeaseID(who.GetLease()))
	if !ok {
		w.t.Fatalf("the win of %s is not shown", id)
	}
	return who, c
}

func (w *world) value(key string) []byte {
	w.t.Helper()
	read, err := w.m.Get(key)
	if err != nil || len(read.KVs) != 1 {
		w.t.Fatalf("read %s: %v %v", key, read.KVs, err)
	}
	return read.KVs[0].Value
}

func epochValue(e cluster.Epoch) []byte { return cluster.Encode(&pb.EpochRecord{Epoch: int64(e)}) }

// The first election wins epoch 1 and makes the seat, the epoch key and the
// history at one revision.
func TestMintFirst(t *testing.T) {
	w := newWorld(t)
	who, c := w.win("a")
	if c.Epoch != 1 || c.Rev != w.m.Rev() {
		t.Errorf("claim %+v at revision %d", c, w.m.Rev())
	}
	for _, key := range []string{keys.Controller(), keys.ControllerEpoch(), keys.Term(1)} {
		if w.im.ModRev(key) != c.Rev {
			t.Errorf("%s was written at %d, the claim at %d", key, w.im.ModRev(key), c.Rev)
		}
	}
	if got := w.im.Controller; got.Lease != store.LeaseID(who.GetLease()) || !proto.Equal(got.Record, who) {
		t.Errorf("seat %+v", got)
	}
	want := &pb.TermRecord{Epoch: 1, Controller: "a", Nonce: "nonce-a", Endpoint: "a:7070", BeganMs: 1}
	if got := w.im.Terms[1].Record; !proto.Equal(got, want) {
		t.Errorf("term %v, want %v", got, want)
	}
}

func TestMintComparesSeatAndEpochKey(t *testing.T) {
	cases := []struct {
		name string
		then func(w *world)
		wins bool
	}{
		{"nothing happened", func(*world) {}, true},
		{"somebody holds the seat", func(w *world) { w.write(store.Put(keys.Controller(), []byte("x"))) }, false},
		{"somebody won and gave up", func(w *world) {
			who, c := w.win("b")
			w.commit(epoch.Release(w.im, c, store.LeaseID(who.GetLease()), epoch.End{}, 1))
		}, false},
		{"the epoch key was written with the same value", func(w *world) { w.write(store.Put(keys.ControllerEpoch(), epochValue(1))) }, false},
		{"the epoch key was deleted", func(w *world) { w.write(store.Delete(keys.ControllerEpoch())) }, false},
		{"a recovery has begun", func(w *world) { w.write(store.Put(keys.Recovery(), nil)) }, false},
		{"another key was written", func(w *world) { w.write(store.Put(keys.Node(1), []byte("x"))) }, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.write(store.Put(keys.ControllerEpoch(), epochValue(1)))
			txn := epoch.Mint(w.im, w.self("a"), 1)
			c.then(w)
			if got := w.commit(txn); got != c.wins {
				t.Errorf("won: %v, want %v", got, c.wins)
			}
		})
	}
}

// A seat that was put by hand without a lease would never go: it is taken, if
// it is still the one that the image shows. One on a lease is not.
func TestMintTakesASeatWithoutALease(t *testing.T) {
	w := newWorld(t)
	if !epoch.Vacant(w.im) {
		t.Error("a missing seat is vacant")
	}
	w.write(store.Put(keys.Controller(), []byte{0xff}))
	if !epoch.Vacant(w.im) {
		t.Error("a seat without a lease is vacant")
	}
	txn := epoch.Mint(w.im, w.self("a"), 1)
	w.write(store.Put(keys.Controller(), []byte{0xff}))
	if w.commit(txn) {
		t.Error("took a seat that was written since")
	}
	_, claim := w.win("a")
	if epoch.Vacant(w.im) || !claim.Holds(w.im) {
		t.Error("a seat on a lease is not vacant")
	}
	if w.commit(epoch.Mint(w.im, w.self("b"), 1)) {
		t.Error("took a seat on a lease")
	}
}

// A claim that was decided from an image without an epoch that was won since
// fails, even if the epoch key is gone too.
func TestMintNeverRepeatsAnEpoch(t *testing.T) {
	w := newWorld(t)
	txn := epoch.Mint(w.im, w.self("a"), 1)
	w.win("b")
	w.write(store.Delete(keys.Controller()), store.Delete(keys.ControllerEpoch()))
	if w.commit(txn) {
		t.Error("epoch 1 was won twice")
	}
}

// Each epoch is above every one that was seen anywhere, so an epoch key that
// was lost, damaged or set back cannot make it fall.
func TestMintIsAboveEveryEpochSeen(t *testing.T) {
	topic := cluster.TopicID{1}
	block := (*cluster.Block)(nil).With(map[int32]*cluster.Partition{0: {
		Replicas: []cluster.BrokerID{1}, ISR: []cluster.BrokerID{1}, Leader: 1, ControllerEpoch: 9,
	}}, nil)
	cases := []struct {
		name string
		ops  []store.Op
		want cluster.Epoch
	}{
		{"epoch key", []store.Op{store.Put(keys.ControllerEpoch(), epochValue(6))}, 7},
		{"history without an epoch key", []store.Op{store.Put(keys.Term(6), cluster.Encode(&pb.TermRecord{Epoch: 6}))}, 7},
		{"unreadable history", []store.Op{store.Put(keys.Term(6), []byte{0xff})}, 7},
		{"record of an invisible block", []store.Op{store.Put(keys.Block(cluster.BlockID{Topic: topic}), block.Encode())}, 10},
		{"unreadable epoch key", []store.Op{store.Put(keys.ControllerEpoch(), []byte{0xff}), store.Put(keys.Term(6), cluster.Encode(&pb.TermRecord{Epoch: 6}))}, 7},
		{"negative epoch key", []store.Op{store.Put(keys.ControllerEpoch(), epochValue(-3)), store.Put(keys.Term(6), cluster.Encode(&pb.TermRecord{Epoch: 6}))}, 7},
		{"epoch key set back", []store.Op{store.Put(keys.ControllerEpoch(), epochValue(2)), store.Put(keys.Term(6), cluster.Encode(&pb.TermRecord{Epoch: 6}))}, 7},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.write(c.ops...)
			if _, claim := w.win("a"); claim.Epoch != c.want {
				t.Errorf("epoch %d, want %d", claim.Epoch, c.want)
			}
		})
	}
	t.Run("seen once and deleted since", func(t *testing.T) {
		w := newWorld(t)
		w.write(store.Put(keys.ControllerEpoch(), epochValue(6)))
		w.write(store.Delete(keys.ControllerEpoch()))
		if _, claim := w.win("a"); claim.Epoch != 7 {
			t.Errorf("epoch %d, want 7", claim.Epoch)
		}
	})
}

// The history holds 1,000 terms: each election deletes the one that falls out.
func TestMintForgetsOldTerms(t *testing.T) {
	for _, c := range []struct {
		last    cluster.Epoch
		deleted []string
	}{
		{epoch.TermsKept - 1, nil},
		{epoch.TermsKept, []string{keys.Term(1)}},
		{5000, []string{keys.Term(4001)}},
	} {
		w := newWorld(t)
		w.write(store.Put(keys.ControllerEpoch(), epochValue(c.last)))
		var deleted []string
		for _, op := range epoch.Mint(w.im, w.self("a"), 1).Then {
			if op.Kind == store.OpDelete {
				deleted = append(deleted, op.Key)
			}
		}
		if !slices.Equal(deleted, c.deleted) {
			t.Errorf("the term after %d deletes %v, want %v", c.last, deleted, c.deleted)
		}
	}
}

// Nobody but the process that won, on the lease under which it won, is told so,
// and only as long as both keys are the ones that it wrote.
func TestWon(t *testing.T) {
	cases := []struct {
		name  string
		then  func(w *world, who *pb.ControllerRecord)
		nonce string
		lease store.LeaseID // 0: its own
		won   bool
	}{
		{"its own win", nil, "nonce-a", 0, true},
		{"another process", nil, "nonce-b", 0, false},
		{"a lease that it got since", nil, "nonce-a", 99, false},
		{"seat overwritten with the same value on the same lease", func(w *world, who *pb.ControllerRecord) {
			w.write(store.PutLeased(keys.Controller(), cluster.Encode(who), store.LeaseID(who.GetLease())))
		}, "nonce-a", 0, false},
		{"seat put without its lease", func(w *world, who *pb.ControllerRecord) {
			w.write(store.Put(keys.Controller(), cluster.Encode(who)))
		}, "nonce-a", 0, false},
		{"seat unreadable", func(w *world, who *pb.ControllerRecord) {
			w.write(store.PutKeepLease(keys.Controller(), []byte{0xff}))
		}, "nonce-a", 0, false},
		{"seat deleted", func(w *world, _ *pb.ControllerRecord) { w.write(store.Delete(keys.Controller())) }, "nonce-a", 0, false},
		{"epoch key overwritten with the same value", func(w *world, _ *pb.ControllerRecord) {
			w.write(store.Put(keys.ControllerEpoch(), epochValue(1)))
		}, "nonce-a", 0, false},
		{"both overwritten with the same values at one revision, the epoch unreadable", func(w *world, who *pb.ControllerRecord) {
			w.write(store.PutKeepLease(keys.Controller(), cluster.Encode(who)), store.Put(keys.ControllerEpoch(), []byte{0xff}))
		}, "nonce-a", 0, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			who, claim := w.win("a")
			if c.then != nil {
				c.then(w, who)
			}
			lease := c.lease
			if lease == 0 {
				lease = store.LeaseID(who.GetLease())
			}
			got, won := epoch.Won(w.im, c.nonce, lease)
			if won != c.won || won && got != claim || !won && got != (epoch.Claim{}) {
				t.Errorf("won: %v %+v, want %v", won, got, c.won)
			}
		})
	}
}

// A guarded transaction fails, and the image shows that the claim does not
// hold, after anybody has written or deleted one of the two keys, whatever the
// values.
func TestGuard(t *testing.T) {
	cases := []struct {
		name  string
		then  func(w *world, who *pb.ControllerRecord, c epoch.Claim)
		holds bool
	}{
		{"nothing happened", func(*world, *pb.ControllerRecord, epoch.Claim) {}, true},
		{"other keys were written", func(w *world, _ *pb.ControllerRecord, _ epoch.Claim) { w.write(store.Put(keys.Node(1), []byte("x"))) }, true},
		{"seat overwritten with the same value", func(w *world, who *pb.ControllerRecord, _ epoch.Claim) {
			w.write(store.PutKeepLease(keys.Controller(), cluster.Encode(who)))
		}, false},
		{"epoch key overwritten with the same value", func(w *world, _ *pb.ControllerRecord, _ epoch.Claim) {
			w.write(store.Put(keys.ControllerEpoch(), epochValue(1)))
		}, false},
		{"seat deleted", func(w *world, _ *pb.ControllerRecord, _ epoch.Claim) { w.write(store.Delete(keys.Controller())) }, false},
		{"epoch key deleted", func(w *world, _ *pb.ControllerRecord, _ epoch.Claim) { w.write(store.Delete(keys.ControllerEpoch())) }, false},
		{"prefix emptied", func(w *world, _ *pb.ControllerRecord, _ epoch.Claim) {
			w.write(store.Delete(keys.Controller()), store.Delete(keys.ControllerEpoch()), store.Delete(keys.Term(1)))
		}, false},
		{"the same process won again", func(w *world, who *pb.ControllerRecord, c epoch.Claim) {
			w.commit(epoch.Release(w.im, c, store.LeaseID(who.GetLease()), epoch.End{}, 1))
			if !w.commit(epoch.Mint(w.im, who, 1)) {
				w.t.Fatal("did not win again")
			}
		}, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			who, claim := w.win("a")
			c.then(w, who, claim)
			if got := claim.Holds(w.im); got != c.holds {
				t.Errorf("holds: %v, want %v", got, c.holds)
			}
			if got := w.commit(store.Txn{If: claim.Guard(keys), Then: []store.Op{store.Put(keys.Node(2), []byte("y"))}}); got != c.holds {
				t.Errorf("guarded transaction: %v, want %v", got, c.holds)
			}
		})
	}
	if (epoch.Claim{}).Holds(cluster.NewImage(keys)) {
		t.Error("no claim holds in an image without a seat")
	}
}

// Giving up deletes the seat and the candidate key and completes the history,
// in which fields of a newer version survive.
func TestRelease(t *testing.T) {
	w := newWorld(t)
	who, _ := w.win("a")
	lease := store.LeaseID(who.GetLease())
	newer := protowire.AppendVarint(protowire.AppendTag(nil, 1000, protowire.VarintType), 42)
	w.write(
		store.PutLeased(keys.Candidate(lease), cluster.Encode(&pb.CandidateRecord{Id: "a"}), lease),
		store.Put(keys.Term(1), append(w.value(keys.Term(1)), newer...)),
	)
	claim, _ := epoch.Won(w.im, who.GetNonce(), lease)
	end := epoch.End{Cause: pb.EndCause_END_CAUSE_TRANSFERRED, Reason: "upgrade", Successor: "b"}
	if !w.commit(epoch.Release(w.im, claim, lease, end, 77)) {
		t.Fatal("not released")
	}
	if w.im.Controller != nil || len(w.im.Candidates) != 0 {
		t.Errorf("left behind: seat %v, candidates %v", w.im.Controller, w.im.Candidates)
	}
	if w.im.Epoch != 1 {
		t.Errorf("epoch key holds %d, want 1", w.im.Epoch)
	}
	got := w.im.Terms[1].Record
	if string(got.ProtoReflect().GetUnknown()) != string(newer) {
		t.Errorf("unknown fields %x, want %x", got.ProtoReflect().GetUnknown(), newer)
	}
	got.ProtoReflect().SetUnknown(nil)
	want := &pb.TermRecord{
		Epoch: 1, Controller: "a", Nonce: "nonce-a", Endpoint: "a:7070", BeganMs: 1,
		EndCause: pb.EndCause_END_CAUSE_TRANSFERRED, EndReason: "upgrade", Successor: "b", EndedMs: 77,
	}
	if !proto.Equal(got, want) {
		t.Errorf("term %v, want %v", got, want)
	}
}

// A term that is not in the history, or unreadable there, is given up as well,
// and nothing is written over it. A claim that was lost releases nothing.
func TestReleaseWithoutHistoryOrClaim(t *testing.T) {
	for _, c := range []struct {
		name string
		op   store.Op
	}{{"missing", store.Delete(keys.Term(1))}, {"unreadable", store.Put(keys.Term(1), []byte{0xff})}} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			who, claim := w.win("a")
			w.write(c.op)
			before := w.im.ModRev(keys.Term(1))
			if !w.commit(epoch.Release(w.im, claim, store.LeaseID(who.GetLease()), epoch.End{}, 1)) || w.im.Controller != nil {
				t.Fatal("not released")
			}
			if got := w.im.ModRev(keys.Term(1)); got != before {
				t.Errorf("the term's key was written at %d", got)
			}
		})
	}
	t.Run("lost", func(t *testing.T) {
		w := newWorld(t)
		who, claim := w.win("a")
		w.write(store.Delete(keys.Controller()))
		_, next := w.win("b")
		if w.commit(epoch.Release(w.im, claim, store.LeaseID(who.GetLease()), epoch.End{}, 1)) || !next.Holds(w.im) {
			t.Error("a lost claim has released the seat of the next one")
		}
	})
}

// Every term of a long history of wins, losses and hand-made damage is higher
// than all before, whoever wins it.
func TestEpochsRiseThroughDamage(t *testing.T) {
	w := newWorld(t)
	damage := []store.Op{
		store.Delete(keys.ControllerEpoch()), store.Put(keys.ControllerEpoch(), []byte{0xff}),
		store.Put(keys.ControllerEpoch(), epochValue(1)), store.Delete(keys.Controller()),
	}
	last := cluster.Epoch(0)
	for i := range 100 {
		who, claim := w.win(fmt.Sprint("c", i%3))
		if claim.Epoch <= last {
			t.Fatalf("term %d: epoch %d after %d", i, claim.Epoch, last)
		}
		last = claim.Epoch
		w.write(damage[i%len(damage)])
		w.m.Revoke(store.LeaseID(who.GetLease()))
		w.look()
		if claim.Holds(w.im) {
			t.Fatalf("term %d: the claim holds after its lease was revoked", i)
		}
	}
}
