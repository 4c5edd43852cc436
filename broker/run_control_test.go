package broker

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/fencing"
	"github.com/controllerd/controllerd/internal/unfenced"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

const (
	applied      = pb.PartitionResult_PARTITION_RESULT_APPLIED
	already      = pb.PartitionResult_PARTITION_RESULT_ALREADY
	failed       = pb.PartitionResult_PARTITION_RESULT_FAILED
	storageError = pb.PartitionResult_PARTITION_RESULT_STORAGE_ERROR
	inconsistent = pb.PartitionResult_PARTITION_RESULT_INCONSISTENT_TOPIC_ID
	admitted     = pb.Refusal_REFUSAL_UNSPECIFIED
)

// commanded is a registered broker 1 with a stream from controller c1 of epoch
// 5.
func commanded(t *testing.T, h Handler, change func(*Config)) (*network, *Broker, *controller) {
	t.Helper()
	n := newNetwork(t)
	n.daemon("d1")
	b := n.start(t.Context(), h, change, "d1")
	<-b.Registered()
	return n, b, n.controller("c1", 5)
}

func TestCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := applies()
		_, b, c := commanded(t, h, nil)
		if h := c.hello; h.GetClusterUuid() != testUUID || h.GetBrokerId() != 1 || h.GetBrokerEpoch() != 10 || h.GetControllerEpoch() != 5 {
			t.Errorf("hello %v", h)
		}
		c.ack(c.leaderAndIsr(partition(0, 3, 7)), admitted)
		c.expect(3, 7, applied)
		c.leaderAndIsr(partition(0, 3, 7))
		c.expect(3, 7, already)
		c.leaderAndIsr(partition(0, 3, 8, 2))
		c.expect(3, 8, already)
		if s := <-h.adopted; s.PartitionEpoch != 8 || len(s.ISR) != 2 {
			t.Errorf("adopted %+v", s)
		}
		c.leaderAndIsr(partition(0, 2, 9))
		c.expect(2, 9, already)
		if s, ok := b.Partition(pid(0)); !ok || s.PartitionEpoch != 8 || s.Topic != "a" {
			t.Errorf("holds %+v", s)
		}
		if got := b.Partitions(); !slices.Equal(got, []cluster.PartitionID{pid(0)}) {
			t.Errorf("hosts %v", got)
		}
		other := partition(0, 9, 9)
		other.TopicId = slices.Repeat([]byte{1}, 16)
		c.ack(c.leaderAndIsr(other), admitted)
		c.expect(9, 9, inconsistent)
		c.silent()
	})
}

func TestHelloBeforeRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		d := n.daemon("d1")
		d.set(func() { d.err = status.Error(codes.Unavailable, "starting") })
		b := n.start(t.Context(), applies(), nil, "d1")
		c := n.controller("c1", 5)
		if h := c.hello; h.GetBrokerEpoch() != 0 || h.GetClusterUuid() != "" || h.GetBrokerId() != 1 {
			t.Errorf("hello %v", h)
		}
		c.to.Epoch = 10
		c.ack(c.leaderAndIsr(partition(0, 1, 1)), pb.Refusal_REFUSAL_UNAVAILABLE)
		d.set(func() { d.err = nil })
		<-b.Registered()
		c.ack(c.leaderAndIsr(partition(0, 1, 1)), admitted)
		c.expect(1, 1, applied)
	})
}

// TestTwoControllers: the old one does no harm once the new one was heard.
func TestTwoControllers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, b, old := commanded(t, applies(), nil)
		newer := n.controller("c2", 6)
		old.leaderAndIsr(partition(0, 1, 1))
		old.expect(1, 1, applied)
		newer.leaderAndIsr(partition(0, 2, 2))
		newer.expect(2, 2, applied)
		ack := old.ack(old.leaderAndIsr(partition(0, 3, 3)), pb.Refusal_REFUSAL_STALE_CONTROLLER_EPOCH)
		if ack.GetControllerEpoch() != 6 {
			t.Errorf("the old one hears of epoch %d", ack.GetControllerEpoch())
		}
		old.ack(old.updateMetadata(&pb.LiveBrokers{}), pb.Refusal_REFUSAL_STALE_CONTROLLER_EPOCH)
		if s, _ := b.Partition(pid(0)); s.LeaderEpoch != 2 {
			t.Errorf("holds leader epoch %d", s.LeaderEpoch)
		}
		old.silent()
		newer.silent()
	})
}

func TestGateTakenOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, b, old := commanded(t, applies(), func(c *Config) { c.Unfenced = unfenced.Open() })
		newer := n.controller("c2", 6)
		newer.leaderAndIsr(partition(0, 2, 2))
		newer.expect(2, 2, applied)
		old.ack(old.leaderAndIsr(partition(0, 1, 1)), admitted)
		old.expect(1, 1, applied)
		if s, _ := b.Partition(pid(0)); s.LeaderEpoch != 1 {
			t.Errorf("holds leader epoch %d", s.LeaderEpoch)
		}
	})
}

// TestNewestWins: a handler is cancelled by a newer leader epoch, and what
// lies between is skipped.
func TestNewestWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler()
		_, _, c := commanded(t, h, nil)
		c.leaderAndIsr(partition(0, 1, 1))
		first := <-h.calls
		if first.state.LeaderEpoch != 1 || first.ctx.Err() != nil {
			t.Fatalf("handler runs for %+v", first.state)
		}
		c.leaderAndIsr(partition(0, 2, 2), partition(0, 3, 3), partition(0, 4, 4))
		<-first.ctx.Done()
		second := <-h.calls
		if second.state.LeaderEpoch != 4 {
			t.Fatalf("handler runs for leader epoch %d, want the newest, 4", second.state.LeaderEpoch)
		}
		c.ping(1)
		second.end <- nil
		c.expect(4, 4, applied)
		synctest.Wait()
		if len(h.calls) != 0 {
			t.Error("an older state came after the newest")
		}
	})
}

// TestRepeatedWhileRunning: who repeats a command is answered when the handler
// ends, not before, and so is who sent it first.
func TestRepeatedWhileRunning(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want pb.PartitionResult
	}{"well": {nil, applied}, "badly": {errors.New("no"), failed}, "storage": {fmt.Errorf("log: %w", ErrStorage), storageError}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHandler()
				n, _, one := commanded(t, h, nil)
				two := n.controller("c2", 6)
				one.leaderAndIsr(partition(0, 1, 1))
				call := <-h.calls
				two.ack(two.leaderAndIsr(partition(0, 1, 1)), admitted)
				two.ack(two.leaderAndIsr(partition(0, 0, 0)), admitted)
				two.silent()
				call.end <- c.err
				one.ack(1, admitted)
				one.expect(1, 1, c.want)
				two.expect(1, 1, c.want)
				one.silent()
				two.silent()
			})
		})
	}
}

// TestOvertaken: a stream that named the older state is answered when the newer
// one is through.
func TestOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler()
		n, _, old := commanded(t, h, nil)
		newer := n.controller("c2", 6)
		old.ack(old.leaderAndIsr(partition(0, 1, 1)), admitted)
		<-h.calls
		newer.ack(newer.leaderAndIsr(partition(0, 2, 2)), admitted)
		call := <-h.calls
		old.silent()
		call.end <- nil
		old.expect(1, 1, already)
		newer.expect(2, 2, applied)
	})
}

func TestAdoptedWhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler()
		_, b, c := commanded(t, h, nil)
		c.ack(c.leaderAndIsr(partition(0, 1, 1)), admitted)
		call := <-h.calls
		c.ack(c.leaderAndIsr(partition(0, 1, 2, 2)), admitted)
		if call.ctx.Err() != nil || len(h.adopted) != 0 {
			t.Error("a newer ISR must not disturb the handler")
		}
		if s, _ := b.Partition(pid(0)); s.PartitionEpoch != 2 {
			t.Errorf("holds partition epoch %d", s.PartitionEpoch)
		}
		c.silent()
		call.end <- nil
		c.expect(1, 2, applied)
		if s := <-h.adopted; s.PartitionEpoch != 2 {
			t.Errorf("adopted %+v", s)
		}
		c.silent()
	})
}

