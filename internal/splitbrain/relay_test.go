package main

import (
	"context"
	"net"
	"testing"
	"time"

	etcdpb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/controllerd/controllerd/cluster"
)

// oneSeat is an etcd that knows of nothing but the seat, at revision 20.
type oneSeat struct {
	etcdpb.UnimplementedKVServer
	keys cluster.Keys
}

func (s oneSeat) Txn(_ context.Context, r *etcdpb.TxnRequest) (*etcdpb.TxnResponse, error) {
	resp := &etcdpb.TxnResponse{Header: &etcdpb.ResponseHeader{Revision: 21}, Succeeded: r.GetCompare()[0].GetModRevision() == 20}
	if !resp.Succeeded {
		resp.Responses = []*etcdpb.ResponseOp{{Response: &etcdpb.ResponseOp_ResponseRange{ResponseRange: &etcdpb.RangeResponse{
			Kvs: []*mvccpb.KeyValue{{Key: []byte(s.keys.Controller()), CreateRevision: 20, ModRevision: 20}},
		}}}}
	}
	return resp, nil
}

func (oneSeat) Put(context.Context, *etcdpb.PutRequest) (*etcdpb.PutResponse, error) {
	return nil, status.Error(codes.ResourceExhausted, "no space")
}

// through is a client of an etcd behind a relay that holds back a write.
func through(t *testing.T, l *ledger, h *hold) etcdpb.KVClient {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	etcdpb.RegisterKVServer(server, oneSeat{keys: l.keys})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	r, err := startRelay(listener.Addr().String(), l.txnTaps("a", h))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.close)
	conn, err := grpc.NewClient(r.addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return etcdpb.NewKVClient(conn)
}

// guarded is a transaction that puts a topic under a claim.
func guarded(keys cluster.Keys, claim int64) *etcdpb.TxnRequest {
	return &etcdpb.TxnRequest{
		Compare: []*etcdpb.Compare{{Key: []byte(keys.Controller()), Target: etcdpb.Compare_MOD, TargetUnion: &etcdpb.Compare_ModRevision{ModRevision: claim}}},
		Success: []*etcdpb.RequestOp{{Request: &etcdpb.RequestOp_RequestPut{RequestPut: &etcdpb.PutRequest{Key: []byte(keys.Topic("x"))}}}},
	}
}

// The write arrives and is answered although its sender has given up, and the
// ledger knows what it met.
func TestHeldWrite(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	l, h := newLedger(cluster.KeysOf("test")), newHold()
	kv := through(t, l, h)
	if resp, err := kv.Txn(ctx, guarded(l.keys, 20)); err != nil || !resp.GetSucceeded() {
		t.Fatalf("a write that is not held back: %v %v", resp, err)
	}
	if _, err := kv.Put(ctx, &etcdpb.PutRequest{}); status.Code(err) != codes.ResourceExhausted {
		t.Fatalf("an error passes as %v", err)
	}

	h.arm()
	impatient, giveUp := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		_, err := kv.Txn(impatient, guarded(l.keys, 10))
		ended <- err
	}()
	<-h.caught
	giveUp()
	if err := <-ended; status.Code(err) != codes.Canceled {
		t.Fatalf("the sender that gave up got %v", err)
	}
	if resp, err := kv.Txn(ctx, guarded(l.keys, 20)); err != nil || !resp.GetSucceeded() {
		t.Fatalf("a write behind the one held back: %v %v", resp, err)
	}
	h.letGo()
	if err := l.await(ctx, "the held write's answer", func() bool { return l.heldTxn.answered }); err != nil {
		t.Fatal(err)
	}
	w := l.heldTxn
	if w.applied || w.guard != 10 || len(w.unmet) != 1 || w.unmet[0] != l.keys.Controller() {
		t.Errorf("the held write: %+v", w)
	}
	if first := l.writes[21]; first == nil || first.guard != 20 {
		t.Errorf("the writes that were applied: %+v", l.writes)
	}
}
