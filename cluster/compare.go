package cluster

import (
	"fmt"
	"slices"

	"github.com/controllerd/controllerd/store"
)

// Comparison looks through a complete list of keys, in slices, for what the
// image holds otherwise, and whether the store has gone back (Image.Rewound). It marks in the image what it meets, so that only the
// one begun last can come to its end.
type Comparison struct {
	im   *Image
	rev  store.Rev // of the list
	len  int
	at   func(i int) store.KV
	next int
	mark uint32

	stale []string // the list shows a newer revision
	gone  []string // the list does not name them
}

// keysPerPartition is how many keys are looked at in the time in which one
// partition is taken in.
const keysPerPartition = 8

func (im *Image) compare(rev store.Rev, length int, at func(int) store.KV) *Comparison {
	im.marks++
	return &Comparison{im: im, rev: rev, len: length, at: at, mark: im.marks}
}

// Compare begins to compare the image with a complete list of keys and mod
// revisions at a revision that the image has reached. The image may take in
// batches meanwhile, but no list.
func (im *Image) Compare(list store.Snapshot) *Comparison {
	return im.compare(list.Rev, len(list.KVs), func(i int) store.KV { return list.KVs[i] })
}

// Next goes on for about the time in which limit partitions are taken in, and
// reports whether there is more. At the end the image's keys are walked at once.
func (c *Comparison) Next(limit int) bool {
	for end := min(c.next+limit*keysPerPartition, c.len); c.next < end; c.next++ {
		kv := c.at(c.next)
		has, known := c.im.keys[kv.Key]
		if has.mod < kv.ModRev {
			c.stale = append(c.stale, kv.Key)
		}
		if kv.ModRev < has.mod && has.mod <= c.rev {
			c.im.Rewound = fmt.Sprintf("at revision %d key %s was written last at %d, it had been written at %d", c.rev, kv.Key, kv.ModRev, has.mod)
		}
		if known {
			has.mark = c.mark
			c.im.keys[kv.Key] = has
		}
	}
	if c.next < c.len {
		return true
	}
	for key, has := range c.im.keys {
		if has.mark != c.mark && has.mod <= c.rev {
			c.gone = append(c.gone, key)
		}
	}
	slices.Sort(c.gone)
	return false
}

// Rev is the revision of the list.
func (c *Comparison) Rev() store.Rev { return c.rev }

// Missed are the keys of which the watch has missed something, in order, once
// there is no more. A key that has changed meanwhile may be among them.
func (c *Comparison) Missed() []string {
	missed := slices.Concat(c.stale, c.gone)
	slices.Sort(missed)
	return missed
}

// Differences is what a comparison at once has found.
func (im *Image) Differences(list store.Snapshot) []string {
	c := im.Compare(list)
	for c.Next(1 << 20) {
	}
	return c.Missed()
}
