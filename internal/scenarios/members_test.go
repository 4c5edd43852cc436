package scenarios

import (
	"slices"
	"testing"
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/internal/etcdtest"
	"github.com/controllerd/controllerd/internal/localcluster"
	"github.com/controllerd/controllerd/internal/netproxy"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store/etcdstore"
)

// ofMembers is a world on an etcd of three members. The test itself and its
// tape use member 0, and so do daemons that are not told otherwise.
func ofMembers(t *testing.T) (*world, *etcdtest.Members) {
	t.Helper()
	m := etcdtest.StartMembers(t, 3)
	w := &world{t: t, keys: cluster.KeysOf(clusterName), log: &logBuffer{}, made: map[string]bool{}}
	w.client = etcdtest.Dial(t, m.Endpoint(0))
	w.store = etcdstore.New(w.client)
	w.tape = startTape(t, w.client, w.keys)
	w.endpoints = []string{m.Endpoint(0)}
	t.Cleanup(w.end)
	return w, m
}

// at makes a daemon use some endpoints of etcd.
func at(endpoints ...string) daemonOption {
	return func(_ *daemon, cfg *localcluster.DaemonConfig) { cfg.EtcdEndpoints = endpoints }
}

// The watch brings nothing any more, though it is open and everything else
// works: one stream that is swallowed, a member that is stopped, a member that
// is cut off from the others. What changes then is handled within 30 s.
func TestWA3WatchStuck(t *testing.T) {
	t.Parallel()
	const bound = 30 * time.Second
	// handled checks that a broker that dies is noticed.
	handled := func(t *testing.T, w *world, brokers []*node) {
		t.Helper()
		begin := time.Now()
		brokers[2].kill()
		w.revoke(w.sessionLease(2))
		w.await("broker 2 leads nothing", bound, func() bool { return w.leads(2) == 0 && w.offline() == 0 })
		t.Logf("handled after %v", time.Since(begin))
	}
	for name, alone := range map[string]bool{"stream swallowed": false, "stream swallowed, no standby": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.daemon("a", brief)
			w.active(1, soon)
			if !alone {
				w.daemon("b")
				w.candidateLease("b", 0)
			}
			brokers := w.startBrokers(3, withSession(limit))
			w.create("orders", 9, 3)
			w.converged(soon)
			swallowed := a.faults.Add(etcdtest.Rule{Effect: etcdtest.LoseReply, Method: "Watch", Open: true})
			told := make(chan bool, 1)
			go func() {
				told <- poll(bound, func() bool { return !a.serving("") && a.names("what is shown here may be old") })
			}()
			handled(t, w, brokers)
			if !<-told {
				t.Error("the daemon did not say that its view may be old")
			}
			w.await("the stream was replaced", bound, func() bool { return a.serving("") && len(a.problems()) == 0 })
			if swallowed.Hits() == 0 {
				t.Error("nothing was swallowed")
			}
			w.converged(limit)
		})
	}
	t.Run("member stopped", func(t *testing.T) {
		t.Parallel()
		w, m := ofMembers(t)
		b := w.daemon("b")
		var proxies []*netproxy.Proxy
		var endpoints []string
		for i := 1; i <= 2; i++ {
			proxies = append(proxies, startProxy(t, m.Endpoint(i)))
			endpoints = append(endpoints, proxies[i-1].Addr())
		}
		a := w.daemon("a", at(endpoints...), withTTL(5*time.Second))
		w.candidateLease("a", 0)
		w.seatTo("a")
		brokers := w.startBrokers(3, withSession(limit), through(b))
		w.create("orders", 9, 3)
		w.converged(soon)
		stopped := 1 + slices.IndexFunc([]int{m.Watchers(1), m.Watchers(2)}, func(n int) bool { return n > 0 })
		if stopped == 0 {
			t.Fatal("a watches nowhere")
		}
		proxies[stopped-1].Blackhole()
		m.Isolate(stopped)
		handled(t, w, brokers)
		w.await("a uses the other member", bound, func() bool { return a.serving("") && len(a.problems()) == 0 })
		pass(longOr(time.Minute, 0))
		w.create("payments", 3, 2)
		proxies[stopped-1].Heal()
		m.Rejoin(stopped)
		w.converged(limit)
	})
	t.Run("member cut off", func(t *testing.T) {
		t.Parallel()
		w, m := ofMembers(t)
		b := w.daemon("b")
		a := w.daemon("a", at(m.Endpoint(2)), withTTL(5*time.Second))
		w.candidateLease("a", 0)
		w.seatTo("a")
		brokers := w.startBrokers(3, withSession(limit), through(b))
		w.create("orders", 9, 3)
		w.converged(soon)
		m.Isolate(2)
		handled(t, w, brokers)
		w.await("a says that it knows nothing", bound, func() bool {
			_, active := a.active()
			return !active && !a.serving("")
		})
		m.Rejoin(2)
		w.await("a is well again", bound, func() bool { return a.serving("") && len(a.problems()) == 0 })
		w.converged(limit)
		b.stop()
		if w.active(w.epoch(), limit) != a {
			t.Error("a does not follow")
		}
	})
}

