package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/internal/dev"
	"github.com/controllerd/controllerd/internal/unfenced"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
)

// straggler is a network that keeps a copy of the first LeaderAndIsr, and
// delivers it once more to the same broker when that has accepted a command of
// a later epoch.
type straggler struct {
	mu      sync.Mutex
	command *pb.CommandsRequest
	broker  string // address
	refusal chan pb.Refusal
}

func newStraggler() *straggler { return &straggler{refusal: make(chan pb.Refusal, 1)} }

func (n *straggler) intercept(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := streamer(ctx, desc, cc, method, opts...)
	return &stragglerStream{ClientStream: s, network: n, broker: cc.Target()}, err
}

type stragglerStream struct {
	grpc.ClientStream
	network *straggler
	broker  string

	mu    sync.Mutex
	epoch int64
}

func (s *stragglerStream) SendMsg(m any) error {
	if c := commandIn(m); c != nil {
		s.mu.Lock()
		s.epoch = c.GetStamp().GetControllerEpoch()
		s.mu.Unlock()
		s.network.keep(c, s.broker)
	}
	return s.ClientStream.SendMsg(m)
}

// commandIn is the command of a request, in either of the forms that a stream
// can send.
func commandIn(m any) *pb.Command {
	switch m := m.(type) {
	case *pb.CommandsRequest:
		return m.GetCommand()
	case rpc.Send:
		return m.Request.GetCommand()
	}
	return nil
}

func (s *stragglerStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err == nil && m.(*pb.CommandsResponse).GetAck() != nil {
		s.mu.Lock()
		epoch := s.epoch
		s.mu.Unlock()
		s.network.deliver(s.broker, epoch)
	}
	return err
}

func (n *straggler) keep(c *pb.Command, broker string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.command == nil && n.broker == "" && c.GetLeaderAndIsr() != nil {
		n.command, n.broker = &pb.CommandsRequest{Request: &pb.CommandsRequest_Command{Command: proto.CloneOf(c)}}, broker
	}
}

// deliver sends the copy if the broker has heard of a later epoch.
func (n *straggler) deliver(broker string, epoch int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.command == nil || n.broker != broker || epoch <= n.command.GetCommand().GetStamp().GetControllerEpoch() {
		return
	}
	command := n.command
	n.command = nil
	go func() { n.refusal <- send(broker, command) }()
}

// send sends one command on a stream of its own and returns the refusal.
func send(broker string, command *pb.CommandsRequest) pb.Refusal {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := grpc.NewClient(broker, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return -1
	}
	defer conn.Close()
	stream, err := pb.NewCommandServiceClient(conn).Commands(ctx)
	if err != nil || stream.Send(command) != nil {
		return -1
	}
	for {
		resp, err := stream.Recv()
		if err != nil {
			return -1
		}
		if ack := resp.GetAck(); ack != nil {
			return ack.GetRefusal()
		}
	}
}

// devRun runs dev with a straggler, kills the active once, and returns the
// report as JSON, what the straggler heard, and the exit code.
func devRun(t *testing.T, gate unfenced.Switch) (dev.Report, pb.Refusal, int) {
	t.Helper()
	network := newStraggler()
	var stdout, stderr strings.Builder
	cfg := devConfig{
		Config: dev.Config{
			Controllers: 2, Brokers: 3, Topics: 1, Partitions: 3, ReplicationFactor: 3,
			For: 7 * time.Second, KillActiveEvery: 2 * time.Second, Unfenced: gate, Intercept: network.intercept,
		},
		output: output{format: "json"},
	}
	code := exitCode(cfg.run(t.Context(), &stdout, &stderr))
	if t.Cleanup(func() { logIfFailed(t, &stderr) }); code == exitUsage {
		t.Fatal("the flags are wrong")
	}
	var r dev.Report
	if err := json.Unmarshal([]byte(stdout.String()), &r); err != nil {
		t.Fatalf("the report is no JSON: %v\n%s", err, stdout.String())
	}
	select {
	case refusal := <-network.refusal:
		return r, refusal, code
	default:
		t.Fatal("the old command was not delivered")
		return r, 0, code
	}
}

func logIfFailed(t *testing.T, out *strings.Builder) {
	if t.Failed() {
		t.Log(out.String())
	}
}

// TestDevGate: a command of a killed controller that arrives late is refused,
// and without the gate dev notices.
func TestDevGate(t *testing.T) {
	t.Run("there", func(t *testing.T) {
		t.Parallel()
		r, refusal, code := devRun(t, unfenced.Switch{})
		if refusal != pb.Refusal_REFUSAL_STALE_CONTROLLER_EPOCH || r.Commands.RefusedStale != 1 {
			t.Errorf("the broker said %v, %d were refused", refusal, r.Commands.RefusedStale)
		}
		if code != exitOK || len(r.Violations) > 0 {
			t.Errorf("exit code %d, violations %q", code, r.Violations)
		}
	})
	t.Run("taken out", func(t *testing.T) {
		t.Parallel()
		r, refusal, code := devRun(t, unfenced.Open())
		if refusal != pb.Refusal_REFUSAL_UNSPECIFIED {
			t.Errorf("the broker said %v", refusal)
		}
		if code != exitFailed || len(r.Violations) == 0 || !strings.HasPrefix(r.Violations[0], "I3") {
			t.Errorf("exit code %d, violations %q", code, r.Violations)
		}
	})
}

