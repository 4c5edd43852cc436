package scenarios

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/store"
)

// tape is the history of all keys of the cluster, from a watch of its own.
type tape struct {
	keys cluster.Keys
	end  context.CancelFunc
	done chan struct{}

	mu      sync.Mutex
	image   *cluster.Image
	changes []change
	hand    map[store.Rev]bool // revisions that the test wrote
}

// change is one change of one key, with the time at which it was heard of.
type change struct {
	store.Change
	at time.Time
}

func startTape(t *testing.T, client *clientv3.Client, keys cluster.Keys) *tape {
	ctx, cancel := context.WithCancel(context.Background())
	p := &tape{keys: keys, end: cancel, done: make(chan struct{}), image: cluster.NewImage(keys), hand: map[store.Rev]bool{}}
	watch := client.Watch(ctx, keys.Prefix(), clientv3.WithPrefix(), clientv3.WithRev(1), clientv3.WithCreatedNotify())
	if first := <-watch; first.Err() != nil {
		t.Fatalf("watch: %v", first.Err())
	}
	go func() {
		defer close(p.done)
		for resp := range watch {
			p.record(resp)
		}
	}()
	return p
}

func (p *tape) record(resp clientv3.WatchResponse) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for _, ev := range resp.Events {
		c := store.Change{Deleted: ev.Type == mvccpb.Event_DELETE, KV: store.KV{
			Key: string(ev.Kv.Key), Value: ev.Kv.Value, CreateRev: store.Rev(ev.Kv.CreateRevision),
			ModRev: store.Rev(ev.Kv.ModRevision), Lease: store.LeaseID(ev.Kv.Lease),
		}}
		p.changes = append(p.changes, change{c, now})
		p.image.Apply(store.Batch{Rev: c.KV.ModRev, Changes: []store.Change{c}})
	}
}

func (p *tape) stop() {
	p.end()
	<-p.done
}

// look shows the newest image.
func (p *tape) look(fn func(*cluster.Image)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fn(p.image)
}

// byHand marks a revision as written by the test.
func (p *tape) byHand(rev int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hand[store.Rev(rev)] = true
}

func (p *tape) wasByHand(rev store.Rev) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hand[rev]
}

// rev is the newest revision that touched the cluster.
func (p *tape) rev() (r store.Rev) {
	p.look(func(im *cluster.Image) { r = im.Rev })
	return r
}

// after are the changes above a revision of the keys for which fn is true.
func (p *tape) after(rev store.Rev, fn func(key string) bool) []change {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []change
	for _, c := range p.changes {
		if c.KV.ModRev > rev && fn(c.KV.Key) {
			out = append(out, c)
		}
	}
	return out
}

// leftSeat is when the seat of a claim was deleted or overwritten, and at which
// revision.
func (p *tape) leftSeat(won store.Rev) (at time.Time, rev store.Rev) {
	if c := p.after(won, func(key string) bool { return key == p.keys.Controller() }); len(c) > 0 {
		return c[0].at, c[0].KV.ModRev
	}
	return time.Time{}, 0
}

// describe names the changes, one revision in a line, the newest last.
func (p *tape) describe() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	const most = 100
	var lines []string
	for i, c := range p.changes {
		if i == 0 || c.KV.ModRev != p.changes[i-1].KV.ModRev {
			who := ""
			if p.hand[c.KV.ModRev] {
				who = " by hand"
			}
			lines = append(lines, fmt.Sprintf("%s %d%s:", c.at.Format("15:04:05.000"), c.KV.ModRev, who))
		}
		what := "+"
		if c.Deleted {
			what = "-"
		}
		if last := &lines[len(lines)-1]; len(*last) < 300 {
			*last += " " + what + strings.TrimPrefix(c.KV.Key, p.keys.Prefix())
		}
	}
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}
