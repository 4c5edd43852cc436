package election_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/election"
	"github.com/controllerd/controllerd/epoch"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
	"github.com/controllerd/controllerd/store/memstore"
)

// The first daemon of a new prefix founds the cluster, enlists, claims, and
// begins only when the image shows that it has won.
func TestFirstStart(t *testing.T) {
	d := newDesk(t, "a")
	d.step(nil)
	d.wants() // nothing was read yet
	if d.c.Problem() == "" || d.c.ClusterUUID() != "" {
		t.Errorf("problem %q, uuid %q before anything was read", d.c.Problem(), d.c.ClusterUUID())
	}
	d.see()
	d.wants("grant")
	d.answer("grant")
	d.wants("found")
	d.answer("found")
	d.wants() // the image does not show the cluster yet
	d.see()
	d.wants("enlist", "claim")
	if d.c.ClusterUUID() != "uuid-of-a" || d.c.Problem() != "" {
		t.Errorf("uuid %q, problem %q", d.c.ClusterUUID(), d.c.Problem())
	}
	d.answer("claim")
	d.answer("enlist")
	d.wants() // won, but the image does not show it yet
	if _, ok := d.c.Active(d.now); ok || d.c.Holding() {
		t.Error("active before the image shows it")
	}
	d.see()
	d.wants("begin 1")
	if got, ok := d.c.Active(d.now); !ok || got != d.claim || !got.Holds(d.im) {
		t.Errorf("active: %v %+v", ok, got)
	}
	want := &pb.CandidateRecord{Id: "a", Nonce: "a-nonce", Endpoint: "a:1", Version: "v1", StartedMs: 7}
	if got := d.im.Candidates[d.c.Lease()]; got == nil || !proto.Equal(got.Record, want) || got.Lease != d.c.Lease() {
		t.Errorf("candidate key %+v, want %v", got, want)
	}
	seat := &pb.ControllerRecord{Id: "a", Nonce: "a-nonce", Endpoint: "a:1", StartedMs: 7, Lease: int64(d.c.Lease())}
	if got := d.im.Controller; !proto.Equal(got.Record, seat) || got.Lease != d.c.Lease() {
		t.Errorf("seat %+v, want %v", got, seat)
	}
	d.pass(time.Minute)
	d.wants()
}

// A second daemon stands by, and takes over within the time that it takes to
// see that the seat is empty.
func TestStandbyTakesOver(t *testing.T) {
	a := activeDesk(t, "a")
	b := newDeskOf(t, "b", ttl, a.m)
	b.now = a.now
	b.settle()
	b.wants("grant", "enlist")
	a.hand(store.Delete(keys.Controller()))
	b.settle()
	b.wants("claim", "begin 2")
	a.see()
	a.wants("stop")
	a.wantsCause(epoch.ErrClaimLost)
	if b.c.ClusterUUID() != "uuid-of-a" {
		t.Errorf("uuid %q", b.c.ClusterUUID())
	}
}

// An image that does not show a win yet is no reason to put again and again.
func TestPutsWaitForTheImage(t *testing.T) {
	d := newDesk(t, "a")
	d.see()
	d.answer("grant")
	d.blind = true
	for range 5 {
		d.pass(100 * time.Millisecond)
	}
	d.wants("grant", "found")
	d.blind = false
	d.see()
	d.wants("enlist", "claim")
	d.fail("enlist", store.ErrBusy)
	d.answer("claim")
	d.pass(499 * time.Millisecond)
	d.wants("begin 1")
	d.pass(time.Millisecond)
	d.wants("enlist") // the active is a candidate too
	d.pass(time.Second)
	d.wants()
	d.hand(store.Delete(keys.Candidate(d.c.Lease())))
	d.pass(time.Millisecond)
	d.wants("enlist")
}

// The reply to a claim is lost. If it was applied, the image says so.
func TestLostReplyOfAWin(t *testing.T) {
	d := newDesk(t, "a")
	d.see()
	d.answer("grant")
	d.answer("found")
	d.see()
	claim := d.next("claim").(election.Commit)
	d.perform(claim)
	d.step(election.Committed{Commit: claim, Err: store.ErrUnknown})
	d.wants("grant", "found", "enlist", "claim")
	d.see()
	d.wants("begin 1")
}

