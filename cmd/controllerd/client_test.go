package main

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/internal/localcluster"
	"github.com/controllerd/controllerd/rpc"
)

// deaf is an address that nobody listens on.
func deaf(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// listening is an address whose connections get what serve does with them.
func listening(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	return l.Addr().String()
}

func silent(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

func rude(conn net.Conn) {
	_, _ = conn.Write([]byte("220 mail.example.org ready\r\n"))
	_ = conn.Close()
}

func TestNoServer(t *testing.T) {
	away, quiet, mail := deaf(t), listening(t, silent), listening(t, rude)
	for _, tt := range []struct {
		servers []string
		want    []string
	}{
		{[]string{away}, []string{"cannot reach " + away + ": connection refused"}},
		{[]string{away, away}, []string{"cannot reach " + away + ": connection refused", "cannot reach " + away + ": connection refused"}},
		{[]string{mail}, []string{"cannot reach " + mail + ": it does not speak gRPC"}},
		{[]string{quiet, away}, []string{"cannot reach " + quiet + ": no answer in time", "cannot reach " + away + ": connection refused"}},
	} {
		start := time.Now()
		r := cli("topic", "list", "--timeout", "1s", "--server", strings.Join(tt.servers, ",")).want(t, exitAway)
		if want := "Error: " + strings.Join(tt.want, "\nError: ") + "\n"; r.stderr != want || r.stdout != "" {
			t.Errorf("stderr: %s\nwant:   %s\nstdout: %s", r.stderr, want, r.stdout)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%v took %v", tt.servers, took)
		}
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	quiet := listening(t, func(conn net.Conn) {
		cancel()
		silent(conn)
	})
	var stdout, stderr strings.Builder
	code := run(ctx, []string{"topic", "list", "--server", quiet}, &stdout, &stderr)
	if code != exitFailed || stderr.String() != "Error: interrupted\n" {
		t.Errorf("exit code %d, stderr %s", code, stderr.String())
	}
}

// TestElsewhere: what may have been done already is not asked for again, unless
// that does no harm.
func TestElsewhere(t *testing.T) {
	said := func(err error) error { return refusal{"127.0.0.1:1", status.Convert(err)} }
	for _, tt := range []struct {
		err              error
		once, repeatable bool
	}{
		{unreachable{"127.0.0.1:1", io.EOF}, true, true},
		{said(rpc.Error(cluster.NotController, nil, "no controller is active")), true, true},
		{said(status.Error(codes.Unavailable, "connection reset by peer")), false, true},
		{said(rpc.Error(cluster.TopicAlreadyExists, nil, "topic exists")), false, false},
		{said(status.Error(codes.DeadlineExceeded, "too late")), false, false},
	} {
		if a, b := elsewhere(tt.err, once), elsewhere(tt.err, repeatable); a != tt.once || b != tt.repeatable {
			t.Errorf("%v: once %t, repeatable %t", tt.err, a, b)
		}
	}
}

// TestNextServer: a daemon that is away or cannot answer is passed over, but
// what a daemon says counts.
func TestNextServer(t *testing.T) {
	w := newWorld(t, 2, 1)
	active, standby := w.roles()
	blind, err := localcluster.StartDaemon(localcluster.DaemonConfig{
		ID: "blind", Cluster: "test", EtcdEndpoints: []string{deaf(t)}, Logger: quietly,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(blind.Kill)
	through := func(servers ...string) string { return "--server=" + strings.Join(servers, ",") }

	for _, first := range []string{deaf(t), listening(t, rude), blind.Endpoint} {
		cli("topic", "list", through(first, standby.Endpoint)).want(t, exitOK)
		cli("controller", "resign", "--reason", "test", through(first, active.Endpoint)).want(t, exitOK)
		active, standby = w.roles()
	}
	r := cli("topic", "describe", "x", through(deaf(t), standby.Endpoint, active.Endpoint)).want(t, exitFailed)
	if r.stderr != `Error: UNKNOWN_TOPIC_OR_PARTITION: topic "x" does not exist`+"\n" {
		t.Error(r.stderr)
	}
	t.Setenv(serverEnv, strings.Join([]string{deaf(t), standby.Endpoint}, ","))
	cli("topic", "create", "x", "--partitions", "1", "--replication-factor", "1").want(t, exitOK)

	t.Run("a daemon that has read nothing", func(t *testing.T) {
		for _, args := range []string{"topic list", "topic describe x", "broker list", "controller list", "controller history"} {
			r := cli(append(strings.Fields(args), through(blind.Endpoint))...).want(t, exitAway)
			if r.stderr != "Error: NOT_CONTROLLER: this daemon has read nothing from etcd yet\n" {
				t.Errorf("%s: %s", args, r.stderr)
			}
		}
		r := cli("topic", "create", "y", "--partitions", "1", "--replication-factor", "1", "--timeout", "300ms", through(blind.Endpoint)).want(t, exitAway)
		if r.stderr != "Error: NOT_CONTROLLER: no controller is active\n" {
			t.Error(r.stderr)
		}
		v := decode[statusView](t, cli("controller", "status", "-o", "json", through(blind.Endpoint)))
		if v.Role != "standby" || v.ControllerID != "" || len(v.Problems) != 1 {
			t.Errorf("%+v", v)
		}
	})
}

// TestAskedDuringAnElection: a creation and a deletion wait until somebody is
// active.
func TestAskedDuringAnElection(t *testing.T) {
	w := newWorld(t, 1, 1)
	client, key := w.etcd.Client(t), cluster.KeysOf("test").Controller()
	for _, args := range []string{"create x --partitions 1 --replication-factor 1", "delete x --yes"} {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		lease, err := client.Grant(ctx, 60)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Put(ctx, key, "somebody else", clientv3.WithLease(lease.ID)); err != nil {
			t.Fatal(err)
		}
		w.await(w.daemons[0], "the seat is lost", func(v rpc.View) bool { return !v.Active })
		args := append([]string{"topic"}, strings.Fields(args)...)
		if r := w.cli(append(args, "--timeout", "1s")...).want(t, exitAway); !strings.HasPrefix(r.stderr, "Error: NOT_CONTROLLER: ") {
			t.Errorf("%v says %s", args, r.stderr)
		}
		done := make(chan result)
		go func() { done <- w.cli(args...) }()
		if _, err := client.Revoke(ctx, lease.ID); err != nil {
			t.Fatal(err)
		}
		(<-done).want(t, exitOK)
		cancel()
	}
}

func TestHealth(t *testing.T) {
	w := newWorld(t, 2, 0)
	check := func(d *localcluster.Daemon, service string) healthpb.HealthCheckResponse_ServingStatus {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		r, err := healthpb.NewHealthClient(dial(t, d.Endpoint)).Check(ctx, &healthpb.HealthCheckRequest{Service: service})
		if err != nil {
			t.Fatal(err)
		}
		return r.GetStatus()
	}
	seen := func() bool {
		active, standby := w.roles()
		const yes, no = healthpb.HealthCheckResponse_SERVING, healthpb.HealthCheckResponse_NOT_SERVING
		for _, service := range []string{"", "controllerd.v1.AdminService", "controllerd.v1.BrokerService"} {
			if check(active, service) != yes || check(standby, service) != yes {
				return false
			}
		}
		return check(active, "controllerd.active") == yes && check(standby, "controllerd.active") == no
	}
	eventually(t, "health says who is active", seen)
	w.cli("controller", "resign").want(t, exitOK)
	eventually(t, "health says who is active now", seen)
	w.etcd.Stop()
	eventually(t, "nobody is active without etcd", func() bool {
		return check(w.daemons[0], "controllerd.active") == healthpb.HealthCheckResponse_NOT_SERVING &&
			check(w.daemons[1], "controllerd.active") == healthpb.HealthCheckResponse_NOT_SERVING
	})
}

func TestReflection(t *testing.T) {
	w := newWorld(t, 1, 0)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stream, err := reflectionpb.NewServerReflectionClient(dial(t, w.daemons[0].Endpoint)).ServerReflectionInfo(ctx, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	ask := &reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}
	if err := stream.Send(ask); err != nil {
		t.Fatal(err)
	}
	resp, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, s := range resp.GetListServicesResponse().GetService() {
		found[s.GetName()] = true
	}
	for _, want := range []string{"controllerd.v1.AdminService", "controllerd.v1.BrokerService", "grpc.health.v1.Health"} {
		if !found[want] {
			t.Errorf("%s is not listed in %v", want, found)
		}
	}
}
