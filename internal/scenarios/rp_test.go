package scenarios

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/internal/netproxy"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

func withServer(opts ...grpc.ServerOption) brokerOption {
	return func(_ *node, cfg *broker.Config) { cfg.ServerOptions = append(cfg.ServerOptions, opts...) }
}

// behindProxy puts a proxy before the control listener of a broker.
func (w *world) behindProxy() (*netproxy.Proxy, brokerOption) {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	proxy := startProxy(w.t, addr)
	return proxy, func(_ *node, cfg *broker.Config) { cfg.ControlListen, cfg.AdvertiseControl = addr, proxy.Addr() }
}

// heap is how many bytes are live.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// There is far more to say than gRPC takes in one message. It is said in parts,
// to brokers with default limits and to one with a smaller one; answers too
// come in parts. One whose limit is below any part holds up nobody.
func TestRP1MoreThanOneMessage(t *testing.T) {
	longOr(func() {}, t.Parallel)() // the long one measures memory
	w := newWorld(t)
	topics := longOr(100_000, 5_000)
	w.preloadNamed(topics, 5, 5, func(i int) string { return fmt.Sprintf("%s-%d", strings.Repeat("long", 60), i) })
	a := w.daemon("a", withTTL(2*patient))
	w.active(1, limit)
	largest := make([]atomic.Int64, 5)
	options := func(id int) []brokerOption {
		out := []brokerOption{withSession(2 * patient), bent(&bend{received: func(_ context.Context, req *pb.CommandsRequest) error {
			if n := int64(proto.Size(req)); n > largest[id].Load() {
				largest[id].Store(n)
			}
			return nil
		}})}
		if id == 1 {
			out = append(out, withServer(grpc.MaxRecvMsgSize(1<<20)))
		}
		return out
	}
	var brokers []*node
	for id := range 5 {
		brokers = append(brokers, w.broker(cluster.BrokerID(id), options(id)...))
		w.registered(brokers[id])
	}
	w.await("every partition has a leader", 4*limit, func() bool { return w.offline() == 0 })
	w.converged(4 * limit)
	before := heap()

	for _, id := range []int{1, 2} {
		brokers[id].kill()
		brokers[id] = w.broker(cluster.BrokerID(id), options(id)...)
		w.registered(brokers[id])
		begin := time.Now()
		topic := w.create(fmt.Sprint("probe-", id), 1, 5)
		w.await("the other brokers hear of a new topic", 2*limit, func() bool {
			_, zero := brokers[0].Metadata(cluster.PartitionID{Topic: topic})
			_, four := brokers[4].Metadata(cluster.PartitionID{Topic: topic})
			return zero && four
		})
		t.Logf("beside the sync of broker %d a new topic took %v", id, time.Since(begin))
	}
	w.converged(4 * limit)
	for id := range largest {
		if n := largest[id].Load(); n == 0 || n >= 1<<20 {
			t.Errorf("broker %d was sent a message of %d bytes", id, n)
		}
	}

	// Everything fails, at length.
	failure := errors.New(strings.Repeat("the disk is on fire ", 5000))
	brokers[3].onApply(func(context.Context, broker.PartitionState) error { return failure })
	sum := a.counters()["full_syncs"] + a.counters()["streams_resumed"]
	brokers[4].kill()
	w.revoke(w.sessionLease(4))
	w.await("failures are named", 2*limit, func() bool { return a.names("the disk is on fire") })
	brokers[3].onApply(nil)
	w.converged(4 * limit)
	if now := a.counters()["full_syncs"] + a.counters()["streams_resumed"]; now != sum {
		t.Errorf("%d streams began anew", now-sum)
	}

	tiny := w.broker(5, withSession(2*patient), withServer(grpc.MaxRecvMsgSize(16<<10)))
	w.registered(tiny)
	w.await("who takes nothing is named", limit, func() bool { return a.names("broker 5 gets no commands") })
	streams := a.counters()["full_syncs"]
	begin := time.Now()
	topic := w.create("beside", 1, 3)
	w.await("the others hear of a new topic", soon, func() bool {
		_, ok := brokers[0].Metadata(cluster.PartitionID{Topic: topic})
		return ok
	})
	pass(3 * time.Second)
	if n, most := a.counters()["full_syncs"]-streams, int64(time.Since(begin)/time.Second)+10; n > most {
		t.Errorf("it was tried %d times in %v", n, time.Since(begin))
	}
	tiny.kill()
	w.revoke(w.sessionLease(5))
	w.converged(limit)
	if after := heap(); longOr(true, false) && after > before+before/2+64<<20 {
		t.Errorf("%d MiB are held, %d MiB before", after>>20, before>>20)
	}
	if w.epoch() != 1 {
		t.Errorf("epoch %d", w.epoch())
	}
}