// If it was not applied, that is settled by a read that was sent later and
// that the image has reached; not by time.
func TestLostClaimIsSettledByALaterRead(t *testing.T) {
	d := newDesk(t, "a")
	d.see()
	d.answer("grant")
	d.answer("found")
	d.see()
	d.answer("enlist")
	d.now += 10 * time.Millisecond
	d.fail("claim", store.ErrUnknown)
	d.see()
	d.answer("probe") // it was sent before the claim
	d.deaf = true
	d.pass(2 * time.Second)
	d.wants("grant", "found", "enlist", "claim")
	d.answer("probe")
	d.wants("claim")
	d.answer("claim")
	d.see()
	d.wants("begin 1")
}

// A claim of unknown outcome may be applied after the next one was decided.
func TestClaimAppliedLate(t *testing.T) {
	d := newDesk(t, "a")
	d.see()
	d.answer("grant")
	d.answer("found")
	d.see()
	late := d.next("claim").(election.Commit)
	d.step(election.Committed{Commit: late, Err: store.ErrUnknown})
	d.pass(d.c.Wake() - d.now) // a probe is sent and answered
	d.wants("grant", "found", "enlist", "claim", "claim")
	d.perform(late)
	d.settle()
	d.wants("begin 1")
	if n := d.im.Epoch; n != 1 {
		t.Errorf("epoch %d", n)
	}
}

// A claim that lost its compare waits until the image shows what beat it.
func TestLostCompareWaitsForTheImage(t *testing.T) {
	d := newDesk(t, "a")
	d.see()
	d.answer("grant")
	d.answer("found")
	d.see()
	d.wants("grant", "found", "enlist", "claim")
	_, lease := d.rivalWins("b")
	d.answer("claim")
	d.blind = true
	d.pass(2 * time.Second)
	d.wants()
	d.see()
	d.wants() // b holds the seat
	d.m.Revoke(lease)
	d.pass(20 * time.Millisecond)
	d.settle()
	d.wants("claim", "begin 2")
}

// Claims that lose although the seat is empty back off, with jitter, doubling
// to 2 s; once somebody was seen in the seat it begins anew.
func TestBackoff(t *testing.T) {
	gaps := func(seed uint64) []time.Duration {
		d := newDesk(t, "a")
		d.c = election.NewCandidate(election.Config{
			Self: &pb.ControllerRecord{Id: "a", Nonce: "n"}, TTL: ttl, ClusterUUID: "u", Rand: rand.New(rand.NewPCG(seed, 1)),
		})
		d.see()
		d.answer("grant")
		d.answer("found")
		d.see()
		var out []time.Duration
		for range 12 {
			claim := d.next("claim").(election.Commit)
			d.hand(store.Put(keys.ControllerEpoch(), cluster.Encode(&pb.EpochRecord{Epoch: 1})))
			d.step(d.perform(claim))
			answered := d.now
			d.see()
			for !d.waits("claim") {
				d.now = d.c.Wake()
				d.see()
				for d.waits("probe") {
					d.answer("probe")
				}
				for d.waits("renew") {
					d.answer("renew")
				}
			}
			out = append(out, d.now-answered)
		}
		_, lease := d.rivalWins("b")
		d.see()
		d.m.Revoke(lease)
		d.see()
		d.answer("claim")
		answered := d.now
		d.see()
		for !d.waits("claim") {
			d.now = d.c.Wake()
			d.see()
		}
		return append(out, d.now-answered)
	}
	one := gaps(1)
	for i, got := range one {
		want := min(10*time.Millisecond<<i, 2*time.Second)
		if i == len(one)-1 {
			want = 10 * time.Millisecond
		}
		if got < want/2 || got > want {
			t.Errorf("claim %d came after %v, want %v to %v", i+2, got, want/2, want)
		}
	}
	if two := gaps(2); fmt.Sprint(one) == fmt.Sprint(two) {
		t.Errorf("two daemons wait for the same times: %v", one)
	}
}

// A store that takes no writes keeps the seat empty; once it does again, the
// daemon wins.
func TestRefusedClaim(t *testing.T) {
	t.Run("no space", func(t *testing.T) {
		d := newDesk(t, "a")
		d.see()
		d.answer("grant")
		d.answer("found")
		d.m.NoSpace = true
		d.see()
		d.pass(10 * time.Second)
		if n := len(d.said); n < 6 || n > 60 {
			t.Errorf("%d actions in 10 s: %v", n, d.said)
		}
		if strings.Contains(strings.Join(d.said, " "), "begin") || d.c.Lease() != 1 {
			t.Errorf("did %v on lease %d", d.said, d.c.Lease())
		}
		d.m.NoSpace = false
		d.pass(3 * time.Second)
		if got, ok := d.c.Active(d.now); !ok || got.Epoch != 1 {
			t.Errorf("active: %v %+v", ok, got)
		}
	})
	t.Run("busy", func(t *testing.T) {
		d := newDesk(t, "a")
		d.see()
		d.answer("grant")
		d.answer("found")
		d.see()
		d.fail("claim", store.ErrBusy)
		d.said = nil
		d.pass(4 * time.Millisecond)
		d.wants()
		d.pass(6 * time.Millisecond)
		d.wants("claim", "begin 1")
	})
}

