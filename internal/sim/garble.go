package sim

import (
	"strings"

	"github.com/controllerd/controllerd/store"
)

// garbled are the keys that are spoiled together, the rarest first.
var garbled = []string{"tombstones", "nodes", "brokers", "topics", "partitions"}

// garble spoils keys of several kinds at once, and restarts brokers and daemons
// one after the other before the keys are repaired.
func (w *World) garble() {
	for _, dir := range garbled {
		kvs := w.etcd.model.List(w.keys.Prefix()+dir+"/", false).KVs
		for range min(len(kvs), w.rng.IntN(3)) {
			if kv := pick(w, kvs...); string(kv.Value) != unreadable {
				w.seen["garbled: "+dir]++
				w.replace(kv, []byte(unreadable), pick(w, w.p.ttl, 3*w.p.session))
			}
		}
	}
	w.roll()
}

// roll restarts most processes, one after the other.
func (w *World) roll() {
	at := w.upTo(w.p.ttl)
	for _, i := range w.rng.Perm(daemons + brokers) {
		if w.chance(0.3) {
			continue
		}
		w.after(at, func() {
			if !w.calm {
				w.disturbed()
				w.restart(i)
			}
		})
		at += w.upTo(w.p.ttl / 2)
	}
}

// restart a daemon or, above those, a broker.
func (w *World) restart(i int) {
	pause := w.upTo(pick(w, w.p.ttl/8, 2*w.p.ttl))
	if i < daemons {
		if d := w.daemons[i]; d != nil && !d.dead {
			d.kill()
		}
		w.later(pause, func() { w.startDaemon(i) })
		return
	}
	i -= daemons
	if b := w.brokers[i]; !b.dead {
		b.kill()
	}
	w.later(pause, func() { w.startBroker(i) })
}

// isGarbled reports whether some key below dir, all of it if empty, is
// unreadable now.
func (w *World) isGarbled(dir string) bool {
	for _, s := range w.spoiled {
		if !strings.HasPrefix(s.kv.Key, w.keys.Prefix()+dir) {
			continue
		}
		if read, err := w.etcd.model.Get(s.kv.Key); err == nil && len(read.KVs) == 1 && string(read.KVs[0].Value) == unreadable {
			return true
		}
	}
	return false
}

// noteGarbled counts what happens while a key is garbled.
func (w *World) noteGarbled(what, dir string) {
	if len(w.spoiled) > 0 && w.isGarbled(dir) {
		w.seen[what]++
	}
}

// noteRepaired counts the keys that were repaired.
func (w *World) noteRepaired(kv store.KV, rev store.Rev) {
	dir, _, _ := strings.Cut(strings.TrimPrefix(kv.Key, w.keys.Prefix()), "/")
	if rev != 0 {
		w.seen["repaired: "+dir]++
	}
}
