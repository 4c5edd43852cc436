package dev

import (
	"bytes"
	"context"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store/etcdstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// transcript is what a run tells.
type transcript struct {
	mu  sync.Mutex
	buf bytes.Buffer
	on  func(line string) // called for each line
}

func (w *transcript) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.on != nil {
		w.on(string(p))
	}
	return w.buf.Write(p)
}

func (w *transcript) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}

// play runs a cluster to its end.
func play(ctx context.Context, t *testing.T, out *transcript, cfg Config) Report {
	t.Helper()
	cfg.Out = out
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(out.String())
		}
	})
	r, err := Run(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (w *transcript) mustTell(t *testing.T, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(w.String(), part) {
			t.Errorf("nothing is told of %q", part)
		}
	}
}

// TestSurvivesKills: two controllers and a broker are killed within 15 s, and
// in the end everything is as it should be.
func TestSurvivesKills(t *testing.T) {
	t.Parallel()
	out := &transcript{}
	r := play(t.Context(), t, out, Config{
		Controllers: 3, Brokers: 5, Topics: 4, Partitions: 12, ReplicationFactor: 3,
		For: 15 * time.Second, KillActiveEvery: 5 * time.Second, KillBrokerEvery: 7 * time.Second,
	})
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	if r.Epoch < 3 || r.Epoch != r.Terms[len(r.Terms)-1].Epoch {
		t.Errorf("epoch %d after terms %v", r.Epoch, r.Terms)
	}
	killed := 0
	for i, term := range r.Terms {
		if term.Cause == "killed" {
			killed++
		}
		if (term.TakeoverMs == nil) != (i == 0) {
			t.Errorf("term %d took over in %v", term.Epoch, term.TakeoverMs)
		}
	}
	if last := r.Terms[len(r.Terms)-1]; killed != 2 || last.Cause != "current" {
		t.Errorf("%d killed, the last is %s", killed, last.Cause)
	}
	if r.Brokers.Live != 5 || r.Partitions != (Partitions{Total: 48, Online: 48}) {
		t.Errorf("in the end: %+v, %+v", r.Brokers, r.Partitions)
	}
	if c := r.Commands; c.Applied == 0 || c.Sent < c.Applied+c.Already+c.RefusedStale {
		t.Errorf("commands: %+v", c)
	}
	out.mustTell(t, "killed, it was active in epoch 1", "took over in", " started again at ", " down\n", "leaders moved", "caught up")
}

// deafen loses every LeaderAndIsr to the broker that is dialed first.
func deafen() grpc.StreamClientInterceptor {
	var mu sync.Mutex
	var deaf string
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		s, err := streamer(ctx, desc, cc, method, opts...)
		mu.Lock()
		defer mu.Unlock()
		if deaf == "" {
			deaf = cc.Target()
		}
		if err != nil || deaf != cc.Target() {
			return s, err
		}
		return deafStream{s}, nil
	}
}

type deafStream struct{ grpc.ClientStream }

func (s deafStream) SendMsg(m any) error {
	if r, ok := m.(*pb.CommandsRequest); ok && r.GetCommand().GetLeaderAndIsr() != nil {
		return nil
	}
	return s.ClientStream.SendMsg(m)
}

// TestFindsDeafBroker: a broker that never hears of its partitions is found in
// the end, though kills leave no time to judge before.
func TestFindsDeafBroker(t *testing.T) {
	t.Parallel()
	r := play(t.Context(), t, &transcript{}, Config{
		Controllers: 2, Brokers: 3, Topics: 1, Partitions: 3, ReplicationFactor: 3,
		For: 7 * time.Second, KillActiveEvery: 2 * time.Second, Intercept: deafen(),
	})
	if len(r.Violations) == 0 || !strings.HasPrefix(r.Violations[0], "I5: broker does not agree with etcd") || r.Err() == nil {
		t.Errorf("violations %q, %v", r.Violations, r.Err())
	}
}

// TestGoesOn: a second run on the same data keeps the topics and raises the
// epoch; the brokers are the same nodes.
func TestGoesOn(t *testing.T) {
	t.Parallel()
	cfg := Config{
		DataDir: t.TempDir(), Controllers: 2, Brokers: 3, Topics: 2, Partitions: 3, ReplicationFactor: 3, For: time.Millisecond,
	}
	first := play(t.Context(), t, &transcript{}, cfg)
	cfg.Topics = 3
	out := &transcript{}
	second := play(t.Context(), t, out, cfg)
	if err := second.Err(); err != nil {
		t.Error(err)
	}
	if second.Epoch <= first.Epoch || len(second.Terms) != 1 || second.Terms[0].TakeoverMs != nil {
		t.Errorf("epoch %d, then %d with terms %v", first.Epoch, second.Epoch, second.Terms)
	}
	if first.Partitions.Online != 6 || second.Partitions.Online != 9 {
		t.Errorf("online: %d, then %d", first.Partitions.Online, second.Partitions.Online)
	}
	out.mustTell(t, cfg.DataDir, "going on after epoch 1 with 2 topics", "3 of 3 brokers live", "shipments-2: leader", "created")
}

// TestStopsInOrder: the end of the context brings a report and no error, and
// leaves nothing behind, also in the middle of the start.
func TestStopsInOrder(t *testing.T) {
	for _, last := range []string{"etcd at", "ready"} {
		t.Run(last, func(t *testing.T) {
			temp := t.TempDir()
			t.Setenv("TMPDIR", temp)
			ctx, cancel := context.WithCancel(t.Context())
			out := &transcript{on: func(line string) {
				if strings.Contains(line, last) {
					cancel()
				}
			}}
			r := play(ctx, t, out, Config{Controllers: 2, Brokers: 3, Topics: 1, Partitions: 1, ReplicationFactor: 3})
			if err := r.Err(); err != nil {
				t.Error(err)
			}
			if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

// TestEtcdAlone: it can be used while it runs, and is gone afterwards.
func TestEtcdAlone(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var at string
	err := RunEtcd(ctx, Config{}, func(address string) {
		at = address
		client, err := etcdstore.Dial(etcdstore.Config{Endpoints: []string{address}})
		if err != nil {
			t.Error(err)
			return
		}
		defer client.Close()
		if _, err := client.Put(ctx, "k", "v"); err != nil {
			t.Error(err)
		}
		cancel()
	})
	if err != nil {
		t.Fatal(err)
	}
	if c, err := net.Dial("tcp", at); err == nil {
		_ = c.Close()
		t.Error("etcd still answers")
	}
}

// TestEtcdListenTaken: what cannot run says why, and leaves nothing behind.
func TestEtcdListenTaken(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	l, err := net.Listen("tcp", loopback)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = Run(t.Context(), Config{EtcdListen: l.Addr().String(), Controllers: 1, Out: &transcript{}})
	if err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("started on a taken address: %v", err)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
