package controller

import (
	"fmt"
	"maps"
	"slices"

	"github.com/controllerd/controllerd/rpc"
)

// maxNamed bounds how many things of one kind Problems names.
const maxNamed = 20

// View is what the services may look at.
func (l *Loop) View() rpc.View {
	v := rpc.View{
		Image:       l.im,
		Self:        l.cfg.Election.Self.GetId(),
		Nonce:       l.cfg.Election.Self.GetNonce(),
		ClusterUUID: l.candidate.ClusterUUID(),
		Active:      l.active,
		Healthy:     l.candidate.Problem() == "" && l.refused == nil,
		Version:     l.cfg.Election.Version,
		Problems:    l.problems,
	}
	if l.active {
		v.Claim, v.Pending = l.claim, l.pusher.Pending()
	}
	return v
}

// problems says what is wrong, each in a sentence.
func (l *Loop) problems() []string {
	var out []string
	if p := l.candidate.Problem(); p != "" {
		out = append(out, "not campaigning: "+p)
	}
	if l.refused != nil {
		out = append(out, fmt.Sprintf("etcd takes no writes: %v", l.refused))
	}
	for _, f := range l.im.SortedFaults() {
		out = append(out, fmt.Sprintf("key %s is skipped: %s", f.Key, f.Reason))
	}
	for _, id := range slices.Sorted(maps.Keys(l.im.Candidates)) {
		c := l.im.Candidates[id].Record
		if c.GetId() == l.cfg.Election.Self.GetId() && c.GetNonce() != l.cfg.Election.Self.GetNonce() {
			out = append(out, fmt.Sprintf("another daemon at %s has the same id %s", c.GetEndpoint(), c.GetId()))
		}
	}
	if l.active {
		blocked := l.pusher.Problems()
		for _, id := range slices.Sorted(maps.Keys(blocked)) {
			out = append(out, fmt.Sprintf("broker %d gets no commands: %s", id, blocked[id]))
		}
		for _, s := range l.pusher.Stuck(l.im) {
			out = append(out, "not applied: "+s)
		}
	}
	if n := len(out) - maxNamed; n > 0 {
		out = append(out[:maxNamed], fmt.Sprintf("and %d more", n))
	}
	return out
}
