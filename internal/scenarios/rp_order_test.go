package scenarios

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// unsteady is a way to a broker on which everything takes its time, and each
// tenth command or answer is lost, with the stream.
type unsteady struct {
	most time.Duration

	mu    sync.Mutex
	first map[context.Context]bool // streams of which a command has arrived
	wrong []*pb.Command            // came first on a stream, and should not
	lost  int
}

var errLost = status.Error(codes.DeadlineExceeded, "lost on the way")

func (u *unsteady) received(ctx context.Context, req *pb.CommandsRequest) error {
	cmd := req.GetCommand()
	if cmd == nil {
		return nil
	}
	pass(rand.N(u.most))
	u.mu.Lock()
	defer u.mu.Unlock()
	if rand.IntN(10) == 0 {
		u.lost++
		return errLost
	}
	if !u.first[ctx] && cmd.GetUpdateMetadata().GetLiveBrokers() == nil {
		u.wrong = append(u.wrong, cmd)
	}
	u.first[ctx] = true
	return nil
}

func (u *unsteady) sending(resp *pb.CommandsResponse) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if resp.GetHello() == nil && rand.IntN(20) == 0 {
		u.lost++
		return errLost
	}
	return nil
}

// Leaders change again and again while commands and answers are late or lost.
// Each broker accepts in order what etcd has held, and in the end what it holds;
// who lives comes first on each stream.
func TestRP3LateAndLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.daemon("a", withTTL(2*patient))
	w.active(1, soon)
	var brokers []*node
	var ways []*unsteady
	for id := range 3 {
		u := &unsteady{most: longOr(2*time.Second, 50*time.Millisecond), first: map[context.Context]bool{}}
		ways = append(ways, u)
		brokers = append(brokers, w.broker(cluster.BrokerID(id), withSession(limit), bent(&bend{received: u.received, sending: u.sending})))
		w.registered(brokers[id])
	}
	id := w.create("orders", 3, 3)
	w.await("the brokers have heard of it", limit, func() bool { return len(brokers[0].observed()) > 0 })

	history := map[cluster.PartitionID]map[[2]int32]cluster.BrokerID{}
	flips := longOr(300, 100)
	for n := range flips {
		w.flip(id, n)
		pass(rand.N(20 * time.Millisecond))
	}
	w.converged(longOr(4*limit, limit))

	for _, c := range w.tape.after(0, func(key string) bool { return key == w.keys.Block(cluster.BlockID{Topic: id}) }) {
		block := &pb.PartitionBlock{}
		if err := proto.Unmarshal(c.KV.Value, block); err != nil {
			t.Fatal(err)
		}
		for _, p := range block.GetPartitions() {
			at := cluster.PartitionID{Topic: id, Index: p.GetPartition()}
			if history[at] == nil {
				history[at] = map[[2]int32]cluster.BrokerID{}
			}
			history[at][[2]int32{p.GetLeaderEpoch(), p.GetPartitionEpoch()}] = cluster.BrokerID(p.GetLeader())
		}
	}
	for i, b := range brokers {
		last := map[cluster.PartitionID][2]int32{}
		for _, o := range b.observed() {
			if o.TopicID != id || o.Result != "ADMITTED" && o.Result != "ISR_ADOPTED" {
				continue
			}
			at, now := cluster.PartitionID{Topic: id, Index: o.Partition}, [2]int32{int32(o.LeaderEpoch), int32(o.PartitionEpoch)}
			if _, ok := history[at][now]; !ok {
				t.Errorf("broker %d accepted %+v, which etcd never held", b.id, o)
			}
			if before, ok := last[at]; ok && slices.Compare(before[:], now[:]) >= 0 {
				t.Errorf("broker %d accepted %v of partition %d after %v", b.id, now, o.Partition, before)
			}
			last[at] = now
		}
		ways[i].mu.Lock()
		if len(ways[i].wrong) > 0 {
			t.Errorf("broker %d: first on a stream was %v", b.id, ways[i].wrong[0])
		}
		if ways[i].lost == 0 {
			t.Errorf("broker %d: nothing was lost", b.id)
		}
		ways[i].mu.Unlock()
	}
	if w.epoch() != 1 {
		t.Errorf("epoch %d", w.epoch())
	}
}

