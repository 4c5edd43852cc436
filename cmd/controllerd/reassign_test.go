package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/internal/demobroker"
	"github.com/controllerd/controllerd/rpc"
)

// settled waits until nothing is left of reassignments.
func (w *world) settled(t *testing.T) {
	t.Helper()
	w.await(w.daemons[0], "nothing is left of reassignments", func(v rpc.View) bool {
		n := v.Image.MovesOfAll()
		return n.Moving+n.Queued+n.Leaving == 0
	})
}

// newFollowing is a world whose brokers follow: leaders let them into the ISR.
func newFollowing(t *testing.T, daemons, brokers int) *world {
	t.Helper()
	w := newWorld(t, daemons, 0)
	for i := range brokers {
		b, err := demobroker.Start(context.Background(), demobroker.Config{
			CaughtUpAfter: 10 * time.Millisecond,
			Broker: broker.Config{
				ID: cluster.BrokerID(i), NodeUUID: fmt.Sprint("node-", i), Rack: fmt.Sprint("rack-", i), Daemons: w.endpoints(), SessionTTL: 4 * time.Second, Logger: quietly,
			},
			Fault: func(context.Context, broker.PartitionState) error {
				if w.broken[i].Load() {
					return errors.New("it does not")
				}
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			b.Kill()
			_ = b.Wait()
		})
		w.brokers = append(w.brokers, b.Broker)
	}
	for _, d := range w.daemons {
		w.await(d, "all brokers are known", func(v rpc.View) bool { return len(v.Image.Brokers) == brokers })
	}
	return w
}

func TestReassign(t *testing.T) {
	w := newFollowing(t, 1, 4)
	w.cli("topic", "create", "orders", "--assignment", "0,1", "--assignment", "1,2", "--wait").want(t, exitOK)
	partitions := func() string {
		out := ""
		for _, p := range decode[topicDetailView](t, w.cli("topic", "describe", "orders", "-o", "json")).Partitions {
			out += join(p.Replicas) + ";"
		}
		return out
	}
	wantLines(t, w.cli("reassign", "start", "orders/0=2,3", "--dry-run").want(t, exitOK).lines(),
		"would be: 1 moving, 0 queued, 0 done, 0 cancelled, 0 failed", "PARTITION STATE TARGET", "orders/0 moving 2,3")
	if got := partitions(); got != "0,1;1,2;" {
		t.Errorf("a dry run has made %s", got)
	}
	w.cli("reassign", "start", "orders/9=1").want(t, exitFailed)
	v := decode[reassignedView](t, w.cli("reassign", "start", "orders/0=2,3", "--reason", "b0 is to go", "--wait", "-o", "json"))
	if v.Moving != 1 || v.Failed != 0 || join(v.Results[0].Target) != "2,3" {
		t.Errorf("%+v", v)
	}
	if got := partitions(); got != "2,3;1,2;" {
		t.Errorf("replicas %s", got)
	}
	w.settled(t)

	file := filepath.Join(t.TempDir(), "plan.json")
	if err := os.WriteFile(file, []byte(`{"version":1,"partitions":[{"topic":"orders","partition":1,"replicas":[2,1],"log_dirs":["any","any"]}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	wantLines(t, w.cli("reassign", "start", "--file", file, "--max-moves", "7").want(t, exitOK).lines(),
		"0 moving, 0 queued, 1 done, 0 cancelled, 0 failed", "PARTITION STATE TARGET", "orders/1 done 2,1")
	if s := w.setting(t, "max.moves"); s.Value != "7" {
		t.Errorf("%+v", s)
	}
	w.cli("reassign", "replication-factor", "3", "orders", "--wait", "--reason", "TICKET").want(t, exitOK)
	if v := decode[topicDetailView](t, w.cli("topic", "describe", "orders", "-o", "json")); v.Topic.ReplicationFactor != 3 || len(v.Partitions[0].Replicas) != 3 || len(v.Partitions[1].ISR) != 3 {
		t.Errorf("%+v", v)
	}
	w.cli("reassign", "replication-factor", "1", "orders", "--wait").want(t, exitOK)
	if got := partitions(); got != "2;2;" {
		t.Errorf("replicas %s", got)
	}

	w.brokers[0].Kill()
	w.await(w.daemons[0], "broker 0 is gone", func(v rpc.View) bool { return v.Image.Brokers[0] == nil })
	if r := w.cli("reassign", "start", "orders/0=0").want(t, exitFailed); !strings.Contains(r.stderr, "INVALID_REPLICA_ASSIGNMENT: broker 0, to which a replica is to be added, is not live") {
		t.Error(r.stderr)
	}
	w.broken[2].Store(true)
	w.cli("reassign", "start", "orders/0=2,3").want(t, exitOK)
	if r := w.cli("reassign", "status").want(t, exitOK); !strings.Contains(r.stdout, "broker 3 to join the ISR") || !strings.Contains(r.stdout, "1 left, 0 ended") {
		t.Error(r.stdout)
	}
	if l := decode[reassignmentsView](t, w.cli("reassign", "list", "orders/0", "orders/1", "-o", "json")); len(l.Reassignments) != 1 || l.Moving != 1 || l.Adding != 1 || join(l.Reassignments[0].Target) != "2,3" {
		t.Errorf("%+v", l)
	}
	w.cli("reassign", "start", "orders/1=2,3", "--max-moves", "1").want(t, exitOK)
	if l := decode[reassignmentsView](t, w.cli("reassign", "list", "-o", "json")); l.Queued != 1 || l.Reassignments[1].State != "queued" {
		t.Errorf("%+v", l)
	}
	w.cli("reassign", "cancel", "--all", "--dry-run").want(t, exitOK)
	wantLines(t, w.cli("reassign", "cancel", "--all", "--reason", "no").want(t, exitOK).lines(),
		"0 moving, 0 queued, 0 done, 2 cancelled, 0 failed", "PARTITION STATE TARGET", "orders/0 cancelled 2", "orders/1 cancelled 2")
	w.broken[2].Store(false)
	if r := w.cli("reassign", "status", "--watch", "--interval", "50ms").want(t, exitOK); !strings.Contains(r.stdout, "0 left") {
		t.Error(r.stdout)
	}
	w.cli("reassign", "cancel", "--all").want(t, exitOK)
	if r := w.cli("reassign", "cancel", "orders/0").want(t, exitFailed); !strings.Contains(r.stderr, "NO_REASSIGNMENT_IN_PROGRESS") {
		t.Error(r.stderr)
	}
}

func TestReassignUsage(t *testing.T) {
	w := newWorld(t, 1, 1)
	for name, text := range map[string]string{
		"empty": "", "none": `{"version":1,"partitions":[]}`, "version": `{"version":2,"partitions":[{"topic":"a","partition":0,"replicas":[1]}]}`,
		"unknown": `{"version":1,"moves":[]}`, "lacks": `{"version":1,"partitions":[{"topic":"a","partition":0}]}`, "more": `{"version":1,"partitions":[]} {}`,
	} {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		w.cli("reassign", "start", "--file", file).want(t, exitUsage)
	}
	for _, bad := range []string{
		"start", "start orders/0", "start orders=1", "start orders/0=", "start orders/0=x", "start orders/x=1", "start orders/0=1,2:2,1", "start --file /nowhere/at/all",
		"start orders/0=1 --file x", "start orders/0=1 --wait --dry-run", "cancel", "cancel orders", "cancel orders/0 --all", "status --interval 0s",
		"replication-factor 3", "replication-factor x orders", "replication-factor 0 orders", "list orders/x",
	} {
		w.cli(append([]string{"reassign"}, strings.Fields(bad)...)...).want(t, exitUsage)
	}
	for _, bad := range []string{
		"start orders/0=1 orders/0=1", "start none/0=0", "start none/0=0 --max-moves -1", "replication-factor 3 none", "replication-factor 1 none none", "cancel none/0",
	} {
		w.cli(append([]string{"reassign"}, strings.Fields(bad)...)...).want(t, exitFailed)
	}
}
