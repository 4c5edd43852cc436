package main

import (
	"fmt"
	"os"
	"path"
	"strings"

	etcdpb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// txnTap sees one transaction of a daemon and its answer.
type txnTap struct {
	ledger *ledger
	daemon string
	hold   *hold // nil: nothing of this daemon is kept back
	sent   *etcdpb.TxnRequest
	write  *write // nil: it only reads
}

func (l *ledger) txnTaps(daemon string, h *hold) func(string) tap {
	return func(method string) tap {
		if path.Base(method) != "Txn" {
			return nil
		}
		return &txnTap{ledger: l, daemon: daemon, hold: h}
	}
}

func (t *txnTap) request(msg []byte) {
	t.sent = &etcdpb.TxnRequest{}
	decode(msg, t.sent)
	if len(puts(t.sent)) == 0 {
		return
	}
	k := t.ledger.keys
	w := &write{daemon: t.daemon}
	for _, c := range t.sent.GetCompare() {
		if string(c.GetKey()) == k.Controller() {
			w.guard = store.Rev(c.GetModRevision())
		}
	}
	state := false // what only the active writes: topics and partitions
	for _, key := range puts(t.sent) {
		w.mints = w.mints || key == k.ControllerEpoch()
		rest := strings.TrimPrefix(key, k.Prefix())
		state = state || strings.HasPrefix(rest, "topics/") || strings.HasPrefix(rest, "partitions/")
	}
	t.write = w
	if t.hold != nil && state && t.hold.take() {
		t.ledger.update(func() { t.ledger.heldTxn = w })
		t.hold.wait()
	}
}

// puts are the keys that a transaction would put or delete.
func puts(txn *etcdpb.TxnRequest) []string {
	var keys []string
	for _, op := range txn.GetSuccess() {
		switch {
		case op.GetRequestPut() != nil:
			keys = append(keys, string(op.GetRequestPut().GetKey()))
		case op.GetRequestDeleteRange() != nil:
			keys = append(keys, string(op.GetRequestDeleteRange().GetKey()))
		}
	}
	return keys
}

func (t *txnTap) response(msg []byte) {
	if t.write == nil {
		return
	}
	resp := &etcdpb.TxnResponse{}
	decode(msg, resp)
	t.ledger.update(func() {
		w := t.write
		w.answered, w.applied, w.rev = true, resp.GetSucceeded(), store.Rev(resp.GetHeader().GetRevision())
		if w.applied {
			t.ledger.writes[w.rev] = w
			return
		}
		w.unmet = unmet(t.sent, resp)
		t.ledger.failed = append(t.ledger.failed, w)
	})
}

// unmet are the keys whose condition did not hold, as what etcd found in their
// place tells.
func unmet(txn *etcdpb.TxnRequest, resp *etcdpb.TxnResponse) []string {
	create, mod := map[string]int64{}, map[string]int64{}
	for _, r := range resp.GetResponses() {
		for _, kv := range r.GetResponseRange().GetKvs() {
			create[string(kv.GetKey())], mod[string(kv.GetKey())] = kv.GetCreateRevision(), kv.GetModRevision()
		}
	}
	var keys []string
	for _, c := range txn.GetCompare() {
		key := string(c.GetKey())
		if c.GetTarget() == etcdpb.Compare_MOD && c.GetModRevision() != mod[key] ||
			c.GetTarget() == etcdpb.Compare_CREATE && c.GetCreateRevision() != create[key] {
			keys = append(keys, key)
		}
	}
	return keys
}

// commandTap sees one stream of commands and its answers.
type commandTap struct {
	ledger *ledger
	broker int
	hold   *hold // nil: nothing for this broker is kept back
	open   map[int64]*command
}

func (l *ledger) commandTaps(broker int, h *hold) func(string) tap {
	return func(string) tap { return &commandTap{ledger: l, broker: broker, hold: h, open: map[int64]*command{}} }
}

func (t *commandTap) request(msg []byte) {
	req := &pb.CommandsRequest{}
	decode(msg, req)
	cmd := req.GetCommand()
	if cmd == nil {
		return
	}
	c := &command{
		broker: t.broker, sender: cmd.GetStamp().GetControllerId(), epoch: cluster.Epoch(cmd.GetStamp().GetControllerEpoch()),
	}
	for _, topic := range cmd.GetLeaderAndIsr().GetTopics() {
		c.states += len(topic.GetPartitions())
	}
	keep := t.hold != nil && c.states > 0 && t.hold.take()
	t.ledger.update(func() {
		t.open[cmd.GetSequence()] = c
		t.ledger.sent = append(t.ledger.sent, c)
		if keep {
			t.ledger.heldCmd = c
		}
	})
	if keep {
		t.hold.wait()
	}
}

func (t *commandTap) response(msg []byte) {
	resp := &pb.CommandsResponse{}
	decode(msg, resp)
	ack := resp.GetAck()
	if ack == nil {
		return
	}
	t.ledger.update(func() {
		if c := t.open[ack.GetSequence()]; c != nil {
			c.answered, c.refusal = true, ack.GetRefusal()
			delete(t.open, ack.GetSequence())
		}
	})
}

// decode ends the process if a message is not what its method says: nothing
// that the witness tells would be worth anything.
func decode(msg []byte, into proto.Message) {
	if err := proto.Unmarshal(msg, into); err != nil {
		fmt.Fprintf(os.Stderr, "splitbrain: decode %T: %v\n", into, err)
		os.Exit(1)
	}
}
