package scenarios

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// Topics are put by hand faster than brokers take them in, two of which need
// two seconds for each command. The daemon, a process with little memory, keeps
// its seat, stays small, works in proportion, and converges.
func TestWA5EventStorm(t *testing.T) {
	longOr(func() {}, t.Parallel)()
	w := newWorld(t)
	p := w.process("a", func(c *exec.Cmd) {
		c.Args = append(c.Args, "--lease-ttl", (2 * patient).String())
		c.Env = append(os.Environ(), "GOMEMLIMIT=400MiB")
	})
	w.seated(1, soon)
	delay := longOr(2*time.Second, 200*time.Millisecond)
	slow := w.slowFake(2, delay)
	w.slowFake(3, delay) // it hosts nothing
	w.startBrokers(2, withSession(2*limit))
	topics := longOr(30_000, 3_000)
	begin, rev := time.Now(), w.tape.rev()
	var spent [2]time.Duration // by the first and the second half
	largest := int64(0)
	for half := range spent {
		before := p.cpu()
		for i := half * topics / 2; i < (half+1)*topics/2; i += 50 {
			w.putTopics(i, min(i+50, (half+1)*topics/2))
			largest = max(largest, p.resident())
		}
		w.await("half of the topics are led and heard of", 6*limit, func() bool {
			largest = max(largest, p.resident())
			return w.offline() == 0 && w.apart() == ""
		})
		spent[half] = p.cpu() - before
	}
	w.await("the slow broker knows all of them", 6*limit, func() bool { return len(heardOf(slow)) == topics })
	t.Logf("%d topics in %v, %v of processor time, %d MiB", topics, time.Since(begin), spent, largest>>20)
	if largest > 512<<20 {
		t.Errorf("the daemon took %d MiB", largest>>20)
	}
	if spent[1] > 3*spent[0]+time.Second {
		t.Errorf("the first half took %v of processor time, the second %v", spent[0], spent[1])
	}
	if e := w.epoch(); e != 1 {
		t.Errorf("epoch %d", e)
	}
	// No more than one write for each partition, and each broker is told of it
	// about once: what came meanwhile is put together.
	writes := w.tape.after(rev, func(key string) bool { return strings.HasPrefix(key, w.keys.Prefix()+"partitions/") })
	if len(writes) > 3*topics {
		t.Errorf("%d writes for %d partitions", len(writes), topics)
	}
	if n := len(statesOf(slow)); n > 6*topics {
		t.Errorf("the slow broker was told %d states of %d partitions", n, topics)
	}
}

// putTopics puts topics of one partition each by hand, with their blocks, and
// without a leader.
func (w *world) putTopics(from, to int) {
	w.t.Helper()
	var ops []clientv3.Op
	for i := from; i < to; i++ {
		id := cluster.TopicID{3, byte(i >> 16), byte(i >> 8), byte(i)}
		record := &pb.PartitionRecord{Replicas: []int32{int32(i % 2), int32(1 - i%2), 2}, Isr: []int32{0, 1, 2}, Leader: int32(cluster.NoLeader)}
		record.Isr = record.Replicas
		ops = append(ops,
			clientv3.OpPut(w.keys.Block(cluster.BlockID{Topic: id}), string(encode(w.t, &pb.PartitionBlock{Partitions: []*pb.PartitionRecord{record}}))),
			clientv3.OpPut(w.keys.Topic(fmt.Sprint("storm-", i)), string(encode(w.t, &pb.TopicRecord{
				TopicId: id[:], PartitionsWanted: 1, PartitionsMade: 1, ReplicationFactor: 3, BlockSize: cluster.DefaultBlockSize,
			}))))
	}
	resp, err := w.client.Txn(w.call()).Then(ops...).Commit()
	if err != nil {
		w.t.Fatalf("put topics by hand: %v", err)
	}
	w.tape.byHand(resp.Header.Revision)
}

// heardOf are the topics that a broker was told of.
func heardOf(f *fake) map[string]bool {
	out := map[string]bool{}
	for _, c := range f.commands() {
		for _, ts := range c.cmd.GetLeaderAndIsr().GetTopics() {
			out[ts.GetTopic()] = true
		}
	}
	return out
}

// slow is a broker that answers each command only after a while.
type slow struct {
	*fake
	each time.Duration
}

func (w *world) slowFake(id cluster.BrokerID, each time.Duration) *fake {
	w.t.Helper()
	s := slow{each: each, fake: &fake{
		w: w, id: id, answer: func(*pb.Command) *pb.CommandAck { return &pb.CommandAck{} },
		server: grpc.NewServer(), registered: make(chan struct{}),
	}}
	s.serve(s)
	return s.fake
}

// Commands answers pings at once, and commands in order when they are due.
func (s slow) Commands(stream pb.CommandService_CommandsServer) error {
	<-s.registered
	hello := &pb.Hello{ClusterUuid: s.session.GetClusterUuid(), BrokerId: int32(s.id), BrokerEpoch: s.session.GetBrokerEpoch()}
	if err := stream.Send(&pb.CommandsResponse{Response: &pb.CommandsResponse_Hello{Hello: hello}}); err != nil {
		return err
	}
	var sending sync.Mutex
	send := func(resp *pb.CommandsResponse) {
		sending.Lock()
		defer sending.Unlock()
		_ = stream.Send(resp) // if it fails, so does the reading
	}
	due := make(chan arrival, 1000)
	var answering sync.WaitGroup
	answering.Go(func() {
		for a := range due {
			pass(time.Until(a.at.Add(s.each)))
			send(&pb.CommandsResponse{Response: &pb.CommandsResponse_Ack{Ack: &pb.CommandAck{Sequence: a.cmd.GetSequence()}}})
			send(&pb.CommandsResponse{Response: &pb.CommandsResponse_Results{Results: applied(a.cmd)}})
		}
	})
	defer answering.Wait()
	defer close(due)
	for {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		if cmd := req.GetCommand(); cmd != nil {
			s.take(cmd)
			due <- arrival{time.Now(), cmd}
			continue
		}
		send(&pb.CommandsResponse{Response: &pb.CommandsResponse_Pong{Pong: &pb.Pong{Sequence: req.GetPing().GetSequence()}}})
	}
}

// applied says that all partitions of a command were.
func applied(cmd *pb.Command) *pb.PartitionResults {
	out := &pb.PartitionResults{}
	for _, ts := range cmd.GetLeaderAndIsr().GetTopics() {
		for _, p := range ts.GetPartitions() {
			out.Outcomes = append(out.Outcomes, &pb.PartitionOutcome{
				TopicId: ts.GetTopicId(), Partition: p.GetPartition(), LeaderEpoch: p.GetLeaderEpoch(),
				PartitionEpoch: p.GetPartitionEpoch(), Result: pb.PartitionResult_PARTITION_RESULT_APPLIED,
			})
		}
	}
	return out
}

// cpu is the processor time that the process has taken.
func (p *process) cpu() time.Duration {
	p.w.t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		p.w.t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(stat, []byte(") "))
	fields := strings.Fields(string(rest))
	const user, system, ticks = 11, 12, 100 // of a second: USER_HZ, which is fixed
	sum := time.Duration(0)
	for _, f := range []string{fields[user], fields[system]} {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			p.w.t.Fatal(err)
		}
		sum += time.Duration(n) * time.Second / ticks
	}
	return sum
}

// resident is how much memory the process holds, in bytes.
func (p *process) resident() int64 {
	p.w.t.Helper()
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.cmd.Process.Pid))
	if err != nil {
		p.w.t.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(statm))[1], 10, 64)
	if err != nil {
		p.w.t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}
