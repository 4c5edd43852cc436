package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBadUsage(t *testing.T) {
	for args, want := range map[string]string{
		"":                                                              "--id is required",
		"--id 1":                                                        "--daemons is required",
		"--id x --daemons d:1":                                          "invalid value \"x\"",
		"--id 3000000000 --daemons d:1":                                 "out of range, want 0 to 2147483647",
		"--id -1 --daemons d:1":                                         "out of range",
		"--id 1 --daemons d:1,e":                                        "--daemons: \"e\" is no address, want host:port",
		"--id 1 --daemons :1":                                           "want host:port",
		"--id 1 --daemons d:0":                                          "want host:port",
		"--id 1 --daemons d:70000":                                      "want host:port",
		"--id 1 --daemons d:1 --delay t/0=-1s":                          "-1s is negative",
		"--id 1 --daemons ,":                                            "--daemons is required",
		"--id 1 --daemons d:1 y":                                        "unexpected argument \"y\"",
		"--id 1 --daemons d:1 --delay t/0":                              "want topic/partition=duration",
		"--id 1 --daemons d:1 --delay t/0=x":                            "invalid duration",
		"--id 1 --daemons d:1 --delay t=1s":                             "want topic/partition",
		"--id 1 --daemons d:1 --hang t/-1":                              "want topic/partition",
		"--id 1 --daemons d:1 --fail a*b/1":                             "topic name",
		"--id 1 --daemons d:1 --session-ttl 0s":                         "--session-ttl is 0s, want 4s to 1m0s",
		"--id 1 --daemons d:1 --session-ttl 61s":                        "--session-ttl is 1m1s, want 4s to 1m0s",
		"--id 1 --daemons d:1 --listen nonsense":                        "--listen: \"nonsense\" is no address",
		"--id 1 --daemons d:1 --data-listen x":                          "--data-listen: \"x\" is no address",
		"--id 1 --daemons d:1 --metrics-listen x":                       "--metrics-listen: \"x\" is no address",
		"--id 1 --daemons d:1 --advertise h:0":                          "--advertise: \"h:0\" is no address",
		"--id 1 --daemons d:1 --data-advertise h":                       "--data-advertise: \"h\" is no address",
		"--id 1 --daemons d:1 --rack \xff":                              "--rack \"\\xff\" is not UTF-8",
		"--id 1 --daemons d:1 --node-uuid " + strings.Repeat("x", 1025): "--node-uuid has 1025 bytes, want at most 1024",
		"--id 1 --daemons d:1 --data-handlers 0":                        "--data-handlers is 0, want 1 to 10000",
		"--id 1 --daemons d:1 --data-handlers 99999999":                 "--data-handlers is 99999999, want 1 to 10000",
		"--id 1 --daemons d:1 --data-queue 99999999":                    "--data-queue is 99999999, want 1 to 1000000",
		"--id 1 --daemons d:1 --data-delay -1s":                         "--data-delay is -1s, want 0 or more",
		"--id 1 --daemons d:1 --caught-up-after 0s":                     "--caught-up-after is 0s, want more than 0",
		"--unknown": "not defined: -unknown",
	} {
		var stderr bytes.Buffer
		if code := run(t.Context(), strings.Fields(args), io.Discard, &stderr); code != 2 || !strings.Contains(stderr.String(), want) {
			t.Errorf("%q: exit code %d and\n%swant a mention of %q", args, code, stderr.String(), want)
		}
	}
	for args, want := range map[string]string{ // what only the system can tell
		"--id 1 --daemons d:1 --log /nowhere/x":             "open log of commands",
		"--id 1 --daemons d:1 --listen 192.0.2.1:1":         "listen for commands",
		"--id 1 --daemons d:1 --data-listen 192.0.2.1:1":    "listen for data",
		"--id 1 --daemons d:1 --metrics-listen 192.0.2.1:1": "listen for metrics",
	} {
		var stderr bytes.Buffer
		if code := run(t.Context(), strings.Fields(args), io.Discard, &stderr); code != 1 || !strings.Contains(stderr.String(), want) {
			t.Errorf("%q: exit code %d and\n%swant a mention of %q", args, code, stderr.String(), want)
		}
	}
	var stderr bytes.Buffer
	if code := run(t.Context(), []string{"-h"}, io.Discard, &stderr); code != 0 || !strings.Contains(stderr.String(), "-caught-up-after") {
		t.Errorf("-h: exit code %d and\n%s", code, stderr.String())
	}
}

