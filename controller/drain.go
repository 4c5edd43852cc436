package controller

import (
	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/statemachine"
	"github.com/controllerd/controllerd/store"
)

// maxRemaining bounds the partitions that an answer to a drain names.
const maxRemaining = 1000

// maxDrainWait is for how many plans a drain waits until the rules have moved what
// can be moved.
const maxDrainWait = 1000

// draining is a request to drain a broker that is under way.
type draining struct {
	epoch   cluster.BrokerEpoch // of the process that is drained
	changed bool
	waited  int // plans
	// What remains to be led by it, as far as a walk over what it hosts has come.
	place      int32
	remaining  int64
	partitions []*pb.RemainingPartition
}

// controlledShutdown decides a broker's own request: it drains, and is answered
// when what can be moved is moved.
func (d *draft) controlledShutdown(a *asked, r rpc.ControlledShutdown) bool {
	id := cluster.BrokerID(r.GetBrokerId())
	if rej := statemachine.CheckSender(d.l.im, id, cluster.BrokerEpoch(r.GetBrokerEpoch())); rej != nil {
		d.answers[a.id] = rpc.Answer{Err: rpc.Error(rej.Reason, nil, "%s", rej.Message)}
		return true
	}
	if wait, done := d.drain(a, id, true, ""); !done {
		return !wait
	}
	if d.remaining(a.draining, id) {
		d.answers[a.id] = rpc.Answer{Response: &pb.ControlledShutdownResponse{Remaining: a.draining.remaining, Partitions: a.draining.partitions}}
	}
	return true
}

// drainBroker decides an operator's request. The end of a drain is answered at
// once.
func (d *draft) drainBroker(a *asked, r rpc.DrainBroker) bool {
	id := cluster.BrokerID(r.GetBrokerId())
	b := d.l.im.Brokers[id]
	if b == nil || a.draining != nil && b.Epoch != a.draining.epoch {
		d.answers[a.id] = rpc.Answer{Err: rpc.Error(cluster.BrokerIDNotRegistered, nil, "broker %d is not live", id)}
		return true
	}
	if a.draining == nil {
		a.draining = &draining{epoch: b.Epoch, changed: r.GetValidateOnly() && b.ShuttingDown() == r.GetCancel()}
	}
	if !r.GetValidateOnly() {
		if wait, done := d.drain(a, id, !r.GetCancel(), r.GetReason()); !done {
			return !wait
		}
	}
	if !r.GetCancel() && !d.remaining(a.draining, id) {
		return true // more of it with the next plan
	}
	resp := &pb.DrainBrokerResponse{
		BrokerEpoch: int64(b.Epoch), Changed: a.draining.changed, Leaders: int64(d.l.im.Load(id).Leaders),
		Remaining: a.draining.remaining, Partitions: a.draining.partitions,
	}
	d.answers[a.id] = rpc.Answer{Response: resp}
	return true
}

// drain brings a broker's key into the state that is asked for, and waits until
// the rules have done what follows. wait: something else writes the key, the
// request is to be decided again.
func (d *draft) drain(a *asked, id cluster.BrokerID, on bool, reason string) (wait, done bool) {
	l, b := d.l, d.l.im.Brokers[id]
	if a.draining == nil {
		a.draining = &draining{epoch: b.Epoch}
	}
	switch {
	case b.ShuttingDown() != on && d.keyed[id]:
		return true, false
	case b.ShuttingDown() != on:
		d.setDraining(a, b, on, reason)
		return false, false
	case !on:
		return false, true
	}
	a.draining.waited++
	return false, a.draining.waited > maxDrainWait || !l.machine.Reviewing() && l.machine.Agenda() == 0
}

// setDraining writes the state, beside what else is in the broker's key, which
// stays on its lease.
func (d *draft) setDraining(a *asked, b *cluster.Broker, on bool, reason string) {
	record := proto.CloneOf(b.Record)
	record.State, record.DrainReason, record.DrainMs = pb.BrokerState_BROKER_STATE_RUNNING, "", 0
	if on {
		record.State, record.DrainReason, record.DrainMs = pb.BrokerState_BROKER_STATE_DRAINING, reason, d.term.NowMs
	}
	a.draining.changed = true
	key := d.l.im.Keys.Broker(b.ID)
	d.keyed[b.ID] = true
	d.add(&unit{conds: sameBroker(key, b), ops: []store.Op{store.PutKeepLease(key, cluster.Encode(record))}, owners: []int64{a.id}})
}

// remaining goes on to count the partitions with more than one replica that a
// broker leads and nobody else could, and to note the first. It reports whether it
// is done.
func (d *draft) remaining(r *draining, id cluster.BrokerID) bool {
	if load := d.l.im.Load(id); load.Leaders == load.Alone {
		r.remaining, r.partitions = 0, nil
		return true
	}
	if r.place == 0 {
		r.remaining, r.partitions = 0, nil
	}
	var more bool
	r.place, more = d.l.im.HostedFrom(id, r.place, d.l.cfg.Slice, func(t *cluster.Topic, pid cluster.PartitionID, p *cluster.Partition) {
		if p.Leader != id || len(p.Replicas) == 1 || t.Deleting() || d.l.machine.Replaceable(pid, id) {
			return
		}
		if r.remaining++; r.remaining <= maxRemaining {
			r.partitions = append(r.partitions, &pb.RemainingPartition{Topic: t.Name, Partition: pid.Index})
		}
	})
	return !more
}
