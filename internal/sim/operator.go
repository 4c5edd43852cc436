package sim

import (
	"time"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
)

// createTopic asks some daemon for a topic, again with the same request id
// until there is an answer.
func (w *World) createTopic() {
	if w.topics == 4 {
		return
	}
	w.topics++
	t := &pb.NewTopic{
		Name: topicName(w.topics), Partitions: 1 + w.rng.Int32N(12), ReplicationFactor: replication, BlockSize: w.p.blockSize,
	}
	if w.chance(0.05) {
		t.Partitions = 150 // at block size 1 more than a transaction holds
	}
	r := rpc.CreateTopics{CreateTopicsRequest: &pb.CreateTopicsRequest{Topics: []*pb.NewTopic{t}, RequestId: t.GetName()}}
	w.insist(r)
}

// insist asks one daemon after the other until the topic is there.
func (w *World) insist(r rpc.CreateTopics) {
	w.ask(nil, &link{}, w.rng.IntN(daemons), 5*time.Second,
		func(d *simDaemon, c *rpcCall) { d.decide(c, r, true) },
		func(resp any, err error) {
			w.tracef("operator: %v, %v", resp, err)
			if err != nil || resp.(*pb.CreateTopicsResponse).GetResults()[0].GetError() != "" {
				w.after(w.upTo(time.Second), func() { w.insist(r) })
				return
			}
			key := w.keys.Topic(r.GetTopics()[0].GetName())
			if read, err := w.etcd.model.Get(key); err != nil || len(read.KVs) == 0 {
				w.blame(ErrUnstored, "the operator was told that %s exists", key)
			}
		})
}

// resign asks the active to give up.
func (w *World) resign() {
	if d := w.activeDaemon(); d != nil {
		d.submit(rpc.Resign{Reason: "asked to"}, func(rpc.Answer) { w.disturbed() })
	}
}