// Whenever the store says that the lease is gone, the daemon gets another one.
func TestLeaseNotFound(t *testing.T) {
	gone := func(d *desk) { d.m.Revoke(d.c.Lease()) }
	cases := []struct {
		name  string
		until func(d *desk)
		wants []string
	}{
		{"standby, told by the renewal", func(d *desk) {
			d.settle()
			d.hand(store.Delete(keys.Controller()))
			d.rivalWins("b")
			d.settle()
			d.stopped()
			d.settle()
			d.said = nil
			gone(d)
			d.deaf, d.blind = true, true
			d.pass(ttl / 4)
			d.answer("renew")
		}, []string{"revoke"}},
		{"standby, told by enlisting", func(d *desk) {
			d.see()
			d.answer("grant")
			d.answer("found")
			d.see()
			d.said = nil
			gone(d)
			d.answer("enlist")
		}, []string{"revoke"}},
		{"claiming", func(d *desk) {
			d.see()
			d.answer("grant")
			d.answer("found")
			d.see()
			d.said = nil
			gone(d)
			d.answer("claim")
		}, []string{"revoke"}},
		{"active, told by the renewal", func(d *desk) {
			d.settle()
			d.said = nil
			gone(d)
			d.deaf, d.blind = true, true
			d.pass(ttl / 4)
			d.answer("renew")
			d.wantsCause(election.ErrLeaseLost)
		}, []string{"stop"}},
		{"active, told by enlisting", func(d *desk) {
			d.see()
			d.answer("grant")
			d.answer("found")
			d.see()
			d.answer("claim")
			d.see()
			d.said = nil
			gone(d)
			d.answer("enlist")
			d.wantsCause(election.ErrLeaseLost)
		}, []string{"stop"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d := newDesk(t, "a")
			c.until(d)
			d.wants(c.wants...)
			old := d.c.Lease()
			if d.waits("revoke") {
				d.answer("revoke")
			} else {
				d.stopped() // nothing to release: the seat is gone with the lease
				d.wants("revoke")
				d.answer("revoke")
			}
			d.wants("grant")
			d.hand(store.Delete(keys.Controller()))
			d.settle()
			if d.c.Lease() == old {
				t.Error("the lease is still the old one")
			}
			if _, ok := d.c.Active(d.now); !ok {
				t.Errorf("not active again, did %v", d.said)
			}
		})
	}
}

// The claim is not acted on from TTL/5, at least 0.5 s, before the moment when
// the store may let the lease go, counted from when the last renewal that was
// answered was sent.
func TestGoesQuiet(t *testing.T) {
	for _, c := range []struct{ ttl, quiet time.Duration }{
		{2 * time.Second, 1500 * time.Millisecond},
		{5 * time.Second, 4 * time.Second},
		{30 * time.Second, 24 * time.Second},
	} {
		t.Run(c.ttl.String(), func(t *testing.T) {
			d := newDeskOf(t, "a", c.ttl, memstore.NewModel())
			d.settle()
			d.pass(c.ttl)
			d.deaf = true
			for !d.waits("renew") {
				d.pass(time.Millisecond)
			}
			sent := d.now
			d.pass(200 * time.Millisecond) // the answer takes its time
			d.answer("renew")
			for d.waits("probe") {
				d.answer("probe")
			}
			d.see()
			if d.c.Quiet() != sent+c.quiet {
				t.Fatalf("quiet %v after the renewal was sent, want %v", d.c.Quiet()-sent, c.quiet)
			}
			d.said = nil
			d.now = d.c.Quiet() - 1
			d.see()
			d.wants()
			if _, ok := d.c.Active(d.now); !ok {
				t.Error("not active just before")
			}
			if _, ok := d.c.Active(d.now + 1); ok {
				t.Error("active at the very moment")
			}
			d.now++
			d.see()
			d.wants("stop")
			d.wantsCause(election.ErrLeaseLost)
			d.stopped()
			d.wants("release")
			d.answer("release")
			d.wants("revoke")
			if got := d.image().Terms[1].Record; got.GetEndCause() != pb.EndCause_END_CAUSE_SELF_FENCED || got.GetEndReason() == "" {
				t.Errorf("term %v", got)
			}
		})
	}
	t.Run("the first lease counts from when it was asked for", func(t *testing.T) {
		d := newDesk(t, "a")
		d.see()
		d.now += time.Second
		d.answer("grant")
		if got := d.c.Quiet() - d.now; got != 3*time.Second {
			t.Errorf("quiet in %v", got)
		}
	})
	t.Run("a grant that took longer than the lease is given back", func(t *testing.T) {
		d := newDesk(t, "a")
		d.see()
		d.now += ttl
		d.answer("grant")
		d.wants("grant", "revoke")
	})
}