// A member lags behind, and some daemons know no other. The seat changes at the
// others. Who sees the lagging one only is not active and says so; it answers
// nothing from a state that it has not read, and never goes back.
func TestWA7LaggingMember(t *testing.T) {
	t.Parallel()
	w, m := ofMembers(t)
	b := w.daemon("b")
	w.active(1, limit)
	c := w.daemon("c", at(m.Endpoint(1)))
	a := w.daemon("a", at(m.Endpoint(2)))                               // F only
	d := w.daemon("d", at(m.Endpoint(2), m.Endpoint(0), m.Endpoint(1))) // F first
	daemons := []*daemon{a, b, c, d}
	for _, d := range daemons {
		w.candidateLease(d.ID, 0)
	}
	back := make(chan error, len(daemons))
	for _, d := range daemons {
		go func() { back <- d.goesBack() }()
	}
	w.startBrokers(3, withSession(2*limit), through(b, c))
	w.create("orders", 6, 3)
	w.converged(soon)
	w.seatTo("b")
	e := w.epoch()

	m.Isolate(2)
	w.await("b holds the seat and serves", limit, func() bool { _, id := w.seat(); _, active := b.active(); return active && id == "b" })
	b.stop()
	next := w.active(e+1, limit)
	if next == a {
		t.Fatal("who sees the lagging member only is active")
	}
	w.await("a topic is created", limit, func() bool { _, err := w.tryCreate(w.call(), "payments", 6, 3); return err == nil })
	late := w.daemon("late", at(m.Endpoint(2)))
	w.await("who sees the lagging member only says so", limit, func() bool {
		_, active := a.active()
		_, lateActive := late.active()
		return !active && !lateActive && !a.serving("") && !late.serving("") && a.names("what is shown here may be old")
	})
	if resp, err := late.admin.ListTopics(w.call(), &pb.ListTopicsRequest{}); err == nil {
		t.Errorf("a daemon that has read nothing answers %v", resp)
	}
	if leases := w.candidates()["late"]; len(leases) > 0 {
		t.Errorf("it is a candidate: %v", leases)
	}
	w.await("who sees others too is well", limit, func() bool { return d.serving("") && len(d.problems()) == 0 })

	m.Rejoin(2)
	for _, d := range []*daemon{a, late} {
		w.await(d.ID+" knows the new term", limit, func() bool {
			resp, err := d.admin.DescribeController(w.call(), &pb.DescribeControllerRequest{})
			return err == nil && resp.GetEpoch() == int64(w.epoch()) && resp.GetTopics() == 2 && d.serving("")
		})
	}
	w.converged(limit)
	for _, d := range []*daemon{c, d, late} {
		e = w.epoch()
		d.stop()
	}
	if w.active(e, limit) != a {
		t.Error("a is not active, who is alone")
	}
	a.stop()
	for range daemons {
		if err := <-back; err != nil {
			t.Error(err)
		}
	}
}
