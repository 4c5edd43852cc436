package broker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/fencing"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestValidate(t *testing.T) {
	good := Config{ID: 0, NodeUUID: "n", Daemons: []string{"d"}, Handler: applies()}
	if err := good.withDefaults().Validate(); err != nil {
		t.Error(err)
	}
	bad := Config{ID: -1, Daemons: []string{"d", ""}, Endpoints: []Endpoint{{Listener: "x"}, {Listener: "\xff", Address: "a"}}, Rack: "\xff", SessionTTL: -1}
	err := bad.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, word := range []string{"ID", "NodeUUID", "Daemons[1]", "Endpoints[0]", "Endpoints[1]", "Rack", "SessionTTL", "Handler"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error does not mention %s: %v", word, err)
		}
	}
	if err := Run(t.Context(), bad); err == nil {
		t.Error("ran with a bad config")
	}
}

func TestStartErrors(t *testing.T) {
	cfg := Config{NodeUUID: "n", Daemons: []string{"127.0.0.1:1"}, Handler: applies(), ControlListen: "0.0.0.0:0"}
	if _, err := Start(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "AdvertiseControl") {
		t.Errorf("listening everywhere: %v", err)
	}
	cfg.ControlListen = "nonsense"
	if _, err := Start(t.Context(), cfg); err == nil {
		t.Error("listened on nonsense")
	}
}

// TestRealListener: the default is an address that can be dialled, and a
// listener that fails ends the broker.
func TestRealListener(t *testing.T) {
	cfg := Config{NodeUUID: "n", Daemons: []string{"127.0.0.1:1"}, Handler: applies()}
	b, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", b.ControlAddress())
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	b.Kill()
	if err := b.Wait(); !errors.Is(err, ErrKilled) {
		t.Error(err)
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if b, err = StartOn(t.Context(), l, cfg); err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := b.Wait(); !errors.Is(err, errServe) {
		t.Errorf("the listener failed, the broker ended with %v", err)
	}
}

func TestRunEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b, err := StartOn(ctx, newNetwork(t).listen("b1"), Config{NodeUUID: "n", Daemons: []string{"127.0.0.1:1"}, Handler: applies()})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Wait(); err != nil {
		t.Error(err)
	}
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		err   error
		phase phase
		want  advice
		fatal error
	}{
		{nil, joining, goOn, nil},
		{status.Error(codes.Unavailable, ""), joining, tryAgain, nil},
		{context.DeadlineExceeded, renewing, tryAgain, nil},
		{status.Error(codes.InvalidArgument, ""), joining, giveUp, ErrRejected},
		{status.Error(codes.InvalidArgument, ""), rejoining, tryAgain, nil},
		{status.Error(codes.InvalidArgument, ""), renewing, tryAgain, nil},
		{reasoned(cluster.StaleBrokerEpoch), renewing, reregister, nil},
		{reasoned(cluster.StaleBrokerEpoch), rejoining, tryAgain, nil},
		{reasoned(cluster.NotController), renewing, tryAgain, nil},
		{reasoned(cluster.InconsistentClusterID), renewing, tryAgain, nil},
		{reasoned(cluster.Replaced), renewing, giveUp, ErrReplaced},
		{reasoned(cluster.DuplicateBrokerRegistration), rejoining, giveUp, ErrDuplicate},
	} {
		for _, err := range []error{c.err, wrap(c.err)} {
			got, fatal := judge(err, c.phase)
			if got != c.want || !errors.Is(fatal, c.fatal) {
				t.Errorf("%v while we %s: advice %d, %v; want %d, %v", err, c.phase, got, fatal, c.want, c.fatal)
			}
		}
	}
	if r := ReasonOf(errors.New("x")); r != "" {
		t.Errorf("reason %q out of nothing", r)
	}
}

func wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("daemon d1: %w", err)
}