// TestFailedHandler: the controller sends the same state again, and it runs.
func TestFailedHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler()
		_, _, c := commanded(t, h, nil)
		for range 3 {
			c.leaderAndIsr(partition(0, 1, 1))
			call := <-h.calls
			call.end <- errors.New("not now \xff")
			o := c.outcome()
			if o.GetResult() != failed || o.GetMessage() != "not now ?" {
				t.Fatalf("outcome %v", o)
			}
		}
		c.leaderAndIsr(partition(0, 1, 2, 2))
		call := <-h.calls
		if call.state.PartitionEpoch != 2 {
			t.Errorf("runs for %+v", call.state)
		}
		call.end <- nil
		c.expect(1, 2, applied)
	})
}

// TestHungHandler: one partition hangs; pings, other partitions and metadata go
// on, and the stream is answered in full for them.
func TestHungHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler()
		_, b, c := commanded(t, h, nil)
		c.ack(c.leaderAndIsr(partition(0, 1, 1)), admitted)
		<-h.calls
		for i := int32(1); i < 5; i++ {
			c.leaderAndIsr(partition(i, 1, 1))
			call := <-h.calls
			call.end <- nil
			o := c.outcome()
			if o.GetPartition() != i || o.GetResult() != applied {
				t.Errorf("outcome %v", o)
			}
			c.ping(int64(i))
		}
		c.ack(c.updateMetadata(&pb.LiveBrokers{Brokers: []*pb.LiveBroker{{Id: 1, BrokerEpoch: 10}}}), admitted)
		if u := <-h.metadata; len(u.Live) != 1 || len(b.Live()) != 1 {
			t.Errorf("metadata %+v", u)
		}
	})
}

// TestAllHandlersBegin: of one command, though none of them ends. Those that end
// are told while the others hang.
func TestAllHandlersBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler()
		_, _, c := commanded(t, h, nil)
		topic := &pb.TopicStates{TopicId: topicA[:], Topic: "a"}
		for i := range int32(50) {
			topic.Partitions = append(topic.Partitions, partition(i, 1, 1).GetPartitions()...)
		}
		c.ack(c.leaderAndIsr(topic), admitted)
		calls := map[int32]call{}
		for range 50 {
			call := <-h.calls
			calls[call.state.Partition.Index] = call
		}
		for _, i := range []int32{7, 49, 0} {
			calls[i].end <- nil
			if o := c.outcome(); o.GetPartition() != i || o.GetResult() != applied {
				t.Errorf("outcome %v of partition %d", o, i)
			}
		}
		c.silent()
	})
}

// TestToldBeforeTheNext: what a partition's handler has ended in is told though
// its next call hangs.
func TestToldBeforeTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler()
		h.adopted = make(chan PartitionState) // AdoptISR hangs until it is read
		_, _, c := commanded(t, h, nil)
		c.ack(c.leaderAndIsr(partition(0, 1, 1)), admitted)
		call := <-h.calls
		c.ack(c.leaderAndIsr(partition(0, 1, 2, 2)), admitted)
		call.end <- nil
		c.expect(1, 2, applied)
		<-h.adopted
	})
}

func TestMetadataCoalesces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := applies()
		h.gate = make(chan struct{}, 10)
		_, b, c := commanded(t, h, nil)
		c.ack(c.updateMetadata(nil, partition(0, 1, 1)), admitted)
		if u := <-h.metadata; u.Live != nil || len(u.Partitions) != 1 {
			t.Errorf("first update %+v", u)
		}
		// The handler is held; what arrives meanwhile is one update.
		live := &pb.LiveBrokers{Brokers: []*pb.LiveBroker{{Id: 2, BrokerEpoch: 22}, {Id: 1, BrokerEpoch: 10}}}
		c.ack(c.updateMetadata(live, partition(0, 1, 2)), admitted)
		c.ack(c.updateMetadata(nil, partition(1, 0, 0), partition(0, 2, 3), partition(0, 1, 9)), admitted)
		c.ping(1)
		close(h.gate)
		u := <-h.metadata
		if len(u.Live) != 2 || u.Live[0].ID != 1 || len(u.Partitions) != 2 ||
			u.Partitions[0].LeaderEpoch != 2 || u.Partitions[1].Partition != pid(1) {
			t.Errorf("second update %+v", u)
		}
		if s, ok := b.Metadata(pid(0)); !ok || s.PartitionEpoch != 3 {
			t.Errorf("metadata %+v", s)
		}
		synctest.Wait()
		if len(h.metadata) != 0 || len(b.Partitions()) != 0 {
			t.Error("more updates than changes, or metadata taken for hosting")
		}
	})
}

