package scenarios

import (
	"context"
	"fmt"
	"runtime"
	"strings"

	etcdpb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/internal/etcdtest"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// resources are what a term could leave behind.
type resources struct {
	ours       int // goroutines that this module started, but for those of gRPC and etcd
	goroutines int
	leases     int
	watchers   int
	streams    int64 // of commands, at all brokers
}

func (w *world) resources() resources {
	r := resources{goroutines: runtime.NumGoroutine(), leases: len(w.etcd.Leases(w.call())), watchers: w.etcd.Watchers()}
	for _, g := range strings.Split(stacks(), "\n\n") {
		_, creator, _ := strings.Cut(g, "created by ")
		if strings.HasPrefix(creator, "github.com/controllerd/") || strings.HasPrefix(creator, "sync.(*WaitGroup).Go") {
			r.ours++
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.brokers {
		r.streams += b.streams.Load()
	}
	return r
}

func stacks() string {
	buf := make([]byte, 4<<20)
	return string(buf[:runtime.Stack(buf, true)])
}

// backTo waits until nothing more is held than before. Connections take up to
// spare goroutines; calls come and go.
func (w *world) backTo(base resources, spare int) {
	w.t.Helper()
	var now resources
	if !poll(limit, func() bool {
		now = w.resources()
		return now.ours <= base.ours && now.goroutines <= base.goroutines+spare &&
			now.leases <= base.leases && now.watchers <= base.watchers && now.streams <= base.streams
	}) {
		w.t.Fatalf("%+v are left, before there were %+v\n%s", now, base, stacks())
	}
}

// writes reports whether a transaction puts a key that begins with prefix.
func writes(prefix string) func(any) bool {
	return func(msg any) bool {
		txn, ok := msg.(*etcdpb.TxnRequest)
		if !ok {
			return false
		}
		for _, op := range txn.Success {
			if put := op.GetRequestPut(); put != nil && strings.HasPrefix(string(put.Key), prefix) {
				return true
			}
		}
		return false
	}
}

// holdClaims keeps back the transactions with which a daemon would win.
func holdClaims(d *daemon) *etcdtest.Fault {
	return d.faults.Add(etcdtest.Rule{Effect: etcdtest.Hold, Method: "Txn", Match: writes(d.w.keys.ControllerEpoch())})
}

// preload writes topics of one partition each by hand, as a cluster would
// have left them whose brokers are all away.
func (w *world) preload(topics int, brokers int32) {
	w.t.Helper()
	w.preloadNamed(topics, brokers, 3, func(i int) string { return fmt.Sprint("topic-", i) })
}

func (w *world) preloadNamed(topics int, brokers, rf int32, name func(int) string) {
	w.t.Helper()
	const perTxn = 60
	var ops []clientv3.Op
	flush := func() {
		resp, err := w.client.Txn(context.Background()).Then(ops...).Commit()
		if err != nil {
			w.t.Fatalf("preload: %v", err)
		}
		w.tape.byHand(resp.Header.Revision)
		ops = nil
	}
	cfg := &pb.ClusterRecord{Uuid: "11111111-2222-4333-8444-555555555555", Format: 1}
	ops = append(ops, clientv3.OpPut(w.keys.Cluster(), string(encode(w.t, cfg))))
	flush()
	for i := range topics {
		id := cluster.TopicID{1, 2, byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)}
		p := &pb.PartitionRecord{Leader: int32(cluster.NoLeader), Cause: pb.ChangeCause_CHANGE_CAUSE_CREATED}
		for r := range min(brokers, rf) {
			p.Replicas = append(p.Replicas, (int32(i)+r)%brokers)
		}
		p.Isr = p.Replicas
		topic := &pb.TopicRecord{
			TopicId: id[:], PartitionsWanted: 1, PartitionsMade: 1, ReplicationFactor: int32(len(p.Replicas)), BlockSize: cluster.DefaultBlockSize,
		}
		block := w.keys.Block(cluster.BlockID{Topic: id})
		ops = append(ops,
			clientv3.OpPut(block, string(encode(w.t, &pb.PartitionBlock{Partitions: []*pb.PartitionRecord{p}}))),
			clientv3.OpPut(w.keys.Topic(name(i)), string(encode(w.t, topic))))
		if len(ops) == 2*perTxn {
			flush()
		}
	}
	if len(ops) > 0 {
		flush()
	}
}