func TestDaemons(t *testing.T) {
	d := newDaemons([]string{"a", "b", "c"}, rand.New(rand.NewPCG(1, 2)))
	seen := map[string]bool{}
	for range 3 {
		asked := d.current()
		seen[asked] = true
		d.failed("somebody else")
		if d.current() != asked {
			t.Fatal("the failure of another moved the one that is asked")
		}
		d.failed(asked)
	}
	if len(seen) != 3 {
		t.Errorf("three failures led to %v only", seen)
	}
	asked := d.current()
	d.learn([]string{"d", "", "a"})
	if d.current() != asked || len(d.order) != 4 || !d.knows("d") || d.knows("") {
		t.Errorf("order %v, asked before: %s", d.order, asked)
	}
	d.failed(asked)
	d.failed(d.current())
	d.learn(nil)
	slices.Sort(d.order)
	if !slices.Equal(d.order, []string{"a", "b", "c"}) {
		t.Errorf("what is configured is %v", d.order)
	}
}

func TestBackoff(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n, top := range []time.Duration{100, 200, 400, 800, 1600, 2000, 2000} {
		top *= time.Millisecond
		for range 100 {
			if d := backoff(n, rng); d < top/2 || d > top {
				t.Fatalf("after failure %d: %v, want %v to %v", n, d, top/2, top)
			}
		}
	}
	if d := backoff(1<<30, rng); d > maxBackoff || d < maxBackoff/2 {
		t.Errorf("after very many failures: %v", d)
	}
}

func TestOutboxKeepsNewest(t *testing.T) {
	woken := 0
	o := &outbox{wake: func() { woken++ }}
	say := func(le, pe int, r pb.PartitionResult) {
		o.result(&PartitionState{Partition: pid(0), LeaderEpoch: cluster.LeaderEpoch(le), PartitionEpoch: cluster.PartitionEpoch(pe)}, r, "")
	}
	say(1, 1, failed)
	say(1, 1, applied)
	say(2, 1, failed)
	say(1, 9, already)
	o.ack(7, &fencing.Verdict{ControllerEpoch: 5})
	o.pong(&pb.Pong{Sequence: 3})
	out := o.take()
	if len(out) != 3 || out[0].GetPong().GetSequence() != 3 || out[1].GetAck().GetSequence() != 7 {
		t.Fatalf("takes %v", out)
	}
	results := out[2].GetResults().GetOutcomes()
	if len(results) != 1 || results[0].GetLeaderEpoch() != 2 || results[0].GetResult() != failed {
		t.Errorf("results %v", results)
	}
	if woken != 2 || len(o.take()) != 0 { // results wait for the workers
		t.Errorf("woken %d times, still holds %v", woken, o.take())
	}
	o.closed = true
	say(3, 3, applied)
	if len(o.take()) != 0 {
		t.Error("keeps a result for nobody")
	}
	o.closed = false
	o.result(&PartitionState{}, failed, strings.Repeat("long ", 1000))
	if m := o.take()[0].GetResults().GetOutcomes()[0].GetMessage(); len(m) > maxMessage {
		t.Errorf("message of %d bytes", len(m))
	}
}

// TestLongReport: what a stream has to say of very many replicas goes in pieces.
func TestLongReport(t *testing.T) {
	o := &outbox{wake: func() {}}
	var gone, back []HeldReplica
	for i := range int32(2*maxOutcomes + 1) {
		gone = append(gone, HeldReplica{Topic: "a", Partition: pid(i), LeaderEpoch: 3})
	}
	back = append(back, HeldReplica{Topic: "a", Partition: pid(99_999), LeaderEpoch: 3})
	o.tell(&o.report.offline, true, gone)
	o.tell(&o.report.offline, false, back)
	var offline, restored []HeldReplica
	pieces := o.take()
	for _, p := range pieces {
		now := fencing.HeldReplicas(p.GetReport().GetOffline())
		if len(now) > maxOutcomes {
			t.Errorf("%d in a piece", len(now))
		}
		offline, restored = append(offline, now...), append(restored, fencing.HeldReplicas(p.GetReport().GetRestored())...)
	}
	if len(pieces) != 3 || !slices.Equal(offline, gone) || !slices.Equal(restored, back) {
		t.Errorf("%d pieces, %d offline, restored %v", len(pieces), len(offline), restored)
	}
	if o.take() != nil {
		t.Error("it says so again")
	}
}
