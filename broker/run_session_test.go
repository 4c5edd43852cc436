package broker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/controllerd/controllerd/cluster"
)

// after lets virtual time pass, and everything that it makes happen.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestRegisterRenewUnregister(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		d := n.daemon("d1")
		ctx, cancel := context.WithCancel(t.Context())
		b := n.start(ctx, applies(), nil, "d1")
		<-b.Registered()
		if b.Epoch() != 10 || b.ControllerEpoch() != 5 || b.ClusterUUID() != testUUID || b.ControlAddress() != "b1" {
			t.Errorf("registered as %d in epoch %d of %q", b.Epoch(), b.ControllerEpoch(), b.ClusterUUID())
		}
		d.set(func() { d.ce = 8 })
		after(9 * time.Second) // 4 renewals, one every 2 s
		if registers, renewals, _ := d.counts(); registers != 1 || renewals != 4 {
			t.Errorf("%d registrations and %d renewals in 9 s, want 1 and 4", registers, renewals)
		}
		r, first, last := d.registers[0], d.renewals[0], d.renewals[3]
		if !r.GetFirst() || r.GetNonce() == "" || r.GetNodeUuid() != "node-1" || r.GetControlAddress() != "b1" || r.GetSessionTtlMs() != 8000 {
			t.Errorf("registration %v", r)
		}
		if first.GetNonce() != r.GetNonce() || first.GetLease() != 77 || first.GetBrokerEpoch() != 10 || first.GetClusterUuid() != testUUID {
			t.Errorf("renewal %v", first)
		}
		if first.GetControllerEpoch() != 5 || last.GetControllerEpoch() != 8 || b.ControllerEpoch() != 8 {
			t.Errorf("renewals told of epochs %d and %d, the broker knows %d", first.GetControllerEpoch(), last.GetControllerEpoch(), b.ControllerEpoch())
		}
		cancel()
		if err := b.Wait(); err != nil {
			t.Errorf("ended with %v", err)
		}
		if _, _, unregisters := d.counts(); unregisters != 1 || d.unregisters[0].GetBrokerEpoch() != 10 || d.unregisters[0].GetNonce() != r.GetNonce() {
			t.Errorf("unregistered %v", d.unregisters)
		}
	})
}

func TestNextDaemon(t *testing.T) {
	for name, fail := range map[string]func(*daemon){
		"unavailable": func(d *daemon) { d.err = status.Error(codes.Unavailable, "starting") },
		"hung":        func(d *daemon) { d.hang = true },
		"standby":     func(d *daemon) { d.err = reasoned(cluster.NotController) },
		"foreign":     func(d *daemon) { d.err = reasoned(cluster.InconsistentClusterID) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t)
				ds := map[string]*daemon{"d1": n.daemon("d1"), "d2": n.daemon("d2")}
				b := n.start(t.Context(), applies(), nil, "d1", "d2", "nobody")
				<-b.Registered()
				for _, d := range ds { // the one in use, then the other
					d.set(func() { fail(d) })
					other := ds["d1"]
					if d == other {
						other = ds["d2"]
					}
					_, before, _ := other.counts()
					after(20 * time.Second)
					if _, renewals, _ := other.counts(); renewals-before < 4 {
						t.Errorf("%d renewals at the other daemon in 20 s", renewals-before)
					}
					d.set(func() { d.err, d.hang = nil, false })
				}
			})
		})
	}
}

func TestRegistersAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		d := n.daemon("d1")
		b := n.start(t.Context(), applies(), nil, "d1")
		<-b.Registered()
		d.set(func() { d.epoch = 20 }) // the key is gone
		after(3 * time.Second)
		if registers, _, _ := d.counts(); registers != 2 || b.Epoch() != 20 {
			t.Fatalf("%d registrations, broker epoch %d", registers, b.Epoch())
		}
		if one, two := d.registers[0], d.registers[1]; two.GetFirst() || two.GetNonce() != one.GetNonce() || two.GetClusterUuid() != testUUID {
			t.Errorf("second registration %v", two)
		}
	})
}