// A seat is given up within a TTL if the store answers nothing, if
// it does not answer a write, or if the watch is blind, although renewals would
// pass.
func TestGivesUpWhatItCannotServe(t *testing.T) {
	cases := []struct {
		name   string
		fault  func(d *desk)
		reason string
	}{
		{"deaf", func(d *desk) { d.deaf = true }, "etcd or its watch"},
		{"blind", func(d *desk) {
			d.blind = true
			d.hand(store.Put(keys.Node(1), nil)) // something to see
		}, "etcd or its watch"},
		{"write unanswered", func(*desk) {}, "write"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d := activeDesk(t, "a")
			d.pass(10 * time.Second)
			c.fault(d)
			begin := d.now
			for d.now <= begin+ttl && len(d.said) == 0 {
				d.pass(time.Millisecond)
				if c.name == "write unanswered" {
					d.write = d.now - begin
				}
			}
			d.wants("stop")
			d.wantsCause(election.ErrLeaseLost)
			if !strings.Contains(d.end.Reason, c.reason) {
				t.Errorf("reason %q", d.end.Reason)
			}
		})
	}
}

// A claim is not made on a view that nothing has proved for a while.
func TestDoesNotClaimBlindly(t *testing.T) {
	d := newDesk(t, "a")
	d.see()
	d.now += ttl / 2 // nothing was answered since
	d.answer("grant")
	d.wants("grant")
	d.answer("probe")
	d.see()
	d.wants("found")
}

// What the cluster key may be. A daemon that does not like it does not
// campaign, and says why.
func TestClusterKey(t *testing.T) {
	key := keys.Cluster()
	record := func(uuid string, format int32) []byte {
		return cluster.Encode(&pb.ClusterRecord{Uuid: uuid, Format: format})
	}
	cases := []struct {
		name string
		ops  []store.Op
	}{
		{"gone", []store.Op{store.Delete(key)}},
		{"another cluster", []store.Op{store.Put(key, record("other", 1))}},
		{"unreadable", []store.Op{store.Put(key, []byte{0xff})}},
		{"no uuid", []store.Op{store.Put(key, record("", 1))}},
		{"format too new", []store.Op{store.Put(key, record("uuid-of-a", election.Format+1))}},
		{"prefix emptied", []store.Op{
			store.Delete(key), store.Delete(keys.Controller()), store.Delete(keys.ControllerEpoch()), store.Delete(keys.Term(1)),
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d := activeDesk(t, "a")
			d.hand(c.ops...)
			d.see()
			d.wants("stop")
			d.wantsCause(election.ErrCluster)
			if d.c.Problem() == "" || d.c.ClusterUUID() != "uuid-of-a" {
				t.Errorf("problem %q, uuid %q", d.c.Problem(), d.c.ClusterUUID())
			}
			d.stopped()
			d.settle()
			d.wants("release", "revoke", "grant")
			before := d.m.Rev()
			d.pass(time.Minute)
			d.wants()
			if d.m.Rev() != before {
				t.Errorf("something was written at %d", d.m.Rev())
			}
			d.hand(store.Put(key, record("uuid-of-a", election.Format)))
			d.settle()
			d.wants("enlist", "claim", "begin 2")
		})
	}
}

// As long as a recovery is not finished nobody campaigns, whatever its key holds.
func TestStandsByDuringARecovery(t *testing.T) {
	for name, value := range map[string][]byte{"begun": cluster.Encode(&pb.RecoveryRecord{Epoch: 9}), "unreadable": {0xff}} {
		t.Run(name, func(t *testing.T) {
			d := activeDesk(t, "a")
			d.hand(store.Put(keys.Recovery(), value))
			d.see()
			d.wants("stop")
			d.wantsCause(election.ErrCluster)
			d.stopped()
			d.settle()
			d.wants("release", "revoke", "grant")
			d.pass(time.Minute)
			d.wants()
			if p := d.c.Problem(); !strings.Contains(p, "run controllerd recover again") {
				t.Errorf("problem %q", p)
			}
			d.hand(store.Delete(keys.Recovery()), store.Put(keys.ControllerEpoch(), cluster.Encode(&pb.EpochRecord{Epoch: 9})))
			d.settle()
			d.wants("enlist", "claim", "begin 10")
		})
	}
}

