package main

import (
	"fmt"

	"github.com/controllerd/controllerd/recovery"
	"github.com/controllerd/controllerd/rpc"
)

// recoveredView is what recover has found and done.
type recoveredView struct {
	Needed  bool `json:"needed"` // some broker knows more than etcd holds, or a recovery was not finished
	Written bool `json:"written"`
	DryRun  bool `json:"dry_run"`
	Resumed bool `json:"resumed"` // one that had begun was gone on with

	Epoch           int64 `json:"epoch"` // the controller epoch is raised to it
	EpochInEtcd     int64 `json:"epoch_in_etcd"`
	EpochOfBrokers  int64 `json:"epoch_of_brokers"` // the highest that any remembers
	Revision        int64 `json:"revision"`
	RevisionHeard   int64 `json:"revision_of_brokers"`
	LeaderEpochStep int32 `json:"leader_epoch_step"`
	// LeaderEpochsLost is by how much the leader epoch of a partition had fallen,
	// the most.
	LeaderEpochsLost int32 `json:"leader_epochs_lost"`

	Partitions int `json:"partitions"`
	Ahead      int `json:"ahead"`   // partitions of which a broker remembers a newer state
	Adopted    int `json:"adopted"` // of these, whose leader or ISR was taken from there

	Reassigned    []string             `json:"reassigned"`
	UnknownTopics []string             `json:"unknown_topics"`
	Unreadable    []string             `json:"unreadable"`
	Brokers       []recoveryBrokerView `json:"brokers"`
}

// recoveryBrokerView is what one broker has answered.
type recoveryBrokerView struct {
	ID          *int32 `json:"id"` // null: not known
	Address     string `json:"address"`
	Epoch       int64  `json:"epoch"`
	BrokerEpoch int64  `json:"broker_epoch"`
	Partitions  int    `json:"partitions"`
	Error       string `json:"error"`
}

func recoveredOf(p *recovery.Plan, dry bool, err error) *recoveredView {
	held, rev := p.Held()
	v := &recoveredView{
		Needed: p.Needed, Written: p.Needed && !dry && err == nil, DryRun: dry, Resumed: p.Resumed,
		Epoch: int64(p.Epoch), EpochInEtcd: int64(held), EpochOfBrokers: int64(p.Memory().Epoch()),
		Revision: int64(rev), RevisionHeard: int64(p.Memory().Rev()),
		LeaderEpochStep: p.Step(), LeaderEpochsLost: int32(p.Lost), Partitions: p.Partitions, Ahead: p.Ahead, Adopted: p.Adopted,
		Reassigned: orEmpty(p.Reassigned), UnknownTopics: orEmpty(p.Strangers), Unreadable: orEmpty(p.Unreadable),
		Brokers: []recoveryBrokerView{},
	}
	if !p.Needed {
		v.Epoch = v.EpochInEtcd
	}
	for _, r := range p.Memory().Reports {
		b := recoveryBrokerView{Address: r.Address, Epoch: int64(r.Epoch), BrokerEpoch: int64(r.BrokerEpoch), Partitions: r.Partitions}
		if r.Broker >= 0 {
			b.ID = new(int32(r.Broker))
		}
		if r.Err != nil {
			b.Error = rpc.Words(r.Err)
		}
		v.Brokers = append(v.Brokers, b)
	}
	return v
}

func orEmpty(list []string) []string { return append([]string{}, list...) }

// maxListed bounds how many of one kind a table names.
const maxListed = 20

func (v *recoveredView) table() table {
	t := table{title: []string{v.verdict()}, head: []string{"BROKER", "ADDRESS", "EPOCH", "BROKER EPOCH", "PARTITIONS", "ERROR"}}
	line := func(format string, args ...any) { t.title = append(t.title, fmt.Sprintf(format, args...)) }
	line("controller epoch: etcd holds %d, brokers remember %d", v.EpochInEtcd, v.EpochOfBrokers)
	line("revision: etcd is at %d, brokers have heard of %d", v.Revision, v.RevisionHeard)
	line("partitions: %d, of %d a broker remembers a newer state (leader epochs up to %d higher), %d take leader or ISR from there",
		v.Partitions, v.Ahead, v.LeaderEpochsLost, v.Adopted)
	for _, list := range []struct {
		what  string
		items []string
	}{
		{"brokers know other replicas, those of etcd stay", v.Reassigned},
		{"brokers know a topic that etcd does not hold", v.UnknownTopics},
		{"not raised, because it cannot be read", v.Unreadable},
	} {
		for _, item := range list.items[:min(len(list.items), maxListed)] {
			line("%s: %s", list.what, item)
		}
		if more := len(list.items) - maxListed; more > 0 {
			line("%s: and %d more", list.what, more)
		}
	}
	for _, b := range v.Brokers {
		id := ""
		if b.ID != nil {
			id = str(*b.ID)
		}
		t.rows = append(t.rows, []string{id, b.Address, str(b.Epoch), str(b.BrokerEpoch), str(int32(b.Partitions)), b.Error})
	}
	if t.rows == nil {
		t.head = nil
	}
	return t
}

func (v *recoveredView) verdict() string {
	switch {
	case v.Written && v.Resumed:
		return fmt.Sprintf("recovered, after an attempt that had broken off: the next term is above epoch %d, start the daemons", v.Epoch)
	case v.Written:
		return fmt.Sprintf("recovered: the next term is above epoch %d, start the daemons", v.Epoch)
	case !v.Needed:
		return "nothing to recover: no broker remembers more than etcd holds"
	}
	return fmt.Sprintf("not written: the controller epoch would rise to %d, leader and partition epochs by %d above the highest known", v.Epoch, v.LeaderEpochStep)
}
