package scenarios

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/internal/etcdtest"
	"github.com/controllerd/controllerd/internal/localcluster"
)

// The member that leads etcd is killed again and again, while topics are made
// and brokers come and go. No daemon ends, the seat stays where it is or nearly
// so, and all changes are handled.
func TestET3KillEtcdLeader(t *testing.T) {
	t.Parallel()
	ms := newMembers(t, 3)
	w := ofEndpoints(t, ms.endpoints()...)
	daemons := []*process{w.process("a", with("--lease-ttl", patient.String())), w.process("b", with("--lease-ttl", patient.String()))}
	w.seated(1, soon)
	brokers := w.startBrokers(3, withSession(limit))
	const partitions = 12
	id := w.create("orders", partitions, 3)
	w.converged(soon)
	acked, stopAltering := w.keepAltering(brokers, id, partitions)
	stopCreating := w.keepCreating("load", 4, 3)
	rounds := longOr(15, 2)
	for range rounds {
		leader := ms.byEndpoint(w.etcdLeader(w.endpoints))
		leader.kill()
		before := acked.count()
		goner := w.broker(3, withSession(limit))
		w.registered(goner)
		w.await("ISRs are changed", limit, func() bool { return acked.count() > before+2 })
		goner.kill()
		w.revoke(w.sessionLease(3))
		pass(longOr(20*time.Second, 0))
		leader.run()
		w.caughtUp(leader.cfg.Addr)
	}
	stopAltering()
	made := stopCreating()
	w.await("broker 3 leads nothing", limit, func() bool { return w.leads(3) == 0 && w.offline() == 0 })
	w.converged(limit)
	w.kept(acked)
	for _, d := range daemons {
		if !d.alive() {
			t.Errorf("daemon %s has ended", d.id)
		}
	}
	if made == 0 || int(w.epoch()) > 1+rounds/2 {
		t.Errorf("%d topics were made, epoch %d after %d elections of etcd", made, w.epoch(), rounds)
	}
}

// watchStreams is how many watches clients hold open at a member, by its own
// account.
func (m *member) watchStreams() int {
	m.t.Helper()
	resp, err := http.Get("http://" + m.cfg.Addr + "/metrics")
	if err != nil {
		m.t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), "etcd_debugging_mvcc_watch_stream_total "); ok {
			n, err := strconv.Atoi(text)
			if err != nil {
				m.t.Fatal(err)
			}
			return n
		}
	}
	m.t.Fatal("etcd does not say how many watches there are")
	return 0
}

// The member at which a daemon watches is stopped: its connections are open,
// nothing answers. A standby of such a member still takes over when the active
// dies, and an active of such a member still handles what happens.
func TestET4StoppedMember(t *testing.T) {
	t.Parallel()
	// The kernel of a stopped process acknowledges what is sent, so only a ping
	// tells, which is sent after 10 s and may take 2 s.
	const bound = 15 * time.Second
	ms := newMembers(t, 3)
	w := ofEndpoints(t, ms[0].cfg.Addr) // it goes on
	others := ms[1:]
	watchedBy := func(start func() *daemon) (*daemon, *member) {
		before := []int{others[0].watchStreams(), others[1].watchStreams()}
		d := start()
		w.candidateLease(d.ID, 0)
		for i, m := range others {
			if m.watchStreams() > before[i] {
				return d, m
			}
		}
		t.Fatalf("%s watches nowhere", d.ID)
		return nil, nil
	}
	c := w.daemon("c") // brokers use it, and it never campaigns before the others
	w.active(1, soon)
	a, _ := watchedBy(func() *daemon { return w.daemon("a", brief, at(others.endpoints()...)) })
	b, pinned := watchedBy(func() *daemon { return w.daemon("b", brief, at(others.endpoints()...)) })
	w.seatTo("a")
	brokers := w.startBrokers(3, withSession(limit), through(c))
	w.create("orders", 9, 3)
	w.converged(soon)

	hang := func(m *member) {
		m.signal(syscall.SIGSTOP)
		pass(longOr(10*time.Second, time.Second))
	}
	hang(pinned)
	held := holdClaims(c) // b shall follow
	e := w.epoch()
	begin := time.Now()
	a.kill()
	if next := w.active(e+1, takeover+bound); next != b {
		t.Errorf("%s follows", next.ID)
	}
	t.Logf("b follows after %v", time.Since(begin))
	held.Remove()
	w.create("payments", 3, 3)
	pass(longOr(2*time.Minute, 0))
	pinned.signal(syscall.SIGCONT)
	w.caughtUp(pinned.cfg.Addr)
	w.converged(limit)

	// Now b is active, and watches at one of the two.
	w.await("b is well", limit, func() bool { return b.serving("") && len(b.problems()) == 0 })
	w.seatTo("b")
	pinned = others[0]
	if others[1].watchStreams() > others[0].watchStreams() {
		pinned = others[1]
	}
	hang(pinned)
	begin = time.Now()
	brokers[2].kill()
	w.revoke(w.sessionLease(2))
	w.await("broker 2 leads nothing", takeover+bound, func() bool { return w.leads(2) == 0 && w.offline() == 0 })
	t.Logf("handled after %v", time.Since(begin))
	pass(longOr(2*time.Minute, 0))
	pinned.signal(syscall.SIGCONT)
	w.caughtUp(pinned.cfg.Addr)
	w.converged(limit)
}

