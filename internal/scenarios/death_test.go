package scenarios

import (
	"net"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/internal/localcluster"
	"github.com/controllerd/controllerd/internal/netproxy"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// provable is when the death of an active that a standby sees now can be proved.
const provable = 5200 * time.Millisecond

// flags adds flags to a process.
func flags(more ...string) func(*exec.Cmd) {
	return func(c *exec.Cmd) { c.Args = append(c.Args, more...) }
}

// endOf is why a term ended, as the history says.
func (w *world) endOf(e cluster.Epoch) (cause pb.EndCause) {
	w.tape.look(func(im *cluster.Image) { cause = im.Terms[e].Record.GetEndCause() })
	return cause
}

// byID is the process of that id.
func (w *world) byID(id string) *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.processes {
		if p.id == id {
			return p
		}
	}
	w.t.Fatalf("there is no process %s", id)
	return nil
}

// An active process that is killed is followed long before its lease expires,
// which none does here. One that stops in order is not taken for dead.
func TestDeathOfAProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, id := range []string{"a", "b", "c"} {
		w.process(id, flags("--lease-ttl", "60s"))
	}
	w.startBrokers(2)
	first := w.seated(1, soon)
	pass(provable)
	w.byID(first).kill()
	second := w.seated(2, soon)
	w.obeyed(2, soon)
	if got := w.endOf(1); got != pb.EndCause_END_CAUSE_PROVEN_DEAD {
		t.Errorf("term 1 ended by %v", got)
	}
	if n := len(w.candidates()[first]); n != 0 {
		t.Errorf("%s is still a candidate, %d times", first, n)
	}
	w.byID(second).signal(syscall.SIGTERM)
	third := w.seated(3, soon)
	<-w.byID(second).exited
	pass(time.Second)
	if got := w.endOf(2); got != pb.EndCause_END_CAUSE_SHUTDOWN || w.epoch() != 3 {
		t.Errorf("term 2 ended by %v, epoch %d", got, w.epoch())
	}
	resp, err := w.byID(third).admin.DescribeController(w.call(), &pb.DescribeControllerRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if n := resp.GetCounters()["controller_deaths_damped"]; n != 0 {
		t.Errorf("%s took one that stopped for dead, %d times", third, n)
	}
}

// Three daemons advertise one address, at which one of them listens. Its death
// is not that of another.
func TestDeathUnderASharedAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	shared := l.Addr().String()
	_ = l.Close()
	lease := flags("--lease-ttl", "8s", "--advertise", shared)
	w.process("liar", lease)
	w.seated(1, soon)
	honest := w.process("honest", lease, flags("--listen", shared))
	w.process("c", lease)
	pass(provable)
	honest.kill()
	pass(time.Second)
	if _, id := w.seat(); id != "liar" || w.epoch() != 1 {
		t.Errorf("after the death of another: %s, epoch %d", id, w.epoch())
	}
	w.byID("liar").kill()
	if id := w.seated(2, limit); id != "c" || w.endOf(1) != pb.EndCause_END_CAUSE_UNSPECIFIED {
		t.Errorf("%s follows, term 1 ended by %v", id, w.endOf(1))
	}
}

// advertised puts a proxy between a daemon and whoever dials it. Nobody listens
// at its address any more once it is closed.
func (w *world) advertised(id string) (d *daemon, p *netproxy.Proxy, closeProxy func()) {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	if p, err = netproxy.Start(l.Addr().String()); err != nil {
		w.t.Fatal(err)
	}
	_ = l.Close()
	closeProxy = sync.OnceFunc(func() { _ = p.Close() })
	w.t.Cleanup(closeProxy)
	d = w.daemon(id, listen(l.Addr().String()), func(_ *daemon, cfg *localcluster.DaemonConfig) { cfg.Advertise = p.Addr() })
	return d, p, closeProxy
}

// An active that lives is not taken for dead while its address does anything
// but refuse. If it does, as behind some firewalls, the seat is freed and
// nothing else happens: the old one obeys etcd.
func TestFalseDeath(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, proxy, closeProxy := w.advertised("a")
	w.active(1, soon)
	b := w.daemon("b")
	w.candidateLease("b", 0)
	pass(provable)
	attended := func() {
		w.await("b attends a", soon, func() bool { return proxy.Open() == 1 })
		pass(100 * time.Millisecond)
	}
	for _, harmless := range []func(){proxy.Blackhole, proxy.Reset, proxy.Refuse} { // Refuse accepts, and resets
		attended()
		harmless()
		pass(400 * time.Millisecond)
		proxy.Heal()
	}
	attended()
	if w.active(1, soon) != a || w.epoch() != 1 || b.counters()["controllers_proven_dead"] != 0 {
		t.Fatalf("epoch %d, %v", w.epoch(), b.counters())
	}
	old := w.candidates()["a"][0]
	closeProxy()
	epoch := cluster.Epoch(2)
	if w.active(epoch, soon) == a { // it was fastest, and nobody reaches it there
		a.stop()
		epoch = 3
		w.active(epoch, soon)
	} else {
		w.candidateLease("a", old) // it stands again
	}
	if cause := w.endOf(1); cause != pb.EndCause_END_CAUSE_PROVEN_DEAD {
		t.Errorf("term 1 ended by %v", cause)
	}
	w.startBrokers(3)
	w.create("orders", 8, 3)
	w.converged(soon)
	if w.epoch() != epoch {
		t.Errorf("epoch %d, want %d", w.epoch(), epoch)
	}
}

