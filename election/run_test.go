package election_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/election"
	"github.com/controllerd/controllerd/epoch"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
	"github.com/controllerd/controllerd/store/memstore"
)

var keys = cluster.KeysOf("test")

// contender is one candidate that notes its terms.
type contender struct {
	id     string
	cancel context.CancelFunc

	mu     sync.Mutex
	begun  []cluster.Epoch
	ended  []error
	active bool
}

func contend(t *testing.T, s store.Store, id string, done *sync.WaitGroup) *contender {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := &contender{id: id, cancel: cancel}
	start := time.Now()
	done.Go(func() {
		_ = election.Run(ctx, s, election.RunConfig{
			Candidate: election.Config{
				Self: &pb.ControllerRecord{Id: id, Nonce: id + "-nonce", Endpoint: id + ":1"}, TTL: 5 * time.Second,
				ClusterUUID: "uuid-of-" + id, Rand: rand.New(rand.NewPCG(uint64(len(id)), 1)),
			},
			Keys:   keys,
			Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
			Clock:  func() time.Duration { return time.Since(start) },
			OnActive: func(ctx context.Context, claim epoch.Claim) {
				c.mu.Lock()
				c.begun, c.active = append(c.begun, claim.Epoch), true
				c.mu.Unlock()
				<-ctx.Done()
			},
			OnStandby: func(cause error) {
				c.mu.Lock()
				c.ended, c.active = append(c.ended, cause), false
				c.mu.Unlock()
			},
		})
	})
	return c
}

func (c *contender) isActive() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.active
}

// actives are the contenders that are active, once everything has come to rest
// for d.
func actives(d time.Duration, all ...*contender) []string {
	<-time.After(d)
	synctest.Wait()
	var out []string
	for _, c := range all {
		if c.isActive() {
			out = append(out, c.id)
		}
	}
	return out
}

func TestRunHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		var done sync.WaitGroup
		a := contend(t, s, "a", &done)
		if got := actives(time.Second, a); fmt.Sprint(got) != "[a]" {
			t.Fatalf("active: %v", got)
		}
		b := contend(t, s, "b", &done)
		if got := actives(time.Minute, a, b); fmt.Sprint(got) != "[a]" {
			t.Fatalf("active after a minute: %v", got)
		}
		a.cancel()
		if got := actives(100*time.Millisecond, a, b); fmt.Sprint(got) != "[b]" {
			t.Fatalf("active after a has left: %v", got)
		}
		if fmt.Sprint(a.begun, b.begun) != "[1] [2]" {
			t.Errorf("epochs of a and b: %v %v", a.begun, b.begun)
		}
		b.cancel()
		done.Wait()
		s.Do(func(m *memstore.Model, _ time.Duration) {
			if n := len(m.Leases()); n != 0 {
				t.Errorf("%d leases are left", n)
			}
		})
	})
}

func TestRunContendsAgainAfterEveryLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		var done sync.WaitGroup
		a := contend(t, s, "a", &done)
		actives(time.Second, a)
		for i := range 20 {
			deleteSeat(t, s)
			if got := actives(2*time.Second, a); len(got) != 1 {
				t.Fatalf("nobody active after loss %d", i+1)
			}
		}
		a.cancel()
		done.Wait()
		for i, e := range a.begun {
			if e != cluster.Epoch(i+1) {
				t.Fatalf("epochs: %v", a.begun)
			}
		}
		if len(a.begun) != 21 || len(a.ended) != 21 {
			t.Errorf("%d terms begun, %d ended, want 21", len(a.begun), len(a.ended))
		}
	})
}

func deleteSeat(t *testing.T, s store.Store) {
	t.Helper()
	read, err := s.Get(t.Context(), keys.Controller())
	if err != nil || len(read.KVs) != 1 {
		t.Fatalf("read the seat: %v %v", read, err)
	}
	_, err = s.Commit(t.Context(), store.Txn{
		If:   []store.Cond{store.ModRevIs(keys.Controller(), read.KVs[0].ModRev)},
		Then: []store.Op{store.Delete(keys.Controller())},
	})
	if err != nil {
		t.Fatal(err)
	}
}