// All members that daemons were told of are replaced by ones at other addresses
// while they run, and they follow. A daemon that starts with the addresses of
// before waits, and says for what; with one that is right among them it works.
func TestET5MembersReplaced(t *testing.T) {
	t.Parallel()
	ms := newMembers(t, 3)
	told := longOr(3, 1)
	old := ms[:told].endpoints()
	w := ofEndpoints(t, ms.endpoints()...)
	w.endpoints = old
	steady := with("--lease-ttl", patient.String())
	a, b := w.process("a", steady), w.process("b", steady)
	w.seated(1, soon)
	w.startBrokers(3, withSession(limit))
	w.create("orders", 9, 3)
	w.converged(soon)
	for i, gone := range ms[:told] {
		added := ms.join(w, fmt.Sprint("n", i))
		for _, p := range []*process{a, b} {
			w.await(p.id+" has found the new member", limit, func() bool { return p.found(added.cfg.Addr) })
		}
		ms[i] = added
		w.client.SetEndpoints(ms.endpoints()...)
		w.await("the old member is removed", limit, func() bool { return w.removeMember(gone.cfg.Name) == nil })
		gone.kill()
		w.create(fmt.Sprint("during-", i), 3, 3)
	}
	w.create("payments", 9, 3)
	w.converged(soon)
	if e := w.epoch(); e > 1+cluster.Epoch(told)/2 {
		t.Errorf("epoch %d", e)
	}

	b.kill()
	lost := w.launch("c", with("--etcd-endpoints", strings.Join(old, ",")))
	w.await("it says what it waits for", limit, func() bool { return strings.Contains(w.log.String(), "etcd has not answered yet, still trying") })
	if !lost.alive() {
		t.Error("it has ended")
	}
	lost.kill()
	w.endpoints = append(old, ms[0].cfg.Addr)
	w.process("c")
	w.seatTo("c")
	w.create("refunds", 9, 3)
	w.converged(limit)
}

// found reports whether a daemon has said that it uses a member which it was
// not told of.
func (p *process) found(endpoint string) bool {
	for line := range strings.Lines(p.w.log.String()) {
		if strings.HasPrefix(line, "process "+p.id) && strings.Contains(line, "members of etcd found") && strings.Contains(line, endpoint) {
			return true
		}
	}
	return false
}

// removeMember tells etcd that a member is gone.
func (w *world) removeMember(name string) error {
	w.t.Helper()
	resp, err := w.client.MemberList(w.call())
	if err != nil {
		return err
	}
	for _, known := range resp.Members {
		if known.Name == name {
			_, err = w.client.MemberRemove(w.call(), known.ID)
			return err
		}
	}
	return nil
}

// A name moves to another address while a daemon runs; the address of before
// answers no more.
func TestET5NameThatMoves(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first, second := startProxy(t, w.etcd.Endpoint()), startProxy(t, w.etcd.Endpoint())
	var target atomic.Value
	target.Store(first.Addr())
	resolve := grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
		if addr == "etcd.example.org:2379" { // as a resolver would answer now
			addr = target.Load().(string)
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	})
	a := w.daemon("a", at("etcd.example.org:2379"), func(_ *daemon, cfg *localcluster.DaemonConfig) { cfg.EtcdOptions = []grpc.DialOption{resolve} })
	w.active(1, soon)
	target.Store(second.Addr())
	first.Refuse()
	w.startBrokers(3, through(a))
	w.create("orders", 3, 3)
	w.converged(soon)
	if second.Dials() == 0 {
		t.Error("nobody has asked for the name again")
	}
}

// Of several endpoints some are dead: nobody listens, nobody answers. A daemon
// starts and works with what is left, and moves when that dies too.
func TestDeadEndpoints(t *testing.T) {
	t.Parallel()
	m := etcdtest.StartMembers(t, 3)
	w := ofEndpoints(t, m.Endpoint(0))
	free, err := etcdtest.FreeAddresses(1)
	if err != nil {
		t.Fatal(err)
	}
	silent, first, second := startProxy(t, m.Endpoint(0)), startProxy(t, m.Endpoint(1)), startProxy(t, m.Endpoint(2))
	silent.Blackhole()
	second.Refuse()
	a := w.daemon("a", brief, at(free[0], silent.Addr(), second.Addr(), first.Addr()))
	w.active(1, soon)
	w.startBrokers(3, withSession(limit))
	w.create("orders", 3, 3)
	w.converged(soon)

	for name, round := range map[string]struct{ dies, comes func() }{
		"refused": {first.Refuse, second.Heal},
		"silent":  {second.Blackhole, first.Heal},
	} {
		round.comes()
		round.dies()
		w.await("the daemon is well", limit, func() bool { return a.serving("") && len(a.problems()) == 0 })
		w.create(name, 3, 3)
		w.converged(limit)
	}
}