func TestNodeUUID(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	of := func(args ...string) string {
		t.Helper()
		o, err := parse(append(args, "--daemons", "d:1"), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		id, err := o.nodeUUID()
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	if got := of("--id", "1", "--node-uuid", "mine", "--data-dir", dir); got != "mine" {
		t.Errorf("told mine, got %s", got)
	}
	kept := of("--id", "1", "--data-dir", dir)
	if again := of("--id", "1", "--data-dir", dir); kept == "" || again != kept {
		t.Errorf("kept %q, then %q", kept, again)
	}
	derived := of("--id", "1")
	if derived == kept || derived != of("--id", "1") || derived == of("--id", "2") {
		t.Errorf("derived %s", derived)
	}
	o, err := parse([]string{"--id", "1", "--daemons", "d:1", "--data-dir", os.DevNull}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.nodeUUID(); err == nil {
		t.Error("kept the uuid in a file that is no directory")
	}
}

// daemon tells where the broker is reached.
type daemon struct {
	pb.UnimplementedBrokerServiceServer
	control      chan string
	unregistered chan struct{}
}

func (d *daemon) Register(_ context.Context, r *pb.RegisterRequest) (*pb.RegisterResponse, error) {
	d.control <- r.GetControlAddress()
	return &pb.RegisterResponse{ClusterUuid: "c", BrokerEpoch: 10, ControllerEpoch: 3}, nil
}

func (d *daemon) Unregister(context.Context, *pb.UnregisterRequest) (*pb.UnregisterResponse, error) {
	close(d.unregistered)
	return &pb.UnregisterResponse{}, nil
}

// TestRun is a whole life: register, obey and refuse, delay, hang and fail,
// leave in order.
func TestRun(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	d := &daemon{control: make(chan string, 1), unregistered: make(chan struct{})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterBrokerServiceServer(server, d)
	go server.Serve(l)
	defer server.Stop()

	out, stdout := io.Pipe()
	ended := make(chan int, 1)
	args := strings.Fields("--id 1 --daemons " + l.Addr().String() + " --delay a/0=1ms --hang a/1 --fail a/2 --metrics-listen 127.0.0.1:0")
	var stderr buffer
	go func() { ended <- run(ctx, args, stdout, &stderr) }()

	conn, err := grpc.NewClient(<-d.control, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := pb.NewCommandServiceClient(conn).Commands(ctx)
	if err != nil {
		t.Fatal(err)
	}
	send := func(ce, be int64, partitions ...int32) {
		t.Helper()
		states := &pb.TopicStates{Topic: "a", TopicId: make([]byte, 16)}
		for _, p := range partitions {
			states.Partitions = append(states.Partitions, &pb.PartitionState{Partition: p, LeaderEpoch: 4, PartitionEpoch: 5, Leader: 1, Isr: []int32{1}, Replicas: []int32{1}})
		}
		cmd := &pb.Command{
			Stamp: &pb.Stamp{ClusterUuid: "c", ControllerId: "c1", ControllerEpoch: ce, BrokerId: 1, BrokerEpoch: be},
			Body:  &pb.Command_LeaderAndIsr{LeaderAndIsr: &pb.LeaderAndIsr{Topics: []*pb.TopicStates{states}}},
		}
		if err := stream.Send(&pb.CommandsRequest{Request: &pb.CommandsRequest_Command{Command: cmd}}); err != nil {
			t.Fatal(err)
		}
	}
	// The epoch of the registration may not be known yet: try until it is.
	lines := bufio.NewScanner(out)
	read := func() line {
		t.Helper()
		if !lines.Scan() {
			t.Fatalf("no more lines: %v", lines.Err())
		}
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		if age := time.Since(l.Time); age < 0 || age > time.Minute {
			t.Errorf("time of %s", lines.Text())
		}
		l.Time = time.Time{}
		return l
	}
	base := line{Command: "LEADER_AND_ISR", Sender: "c1", CE: 3, BE: 10}
	unknown := base
	unknown.Partition, unknown.Result = -1, "UNAVAILABLE"
	send(3, 10, 0, 1, 2)
	got := read()
	for ; got.Result == unknown.Result; got = read() {
		send(3, 10, 0, 1, 2)
	}
	for p := range int32(3) {
		want := base
		want.Topic, want.TopicID, want.Partition, want.LE, want.PE, want.Result = "a", cluster.TopicID{}.String(), p, 4, 5, "ADMITTED"
		if !equal(got, want) {
			t.Errorf("line %+v, want %+v", got, want)
		}
		if p < 2 {
			got = read()
		}
	}
	send(2, 10, 0)
	stale := base
	stale.CE, stale.Partition, stale.Result = 2, -1, "STALE_CONTROLLER_EPOCH"
	if got := read(); !equal(got, stale) {
		t.Errorf("line %+v, want %+v", got, stale)
	}
	results := map[int32]pb.PartitionResult{}
	for len(results) < 2 {
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range m.GetResults().GetOutcomes() {
			results[o.GetPartition()] = o.GetResult()
		}
	}
	if results[0] != pb.PartitionResult_PARTITION_RESULT_APPLIED || results[2] != pb.PartitionResult_PARTITION_RESULT_FAILED {
		t.Errorf("results %v", results)
	}
	wantsMetrics(t, stderr.String())
	cancel()
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d", code)
	}
	<-d.unregistered
}

// buffer is what a broker logs.
type buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// wantsMetrics scrapes the broker of TestRun, which has logged where, after a
// request of a client.
func wantsMetrics(t *testing.T, log string) {
	t.Helper()
	at := regexp.MustCompile(` data=(\S+) metrics=(\S+) `).FindStringSubmatch(log)
	if at == nil {
		t.Fatalf("no addresses in %s", log)
	}
	conn, err := net.Dial("tcp", at[1])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("\x00\x00\x00\x05hello")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 9)); err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + at[2] + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"registered 1", "epoch 10", "controller_epoch 3", "leaders 3", "streams 1", "messages_total 1", "message_bytes_total 5",
		`commands_refused_total{reason="stale_controller_epoch"} 1`, `decisions_total{decision="admitted"} 3`, `handler_failures_total{kind="other"} 1`,
	} {
		if !strings.Contains(string(body), "\ncontrollerd_broker_"+want+"\n") {
			t.Errorf("the metrics do not say %q:\n%s", want, body)
		}
	}
}

func equal(a, b line) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestBrokenLog(t *testing.T) {
	r := newRecorder(brokenWriter{})
	r.observe(broker.Observation{})
	if err := r.close(); err == nil {
		t.Error("lost lines without a word")
	}
}