// flip gives every partition of a topic another leader, by hand.
func (w *world) flip(topic cluster.TopicID, n int) {
	w.t.Helper()
	key := w.keys.Block(cluster.BlockID{Topic: topic})
	for {
		resp, err := w.client.Get(w.call(), key)
		if err != nil {
			w.t.Fatal(err)
		}
		block := &pb.PartitionBlock{}
		if err := proto.Unmarshal(resp.Kvs[0].Value, block); err != nil {
			w.t.Fatal(err)
		}
		for _, p := range block.GetPartitions() {
			p.LeaderEpoch++
			p.PartitionEpoch++
			p.Leader = p.GetIsr()[n%len(p.GetIsr())]
			p.DecidedRevision = resp.Header.Revision
		}
		txn, err := w.client.Txn(w.call()).If(clientv3.Compare(clientv3.ModRevision(key), "=", resp.Kvs[0].ModRevision)).
			Then(clientv3.OpPut(key, string(encode(w.t, block)))).Commit()
		if err != nil {
			w.t.Fatal(err)
		}
		if txn.Succeeded {
			w.tape.byHand(txn.Header.Revision)
			return
		}
	}
}

// descriptors are the files that this process has open.
func descriptors(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// Brokers bounce again and again, each time at another address, and most of
// them go for good. Nothing of them is left, and nobody dials where they were.
func TestRP4BouncedBrokersLeaveNothing(t *testing.T) {
	// Not parallel: it counts goroutines.
	w := newWorld(t)
	a := w.daemon("a", withTTL(2*patient))
	w.active(1, soon)
	brokers := w.startBrokers(5, withSession(limit))
	w.create("orders", 10, 3)
	w.converged(soon)
	base, open, held := w.resources(), descriptors(t), heap()

	var mu sync.Mutex
	var addresses []string
	var bouncing sync.WaitGroup
	for id := range brokers {
		bouncing.Go(func() {
			for range longOr(200, 20) {
				old := brokers[id]
				mu.Lock()
				addresses = append(addresses, old.ControlAddress())
				mu.Unlock()
				old.kill()
				brokers[id] = w.broker(old.id, withSession(limit))
				select {
				case <-brokers[id].Registered():
				case <-time.After(limit):
					t.Errorf("broker %d is not registered", id)
					return
				}
			}
		})
	}
	bouncing.Wait()
	w.await("every partition has a leader", limit, func() bool { return w.offline() == 0 })
	w.converged(limit)
	w.backTo(base, 20)
	if now := descriptors(t); now > open+20 {
		t.Errorf("%d files are open, %d before", now, open)
	}
	if now := heap(); now > held+64<<20 {
		t.Errorf("%d MiB are held, %d MiB before", now>>20, held>>20)
	}

	for _, b := range brokers[1:] {
		addresses = append(addresses, b.ControlAddress())
		b.kill()
		w.revoke(w.sessionLease(b.id))
	}
	w.await("they are gone", soon, func() bool { return w.tape.brokers() == 1 })
	w.await("the daemon knows", soon, func() bool {
		resp, err := a.admin.DescribeController(w.call(), &pb.DescribeControllerRequest{})
		return err == nil && resp.GetBrokers() == 1 && len(resp.GetProblems()) == 0
	})
	dialed := make(chan string, 1000)
	bound := 0
	for _, addr := range addresses[max(0, len(addresses)-100):] {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			continue // somebody else has got the port
		}
		bound++
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_ = c.Close()
				dialed <- addr
			}
		}()
		t.Cleanup(func() { _ = l.Close() })
	}
	if bound < 4 {
		t.Fatalf("only %d of the old addresses are free", bound)
	}
	select {
	case addr := <-dialed:
		t.Errorf("%s is dialed, where no broker is any more", addr)
	case <-time.After(longOr(2*time.Minute, 5*time.Second)):
	}
	w.converged(soon)
	if got := fmt.Sprint(w.resources().streams); got != "1" {
		t.Errorf("%s streams are open", got)
	}
	if w.epoch() != 1 {
		t.Errorf("epoch %d", w.epoch())
	}
}

// brokers is how many are registered.
func (p *tape) brokers() (n int) {
	p.look(func(im *cluster.Image) { n = len(im.Brokers) })
	return n
}
