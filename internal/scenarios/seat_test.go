package scenarios

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// The seat is overwritten by hand. Whoever sat there has lost it; what was put
// there does not keep the seat taken for ever.
func TestSeatOverwritten(t *testing.T) {
	t.Parallel()
	cases := map[string]func(w *world){
		"same value, same lease": func(w *world) { w.put(w.keys.Controller(), w.value(w.keys.Controller()), clientv3.WithIgnoreLease()) },
		"same value, no lease":   func(w *world) { w.put(w.keys.Controller(), w.value(w.keys.Controller())) },
		"somebody, no lease":     func(w *world) { w.put(w.keys.Controller(), encode(w.t, &pb.ControllerRecord{Id: "x", Nonce: "y"})) },
		"garbage, no lease":      func(w *world) { w.put(w.keys.Controller(), []byte("\xff\xff")) },
		"empty, no lease":        func(w *world) { w.put(w.keys.Controller(), nil) },
	}
	for name, overwrite := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.daemon("a")
			w.active(1, soon)
			w.candidateLease(w.daemon("b").ID, 0)
			w.startBrokers(3)
			w.create("orders", 4, 3)
			for e := cluster.Epoch(1); e <= 3; e++ {
				overwrite(w)
				w.active(e+1, soon)
				if w.epoch() != e+1 {
					t.Fatalf("epoch %d follows %d", w.epoch(), e)
				}
			}
			w.create("payments", 4, 3)
			w.converged(soon)
		})
	}
}

// value is what a key holds in etcd.
func (w *world) value(key string) []byte {
	w.t.Helper()
	resp, err := w.client.Get(w.call(), key)
	if err != nil || len(resp.Kvs) != 1 {
		w.t.Fatalf("read %s: %v, %v", key, resp, err)
	}
	return resp.Kvs[0].Value
}