// A daemon that holds writes which etcd has lost gives up, and campaigns no
// more: what it would decide from never happened.
func TestStandsByAfterARestore(t *testing.T) {
	d := activeDesk(t, "a")
	d.im.Differences(store.Snapshot{Rev: 1_000_000, KVs: []store.KV{{Key: keys.Cluster(), ModRev: d.im.ModRev(keys.Cluster())}}})
	d.step(nil)
	d.wants()
	d.im.Differences(store.Snapshot{Rev: 1_000_000, KVs: []store.KV{{Key: keys.ControllerEpoch(), ModRev: d.im.ModRev(keys.ControllerEpoch()) - 1}}})
	d.step(nil)
	d.wants("stop")
	d.stopped()
	d.settle()
	d.wants("release", "revoke", "grant")
	d.pass(time.Minute)
	d.wants()
	if p := d.c.Problem(); !strings.Contains(p, "run controllerd recover") {
		t.Errorf("problem %q", p)
	}
}

// The same without a bumped revision: the store is behind what the image had
// reached before it was asked.
func TestStandsByBehindAStoreThatWentBack(t *testing.T) {
	d := activeDesk(t, "a")
	for !d.waits("probe") {
		d.now += ttl / 16
		d.step(nil)
	}
	probe := d.next("probe").(election.Probe)
	d.step(election.Probed{Sent: probe.Sent, Read: store.Snapshot{Rev: d.im.Rev - 1}})
	d.wants("stop")
	d.stopped()
	d.settle()
	d.pass(time.Minute)
	d.wants("release", "revoke", "grant")
	if p := d.c.Problem(); !strings.Contains(p, "run controllerd recover") {
		t.Errorf("problem %q", p)
	}
}

// A prefix without a cluster key is new only if nothing of a cluster is left.
func TestFoundsOnlyANewPrefix(t *testing.T) {
	cases := []struct {
		name string
		op   store.Op
	}{
		{"epoch key", store.Put(keys.ControllerEpoch(), cluster.Encode(&pb.EpochRecord{Epoch: 3}))},
		{"history", store.Put(keys.Term(3), nil)},
		{"node", store.Put(keys.Node(3), cluster.Encode(&pb.NodeRecord{NodeUuid: "n"}))},
		{"topic", store.Put(keys.Topic("t"), cluster.Encode(&pb.TopicRecord{TopicId: make([]byte, 16), BlockSize: 1}))},
		{"garbage", store.Put(keys.Cluster(), []byte{0xff})},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d := newDesk(t, "a")
			d.hand(c.op)
			d.settle()
			d.pass(time.Minute)
			d.wants("grant")
			if d.c.Problem() == "" {
				t.Error("no problem is named")
			}
		})
	}
	t.Run("two at once", func(t *testing.T) {
		a, b := newDesk(t, "a"), (*desk)(nil)
		b = newDeskOf(t, "b", ttl, a.m)
		for _, d := range []*desk{a, b} {
			d.see()
			d.answer("grant")
		}
		a.answer("found")
		b.answer("found")
		a.see()
		b.see()
		if a.c.ClusterUUID() != "uuid-of-a" || b.c.ClusterUUID() != "uuid-of-a" {
			t.Errorf("uuids %q %q", a.c.ClusterUUID(), b.c.ClusterUUID())
		}
	})
}