// hangs are brokers with a live session that get stuck, each in another way.
type hangs struct {
	w      *world
	open   chan struct{}  // closed: the deaf and the dumb are well again
	deaf   *stuck         // says hello and reads nothing
	dumb   *stuck         // reads, and answers nothing
	cut    *node          // behind a network that swallows everything
	frozen *brokerProcess // stopped
}

// stuck is a broker that does not play along, until it is well.
type stuck struct {
	*fake
	deaf bool
	open <-chan struct{}
}

func (s *stuck) Commands(stream pb.CommandService_CommandsServer) error {
	select {
	case <-s.open:
		return s.fake.Commands(stream)
	default:
	}
	<-s.registered
	hello := &pb.Hello{ClusterUuid: s.session.GetClusterUuid(), BrokerId: int32(s.id), BrokerEpoch: s.session.GetBrokerEpoch()}
	if err := stream.Send(&pb.CommandsResponse{Response: &pb.CommandsResponse_Hello{Hello: hello}}); err != nil {
		return err
	}
	for !s.deaf {
		if _, err := stream.Recv(); err != nil {
			return err
		}
	}
	<-stream.Context().Done()
	return stream.Context().Err()
}

func (h *hangs) stuck(id cluster.BrokerID, deaf bool) *stuck {
	h.w.t.Helper()
	s := &stuck{deaf: deaf, open: h.open, fake: &fake{
		w: h.w, id: id, answer: func(*pb.Command) *pb.CommandAck { return &pb.CommandAck{} },
		server: grpc.NewServer(), registered: make(chan struct{}),
	}}
	s.serve(s)
	return s
}

// mute accepts connections and neither reads nor writes.
func (h *hangs) mute(id cluster.BrokerID) {
	h.w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		h.w.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var held []net.Conn
		for {
			c, err := l.Accept()
			if err != nil {
				for _, c := range held {
					_ = c.Close()
				}
				return
			}
			held = append(held, c)
		}
	}()
	h.w.t.Cleanup(func() { _ = l.Close(); <-done })
	(&fake{w: h.w, id: id, registered: make(chan struct{})}).enlist(l.Addr().String())
}

