package statemachine

import (
	"math"
	"strings"
	"testing"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// TestCheckEdge takes a legal write and spoils one thing at a time.
func TestCheckEdge(t *testing.T) {
	online := cluster.Partition{
		Replicas: ids(1, 2, 3), Leader: 1, ISR: ids(1, 2), LeaderEpoch: 4, PartitionEpoch: 7, ControllerEpoch: 3, Decided: 50,
	}
	offline := online
	offline.Leader = cluster.NoLeader
	fresh := newPartition(ids(1, 2), View{})
	for _, tt := range []struct {
		name   string
		old    *cluster.Partition
		change func(p *cluster.Partition) // of a successor of old with both epochs raised
		err    string
	}{
		{"elected", &offline, func(p *cluster.Partition) { p.Leader = 2 }, ""},
		{"leader lost", &online, func(p *cluster.Partition) { p.Leader = cluster.NoLeader }, ""},
		{"still offline", &offline, func(*cluster.Partition) {}, ""},
		{"first leader", &fresh, func(p *cluster.Partition) { p.Leader = 1 }, ""},
		{"leader's request", &online, func(p *cluster.Partition) {
			p.ISR, p.LeaderEpoch, p.Cause = ids(1, 2, 3), 4, pb.ChangeCause_CHANGE_CAUSE_ISR_ALTERED
		}, ""},
		{"unclean", &offline, func(p *cluster.Partition) {
			p.Leader, p.ISR, p.Cause = 3, ids(3), pb.ChangeCause_CHANGE_CAUSE_UNCLEAN_ELECTION
		}, ""},
		{"replica added", &online, func(p *cluster.Partition) {
			p.Replicas, p.Adding, p.Cause = ids(1, 2, 3, 4), ids(4), pb.ChangeCause_CHANGE_CAUSE_REASSIGNMENT
		}, ""},
		{"reassignment queued", &online, func(p *cluster.Partition) {
			p.Target, p.LeaderEpoch, p.Cause = ids(4, 5), 4, pb.ChangeCause_CHANGE_CAUSE_REASSIGNMENT
		}, ""},
		{"replica added by nobody", &online, func(p *cluster.Partition) { p.Replicas, p.Adding = ids(1, 2, 3, 4), ids(4) }, "without a reassignment"},
		{"moved at the same leader epoch", &online, func(p *cluster.Partition) {
			p.Replicas, p.Adding, p.LeaderEpoch, p.Cause = ids(1, 2, 3, 4), ids(4), 4, pb.ChangeCause_CHANGE_CAUSE_REASSIGNMENT
		}, "leader epoch"},

		{"never led again", &online, func(p *cluster.Partition) { p.Leader, p.LeaderEpoch = cluster.NoLeader, 0 }, "from Online to New"},
		{"empty ISR", &online, func(p *cluster.Partition) { p.ISR = nil }, "ISR is empty"},
		{"foreign ISR", &online, func(p *cluster.Partition) { p.ISR = ids(1, 9) }, "not within the replicas"},
		{"leader outside", &online, func(p *cluster.Partition) { p.Leader = 3 }, "not in the ISR"},
		{"partition epoch kept", &online, func(p *cluster.Partition) { p.PartitionEpoch = 7 }, "partition epoch"},
		{"partition epoch skipped", &online, func(p *cluster.Partition) { p.PartitionEpoch = 9 }, "partition epoch"},
		{"leader epoch kept", &online, func(p *cluster.Partition) { p.LeaderEpoch = 4 }, "leader epoch"},
		{"leader epoch skipped", &online, func(p *cluster.Partition) { p.LeaderEpoch = 6 }, "leader epoch"},
		{"earlier term", &online, func(p *cluster.Partition) { p.ControllerEpoch = 2 }, "controller epoch"},
		{"no leader epoch left", &online, func(p *cluster.Partition) { p.LeaderEpoch = math.MaxInt32 }, "no epoch is left"},
		{"no partition epoch left", &online, func(p *cluster.Partition) { p.PartitionEpoch = math.MaxInt32 }, "no epoch is left"},
		{"ISR grows", &online, func(p *cluster.Partition) { p.ISR = ids(1, 2, 3) }, "ISR grows"},
		{"request elects", &online, func(p *cluster.Partition) { p.Cause = pb.ChangeCause_CHANGE_CAUSE_ISR_ALTERED }, "leader's request"},
		{"replica anew", &online, func(p *cluster.Partition) { p.Adding = ids(3) }, "broker 3 goes from Offline to New"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := tt.old.Clone()
			p.LeaderEpoch++
			p.PartitionEpoch++
			tt.change(&p)
			wantError(t, CheckEdge(tt.old, &p), tt.err)
		})
	}
}

func TestCheckEdgeOfCreationAndDeletion(t *testing.T) {
	fresh := newPartition(ids(1, 2), View{})
	led := fresh
	led.Leader = 1
	late := led
	late.PartitionEpoch = 1
	lost := led
	lost.Leader, lost.LeaderEpoch = cluster.NoLeader, 1
	wantError(t, CheckEdge(nil, &fresh), "")
	wantError(t, CheckEdge(nil, &led), "")
	wantError(t, CheckEdge(nil, &late), "partition epoch 1")
	wantError(t, CheckEdge(nil, &lost), "from NonExistent to Offline")
	wantError(t, CheckEdge(nil, nil), "from NonExistent to NonExistent")
	wantError(t, CheckEdge(&fresh, nil), "")
	wantError(t, CheckEdge(&led, nil), "")
	wantError(t, CheckEdge(&lost, nil), "")
}

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil && want != "" || err != nil && (want == "" || !strings.Contains(err.Error(), want)) {
		t.Errorf("error %v, want %q", err, want)
	}
}

func TestReplicaStateOf(t *testing.T) {
	w := newWorld(t)
	w.up(1, 2)
	w.drain(2)
	p := &cluster.Partition{Replicas: ids(1, 2, 3, 4), Adding: ids(4), ISR: ids(1)}
	for id, want := range map[cluster.BrokerID]ReplicaState{
		1: ReplicaOnline, 2: ReplicaOffline, 3: ReplicaOffline, 4: ReplicaNew, 5: ReplicaNonExistent,
	} {
		if got := ReplicaStateOf(p, id, ViewOf(w.im)); got != want {
			t.Errorf("replica on %d is %s, want %s", id, got, want)
		}
	}
	if got := ReplicaStateOf(nil, 1, ViewOf(w.im)); got != ReplicaNonExistent {
		t.Errorf("replica of no partition is %s", got)
	}
}