// TestUnknownKinds: what this version does not know must not look obeyed.
func TestUnknownKinds(t *testing.T) {
	for name, r := range map[string]*pb.CommandsRequest{
		"request": {},
		"command": {Request: &pb.CommandsRequest_Command{Command: &pb.Command{}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, _, c := commanded(t, applies(), nil)
				c.send(r)
				if m, err := c.stream.Recv(); status.Code(err) != codes.Unimplemented {
					t.Errorf("answered %v, error %v", m, err)
				}
			})
		})
	}
}

func TestBulk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, b, c := commanded(t, applies(), nil)
		const count = 5000
		topic := &pb.TopicStates{TopicId: topicA[:], Topic: "a"}
		for i := range int32(count) {
			topic.Partitions = append(topic.Partitions, partition(i, 1, 1).GetPartitions()...)
		}
		c.ack(c.leaderAndIsr(topic), admitted)
		done := map[int32]bool{}
		for len(done) < count {
			out := next(c, func(m *pb.CommandsResponse) ([]*pb.PartitionOutcome, bool) {
				return m.GetResults().GetOutcomes(), m.GetResults() != nil
			})
			if len(out) > maxOutcomes {
				t.Fatalf("%d outcomes in a message", len(out))
			}
			for _, o := range out {
				if o.GetResult() != applied || done[o.GetPartition()] {
					t.Fatalf("outcome %v", o)
				}
				done[o.GetPartition()] = true
			}
		}
		synctest.Wait()
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.workers) != 0 {
			t.Errorf("%d workers are left at rest", len(b.workers))
		}
	})
}

// TestDeafController: it sends and does not read. The broker stops reading
// instead of keeping answers without end, and nobody else is held up.
func TestDeafController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, b, deaf := commanded(t, applies(), nil)
		sent := make(chan int, 1)
		go func() {
			ping := &pb.CommandsRequest{Request: &pb.CommandsRequest_Ping{Ping: &pb.Ping{Sequence: 1 << 50}}}
			i := 0
			for deaf.stream.Send(ping) == nil {
				i++
			}
			sent <- i
		}()
		synctest.Wait() // everything is blocked
		if len(sent) > 0 {
			t.Fatalf("the stream ended after %d pings", <-sent)
		}
		other := n.controller("c2", 6)
		other.leaderAndIsr(partition(0, 1, 1))
		other.expect(1, 1, applied)
		b.Kill()
		if i := <-sent; i < maxAnswers {
			t.Errorf("only %d pings were taken", i)
		}
	})
}

func TestStreamsComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler()
		n, b, c := commanded(t, h, nil)
		c.ack(c.leaderAndIsr(partition(0, 1, 1)), admitted)
		call := <-h.calls
		for range 50 {
			again := n.controller("c1", 5)
			again.ack(again.leaderAndIsr(partition(0, 1, 1)), admitted)
			again.conn.Close()
			synctest.Wait()
		}
		b.mu.Lock()
		waiting := len(b.workers[pid(0)].waiting)
		b.mu.Unlock()
		if waiting > 2 {
			t.Errorf("%d streams wait, of which 1 is open", waiting)
		}
		call.end <- nil
		c.expect(1, 1, applied)
	})
}

func TestObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := make(chan Observation, 100)
		n, _, c := commanded(t, applies(), func(c *Config) {
			c.Observer = func(o Observation) { seen <- o }
		})
		c.leaderAndIsr(partition(3, 1, 2), partition(3, 1, 2), partition(3, 1, 3, 2))
		c.updateMetadata(&pb.LiveBrokers{Brokers: []*pb.LiveBroker{{Id: 1}}}, partition(3, 1, 2))
		c.to.Epoch = 9
		c.ack(c.leaderAndIsr(partition(3, 4, 4)), pb.Refusal_REFUSAL_STALE_BROKER_EPOCH)
		old := n.controller("c0", 4)
		old.ack(old.updateMetadata(nil), pb.Refusal_REFUSAL_STALE_CONTROLLER_EPOCH)
		close(seen)
		var got []string
		for o := range seen {
			if o.Time.IsZero() {
				t.Errorf("no time in %+v", o)
			}
			got = append(got, fmt.Sprint(o.Command, " ", o.Sender, " ", o.ControllerEpoch, " ", o.BrokerEpoch, " ", o.Topic, "/", o.Partition,
				" ", o.LeaderEpoch, "/", o.PartitionEpoch, " ", o.Result, " ", len(o.Live)))
		}
		want := []string{
			"LEADER_AND_ISR c1 5 10 a/3 1/2 ADMITTED 0",
			"LEADER_AND_ISR c1 5 10 a/3 1/2 ALREADY 0",
			"LEADER_AND_ISR c1 5 10 a/3 1/3 ISR_ADOPTED 0",
			"UPDATE_METADATA c1 5 10 /-1 0/0 ADMITTED 1",
			"LEADER_AND_ISR c1 5 9 /-1 0/0 STALE_BROKER_EPOCH 0",
			"UPDATE_METADATA c0 4 10 /-1 0/0 STALE_CONTROLLER_EPOCH 0",
		}
		if !slices.Equal(got, want) {
			t.Errorf("observed\n%q\nwant\n%q", got, want)
		}
	})
}

// TestFailureThatAStreamIsNotTold: a stream that did not name a state that fails
// may go on from a point after it: it ends, so that its controller says all again.
func TestFailureThatAStreamIsNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler()
		n, _, c := commanded(t, h, nil)
		c.leaderAndIsr(partition(0, 1, 1))
		call := <-h.calls
		other := n.controller("c2", 6)
		other.ping(1)
		call.end <- errors.New("not now")
		for _, err := other.stream.Recv(); ; _, err = other.stream.Recv() {
			if err == nil {
				continue
			}
			if status.Code(err) != codes.Aborted {
				t.Errorf("the stream ended with %v", err)
			}
			return
		}
	})
}

// TestReportState: a broker says what it remembers, of more than one kind, and
// obeys as before.
func TestReportState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, c := commanded(t, applies(), func(cfg *Config) {
			cfg.Found = []HeldReplica{{Topic: "a", Partition: pid(9), LeaderEpoch: 4}}
		})
		c.ack(c.leaderAndIsr(partition(0, 3, 7)), admitted)
		c.expect(3, 7, applied)
		many := partition(1, 2, 5)
		for i := range int32(2 * reportPart) {
			many.Partitions = append(many.Partitions, partition(10+i, 1, 1).Partitions...)
		}
		c.ack(c.updateMetadata(&pb.LiveBrokers{}, many), admitted)
		parts, err := pb.NewCommandServiceClient(c.conn).ReportState(t.Context(), &pb.ReportStateRequest{})
		if err != nil {
			t.Fatal(err)
		}
		first, err := parts.Recv()
		if id := first.GetIdentity(); err != nil || id.GetBrokerId() != 1 || id.GetBrokerEpoch() != 10 || id.GetControllerEpoch() != 5 || first.GetRevision() < 10 {
			t.Fatalf("%v, %v", first, err)
		}
		var got []PartitionState
		for err == nil {
			var part *pb.ReportStateResponse
			if part, err = parts.Recv(); err == nil {
				got = append(got, fencing.States(part.GetTopics())...)
			}
		}
		if !errors.Is(err, io.EOF) || len(got) != 3+2*reportPart {
			t.Fatalf("%d states, %v", len(got), err)
		}
		for _, want := range []struct {
			index  int
			le, pe int32
			isr    int
		}{{0, 3, 7, 1}, {1, 2, 5, 1}, {2, 4, 0, 0}, {3, 1, 1, 1}} {
			if s := got[want.index]; int32(s.LeaderEpoch) != want.le || int32(s.PartitionEpoch) != want.pe || len(s.ISR) != want.isr || s.Topic != "a" {
				t.Errorf("%d: %+v", want.index, s)
			}
		}
		c.silent()
	})
}
