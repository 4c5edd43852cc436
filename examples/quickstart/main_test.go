package main

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/controllerd/controllerd/internal/etcdtest"
	"github.com/controllerd/controllerd/internal/localcluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

const asProgram = "TEST_AS_QUICKSTART"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestQuickstart runs the program, which the README shows, against a daemon:
// it leads what is created, and deletes what is deleted.
func TestQuickstart(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	etcd := etcdtest.Start(t)
	daemon, err := localcluster.StartDaemon(localcluster.DaemonConfig{
		ID: "a", Cluster: "test", EtcdEndpoints: []string{etcd.Endpoint()}, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer daemon.Kill()

	program := exec.CommandContext(ctx, os.Args[0], "-daemon", daemon.Endpoint)
	program.Env = append(os.Environ(), asProgram+"=1")
	out, err := program.StdoutPipe()
	if err == nil {
		err = program.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	said := bufio.NewScanner(out)
	expect := func(want string) {
		t.Helper()
		for said.Scan() {
			if said.Text() == want {
				return
			}
		}
		t.Fatalf("it did not say %q", want)
	}

	conn, err := grpc.NewClient(daemon.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	admin := pb.NewAdminServiceClient(conn)
	orders := &pb.NewTopic{Name: "orders", Assignments: []*pb.ReplicaAssignment{{Replicas: []int32{me}}}}
	untilDone(ctx, t, func() (string, error) { // the broker may not have registered yet
		resp, err := admin.CreateTopics(ctx, &pb.CreateTopicsRequest{Topics: []*pb.NewTopic{orders}})
		return refusal(resp.GetResults()), err
	})
	expect("leading orders-0 in leader epoch 0, in sync: [7]")
	untilDone(ctx, t, func() (string, error) {
		resp, err := admin.DeleteTopics(ctx, &pb.DeleteTopicsRequest{Topics: []*pb.TopicToDelete{{Name: "orders"}}})
		return refusal(resp.GetResults()), err
	})
	expect("stopping orders-0, delete: true")

	if err := program.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(out); err != nil || strings.Contains(string(rest), "panic") {
		t.Errorf("%v\n%s", err, rest)
	}
	if err := program.Wait(); err != nil {
		t.Error(err)
	}
}

// untilDone tries until there is no error, and no name of one.
func untilDone(ctx context.Context, t *testing.T, do func() (string, error)) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		refused, err := do()
		if err == nil && refused == "" {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal(refused, err)
		}
	}
}

func refusal[R interface{ GetError() string }](results []R) string {
	if len(results) == 0 {
		return "no answer"
	}
	return results[0].GetError()
}