// Five brokers hang, each in its own way, while much changes. The others hear
// of it at once, nothing piles up, and those that come back are told how things
// are, not what they have been.
func TestRP2HungBrokers(t *testing.T) {
	longOr(func() {}, t.Parallel)() // the long one measures memory
	w := newWorld(t)
	a := w.daemon("a", withTTL(2*patient))
	w.active(1, soon)
	brokers := w.startBrokers(2, withSession(limit))
	h := &hangs{w: w, open: make(chan struct{})}
	h.frozen = w.brokerProcess(6)
	proxy, behind := w.behindProxy()
	h.cut = w.broker(5, withSession(2*limit), behind)
	w.registered(h.cut)

	const partitions = 50
	var assignment [][]int32
	for range partitions {
		assignment = append(assignment, []int32{0, 1, 5, 6})
	}
	orders := w.assigned("orders", assignment...)
	w.converged(soon)
	w.await("the process has obeyed", soon, func() bool { return len(h.frozen.lines()) >= partitions })
	h.mute(2)
	h.deaf, h.dumb = h.stuck(3, true), h.stuck(4, false)
	w.await("it is told what it does not read", soon, func() bool { return a.counters()["full_syncs"] >= 6 })
	proxy.Blackhole()
	h.frozen.signal(syscall.SIGSTOP)
	heapBefore, goroutines := heap(), runtime.NumGoroutine()

	changes := longOr(1000, 300)
	rev, begin := w.tape.rev(), time.Now()
	for n := range changes {
		p := w.partition(cluster.PartitionID{Topic: orders, Index: int32(n % partitions)})
		isr := []broker.IsrMember{{Broker: 0}, {Broker: 1}}
		if len(p.ISR) != 1 {
			isr = isr[:1]
		}
		r, err := brokers[0].AlterPartition(w.call(), []broker.IsrChange{{
			Partition: cluster.PartitionID{Topic: orders, Index: int32(n % partitions)}, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, NewISR: isr,
		}})
		if err != nil || r[0].Reason != "" {
			t.Fatalf("alter the ISR: %+v, %v", r, err)
		}
		w.await("our own watch shows it", soon, func() bool {
			return w.partition(cluster.PartitionID{Topic: orders, Index: int32(n % partitions)}).PartitionEpoch > p.PartitionEpoch
		})
		pass(longOr(30*time.Second, 0) / time.Duration(changes)) // less than a session
	}
	w.await("the others have heard of all of it", soon, func() bool { return !slices.Contains(w.delays(brokers[1], orders, rev), never) })
	delays := w.delays(brokers[1], orders, rev)
	slices.Sort(delays)
	p99 := delays[len(delays)*99/100]
	t.Logf("%d changes in %v, heard of within %v, 99%% within %v", changes, time.Since(begin), delays[len(delays)-1], p99)
	if p99 > time.Second {
		t.Errorf("99%% of the changes were heard of within %v", p99)
	}
	w.await("the hung ones are named, or gone", 2*limit, func() bool {
		for id := cluster.BrokerID(2); id <= 6; id++ { // one that is stopped for long loses its session
			if w.sessionLease(id) != 0 && !a.names(fmt.Sprintf("broker %d gets no commands", id)) {
				return false
			}
		}
		return true
	})
	if now := heap(); longOr(true, false) && now > heapBefore+32<<20 {
		t.Errorf("%d MiB are held, %d MiB before", now>>20, heapBefore>>20)
	}
	if now := runtime.NumGoroutine(); longOr(true, false) && now > goroutines+50 {
		t.Errorf("%d goroutines, %d before", now, goroutines)
	}

	back := time.Now()
	seen := len(h.frozen.lines())
	close(h.open)
	proxy.Heal()
	h.frozen.signal(syscall.SIGCONT)
	for _, s := range []*stuck{h.deaf, h.dumb} {
		w.await("who hung is told the newest", limit, func() bool {
			last := map[int32]int32{}
			for _, p := range statesOf(s.fake) {
				last[p.GetPartition()] = p.GetPartitionEpoch()
			}
			return w.newest(orders, partitions, func(i int32, pe cluster.PartitionEpoch) bool { return last[i] == int32(pe) })
		})
		if n := len(statesOf(s.fake)); n > 2*partitions {
			t.Errorf("broker %d was told %d states of %d partitions", s.id, n, partitions)
		}
	}
	w.converged(limit)
	told := 0
	for _, o := range h.cut.observed() {
		if o.Command == broker.LeaderAndIsr && o.Time.After(back) {
			told++
		}
	}
	// What the network had swallowed when it broke, and the newest.
	if told > changes/2 && told > 4*partitions {
		t.Errorf("broker 5 was told %d states of %d partitions", told, partitions)
	}
	w.await("the process knows the newest", limit, func() bool {
		last := h.frozen.newest("orders")
		return w.newest(orders, partitions, func(i int32, pe cluster.PartitionEpoch) bool { return last[i] == int32(pe) })
	})
	if n := len(h.frozen.lines()) - seen; n > changes/2 && n > 6*partitions {
		t.Errorf("the process was told %d things of %d partitions", n, partitions)
	}
	if w.epoch() != 1 {
		t.Errorf("epoch %d", w.epoch())
	}
}