// With --no-death-probe a lease has to expire.
func TestNoDeathProbe(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, id := range []string{"a", "b"} {
		w.process(id, flags("--lease-ttl", "6s", "--no-death-probe"))
	}
	first := w.seated(1, soon)
	pass(provable)
	w.byID(first).kill()
	pass(time.Second)
	if _, id := w.seat(); id != first {
		t.Errorf("%s holds the seat while the lease of %s lives", id, first)
	}
	w.seated(2, soon)
	if got := w.endOf(1); got != pb.EndCause_END_CAUSE_UNSPECIFIED {
		t.Errorf("term 1 ended by %v", got)
	}
}

// brokerProvable is when the death of a broker can be proved in a new term.
const brokerProvable = 10200 * time.Millisecond

// live reports whether a broker has a key.
func (w *world) live(id cluster.BrokerID) bool { return w.sessionLease(id) != 0 }

// leaderships is how many partitions a broker leads.
func (w *world) leaderships(id cluster.BrokerID) (n int32) {
	w.tape.look(func(im *cluster.Image) { n = im.Load(id).Leaders })
	return n
}

// A broker process that is killed is seen to be down long before its session
// expires, which none does here. One that stops in order is not taken for dead,
// nor is one that others reach by an address that is not its own.
func TestDeathOfABroker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.daemon("a")
	w.active(1, soon)
	victim, leaver := w.brokerProcess(7), w.brokerProcess(8)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	front, err := netproxy.Start(address)
	if err != nil {
		t.Fatal(err)
	}
	w.startBrokers(2, withSession(time.Minute), func(n *node, cfg *broker.Config) {
		if n.id == 1 {
			cfg.ControlListen, cfg.AdvertiseControl = address, front.Addr()
		}
	})
	w.create("orders", 40, 3)
	w.converged(soon)
	pass(brokerProvable)

	_ = front.Close()
	leaver.signal(syscall.SIGTERM)
	<-leaver.done
	pass(time.Second)
	if c := d.counters(); !w.live(1) || w.live(8) || c["brokers_proven_dead"]+c["broker_deaths_damped"] != 0 {
		t.Errorf("broker 1 live: %v, broker 8 live: %v, counted %v", w.live(1), w.live(8), c)
	}
	if w.leaderships(7) == 0 {
		t.Fatal("broker 7 leads nothing")
	}
	victim.signal(syscall.SIGKILL)
	w.await("broker 7 is seen to be down, and leads nothing", soon, func() bool { return !w.live(7) && w.leaderships(7) == 0 })
	if c := d.counters(); c["brokers_proven_dead"] != 1 || w.epoch() != 1 {
		t.Errorf("epoch %d, counted %v", w.epoch(), c)
	}
}

// When several brokers refuse connections, none is taken for dead; when only one
// is left of them, it is.
func TestDeathOfSeveralBrokers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.daemon("a")
	w.active(1, soon)
	b := w.startBrokers(4, withSession(time.Minute))
	w.create("orders", 40, 3)
	w.converged(soon)
	pass(brokerProvable)
	for _, n := range b[:2] {
		go n.kill()
	}
	w.await("both refuse", soon, func() bool { return d.counters()["broker_deaths_damped"] >= 4 })
	if !w.live(0) || !w.live(1) {
		t.Errorf("broker 0 live: %v, broker 1 live: %v", w.live(0), w.live(1))
	}
	w.registered(w.broker(0, withSession(time.Minute)))
	w.await("broker 1 is seen to be down", soon, func() bool { return !w.live(1) })
	pass(1500 * time.Millisecond)
	b[2].kill() // within 10 s
	pass(1500 * time.Millisecond)
	if c := d.counters(); !w.live(0) || !w.live(2) || !w.live(3) || c["brokers_proven_dead"] != 1 {
		t.Errorf("live: %v %v %v, counted %v", w.live(0), w.live(2), w.live(3), c)
	}
}