// TestDevUsage: what makes no sense is said before anything starts.
func TestDevUsage(t *testing.T) {
	for args, want := range map[string][]string{
		"--brokers -1":                      {"--brokers is -1"},
		"--controllers=-1 --partitions=-3":  {"--controllers is -1", "--partitions is -3"},
		"--replication-factor 6":            {"--replication-factor 6 needs as many brokers"},
		"--for 3s --kill-active-every 5s":   {"--for 3s leaves no time for --kill-active-every 5s"},
		"--for 30s --kill-broker-every 26s": {"--for 30s leaves no time for --kill-broker-every 26s"},
		"--for never":                       {"invalid argument \"never\""},
		"--lease-ttl 1s":                    {"--lease-ttl is 1s"},
		"--cluster A":                       {`cluster name "A"`},
		"--etcd-listen nonsense":            {`--etcd-listen "nonsense" is not host:port`},
		"--etcd-listen 127.0.0.1:70000":     {"is not host:port"},
		"--session-ttl 0s":                  {"--session-ttl is 0"},
		"--partitions 100001":               {"exceed --max-partitions-per-topic 100000", "exceed --max-partitions-per-request 200000"},
		"--max-partitions 10":               {"--topics 4 of --partitions 12 exceed --max-partitions 10"},
		"--max-partitions-per-request -1":   {"limit of partitions of a request is -1"},
		"--seed -1":                         {`invalid argument "-1" for "--seed"`},
		"-o xml":                            {"want one of table, json, yaml"},
		"--no-such-flag":                    {"unknown flag: --no-such-flag"},
		"now":                               {`unexpected argument "now"`},
	} {
		t.Run(args, func(t *testing.T) {
			var stdout, stderr strings.Builder
			code := run(t.Context(), append([]string{"dev"}, strings.Fields(args)...), &stdout, &stderr)
			if code != exitUsage || stdout.Len() > 0 {
				t.Errorf("exit code %d, stdout %q", code, stdout.String())
			}
			for _, part := range want {
				if !strings.Contains(stderr.String(), part) {
					t.Errorf("stderr is %q, want %q", stderr.String(), part)
				}
			}
		})
	}
}

// TestDevLimits: the limits of dev are those of its daemons.
// startDev runs dev in this process until the test ends, and returns the
// address of its first daemon once all is up.
func startDev(t *testing.T, flags string) (address string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, strings.Fields("dev "+flags), io.Discard, in)
		_ = in.Close()
	}()
	t.Cleanup(func() {
		cancel()
		if c := <-code; c != exitOK {
			t.Errorf("exit code %d", c)
		}
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(lines.Text(), "ready after") {
		if _, at, ok := strings.Cut(lines.Text(), "controller c1 at "); ok {
			address = at
		}
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return address
}

func TestDevLimits(t *testing.T) {
	address := startDev(t, "--controllers 1 --brokers 1 --topics 0 --max-partitions-per-topic 5 --max-partitions-per-request 7 --max-partitions 9")
	for _, tt := range []struct {
		names, partitions, refusal string
	}{
		{"a", "6", "POLICY_VIOLATION: 6 partitions, the limit of a topic is 5"},
		{"a b", "4", "POLICY_VIOLATION: the request asks for 8 partitions, the limit is 7"},
		{"a", "5", ""},
		{"b", "5", "POLICY_VIOLATION: the cluster has 5 partitions, with 5 more it would exceed its limit of 9"},
	} {
		r := cli(append(strings.Fields("topic create "+tt.names), "--partitions", tt.partitions, "--replication-factor", "1", "--server", address)...)
		if tt.refusal == "" {
			r.want(t, exitOK)
		} else if r.want(t, exitFailed); !strings.HasPrefix(r.stderr, "Error: "+tt.refusal+"\n") {
			t.Errorf("%s: %s, want %s", tt.names, r.stderr, tt.refusal)
		}
	}
}

// TestDevEtcdAlone: stdout has the address and nothing else.
func TestDevEtcdAlone(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	out, in := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, strings.Fields("dev --controllers 0 --brokers 0"), in, io.Discard)
		_ = in.Close()
	}()
	line := make([]byte, 100)
	n, err := out.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(line[:n]); !strings.HasPrefix(got, "127.0.0.1:") || !strings.HasSuffix(got, "\n") {
		t.Errorf("stdout is %q", got)
	}
	cancel()
	rest, err := io.ReadAll(out)
	if c := <-code; c != exitOK || len(rest) > 0 || err != nil {
		t.Errorf("exit code %d, then %q, %v", c, rest, err)
	}
}

// TestDevSummary: people get a table, and few brokers get few replicas.
func TestDevSummary(t *testing.T) {
	var stdout, stderr strings.Builder
	if code := run(t.Context(), strings.Fields("dev --brokers 2 --controllers 1 --for 1ms"), &stdout, &stderr); code != exitOK {
		t.Fatalf("exit code %d: %s", code, stderr.String())
	}
	for _, part := range []string{"EPOCH  CONTROLLER  END", "1      c1          current  -", "48 online, 0 offline", "I1 to I6 held"} {
		if !strings.Contains(stdout.String(), part) {
			t.Errorf("the summary lacks %q:\n%s", part, stdout.String())
		}
	}
}