// Who resigned leaves the seat to others for a second, if there are any.
func TestResign(t *testing.T) {
	cases := []struct {
		name  string
		rival string // its nonce
		end   epoch.End
		waits time.Duration
	}{
		{"alone", "", epoch.End{Cause: pb.EndCause_END_CAUSE_RESIGNED, Reason: "r"}, 0},
		{"with a rival", "b-nonce", epoch.End{Cause: pb.EndCause_END_CAUSE_RESIGNED, Reason: "r"}, time.Second},
		{"an old candidate key of its own is no rival", "a-nonce", epoch.End{Cause: pb.EndCause_END_CAUSE_RESIGNED}, 0},
		{"by its own doubt", "b-nonce", epoch.End{Cause: pb.EndCause_END_CAUSE_SELF_FENCED}, 0},
		{"to a successor", "b-nonce", epoch.End{Cause: pb.EndCause_END_CAUSE_TRANSFERRED, Successor: "b"}, time.Second},
		{"to a successor that does not exist, alone", "", epoch.End{Cause: pb.EndCause_END_CAUSE_TRANSFERRED, Successor: "b"}, 0},
		{"to itself", "b-nonce", epoch.End{Cause: pb.EndCause_END_CAUSE_TRANSFERRED, Successor: "a"}, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d := activeDesk(t, "a")
			if c.rival != "" {
				d.rivalEnlists("b", c.rival)
			}
			d.pass(time.Millisecond)
			d.step(election.Resign{End: c.end})
			d.wants("stop")
			d.wantsCause(election.ErrResigned)
			d.pass(time.Second) // its work takes a while
			d.wants()
			d.stopped()
			d.settle()
			if got := d.image().Terms[1].Record; got.GetEndCause() != c.end.Cause || got.GetSuccessor() != c.end.Successor || got.GetEndedMs() != 1000 {
				t.Errorf("term %v", got)
			}
			if c.waits > 0 {
				d.wants("release", "revoke", "grant", "enlist")
				d.pass(c.waits - time.Millisecond)
				d.wants()
				d.pass(time.Millisecond)
				d.settle()
				d.wants("claim", "begin 2")
			} else {
				d.wants("release", "revoke", "grant", "enlist", "claim", "begin 2")
			}
		})
	}
	t.Run("a standby has nothing to resign", func(t *testing.T) {
		d := newDesk(t, "a")
		d.see()
		d.step(election.Resign{})
		d.wants("grant")
	})
}

// A third daemon leaves the seat to the one that was named, for a second.
func TestSuccessor(t *testing.T) {
	for _, c := range []struct {
		id    string
		waits time.Duration
	}{{"b", 0}, {"c", time.Second}} {
		t.Run(c.id, func(t *testing.T) {
			a := activeDesk(t, "a")
			a.rivalEnlists("x", "x-nonce")
			d := newDeskOf(t, c.id, ttl, a.m)
			d.settle()
			d.wants("grant", "enlist")
			a.step(election.Resign{End: epoch.End{Cause: pb.EndCause_END_CAUSE_TRANSFERRED, Successor: "b"}})
			a.stopped()
			a.answer("release")
			d.settle()
			if c.waits > 0 {
				d.wants()
				d.pass(c.waits)
			}
			d.wants("claim", "begin 2")
		})
	}
}

// Two daemons with one id are told apart by their nonces.
func TestDuplicateID(t *testing.T) {
	d := newDesk(t, "a")
	d.rivalEnlists("a", "another-nonce")
	l, _ := d.m.Grant(d.now, time.Hour)
	d.hand(store.Put(keys.Cluster(), cluster.Encode(&pb.ClusterRecord{Uuid: "u", Format: 1})))
	if r, err := d.m.Txn(epoch.Mint(d.image(), &pb.ControllerRecord{Id: "a", Nonce: "another-nonce", Lease: int64(l.ID)}, 1)); err != nil || !r.Succeeded {
		t.Fatal(r, err)
	}
	d.settle()
	d.pass(10 * time.Second)
	d.wants("grant", "enlist")
	d.m.Revoke(l.ID)
	d.settle()
	d.wants("claim", "begin 2")
}