// newest reports whether something is so for the partition epoch of every
// partition in etcd.
func (w *world) newest(topic cluster.TopicID, partitions int32, so func(int32, cluster.PartitionEpoch) bool) bool {
	for i := range partitions {
		if !so(i, w.partition(cluster.PartitionID{Topic: topic, Index: i}).PartitionEpoch) {
			return false
		}
	}
	return true
}

// never is the delay of what was not heard of.
const never = time.Duration(1<<63 - 1)

// delays are how long after each change of a topic's partitions, above a
// revision, a broker was told of it or of a newer one.
func (w *world) delays(n *node, topic cluster.TopicID, after store.Rev) []time.Duration {
	told := map[int32][]broker.Observation{}
	for _, o := range n.observed() {
		if o.Command == broker.LeaderAndIsr && o.TopicID == topic && accepted(o) {
			told[o.Partition] = append(told[o.Partition], o)
		}
	}
	known := map[int32]int32{}
	var out []time.Duration
	for _, c := range w.tape.after(0, func(key string) bool { return strings.HasPrefix(key, w.keys.Blocks(topic)) }) {
		block := &pb.PartitionBlock{}
		if err := proto.Unmarshal(c.KV.Value, block); err != nil {
			w.t.Fatal(err)
		}
		for _, p := range block.GetPartitions() {
			if known[p.GetPartition()] == p.GetPartitionEpoch() {
				continue
			}
			known[p.GetPartition()] = p.GetPartitionEpoch()
			if c.KV.ModRev <= after {
				continue
			}
			delay := never
			if i := slices.IndexFunc(told[p.GetPartition()], func(o broker.Observation) bool {
				return int32(o.PartitionEpoch) >= p.GetPartitionEpoch()
			}); i >= 0 {
				delay = max(0, told[p.GetPartition()][i].Time.Sub(c.at))
			}
			out = append(out, delay)
		}
	}
	return out
}

// brokerProcess is a recording broker as a process of its own.
type brokerProcess struct {
	w    *world
	id   cluster.BrokerID
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

var brokerProgram = sync.OnceValues(func() (string, error) { return build("broker", "github.com/controllerd/controllerd/examples/broker") })

func (w *world) brokerProcess(id cluster.BrokerID) *brokerProcess {
	w.t.Helper()
	path, err := brokerProgram()
	if err != nil {
		w.t.Fatal(err)
	}
	p := &brokerProcess{w: w, id: id, log: filepath.Join(w.t.TempDir(), "commands"), done: make(chan struct{})}
	p.cmd = exec.Command(path, "--id", fmt.Sprint(id), "--node-uuid", fmt.Sprint("node-", id), "--daemons", w.daemons[0].Endpoint,
		"--session-ttl", "60s", "--log", p.log)
	p.cmd.Stderr = prefixed{w.log, fmt.Sprintf("broker %d: ", id)}
	if err := p.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	w.t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
	})
	w.await("the process is registered", limit, func() bool { return w.sessionLease(id) != 0 })
	return p
}

func (p *brokerProcess) signal(s syscall.Signal) {
	p.w.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.w.t.Fatal(err)
	}
}

// said is a line of its log.
type said struct {
	Command, Topic, Result string
	LE, PE, Partition      int32
}

// lines are what its gate has decided so far on single partitions.
func (p *brokerProcess) lines() []said {
	p.w.t.Helper()
	b, err := os.ReadFile(p.log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		p.w.t.Fatal(err)
	}
	var out []said
	for line := range bytes.Lines(b) {
		var s said
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // half of it
		}
		if err := json.Unmarshal(line, &s); err != nil {
			p.w.t.Fatalf("%s: %v", line, err)
		}
		if s.Command == broker.LeaderAndIsr && s.Topic != "" {
			out = append(out, s)
		}
	}
	return out
}

// newest are the partition epochs that it was told last.
func (p *brokerProcess) newest(topic string) map[int32]int32 {
	out := map[int32]int32{}
	for _, s := range p.lines() {
		if s.Topic == topic {
			out[s.Partition] = s.PE
		}
	}
	return out
}
