package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
)

// How long a broker may have confirmed nothing of what it was told, and how
// often that is looked at.
const (
	brokerPatience = 3 * time.Second
	brokerLook     = 200 * time.Millisecond
)

// daemonFacts are what was seen of the daemons.
type daemonFacts struct {
	err        error // why nothing was
	daemons    []daemonFact
	brokersErr error // why nothing was seen of brokers
	brokers    *pb.ListBrokersResponse
	// idle are brokers that confirmed nothing for as long as was waited, though
	// they were told something.
	idle map[int32]bool
}

// daemonFact is what one daemon says.
type daemonFact struct {
	summary *pb.ControllerSummary
	err     error
	answer  *pb.DescribeControllerResponse
	skew    *skew
}

// lookAtDaemons asks each daemon for itself.
func (f *facts) lookAtDaemons(ctx context.Context) {
	resp, err := ask(ctx, &f.client, repeatable, func(ctx context.Context, admin pb.AdminServiceClient) (*pb.ListControllersResponse, error) {
		return admin.ListControllers(ctx, &pb.ListControllersRequest{})
	})
	if err != nil {
		f.daemons.err = err
		return
	}
	f.daemons.daemons = make([]daemonFact, len(resp.GetControllers()))
	var all sync.WaitGroup
	for i, s := range resp.GetControllers() {
		all.Go(func() { f.daemons.daemons[i] = f.lookAtDaemon(ctx, s) })
	}
	all.Wait()
}

func (f *facts) lookAtDaemon(ctx context.Context, s *pb.ControllerSummary) daemonFact {
	d := daemonFact{summary: s}
	one := f.client
	one.servers, one.timeout = []string{s.GetEndpoint()}, min(f.timeout, memberTimeout)
	d.answer, d.err = ask(ctx, &one, repeatable, func(ctx context.Context, admin pb.AdminServiceClient) (*pb.DescribeControllerResponse, error) {
		before := f.clock()
		resp, err := admin.DescribeController(ctx, &pb.DescribeControllerRequest{})
		if err == nil && resp.GetWallMs() != 0 {
			d.skew = skewOf(before, f.clock(), time.UnixMilli(resp.GetWallMs()), time.Millisecond)
		}
		return resp, err
	})
	return d
}

// lookAtBrokers looks for a while at those that something is wrong with: who
// was told something a moment ago is only busy.
func (f *facts) lookAtBrokers(ctx context.Context) {
	look := func() (*pb.ListBrokersResponse, error) {
		return ask(ctx, &f.client, repeatable, func(ctx context.Context, admin pb.AdminServiceClient) (*pb.ListBrokersResponse, error) {
			return admin.ListBrokers(ctx, &pb.ListBrokersRequest{})
		})
	}
	since, points := map[int32]time.Time{}, map[int32]int64{}
	for began := time.Now(); ; {
		resp, err := look()
		now := time.Now()
		if f.daemons.brokers, f.daemons.brokersErr = resp, err; err != nil {
			return
		}
		f.daemons.idle = map[int32]bool{}
		for _, b := range resp.GetBrokers() {
			id, point := b.GetId(), b.GetResumePoint()
			if !b.GetLive() || b.GetProblem() == "" && b.GetUnconfirmed() == 0 && b.ResumePoint != nil {
				delete(since, id)
				continue
			}
			if since[id].IsZero() || b.GetProblem() == "" && point != points[id] {
				since[id], points[id] = now, point
			}
			f.daemons.idle[id] = now.Sub(since[id]) >= brokerPatience
		}
		if len(since) == 0 || now.Sub(began) >= brokerPatience+brokerLook {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(brokerLook):
		}
	}
}

const reachDaemons = "start a daemon, or say with --server where one is"

func judgeDaemons(_ *doctor, _ *etcdFacts, d *daemonFacts) finding {
	if d.err != nil {
		return unseen(d.err, reachDaemons)
	}
	f := finding{}
	var found, problems []string
	active := 0
	for _, x := range d.daemons {
		switch {
		case x.err != nil:
			found = append(found, x.summary.GetId()+" does not answer: "+rpc.Words(x.err))
			f.worse(true, warn, "start the daemons that do not answer, or see whether what they advertise can be reached from here")
			continue
		case x.answer.GetRole() == "active":
			active++
			problems = append(problems, x.answer.GetProblems()...)
			found = append(found, x.answer.GetId()+" is active")
		default:
			found = append(found, x.answer.GetId()+" stands by")
		}
	}
	f.worse(active == 0, bad, "no daemon is active: look at etcd-members and at the daemons' logs; if an election was under way, look again")
	f.worse(active > 1, bad, "two daemons say that they are active: one of them has been replaced and does not know yet; look again")
	f.worse(len(problems) > 0, warn, "controller status names all problems")
	f.worse(len(d.daemons) < 2, warn, "nobody would follow: start a second daemon")
	if len(problems) > 0 {
		found = append(found, fmt.Sprintf("%d problems, the first: %s", len(problems), problems[0]))
	}
	f.Found = strings.Join(found, "; ")
	return f
}

func judgeVersions(_ *doctor, e *etcdFacts, d *daemonFacts) finding {
	if err := cmp.Or(d.err, e.err); err != nil {
		return unseen(err, "see daemons and etcd-members")
	}
	daemons, members := map[string]bool{}, map[string]bool{}
	for _, x := range d.daemons {
		daemons[cmp.Or(x.answer.GetVersion(), x.summary.GetVersion())] = true
	}
	var f finding
	for _, m := range e.members {
		if m.err == nil {
			members[m.status.Version] = true
			f.worse(older(m.status.Version, 3, 4), bad, "update etcd: controllerd needs 3.4 for a watch that says that nothing has happened")
		}
	}
	f.worse(len(daemons) > 1, warn, "bring all daemons to one version: only a rolling update mixes them, and only for as long as it lasts")
	f.worse(len(members) > 1, warn, "bring all members of etcd to one version")
	f.Found = fmt.Sprintf("daemons %s; etcd %s; this program %s", sorted(daemons), sorted(members), buildVersion().Version)
	return f
}