// Whatever ends a term, the daemon contends again at once, and its next epoch
// is higher.
func TestContendsAgainAfterEveryLoss(t *testing.T) {
	again := []string{"stop", "release", "revoke", "grant", "enlist", "claim", "begin 2"}
	lost := []string{"stop", "revoke", "grant", "enlist", "claim", "begin 2"}
	cases := []struct {
		name  string
		lose  func(d *desk)
		wants []string
		cause error
	}{
		{"seat deleted", func(d *desk) { d.hand(store.Delete(keys.Controller())) }, lost, epoch.ErrClaimLost},
		{"seat overwritten with the same value", func(d *desk) {
			d.hand(store.PutKeepLease(keys.Controller(), d.value(keys.Controller())))
		}, lost, epoch.ErrClaimLost},
		{"epoch key deleted", func(d *desk) { d.hand(store.Delete(keys.ControllerEpoch())) }, lost, epoch.ErrClaimLost},
		{"epoch key overwritten with the same value", func(d *desk) {
			d.hand(store.Put(keys.ControllerEpoch(), d.value(keys.ControllerEpoch())))
		}, lost, epoch.ErrClaimLost},
		{"lease revoked", func(d *desk) { d.m.Revoke(d.c.Lease()) }, lost, epoch.ErrClaimLost},
		{"a guard failed before the image shows why", func(d *desk) {
			d.hand(store.Delete(keys.Controller()))
			d.step(election.Deposed{Claim: d.claim})
		}, lost, epoch.ErrClaimLost},
		{"a read shows it first", func(d *desk) {
			d.hand(store.Delete(keys.Controller()))
			d.deaf, d.blind = true, true
			d.pass(ttl / 8)
			d.answer("probe")
		}, lost, epoch.ErrClaimLost},
		{"resigned", func(d *desk) { d.step(election.Resign{}) }, again, election.ErrResigned},
		{"not renewed in time", func(d *desk) {
			d.deaf = true
			d.pass(4 * time.Second)
			for d.waits("renew") {
				d.fail("renew", store.ErrUnknown)
			}
		}, again, election.ErrLeaseLost},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d := activeDesk(t, "a")
			c.lose(d)
			d.deaf, d.blind = false, false
			d.see()
			d.wantsCause(c.cause)
			if _, ok := d.c.Active(d.now); ok || !d.c.Holding() {
				t.Error("still active, or not holding while its work stops")
			}
			d.stopped()
			d.settle()
			d.wants(c.wants...)
		})
	}
}

// A seat that is on the own lease but is no win would stay taken for ever: the
// lease is given up.
func TestFreesASeatThatIsNoWin(t *testing.T) {
	cases := []struct {
		name string
		op   func(d *desk) store.Op
	}{
		{"epoch key overwritten with the same value", func(d *desk) store.Op { return store.Put(keys.ControllerEpoch(), d.value(keys.ControllerEpoch())) }},
		{"seat overwritten with the same value", func(d *desk) store.Op {
			return store.PutKeepLease(keys.Controller(), d.value(keys.Controller()))
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d := newDesk(t, "a")
			d.see()
			d.answer("grant")
			d.answer("found")
			d.see()
			d.answer("enlist")
			d.answer("claim")
			d.hand(c.op(d)) // before the image shows the win
			d.see()
			d.wants("grant", "found", "enlist", "claim", "revoke")
			d.settle()
			d.wants("grant", "enlist", "claim", "begin 2")
		})
	}
}

// What is answered late changes nothing.
func TestLateAnswers(t *testing.T) {
	d := newDesk(t, "a")
	d.see()
	d.answer("grant")
	d.answer("found")
	d.see()
	d.answer("enlist")
	old := d.c.Lease()
	claim := d.next("claim").(election.Commit)
	d.deaf = true
	d.pass(4 * time.Second) // the claim hangs until the lease is given up
	d.wants("grant", "found", "enlist", "claim", "revoke")
	d.answer("revoke")
	d.answer("grant")
	d.see()
	d.wants("grant", "enlist") // no claim after a doubt, until a read was answered
	for d.waits("probe") {
		d.answer("probe")
	}
	d.see()
	d.wants("claim")

	lease := d.c.Lease()
	quiet := d.c.Quiet()
	for _, ev := range []election.Event{
		election.Committed{Commit: claim, Err: store.ErrUnknown},
		election.Committed{Commit: claim, Err: store.ErrLeaseNotFound},
		election.Committed{Commit: claim, Result: store.Result{Succeeded: true, Rev: 2}},
		election.Committed{Commit: claim, Result: store.Result{Rev: 2}},
		election.Renewed{Lease: old, Sent: d.now, TTL: time.Hour},
		election.Renewed{Lease: old, Sent: d.now, Err: store.ErrLeaseNotFound},
		election.Granted{Sent: d.now, Lease: store.Lease{ID: 99, TTL: ttl}},
		election.Granted{Err: store.ErrUnknown},
		election.Revoked{Lease: old},
		election.Stopped{},
		election.Deposed{Claim: epoch.Claim{Epoch: 1, Rev: 2}},
	} {
		d.step(ev)
		d.pass(20 * time.Millisecond) // longer than the first back-off
		d.wants()
		if d.c.Lease() != lease || d.c.Quiet() != quiet {
			t.Fatalf("%#v: lease %d, quiet %v", ev, d.c.Lease(), d.c.Quiet())
		}
	}
	d.answer("claim")
	d.see()
	d.wants("begin 1")
	for _, ev := range []election.Event{
		election.Deposed{Claim: epoch.Claim{Epoch: 1, Rev: d.claim.Rev - 1}},
		election.Probed{Sent: d.now, Read: store.Snapshot{Rev: d.claim.Rev - 1}}, // read before the win
		election.Probed{Sent: d.now, Err: store.ErrUnknown},
		election.Committed{Commit: claim, Err: store.ErrLeaseNotFound},
	} {
		d.step(ev)
		d.wants()
	}
	t.Run("a renewal that overtook a later one", func(t *testing.T) {
		d := activeDesk(t, "a")
		d.deaf = true
		d.pass(ttl / 4)
		first := d.next("renew")
		for d.waits("probe") {
			d.answer("probe")
		}
		d.pass(ttl / 4)
		d.answer("renew")
		quiet := d.c.Quiet()
		d.step(d.perform(first))
		if d.c.Quiet() != quiet {
			t.Errorf("quiet went from %v to %v", quiet, d.c.Quiet())
		}
	})
}

