package controller

import (
	"slices"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/store"
)

// compare looks whether the watch has missed something, in slices, with a list
// that the image has reached, and heals it.
func (l *Loop) compare(out []Action) []Action {
	if l.held != nil && l.im.Rev >= l.held.List.Rev {
		l.comparing = l.im.Compare(l.held.List)
		l.held = nil
	}
	if c := l.comparing; c != nil && !c.Next(l.cfg.Slice) {
		l.missed, l.comparing = c.Missed(), nil
		if len(l.missed) == 0 && l.active {
			l.sweeping, l.vouched = l.vouched, c.Rev()
		}
		out = l.fetchMore(out)
	}
	l.fetched = slices.DeleteFunc(l.fetched, func(f Fetched) bool {
		reached := l.im.Rev >= f.Read.Rev
		if reached {
			l.heal(f)
		}
		return reached
	})
	return out
}

// fetchMore reads the next of the keys that the last comparison has found: one
// read at a time, however many there are.
func (l *Loop) fetchMore(out []Action) []Action {
	n := min(len(l.missed), store.MaxOps)
	out = l.fetch(l.missed[:n], out)
	l.missed = l.missed[n:]
	return out
}

// fetch reads keys that the watch must have missed, at most store.MaxOps.
func (l *Loop) fetch(keys []string, out []Action) []Action {
	if len(keys) == 0 {
		return out
	}
	for _, k := range keys {
		l.healing[k] = true
	}
	return append(out, Fetch{Keys: keys})
}

// heal takes in what a read found, except of keys of which the watch has
// spoken since: it knows better.
func (l *Loop) heal(f Fetched) {
	keys := slices.DeleteFunc(f.Keys, func(k string) bool { return !l.healing[k] })
	read := store.Snapshot{Rev: f.Read.Rev}
	for _, kv := range f.Read.KVs {
		if l.healing[kv.Key] {
			read.KVs = append(read.KVs, kv)
		}
	}
	for _, k := range keys {
		delete(l.healing, k)
	}
	batch := cluster.Heal(keys, read)
	for _, c := range batch.Changes {
		if mod := l.im.ModRev(c.KV.Key); c.Deleted && mod != 0 || !c.Deleted && mod < c.KV.ModRev {
			l.Stats.Healed++
		}
	}
	l.observe(batch) // a transaction's keys at most
}