func TestCannotGoOn(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want error
	}{
		{"replaced", reasoned(cluster.Replaced), ErrReplaced},
		{"id of another node", reasoned(cluster.DuplicateBrokerRegistration), ErrDuplicate},
		{"nonsense", reasoned(cluster.InvalidRequest), ErrRejected},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t)
				d := n.daemon("d1")
				d.set(func() { d.err = c.err })
				b := n.start(t.Context(), applies(), nil, "d1")
				if err := b.Wait(); !errors.Is(err, c.want) {
					t.Errorf("ended with %v, want %v", err, c.want)
				}
				if conn, err := n.dial(t.Context(), "b1"); err == nil {
					conn.Close()
					t.Error("the control listener is still open")
				}
			})
		})
	}
}

func TestReplacedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		d := n.daemon("d1")
		b := n.start(t.Context(), applies(), nil, "d1")
		<-b.Registered()
		d.set(func() { d.err = reasoned(cluster.InvalidRequest) })
		after(time.Minute) // once registered, it takes more than that
		d.set(func() { d.err = reasoned(cluster.Replaced) })
		if err := b.Wait(); !errors.Is(err, ErrReplaced) {
			t.Errorf("ended with %v", err)
		}
		if _, _, unregisters := d.counts(); unregisters != 0 {
			t.Error("unregistered the process that replaced it")
		}
	})
}

// TestSilence: nobody answers for an hour, and the broker goes on with what it
// was last told.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		d := n.daemon("d1")
		b := n.start(t.Context(), applies(), nil, "d1", "d2")
		<-b.Registered()
		c := n.controller("c1", 5)
		c.leaderAndIsr(partition(0, 1, 1))
		c.expect(1, 1, applied)
		d.set(func() { d.hang = true })
		after(time.Hour)
		if _, ok := b.Partition(pid(0)); !ok || b.Epoch() != 10 {
			t.Errorf("lost its state in the silence; broker epoch %d", b.Epoch())
		}
		c.ping(1)
		d.set(func() { d.hang = false })
		_, before, _ := d.counts()
		after(10 * time.Second)
		if registers, renewals, _ := d.counts(); registers != 1 || renewals == before {
			t.Errorf("%d registrations, %d renewals after the silence", registers, renewals-before)
		}
	})
}

func TestUnhealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		d := n.daemon("d1")
		sick := make(chan error, 1)
		var health error
		b := n.start(t.Context(), applies(), func(c *Config) {
			c.Healthy = func(context.Context) error {
				select {
				case health = <-sick:
				default:
				}
				return health
			}
		}, "d1")
		<-b.Registered()
		after(5 * time.Second)
		sick <- errors.New("disk is stuck")
		_, before, _ := d.counts()
		after(time.Minute)
		if registers, renewals, _ := d.counts(); registers != 1 || renewals != before {
			t.Errorf("%d renewals while not healthy", renewals-before)
		}
		sick <- nil
		after(5 * time.Second)
		if _, renewals, _ := d.counts(); renewals == before {
			t.Error("no renewal when healthy again")
		}
	})
}

func TestForeignCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		d := n.daemon("d1")
		b := n.start(t.Context(), applies(), func(c *Config) { c.ClusterUUID = "cluster-2" }, "d1")
		after(time.Minute)
		if b.Epoch() != 0 || b.ControllerEpoch() != 0 || b.ClusterUUID() != "cluster-2" {
			t.Errorf("joined another cluster: %s, epoch %d", b.ClusterUUID(), b.Epoch())
		}
		d.set(func() { d.uuid = "cluster-2" })
		after(5 * time.Second)
		if b.Epoch() != 10 {
			t.Errorf("did not join its own cluster")
		}
	})
}

func TestListOfDaemons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		d1, d2 := n.daemon("d1"), n.daemon("d2")
		d1.set(func() { d1.controllers = []string{"passthrough:///d1", "passthrough:///d2"} })
		b := n.start(t.Context(), applies(), nil, "d1")
		<-b.Registered()
		synctest.Wait()
		d1.set(func() { d1.hang = true })
		after(time.Minute)
		if _, renewals, _ := d2.counts(); renewals < 10 {
			t.Errorf("%d renewals at a daemon that ListControllers named", renewals)
		}
		// d2 leaves: its list no longer names it, and nobody dials it again.
		d1.set(func() { d1.hang, d1.controllers = false, []string{"passthrough:///d1"} })
		d2.set(func() { d2.controllers = []string{"passthrough:///d1"} })
		after(2 * time.Minute)
		d2.server.Stop()
		n.mu.Lock()
		delete(n.listeners, "d2")
		n.mu.Unlock()
		before := n.dials("d2")
		after(time.Hour)
		if dials := n.dials("d2") - before; dials != 0 {
			t.Errorf("%d dials to a daemon that is gone", dials)
		}
	})
}

func TestKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		d := n.daemon("d1")
		h := newHandler()
		b := n.start(t.Context(), h, nil, "d1")
		<-b.Registered()
		c := n.controller("c1", 5)
		c.leaderAndIsr(partition(0, 1, 1))
		call := <-h.calls
		b.Kill()
		if err := b.Wait(); !errors.Is(err, ErrKilled) {
			t.Errorf("ended with %v", err)
		}
		if call.ctx.Err() == nil || !errors.Is(context.Cause(call.ctx), ErrClosed) {
			t.Errorf("the handler's context ended with %v", context.Cause(call.ctx))
		}
		for {
			if _, err := c.stream.Recv(); err != nil {
				break
			}
		}
		if _, _, unregisters := d.counts(); unregisters != 0 {
			t.Error("a killed broker unregistered")
		}
		b.Kill() // again does no harm
	})
}

// TestStopWithoutDaemons: the good-bye is bounded.
func TestStopWithoutDaemons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		d := n.daemon("d1")
		ctx, cancel := context.WithCancel(t.Context())
		b := n.start(ctx, applies(), nil, "d1", "d2")
		<-b.Registered()
		d.set(func() { d.hang = true })
		began := time.Now()
		cancel()
		if err := b.Wait(); err != nil {
			t.Errorf("ended with %v", err)
		}
		if took := time.Since(began); took > DefaultShutdownTimeout+shutdownCall+unregisterTimeout {
			t.Errorf("stopping took %v", took)
		}
	})
}

// New addresses are registered in place, by the same process under the same
// epoch, and are those of every later registration.
func TestSetAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		d := n.daemon("d1")
		b := n.start(t.Context(), applies(), nil, "d1")
		if err := b.SetAddresses(t.Context(), "b2:1", []Endpoint{{Listener: "data", Address: "b2:2"}}); err != nil {
			t.Fatal(err)
		}
		first, now := d.registers[0], d.registers[1]
		if now.GetFirst() || now.GetNonce() != first.GetNonce() || now.GetControlAddress() != "b2:1" || now.GetEndpoints()[0].GetAddress() != "b2:2" ||
			now.GetAddressVersion() != 1 || now.GetDeathProbe() || b.Epoch() != 10 || b.ControlAddress() != "b2:1" {
			t.Errorf("registered as %v, then as %v", first, now)
		}
		d.set(func() { d.epoch = 11 }) // the session is lost
		after(9 * time.Second)
		if again := d.registers[2]; again.GetControlAddress() != "b2:1" || again.GetAddressVersion() != 1 || b.Epoch() != 11 {
			t.Errorf("registered again as %v", again)
		}
	})
}

// A refusal leaves the old addresses, under a version above that of what was
// refused; renewals go on.
func TestSetAddressesRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		d := n.daemon("d1")
		b := n.start(t.Context(), applies(), nil, "d1")
		<-b.Registered()
		for _, control := range []string{"b2", "b2:0", "b2:x", ":1", "b 2:1"} {
			if err := b.SetAddresses(t.Context(), control, nil); err == nil {
				t.Errorf("control address %q is taken", control)
			}
		}
		if err := b.SetAddresses(t.Context(), "", []Endpoint{{Listener: "data"}}); err == nil {
			t.Error("an endpoint without an address is taken")
		}
		if registers, _, _ := d.counts(); registers != 1 {
			t.Fatalf("%d registrations", registers)
		}
		d.set(func() { d.err = reasoned(cluster.InvalidRequest) })
		if err := b.SetAddresses(t.Context(), "b2:1", nil); ReasonOf(err) != cluster.InvalidRequest {
			t.Errorf("refused with %v", err)
		}
		if a := b.addressed(); a.control != "b1" || a.version != 2 {
			t.Errorf("addresses %+v", a)
		}
		d.set(func() { d.err = status.Error(codes.Unavailable, "starting") })
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := b.SetAddresses(ctx, "b2:1", nil); !errors.Is(err, context.DeadlineExceeded) || b.ControlAddress() != "b2:1" {
			t.Errorf("out of time with %v, at %s", err, b.ControlAddress())
		}
		d.set(func() { d.err = nil })
		after(5 * time.Second)
		if _, renewals, _ := d.counts(); renewals == 0 {
			t.Error("no renewals any more")
		}
	})
}
