package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/rpc"
)

const (
	latencyRounds  = 5
	memberTimeout  = 3 * time.Second
	compactionWait = 2 * time.Second // for etcd to say what it has forgotten
	// youngHistory is how many revisions are no sign that nobody compacts.
	youngHistory = 10_000
	// maxHistory is what --history may be: ten times as much is a revision.
	maxHistory = math.MaxInt64 / 10
)

// etcdFacts are what was seen of etcd.
type etcdFacts struct {
	err       error           // why nothing was
	reads     []time.Duration // linearizable
	commits   []time.Duration // through the log, of transactions that change nothing
	full      bool            // it takes no writes
	revision  int64
	compacted int64 // the revision up to which history is forgotten; 0: none, -1: not known
	members   []memberFacts
}

// memberFacts are what one member says.
type memberFacts struct {
	endpoint string
	err      error
	status   *clientv3.StatusResponse
	skew     *skew // nil: its clock cannot be seen
}

func (f *facts) lookAtEtcd(ctx context.Context) {
	err := f.doctor.etcd.dialed(ctx, func(ctx context.Context, client *clientv3.Client) error {
		if _, err := client.Get(ctx, f.key(), clientv3.WithKeysOnly()); err != nil { // it connects
			return noAnswer{strings.Join(client.Endpoints(), ","), err}
		}
		if f.wants("etcd-latency") {
			f.etcd.err = f.measure(ctx, client)
		}
		if f.wants("etcd-compaction") {
			f.etcd.err = errors.Join(f.etcd.err, f.lookAtHistory(ctx, client))
		}
		f.lookAtMembers(ctx, client)
		return f.etcd.err
	})
	f.etcd.err = err
}

// key is one that nobody writes.
func (f *facts) key() string { return cluster.KeysOf(f.doctor.etcd.cluster).Prefix() + "doctor" }

// measure times reads, and transactions that go the way of a write but whose
// condition is never met.
func (f *facts) measure(ctx context.Context, client *clientv3.Client) error {
	never := clientv3.Compare(clientv3.ModRevision(f.key()), "=", int64(math.MaxInt64))
	for range latencyRounds {
		began := time.Now()
		if _, err := client.Get(ctx, f.key()); err != nil {
			return err
		}
		f.etcd.reads = append(f.etcd.reads, time.Since(began))
		began = time.Now()
		_, err := client.Txn(ctx).If(never).Then(clientv3.OpPut(f.key(), "")).Else(clientv3.OpGet(f.key())).Commit()
		if errors.Is(rpctypes.Error(err), rpctypes.ErrNoSpace) {
			f.etcd.full = true
			continue
		}
		if err != nil {
			return err
		}
		f.etcd.commits = append(f.etcd.commits, time.Since(began))
	}
	return nil
}

// lookAtHistory asks for the first revision: a watch from there is told what
// has been forgotten.
func (f *facts) lookAtHistory(ctx context.Context, client *clientv3.Client) error {
	now, err := client.Get(ctx, f.key(), clientv3.WithKeysOnly())
	if err != nil {
		return err
	}
	f.etcd.revision = now.Header.Revision
	_, err = client.Get(ctx, f.key(), clientv3.WithRev(1), clientv3.WithKeysOnly())
	if !errors.Is(rpctypes.Error(err), rpctypes.ErrCompacted) {
		return err
	}
	f.etcd.compacted = -1
	ctx, cancel := context.WithTimeout(ctx, compactionWait)
	defer cancel()
	for resp := range client.Watch(ctx, f.key(), clientv3.WithRev(1)) {
		if resp.CompactRevision != 0 {
			f.etcd.compacted = resp.CompactRevision
			break
		}
	}
	return nil
}

// lookAtMembers asks the members that etcd names and those that we were told
// of, all at once.
func (f *facts) lookAtMembers(ctx context.Context, client *clientv3.Client) {
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	at := map[string]string{} // as they were told, by address
	for _, e := range client.Endpoints() {
		at[addressOf(e)] = e
	}
	if list, err := client.MemberList(ctx); err == nil {
		for _, m := range list.Members {
			for _, u := range m.ClientURLs[:min(len(m.ClientURLs), 1)] {
				at[addressOf(u)] = cmp.Or(at[addressOf(u)], u)
			}
		}
	}
	f.etcd.members = make([]memberFacts, len(at))
	var all sync.WaitGroup
	for i, address := range slices.Sorted(maps.Keys(at)) {
		all.Go(func() {
			m := &f.etcd.members[i]
			m.endpoint = address
			if m.status, m.err = client.Status(ctx, at[address]); m.err == nil {
				m.skew = f.dateOf(ctx, at[address])
			}
		})
	}
	all.Wait()
}

// addressOf is an endpoint without its scheme.
func addressOf(endpoint string) string {
	if _, rest, found := strings.Cut(endpoint, "://"); found {
		return rest
	}
	return endpoint
}

// dateOf reads the clock of a member off an HTTP answer; nil: there is none.
func (f *facts) dateOf(ctx context.Context, endpoint string) *skew {
	security, err := f.doctor.etcd.tls()
	if err != nil {
		return nil
	}
	if !strings.Contains(endpoint, "://") {
		scheme := "http://"
		if security != nil {
			scheme = "https://"
		}
		endpoint = scheme + endpoint
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint+"/version", nil)
	if err != nil {
		return nil
	}
	transport := &http.Transport{TLSClientConfig: security}
	defer transport.CloseIdleConnections()
	before := f.clock()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil
	}
	after := f.clock()
	_ = resp.Body.Close()
	date, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return nil
	}
	return skewOf(before, after, date, time.Second) // it tells whole seconds
}