// older reports whether a version of etcd is below one.
func older(version string, major, minor int) bool {
	var a, b int
	if n, err := fmt.Sscanf(version, "%d.%d", &a, &b); n < 2 || err != nil {
		return false
	}
	return a < major || a == major && b < minor
}

func sorted(set map[string]bool) string {
	return strings.Join(slices.Sorted(maps.Keys(set)), ", ")
}

// skew is how far another clock is ahead of this one's: somewhere between two
// bounds, since an answer takes its time.
type skew struct{ least, most time.Duration }

// skewOf compares a clock that was read between two readings of this one, and
// that shows units.
func skewOf(before, after, other time.Time, unit time.Duration) *skew {
	return &skew{other.Sub(after), other.Add(unit).Sub(before)}
}

// sure is how far apart the clocks are at least, with the sign of the skew.
func (s *skew) sure() time.Duration {
	switch {
	case s.least > 0:
		return s.least
	case s.most < 0:
		return s.most
	}
	return 0
}

// How far clocks may be apart.
const (
	skewWarn = time.Second
	skewBad  = time.Minute
)

func judgeClock(_ *doctor, e *etcdFacts, d *daemonFacts) finding {
	if err := errors.Join(d.err, e.err); err != nil {
		return unseen(err, "see daemons and etcd-members")
	}
	var f finding
	var found []string
	look := func(who string, s *skew) {
		if s == nil {
			found = append(found, who+" cannot be seen")
			return
		}
		off := s.sure()
		const advice = "synchronize the clocks (NTP); if all differ by as much, it is that of this machine. Nothing unsafe comes of it, but times in history and logs cannot be compared"
		f.worse(off.Abs() >= skewBad, bad, advice)
		f.worse(off.Abs() >= skewWarn, warn, advice)
		switch {
		case off == 0:
			found = append(found, who+" agrees")
		case off > 0:
			found = append(found, fmt.Sprintf("%s is ahead by %v", who, off.Round(time.Millisecond)))
		default:
			found = append(found, fmt.Sprintf("%s is behind by %v", who, -off.Round(time.Millisecond)))
		}
	}
	for _, x := range d.daemons {
		if x.err == nil {
			look("daemon "+x.answer.GetId(), x.skew)
		}
	}
	for _, m := range e.members {
		if m.err == nil {
			look("etcd "+m.endpoint, m.skew)
		}
	}
	f.worse(len(found) == 0, bad, "see daemons and etcd-members")
	f.Found = cmp.Or(strings.Join(found, "; "), "no clock can be seen")
	return f
}

func judgeLeases(_ *doctor, _ *etcdFacts, d *daemonFacts) finding {
	if d.err != nil {
		return unseen(d.err, reachDaemons)
	}
	var f finding
	var found []string
	for _, x := range d.daemons {
		if x.err != nil {
			continue
		}
		l := x.answer.GetLease()
		if l == nil {
			found = append(found, x.answer.GetId()+" holds no lease")
			f.worse(true, bad, "look at the log of the daemon that holds no lease: it neither leads nor could follow")
			continue
		}
		found = append(found, fmt.Sprintf("%s had %v left at worst, usual is %v of %v", x.answer.GetId(),
			time.Duration(l.GetMarginMs())*time.Millisecond, time.Duration(l.GetUsualMarginMs())*time.Millisecond, time.Duration(l.GetTtlMs())*time.Millisecond))
		const advice = "look at etcd-latency from the daemon's machine and at its load, or raise --lease-ttl: a daemon whose renewals come late gives up the seat"
		f.worse(l.GetMarginMs() <= l.GetUsualMarginMs()/4, bad, advice)
		f.worse(l.GetMarginMs() <= l.GetUsualMarginMs()/2, warn, advice)
	}
	f.worse(found == nil, bad, reachDaemons)
	f.Found = strings.Join(found, "; ")
	return f
}

func judgeBrokers(_ *doctor, _ *etcdFacts, d *daemonFacts) finding {
	if d.brokersErr != nil {
		return unseen(d.brokersErr, reachDaemons)
	}
	if !d.brokers.GetFromActive() {
		return finding{Status: bad, Found: "only the active controller knows, and none answers", Advice: "see daemons"}
	}
	var f finding
	var found []string
	live := 0
	for _, b := range d.brokers.GetBrokers() {
		if !b.GetLive() {
			continue
		}
		live++
		text := b.GetProblem()
		switch {
		case b.GetUnreachable():
			text = strings.TrimSpace("is unreachable " + text)
		case !d.idle[b.GetId()]:
			continue
		case text == "":
			text = fmt.Sprintf("has confirmed nothing for %v, %d states are open", brokerPatience, b.GetUnconfirmed())
		}
		found = append(found, fmt.Sprintf("broker %d %s", b.GetId(), text))
		f.worse(true, bad, "look at the broker and at the way from the active daemon to its control address; until it confirms, it may not do what it should")
	}
	f.Found = strings.Join(append([]string{fmt.Sprintf("%d live of %d", live, len(d.brokers.GetBrokers()))}, found...), "; ")
	return f
}
