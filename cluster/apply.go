package cluster

import (
	"fmt"

	"github.com/controllerd/controllerd/store"
)

// Application takes a batch in, in slices. Until it is at its end the image is
// of no revision: what it shows of topics and partitions means nothing.
type Application struct {
	// Events is what has changed, in a fixed order.
	Events []Event

	im    *Image
	batch store.Batch
	list  *Comparison // with what a list names; nil: it is done
	gone  []string    // keys that a list does not name
	next  int         // of the batch's changes
	ended bool
}

// Begin begins to take in a batch. Changes that the image already holds are
// ignored, so a batch may come twice. The one before must be at its end.
func (im *Image) Begin(b store.Batch) *Application {
	a := &Application{im: im, batch: b}
	if b.Reset {
		if im.applying, im.Horizon = b.Rev, b.Rev; b.Rev < im.Rev {
			im.Rewound = fmt.Sprintf("it is at revision %d, after %d", b.Rev, im.Rev)
		}
		if len(im.keys) > 0 {
			a.list = im.compare(b.Rev, len(b.Changes), func(i int) store.KV { return b.Changes[i].KV })
		}
		a.Events = make([]Event, 0, len(b.Changes)*DefaultBlockSize) // most of a list are blocks
	}
	return a
}

// Apply takes in one batch at once and returns what changed.
func (im *Image) Apply(b store.Batch) []Event {
	a := im.Begin(b)
	for a.Next(1 << 20) {
	}
	return a.Events
}

// recordBytes is about the size of a stored partition.
const recordBytes = 48

// Next takes in about limit more partitions. It reports whether there is more.
func (a *Application) Next(limit int) bool {
	im := a.im
	for limit > 0 && !a.ended {
		switch {
		case a.list != nil:
			if !a.list.Next(limit) {
				a.list, a.gone = nil, a.list.gone
			}
			return true
		case len(im.walks) > 0:
			a.Events, limit = im.walk(a.Events, limit)
		case len(a.gone) > 0:
			a.Events = im.applyChange(store.Change{KV: store.KV{Key: a.gone[0], ModRev: a.batch.Rev}, Deleted: true}, a.Events)
			a.gone = a.gone[1:]
			limit--
		case a.next < len(a.batch.Changes):
			c := a.batch.Changes[a.next]
			a.next++
			// A list and a heal bring changes that are older than what was applied.
			if im.applying = max(c.KV.ModRev, im.Rev); a.batch.Reset {
				im.applying = a.batch.Rev
			}
			a.Events = im.applyChange(c, a.Events)
			limit -= 1 + len(c.KV.Value)/recordBytes
		default:
			im.Rev = max(im.Rev, a.batch.Rev)
			a.ended = true
		}
	}
	return !a.ended
}

// walk is a change of one topic that concerns each of its partitions.
type walk struct {
	topic *Topic
	next  int32 // partition
	hide  bool  // the topic goes; otherwise its partitions appear
	added bool  // it was not visible before
}

// walk goes on with the first walk for at most limit partitions, and returns
// what is left of the limit.
func (im *Image) walk(events []Event, limit int) ([]Event, int) {
	w := &im.walks[0]
	if w.added && w.next == 0 {
		events = im.showTopic(w.topic, events)
		w.added = false
	}
	read := im.reader(w.topic.ID)
	for ; w.next < w.topic.Made() && limit > 0; w.next++ {
		ev := PartitionChanged{Topic: w.topic, ID: PartitionID{w.topic.ID, w.next}, New: read(w.next), Rev: im.applying}
		if w.hide {
			ev.Old, ev.New = ev.New, nil
		}
		if ev.Old != nil || ev.New != nil {
			events = im.changed(events, ev)
		}
		limit--
	}
	if w.next < w.topic.Made() {
		return events, limit
	}
	if w.hide {
		events = im.hideTopic(w.topic, events)
	}
	if im.walks = im.walks[1:]; len(im.walks) == 0 {
		im.walks = nil
	}
	return events, limit
}