// Told to leave, a daemon gives up what it holds, whatever it is doing, and is
// done once everything is answered; nothing is left in the store.
func TestLeave(t *testing.T) {
	cases := []struct {
		name  string
		until func(d *desk)
		cause pb.EndCause // of the term, if there was one
	}{
		{"without a lease", func(d *desk) { d.see(); d.fail("grant", store.ErrBusy) }, 0},
		{"with nothing read", func(d *desk) { d.step(nil) }, 0},
		{"while a lease is asked for", func(d *desk) { d.see() }, 0},
		{"standby", func(d *desk) { d.see(); d.answer("grant") }, 0},
		{"claiming", func(d *desk) { d.see(); d.answer("grant"); d.answer("found"); d.see() }, 0},
		{"claimed, not shown", func(d *desk) { d.see(); d.answer("grant"); d.answer("found"); d.see(); d.answer("claim") }, 0},
		{"active", func(d *desk) { d.settle() }, pb.EndCause_END_CAUSE_SHUTDOWN},
		{"stopping", func(d *desk) {
			d.settle()
			d.step(election.Resign{End: epoch.End{Cause: pb.EndCause_END_CAUSE_RESIGNED}})
		}, pb.EndCause_END_CAUSE_RESIGNED},
		{"releasing the seat", func(d *desk) {
			d.settle()
			d.step(election.Resign{End: epoch.End{Cause: pb.EndCause_END_CAUSE_RESIGNED}})
			d.stopped()
		}, pb.EndCause_END_CAUSE_RESIGNED},
		{"releasing the lease", func(d *desk) {
			d.settle()
			d.hand(store.Delete(keys.Controller()))
			d.see()
			d.stopped()
		}, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d := newDesk(t, "a")
			c.until(d)
			if d.c.Done() {
				t.Fatal("done before it was told to leave")
			}
			d.step(election.Leave{Reason: "told to"})
			if d.c.Holding() && !d.waits("release") && !d.waits("revoke") {
				d.pass(time.Second) // the work takes its time to stop
				d.stopped()
			}
			d.settle()
			if !d.c.Done() || d.c.Holding() || d.c.Lease() != 0 {
				t.Errorf("done %v, holding %v, lease %d", d.c.Done(), d.c.Holding(), d.c.Lease())
			}
			if left := d.m.Leases(); len(left) != 0 {
				t.Errorf("leases %v are left", left)
			}
			if im := d.image(); im.Controller != nil || len(im.Candidates) != 0 {
				t.Errorf("seat %v, candidates %v are left", im.Controller, im.Candidates)
			}
			if term := d.image().Terms[1]; term != nil && term.Record.GetEndCause() != c.cause {
				t.Errorf("term %v, want %v", term.Record, c.cause)
			}
			d.said = nil
			d.step(nil)
			d.wants()
		})
	}
	t.Run("a store that answers nothing", func(t *testing.T) {
		d := activeDesk(t, "a")
		d.step(election.Leave{})
		d.stopped()
		d.fail("release", store.ErrUnknown)
		d.wants("stop", "release", "revoke")
		d.step(election.Revoked{Lease: d.c.Lease()}) // it expires by itself
		if !d.c.Done() {
			t.Error("not done")
		}
	})
}

// Without a lease it asks for one every half second.
func TestGrantIsTriedAgain(t *testing.T) {
	d := newDesk(t, "a")
	d.see()
	for range 3 {
		d.said = nil
		d.fail("grant", store.ErrUnknown)
		d.now += 499 * time.Millisecond
		d.step(nil)
		d.wants()
		d.now += time.Millisecond
		d.step(nil)
		d.wants("grant")
	}
}
