package scenarios

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/controller"
	"github.com/controllerd/controllerd/election"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/store"
	"github.com/controllerd/controllerd/store/memstore"
)

// machine is a daemon on a machine whose clocks the test turns.
type machine struct {
	loop  *controller.Loop
	store *memstore.Model
	mono  time.Duration
	wall  time.Time
	seen  store.Rev
}

func newMachine() *machine {
	keys := cluster.KeysOf(clusterName)
	random := rand.New(rand.NewPCG(1, 2))
	return &machine{
		store: memstore.NewModel(),
		wall:  time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		loop: controller.NewLoop(controller.LoopConfig{Keys: keys, Rand: random, Election: election.Config{
			Self: &pb.ControllerRecord{Id: "a", Nonce: "n", Endpoint: "127.0.0.1:1"}, TTL: 5 * time.Second, ClusterUUID: "u", Rand: random,
		}}),
	}
}

// step lets time pass and does at once what the daemon wants, until it wants
// nothing more. It returns the actions of the first step.
func (m *machine) step(d time.Duration) (first []controller.Action) {
	m.mono, m.wall = m.mono+d, m.wall.Add(d)
	m.store.Expire(m.mono)
	events := []controller.Event{}
	for n := 0; ; n++ {
		batch, err := m.store.ChangesSince(m.loop.Image().Keys.Prefix(), m.seen)
		if err == nil && (len(batch.Changes) > 0 || n == 0) {
			m.seen = batch.Rev
			events = append(events, controller.Watched{Batch: batch})
		}
		actions := m.loop.Step(election.Now{Mono: m.mono, WallMs: m.wall.UnixMilli()}, events...)
		if n == 0 {
			first = actions
		}
		if events = m.do(actions); len(events) == 0 && len(actions) == 0 {
			return first
		}
	}
}

func (m *machine) do(actions []controller.Action) (events []controller.Event) {
	elected := func(ev election.Event) { events = append(events, controller.Elected{Event: ev}) }
	for _, a := range actions {
		switch a := a.(type) {
		case controller.Commit:
			result, err := m.store.Txn(a.Txn)
			events = append(events, controller.Committed{Chunk: a.Chunk, Result: result, Err: err})
		case controller.Push:
			if dial, ok := a.Action.(rpc.Dial); ok {
				events = append(events, controller.Pushed{Event: rpc.Closed{Stream: dial.Stream, Err: errors.New("nobody there")}})
			}
		case controller.Elect:
			switch a := a.Action.(type) {
			case election.Grant:
				lease, err := m.store.Grant(m.mono, a.TTL)
				elected(election.Granted{Sent: a.Sent, Lease: lease, Err: err})
			case election.Renew:
				ttl, err := m.store.Renew(m.mono, a.Lease)
				elected(election.Renewed{Lease: a.Lease, Sent: a.Sent, TTL: ttl, Err: err})
			case election.Probe:
				read, err := m.store.Get(a.Keys...)
				elected(election.Probed{Sent: a.Sent, Read: read, Err: err})
			case election.Commit:
				result, err := m.store.Txn(a.Txn)
				elected(election.Committed{Commit: a, Result: result, Err: err})
			case election.Revoke:
				m.store.Revoke(a.Lease)
				elected(election.Revoked{Lease: a.Lease})
			}
		}
	}
	return events
}

// The wall clock jumps by hours while the daemon is active: it goes on.
func TestSL6WallClockSteps(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.step(0)
	for i := range 400 {
		switch i % 40 {
		case 10:
			m.wall = m.wall.Add(time.Hour)
		case 30:
			m.wall = m.wall.Add(-3 * time.Hour)
		}
		m.step(250 * time.Millisecond)
	}
	if claim, ok := m.loop.Active(); !ok || claim.Epoch != 1 || m.loop.Stats.Terms != 1 {
		t.Errorf("active %v under %+v after %d terms", ok, claim, m.loop.Stats.Terms)
	}
}

// The machine is suspended. The first thing that the daemon does when it wakes
// up is to stop, if the lease may be gone: nothing is said or written before.
func TestSL6Suspend(t *testing.T) {
	t.Parallel()
	for _, slept := range []time.Duration{time.Second, 4 * time.Second, 5 * time.Second, 10 * time.Second, time.Hour} {
		m := newMachine()
		m.step(0)
		m.step(100 * time.Millisecond)
		if _, ok := m.loop.Active(); !ok {
			t.Fatal("not active")
		}
		actions := m.step(slept)
		stopped := false
		for _, a := range actions {
			switch a := a.(type) {
			case controller.Elect:
				_, stop := a.Action.(election.Stop)
				stopped = stopped || stop
				if c, ok := a.Action.(election.Commit); ok && slept >= 4*time.Second && c.Purpose != election.Release {
					t.Errorf("asleep for %v: %+v", slept, c)
				}
			case controller.Commit, controller.Push:
				if slept >= 4*time.Second {
					t.Errorf("asleep for %v: %+v", slept, a)
				}
			}
		}
		if stopped != (slept >= 4*time.Second) {
			t.Errorf("asleep for %v: stopped %v", slept, stopped)
		}
		m.step(100 * time.Millisecond)
		m.step(time.Second)
		want := cluster.Epoch(1)
		if stopped {
			want = 2
		}
		if claim, ok := m.loop.Active(); !ok || claim.Epoch != want {
			t.Errorf("asleep for %v: active %v under %+v afterwards", slept, ok, claim)
		}
	}
}