// unseen is the finding of whoever has nothing to judge.
func unseen(err error, advice string) finding {
	return finding{Status: bad, Found: rpc.Words(err), Advice: advice}
}

const reachEtcd = "start etcd, or say with --etcd-endpoints where it is"

func judgeMembers(_ *doctor, e *etcdFacts, _ *daemonFacts) finding {
	if e.err != nil {
		return unseen(e.err, reachEtcd)
	}
	var f finding
	var answers []string
	for _, m := range e.members {
		if m.err != nil {
			answers = append(answers, fmt.Sprintf("%s does not answer: %s", m.endpoint, rpc.Words(m.err)))
			f.worse(true, warn, "look after the members that do not answer: etcd needs more than half of them; take those that are gone out of --etcd-endpoints")
			continue
		}
		answers = append(answers, m.endpoint+" answers")
		if len(m.status.Errors) > 0 {
			answers[len(answers)-1] += " with " + strings.Join(m.status.Errors, ", ")
		}
		f.worse(m.status.Leader == 0, bad, "etcd has no leader: look at the connections between its members")
		f.worse(strings.Contains(strings.Join(m.status.Errors, " "), "CORRUPT"), bad, "etcd's data is corrupt: restore the member")
	}
	f.Found = strings.Join(answers, "; ")
	return f
}

func judgeLatency(d *doctor, e *etcdFacts, _ *daemonFacts) finding {
	if e.err != nil {
		return unseen(e.err, reachEtcd)
	}
	worst := slices.Max(append(slices.Clone(e.reads), e.commits...))
	f := finding{Found: "reads " + times(e.reads) + ", writes " + times(e.commits)}
	f.worse(e.full, bad, "etcd takes no writes, see etcd-size")
	const advice = "give etcd a faster disk or network, or less to do: look at etcd_disk_wal_fsync_duration_seconds; a daemon whose etcd is slow loses its seat"
	f.worse(worst >= 5*d.latency, bad, advice)
	f.worse(worst >= d.latency, warn, advice)
	return f
}

// times are the median and the worst of some durations.
func times(all []time.Duration) string {
	if len(all) == 0 {
		return "refused"
	}
	all = slices.Sorted(slices.Values(all))
	return fmt.Sprintf("%v (at worst %v)", all[len(all)/2].Round(10*time.Microsecond), all[len(all)-1].Round(10*time.Microsecond))
}

func judgeSize(_ *doctor, e *etcdFacts, _ *daemonFacts) finding {
	if e.err != nil {
		return unseen(e.err, reachEtcd)
	}
	const advice = "compact etcd, defragment it (etcdctl defrag), disarm its alarm (etcdctl alarm disarm), or raise --quota-backend-bytes; a full etcd takes no writes"
	var f finding
	var sizes []string
	for _, m := range e.members {
		if m.err != nil {
			continue
		}
		size, quota := m.status.DbSize, m.status.DbSizeQuota
		text := fmt.Sprintf("%s %s, %s of it in use", m.endpoint, bytesOf(size), bytesOf(m.status.DbSizeInUse))
		if quota > 0 {
			text += fmt.Sprintf(", quota %s", bytesOf(quota))
			f.worse(size >= quota/10*8, bad, advice)
			f.worse(size >= quota/10*6, warn, advice)
		} else {
			text += ", quota not told by this version"
		}
		if strings.Contains(strings.Join(m.status.Errors, " "), "NOSPACE") {
			text += ", alarm NOSPACE"
			f.worse(true, bad, advice)
		}
		sizes = append(sizes, text)
	}
	f.worse(sizes == nil, bad, reachEtcd)
	f.Found = strings.Join(sizes, "; ")
	return f
}

func bytesOf(n int64) string {
	switch {
	case n >= 1<<30:
		return strconv.FormatFloat(float64(n)/(1<<30), 'f', 1, 64) + " GiB"
	case n >= 1<<20:
		return strconv.FormatFloat(float64(n)/(1<<20), 'f', 1, 64) + " MiB"
	}
	return strconv.FormatFloat(float64(n)/(1<<10), 'f', 0, 64) + " KiB"
}

func judgeCompaction(d *doctor, e *etcdFacts, _ *daemonFacts) finding {
	if e.err != nil {
		return unseen(e.err, reachEtcd)
	}
	const advice = "let etcd compact itself (--auto-compaction-retention): what it keeps costs memory, disk and quota"
	kept := e.revision - max(e.compacted, 0)
	f := finding{Found: fmt.Sprintf("at revision %d, compacted up to %d", e.revision, e.compacted)}
	switch e.compacted {
	case 0:
		f.Found = fmt.Sprintf("at revision %d, never compacted", e.revision)
		f.worse(kept > youngHistory, warn, advice)
	case -1:
		f.Found = fmt.Sprintf("at revision %d, compacted up to who knows where", e.revision)
		return f
	}
	f.worse(kept > 10*d.history, bad, advice)
	f.worse(kept > d.history, warn, advice)
	return f
}
